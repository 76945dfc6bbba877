"""Linear recurrences of units that reset the state before its product, and their transposes.

As in `recurrences`, for networks whose derivative is, with ``'`` at what the step before gave::

    s[:-1] = h' @ weight[:-1].T + u[:-1]          the sums that go into the gates
    x = q * h' + j * s[0] + y                     the state, reset
    s[-1] = x @ weight[-1].T + u[-1]              and the sums that go into what is new
    h = f * h' + k[1] * s[1] + k[2] * s[2] + w
"""

from typing import Any, NamedTuple

from fdbr.ops.nn.recurrent.recurrences import before, state, weight_slope
from fdbr.ops.nn.recurrent.sequence_rules import over_sequences, there
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat
from fdbr.pytrees.typing import ArrayLike

__all__ = ["by_weight", "reset_recurrence", "transposed_reset_recurrence"]

_WEIGHTS = frozenset({"weight"})


class _Run(NamedTuple):
    """The results of a run for each step, and at its end."""

    s: Any
    x: Any
    h: Any
    h_end: Any


class _Both(NamedTuple):
    """A run with its first state, and one of the transpose: for derivatives by coefficients."""

    way: _Run
    first: Any
    back: _Run

    def by_k(self) -> Any:
        _, z, n = parts_of(self.way.s, 3)
        return concat([self.back.h * z, self.back.h * n], axis=z.ndim - 1)

    def by_f(self, steps: Steps) -> Any:
        return self.back.h * before(self.way.h, self.first, steps)

    def by_q(self, steps: Steps) -> Any:
        return self.back.x * before(self.way.h, self.first, steps)

    def by_j(self) -> Any:
        return self.back.x * parts_of(self.way.s, 3)[0]

    def by_weight(self, steps: Steps) -> Any:
        return by_weight(self.back.s, before(self.way.h, self.first, steps), self.way.x)


def by_weight(back: Any, old: Any, reset: Any) -> Any:
    """The derivative by the weight: its first rows see the state, the others what is left of it."""
    size = 2 * old.shape[-1]
    front, last = back[..., :size], back[..., size:]
    return concat([weight_slope(front, old), weight_slope(last, reset)], axis=back.ndim - 2)


def _given(ct: Any) -> _Run:
    return _Run(*[0 if x is None else x for x in ct])


# --- there ----------------------------------------------------------------------------


def _pull(ct: Any, k: Any, f: Any, q: Any, j: Any, weight: Any, steps: Any) -> Any:
    return list(transposed_reset_recurrence(*_given(ct), k, f, q, j, weight, steps=steps))


def _both(shared: Any, out: Any, h: Any) -> _Both:
    return _Both(_Run(*out), h, _Run(*shared))


@over_sequences(
    first=_pull,
    weights=_WEIGHTS,
    u=lambda shared: shared[0],
    y=lambda shared: shared[1],
    w=lambda shared: shared[2],
    h=lambda shared: shared[3],
    k=lambda shared, out, h: _both(shared, out, h).by_k(),
    f=lambda shared, out, h, steps: _both(shared, out, h).by_f(steps),
    q=lambda shared, out, h, steps: _both(shared, out, h).by_q(steps),
    j=lambda shared, out, h: _both(shared, out, h).by_j(),
    weight=lambda shared, out, h, steps: _both(shared, out, h).by_weight(steps),
)
def reset_recurrence(
    xp: Any,
    u: ArrayLike,
    y: ArrayLike,
    w: ArrayLike,
    h: ArrayLike,
    k: ArrayLike,
    f: ArrayLike,
    q: ArrayLike,
    j: ArrayLike,
    weight: ArrayLike,
    *,
    steps: Steps,
) -> Any:
    """The sums, the reset states and the outputs of all steps, and the last states."""
    size, dtype = f.shape[-1], f.dtype
    sums = xp.empty((*f.shape[:-1], 3 * size), dtype=dtype)
    resets, outs = xp.empty(f.shape, dtype=dtype), xp.empty(f.shape, dtype=dtype)
    h = state(xp, h, (*f.shape[:-2], steps.sizes[0], size), dtype)
    turned = weight.swapaxes(-1, -2)
    front, last = slice(2 * size), slice(2 * size, None)
    for rows, count in steps:
        old, s, x = h[..., :count, :], sums[..., rows, :], resets[..., rows, :]
        s[..., front] = xp.matmul(old, turned[..., front])
        if there(u):
            s[..., front] += u[..., rows, front]
        x[...] = q[..., rows, :] * old + j[..., rows, :] * s[..., :size]
        if there(y):
            x += y[..., rows, :]
        s[..., last] = xp.matmul(x, turned[..., last])
        if there(u):
            s[..., last] += u[..., rows, last]
        by_z, by_n = parts_of(k[..., rows, :], 2)
        old *= f[..., rows, :]
        old += by_z * s[..., size : 2 * size]
        old += by_n * s[..., last]
        if there(w):
            old += w[..., rows, :]
        outs[..., rows, :] = old
    return sums, resets, outs, h


# --- and back -------------------------------------------------------------------------


def _push(ct: Any, k: Any, f: Any, q: Any, j: Any, weight: Any, steps: Any) -> Any:
    given = _given(ct)
    return [*reset_recurrence(*given, k, f, q, j, weight, steps=steps), given.h_end]


def _both_back(shared: Any, out: Any) -> _Both:
    *way, h = shared
    return _Both(_Run(*way), h, _Run(*out))


@over_sequences(
    first=_push,
    weights=_WEIGHTS,
    s=lambda shared: shared[0],
    x=lambda shared: shared[1],
    h=lambda shared: shared[2],
    h_end=lambda shared: shared[3],
    k=lambda shared, out: _both_back(shared, out).by_k(),
    f=lambda shared, out, steps: _both_back(shared, out).by_f(steps),
    q=lambda shared, out, steps: _both_back(shared, out).by_q(steps),
    j=lambda shared, out: _both_back(shared, out).by_j(),
    weight=lambda shared, out, steps: _both_back(shared, out).by_weight(steps),
)
def transposed_reset_recurrence(
    xp: Any,
    s: ArrayLike,
    x: ArrayLike,
    h: ArrayLike,
    h_end: ArrayLike,
    k: ArrayLike,
    f: ArrayLike,
    q: ArrayLike,
    j: ArrayLike,
    weight: ArrayLike,
    *,
    steps: Steps,
) -> Any:
    """The cotangents of ``u``, ``y``, ``w`` and the first states, of those of what comes out."""
    size, dtype = f.shape[-1], f.dtype
    sums = xp.empty((*f.shape[:-1], 3 * size), dtype=dtype)
    resets, outs = xp.empty(f.shape, dtype=dtype), xp.empty(f.shape, dtype=dtype)
    later = state(xp, h_end, (*f.shape[:-2], steps.sizes[0], size), dtype)
    front, last = slice(2 * size), slice(2 * size, None)
    for rows, count in steps.turned:
        ahead, out = later[..., :count, :], outs[..., rows, :]
        if there(h):
            ahead += h[..., rows, :]
        out[...] = ahead
        by_z, by_n = parts_of(k[..., rows, :], 2)
        part, back = sums[..., rows, :], resets[..., rows, :]
        xp.multiply(by_n, out, out=part[..., last])
        xp.multiply(by_z, out, out=part[..., size : 2 * size])
        if there(s):
            part[..., size:] += s[..., rows, size:]
        xp.matmul(part[..., last], weight[..., last, :], out=back)
        if there(x):
            back += x[..., rows, :]
        xp.multiply(j[..., rows, :], back, out=part[..., :size])
        if there(s):
            part[..., :size] += s[..., rows, :size]
        ahead *= f[..., rows, :]
        ahead += q[..., rows, :] * back
        ahead += xp.matmul(part[..., front], weight[..., front, :])
    return sums, resets, outs, later
