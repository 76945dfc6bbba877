"""Linear recurrences over packed sequences, and their transposes.

The derivative of every recurrent network along its sequences is a linear recurrence, whose
coefficients come from what the network computed.  With ``'`` at what the step before gave it is,
in networks with a memory ``c`` besides the output ``h``::

    s = h' @ weight.T + u                         the sums that go into the gates
    c = f * c' + k[0] * s[0] + k[1] * s[1] + ... + v    of all parts of the sums but the last
    h = (a * c + k[-1] * s[-1]) @ hr.T + w        of the last one

and in networks without::

    s = h' @ weight.T + u
    h = f * h' + k[0] * s[0] + k[1] * s[1] + ... + w    of all parts of the sums

Its transpose goes through the steps in the opposite order: that is backpropagation through time.
The derivative of either by the coefficients is made of both, so there are derivatives of any order,
and none of them has single steps as operations.
"""

from typing import Any, NamedTuple

from fdbr.ops.nn.recurrent.fused_steps import transposed_by_kernel
from fdbr.ops.nn.recurrent.sequence_rules import over_sequences, there
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.products import matmul
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import concat, matrix_transpose
from fdbr.pytrees.typing import ArrayLike

__all__ = ["before", "linear_recurrence", "state", "transposed_recurrence", "weight_slope"]

_WEIGHTS = frozenset({"weight", "hr"})


class _Run(NamedTuple):
    """The results of a run, for each step and at its end; ``c`` is 0 where there is no memory."""

    s: Any
    c: Any
    h: Any
    h_end: Any
    c_end: Any


def _run(outs: Any) -> _Run:
    if len(outs) == 5:
        return _Run(*outs)
    s, h, h_end = outs
    return _Run(s, 0, h, h_end, 0)


def _given(ct: Any) -> _Run:
    return _run([0 if x is None else x for x in ct])


def _parts(x: Any, count: int) -> list[Any]:
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


# --- derivatives by the coefficients --------------------------------------------------


class _Both(NamedTuple):
    """A run with its first states, and one of the transpose."""

    way: _Run
    h: Any
    c: Any
    back: _Run

    def by_k(self, hr: Any) -> Any:
        """The derivative by the coefficients of the sums."""
        s, memory = self.way.s, there(self.way.c)
        parts = _parts(s, s.shape[-1] // (self.back.c if memory else self.back.h).shape[-1])
        if not memory:
            return concat([self.back.h * part for part in parts], axis=s.ndim - 1)
        front = [self.back.c * part for part in parts[:-1]]
        return concat([*front, self.shown(hr) * parts[-1]], axis=s.ndim - 1)

    def by_f(self, steps: Steps) -> Any:
        """And by those of what is kept."""
        way, back = self.way, self.back
        if there(way.c):
            return back.c * before(way.c, self.c, steps)
        return back.h * before(way.h, self.h, steps)

    def by_weight(self, steps: Steps) -> Any:
        """And by the weight."""
        return weight_slope(self.back.s, before(self.way.h, self.h, steps))

    def by_hr(self, k: Any, a: Any) -> Any:
        """And by that of the projection."""
        size = a.shape[-1]
        last = k[..., -size:] * self.way.s[..., -size:]
        return weight_slope(self.back.h, a * self.way.c + last)

    def shown(self, hr: Any) -> Any:
        """The cotangent of what is projected."""
        return matmul(self.back.h, hr) if there(hr) else self.back.h


def before(x: Any, first: Any, steps: Steps) -> Any:
    """The result of `previous`, of zeros where there is no first state."""
    first = first if there(first) else zeros_like(x[..., : steps.sizes[0], :])
    return previous(x, first, steps)


def weight_slope(back: Any, x: Any) -> Any:
    """The derivative by the weight in ``x @ weight.T``, in each of which all rows have a share."""
    return matmul(matrix_transpose(back), x)


# --- there ----------------------------------------------------------------------------


def _pull(ct: Any, k: Any, f: Any, a: Any, weight: Any, hr: Any, steps: Any) -> Any:
    return list(transposed_recurrence(*_given(ct), k, f, a, weight, hr, steps=steps))


def _both(shared: Any, out: Any, h: Any, c: Any) -> _Both:
    return _Both(_run(out), h, c, _run(shared))


@over_sequences(
    first=_pull,
    weights=_WEIGHTS,
    u=lambda shared: _run(shared).s,
    v=lambda shared: _run(shared).c,
    w=lambda shared: _run(shared).h,
    h=lambda shared: _run(shared).h_end,
    c=lambda shared: _run(shared).c_end,
    k=lambda shared, out, h, c, hr: _both(shared, out, h, c).by_k(hr),
    f=lambda shared, out, h, c, steps: _both(shared, out, h, c).by_f(steps),
    a=lambda shared, out, h, c, hr: _both(shared, out, h, c).shown(hr) * _run(out).c,
    weight=lambda shared, out, h, c, steps: _both(shared, out, h, c).by_weight(steps),
    hr=lambda shared, out, h, c, k, a: _both(shared, out, h, c).by_hr(k, a),
)
def linear_recurrence(
    xp: Any,
    u: ArrayLike,
    v: ArrayLike,
    w: ArrayLike,
    h: ArrayLike,
    c: ArrayLike,
    k: ArrayLike,
    f: ArrayLike,
    a: ArrayLike,
    weight: ArrayLike,
    hr: ArrayLike,
    *,
    steps: Steps,
) -> Any:
    """The sums, memories and outputs of all steps, and the last states."""
    memory = there(a)
    lead, dtype, width = k.shape[:-2], k.dtype, weight.shape[-1]
    size = a.shape[-1] if memory else width
    parts = k.shape[-1] // size
    sums = xp.empty(k.shape, dtype=dtype)
    outs = xp.empty((*k.shape[:-1], width), dtype=dtype)
    cells = xp.empty((*k.shape[:-1], size), dtype=dtype) if memory else outs
    h = state(xp, h, (*lead, steps.sizes[0], width), dtype)
    c = state(xp, c, (*lead, steps.sizes[0], size), dtype) if memory else h
    for rows, count in steps:
        old, kept = h[..., :count, :], c[..., :count, :]
        s = xp.matmul(old, weight.swapaxes(-1, -2))
        if there(u):
            s += u[..., rows, :]
        sums[..., rows, :] = s
        s *= k[..., rows, :]
        s = s.reshape((*s.shape[:-1], parts, size))
        new = s[..., : parts - memory, :].sum(axis=-2)
        if there(f):
            new += f[..., rows, :] * kept
        if memory:
            if there(v):
                new += v[..., rows, :]
            cells[..., rows, :] = new
            kept[...] = new
            new *= a[..., rows, :]
            new += s[..., -1, :]
            if there(hr):
                new = xp.matmul(new, hr.swapaxes(-1, -2))
        if there(w):
            new += w[..., rows, :]
        outs[..., rows, :] = new
        old[...] = new
    return (sums, cells, outs, h, c) if memory else (sums, outs, h)


def state(xp: Any, x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A state as an array to be written to."""
    return xp.array(x) if there(x) else xp.zeros(shape, dtype=dtype)


# --- and back -------------------------------------------------------------------------


def _push(ct: Any, k: Any, f: Any, a: Any, weight: Any, hr: Any, steps: Any) -> Any:
    """The run of which the cotangents are the sources and the first states; and those."""
    given = _given(ct)
    way = linear_recurrence(*given, k, f, a, weight, hr, steps=steps)
    return [*way, given.h_end, given.c_end]


def _both_back(shared: Any, out: Any) -> _Both:
    *way, h, c = shared
    return _Both(_run(way), h, c, _run(out))


@over_sequences(
    first=_push,
    weights=_WEIGHTS,
    s=lambda shared: _run(shared[:-2]).s,
    c=lambda shared: _run(shared[:-2]).c,
    h=lambda shared: _run(shared[:-2]).h,
    h_end=lambda shared: _run(shared[:-2]).h_end,
    c_end=lambda shared: _run(shared[:-2]).c_end,
    k=lambda shared, out, hr: _both_back(shared, out).by_k(hr),
    f=lambda shared, out, steps: _both_back(shared, out).by_f(steps),
    a=lambda shared, out, hr: _both_back(shared, out).shown(hr) * _run(shared[:-2]).c,
    weight=lambda shared, out, steps: _both_back(shared, out).by_weight(steps),
    hr=lambda shared, out, k, a: _both_back(shared, out).by_hr(k, a),
)
def transposed_recurrence(
    xp: Any,
    s: ArrayLike,
    c: ArrayLike,
    h: ArrayLike,
    h_end: ArrayLike,
    c_end: ArrayLike,
    k: ArrayLike,
    f: ArrayLike,
    a: ArrayLike,
    weight: ArrayLike,
    hr: ArrayLike,
    *,
    steps: Steps,
) -> Any:
    """The cotangents of ``u``, ``v``, ``w`` and the first states, of those of what comes out."""
    memory = there(a)
    lead, dtype, width = k.shape[:-2], k.dtype, weight.shape[-1]
    size = a.shape[-1] if memory else width
    sums = xp.empty(k.shape, dtype=dtype)
    outs = xp.empty((*k.shape[:-1], width), dtype=dtype)
    cells = xp.empty((*k.shape[:-1], size), dtype=dtype) if memory else outs
    later = state(xp, h_end, (*lead, steps.sizes[0], width), dtype)
    kept = state(xp, c_end, (*lead, steps.sizes[0], size), dtype) if memory else later
    if not there(hr) and transposed_by_kernel(
        (s, c, h), k, f, a, weight, later, kept, sums, cells, outs, steps
    ):
        return (sums, cells, outs, later, kept) if memory else (sums, outs, later)
    # With an axis of the parts of the sums.
    split = (*k.shape[:-1], k.shape[-1] // size, size)
    parted, factors = sums.reshape(split), k.reshape(split)
    last = split[-2] - 1
    for rows, count in steps.turned:
        ahead, y = later[..., :count, :], outs[..., rows, :]
        if there(h):
            xp.add(ahead, h[..., rows, :], out=y)
        else:
            y[...] = ahead
        part, factor = parted[..., rows, :, :], factors[..., rows, :, :]
        if memory:
            y = xp.matmul(y, hr) if there(hr) else y
            x, held = cells[..., rows, :], kept[..., :count, :]
            xp.multiply(a[..., rows, :], y, out=x)
            x += held
            if there(c):
                x += c[..., rows, :]
            xp.multiply(factor[..., :last, :], x[..., None, :], out=part[..., :last, :])
            xp.multiply(factor[..., last, :], y, out=part[..., last, :])
            xp.multiply(f[..., rows, :], x, out=held)
        else:
            xp.multiply(factor, y[..., None, :], out=part)
        if there(s):
            sums[..., rows, :] += s[..., rows, :]
        xp.matmul(sums[..., rows, :], weight, out=ahead)
        if there(f) and not memory:
            ahead += f[..., rows, :] * y
    return (sums, cells, outs, later, kept) if memory else (sums, outs, later)
