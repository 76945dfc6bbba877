"""Linear recurrences over packed sequences, and their transposes.

The derivative of every recurrent network along its sequences is a linear recurrence, whose
coefficients are computed from the network's values.  With ``'`` for the previous step, networks
with a memory ``c`` besides the output ``h`` have::

    s = h' @ weight.T + u                               the inputs of the gates, in parts
    c = f * c' + k[0] * s[0] + k[1] * s[1] + ... + v    with all parts but the last
    h = (a * c + k[-1] * s[-1]) @ hr.T + w              with the last part

and networks without memory have::

    s = h' @ weight.T + u
    h = f * h' + k[0] * s[0] + k[1] * s[1] + ... + w    with all parts

The transpose runs through the steps in the opposite order: this is backpropagation through time.
The derivatives of either in the coefficients are products of results of both, so there are
derivatives of any order without an operation for each step.
"""

import functools
import operator
from typing import Any, NamedTuple

from fdbr.ops.nn.recurrent.sequence_rules import is_given, over_sequences
from fdbr.ops.nn.recurrent.stages import (
    PACKED,
    STATE,
    Reader,
    Stage,
    in_parts,
    projection,
    run_steps,
    total,
    weight_in_parts,
)
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.products import matmul
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import concat, matrix_transpose

__all__ = [
    "previous_or_zeros",
    "linear_recurrence",
    "state",
    "transposed_recurrence",
    "weight_cotangent",
]

_WEIGHTS = frozenset({"weight", "hr"})


class _Results(NamedTuple):
    """The results of a recurrence for each step, and at its end; ``c`` is 0 without memory."""

    s: Any
    c: Any
    h: Any
    h_end: Any
    c_end: Any


def _results(outs: Any) -> _Results:
    if len(outs) == 5:
        return _Results(*outs)
    s, h, h_end = outs
    return _Results(s, 0, h, h_end, 0)


def _cotangents(ct: Any) -> _Results:
    return _results([0 if x is None else x for x in ct])


# --- derivatives in the coefficients --------------------------------------------------


class _Pair(NamedTuple):
    """The results of a recurrence with its first states, and those of its transpose."""

    forward: _Results
    h: Any
    c: Any
    transposed: _Results

    def ct_k(self, hr: Any) -> Any:
        """Compute the cotangent of the coefficients of the sums."""
        s, has_memory = self.forward.s, is_given(self.forward.c)
        parts = parts_of(
            s, s.shape[-1] // (self.transposed.c if has_memory else self.transposed.h).shape[-1]
        )
        if not has_memory:
            return concat([self.transposed.h * part for part in parts], axis=s.ndim - 1)
        front = [self.transposed.c * part for part in parts[:-1]]
        return concat([*front, self.projected_cotangent(hr) * parts[-1]], axis=s.ndim - 1)

    def ct_f(self, steps: Steps) -> Any:
        """Compute the cotangent of the coefficients of the previous memory or state."""
        forward, transposed = self.forward, self.transposed
        if is_given(forward.c):
            return transposed.c * previous_or_zeros(forward.c, self.c, steps)
        return transposed.h * previous_or_zeros(forward.h, self.h, steps)

    def ct_weight(self, steps: Steps) -> Any:
        """Compute the cotangent of the weight."""
        return weight_cotangent(self.transposed.s, previous_or_zeros(self.forward.h, self.h, steps))

    def ct_hr(self, k: Any, a: Any) -> Any:
        """Compute the cotangent of the projection weight."""
        size = a.shape[-1]
        last = k[..., -size:] * self.forward.s[..., -size:]
        return weight_cotangent(self.transposed.h, a * self.forward.c + last)

    def projected_cotangent(self, hr: Any) -> Any:
        """Compute the cotangent of the output before its projection."""
        return matmul(self.transposed.h, hr) if is_given(hr) else self.transposed.h


def previous_or_zeros(x: Any, first: Any, steps: Steps) -> Any:
    """Return `previous`, with zeros if there is no first state."""
    first = first if is_given(first) else zeros_like(x[..., : steps.sizes[0], :])
    return previous(x, first, steps)


def weight_cotangent(transposed: Any, x: Any) -> Any:
    """Compute the cotangent of the weight in ``x @ weight.T``, summed over all rows."""
    return matmul(matrix_transpose(transposed), x)


# --- the recurrence -------------------------------------------------------------------


def _vjp(ct: Any, k: Any, f: Any, a: Any, weight: Any, hr: Any, steps: Any) -> Any:
    return list(transposed_recurrence(*_cotangents(ct), k, f, a, weight, hr, steps=steps))


def _pair(shared: Any, out: Any, h: Any, c: Any) -> _Pair:
    return _Pair(_results(out), h, c, _results(shared))


@over_sequences(
    first=_vjp,
    weights=_WEIGHTS,
    u=lambda shared: _results(shared).s,
    v=lambda shared: _results(shared).c,
    w=lambda shared: _results(shared).h,
    h=lambda shared: _results(shared).h_end,
    c=lambda shared: _results(shared).c_end,
    k=lambda shared, out, h, c, hr: _pair(shared, out, h, c).ct_k(hr),
    f=lambda shared, out, h, c, steps: _pair(shared, out, h, c).ct_f(steps),
    a=lambda shared, out, h, c, hr: (
        _pair(shared, out, h, c).projected_cotangent(hr) * _results(out).c
    ),
    weight=lambda shared, out, h, c, steps: _pair(shared, out, h, c).ct_weight(steps),
    hr=lambda shared, out, h, c, k, a: _pair(shared, out, h, c).ct_hr(k, a),
)
def linear_recurrence(
    xp: Any,
    u: Any,
    v: Any,
    w: Any,
    h: Any,
    c: Any,
    k: Any,
    f: Any,
    a: Any,
    weight: Any,
    hr: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the sums, memories and outputs of all steps, and the last states."""
    has_memory = is_given(a)
    lead, dtype, width = k.shape[:-2], k.dtype, weight.shape[-1]
    size = a.shape[-1] if has_memory else width
    parts = k.shape[-1] // size
    sums = xp.empty(k.shape, dtype=dtype)
    outs = xp.empty((*k.shape[:-1], width), dtype=dtype)
    cells = xp.empty((*k.shape[:-1], size), dtype=dtype) if has_memory else outs
    h = state(xp, h, (*lead, steps.sizes[0], width), dtype)
    c = state(xp, c, (*lead, steps.sizes[0], size), dtype) if has_memory else h
    projects = is_given(hr)
    unprojected = xp.empty(cells.shape, dtype=dtype) if projects else outs
    given = is_given(u), is_given(f), is_given(v), is_given(w) and not projects
    read = [*in_parts(k, parts), *([(c, STATE), *in_parts(a)] if has_memory else [(h, STATE)])]
    for x, present, count in zip((u, f, v, w), given, (parts, 1, 1, 1), strict=True):
        read += in_parts(x, count) if present else []
    memory = [*in_parts(cells), (c, STATE)] if has_memory else []
    write = [*in_parts(sums, parts), *memory, *in_parts(unprojected)]
    settings, weights = (parts, has_memory, given), weight_in_parts(weight, parts)
    stages = [Stage(_step, settings, read, write, weights, (h, STATE))]
    if projects:
        stages.append(projection(unprojected, hr, outs, *(in_parts(w) if is_given(w) else [])))
    run_steps(k, stages, steps, (outs, h))
    return (sums, cells, outs, h, c) if has_memory else (sums, outs, h)


def _step(parts: int, has_memory: bool, given: tuple[bool, ...], *arrays: Any) -> Any:
    """Compute a step's sums and output, and with a memory that, twice, before the output."""
    has_u, has_f, has_v, has_w = given
    rest = Reader(arrays)
    sums, k, (old,) = rest.take(parts), rest.take(parts), rest.take(1)
    (a,) = rest.take(1) if has_memory else (None,)
    sums = [rest.add(has_u, s) for s in sums]
    terms = [x * s for x, s in zip(k, sums, strict=True)]
    if has_f:
        terms.insert(0, rest.take(1)[0] * old)
    last = terms.pop() if has_memory else None
    new = functools.reduce(operator.add, terms)
    if has_memory:
        memory = rest.add(has_v, new)
        return *sums, memory, memory, rest.add(has_w, a * memory + last)
    return *sums, rest.add(has_w, new)


def state(xp: Any, x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Copy a state to a writable array, or make zeros."""
    return xp.array(x) if is_given(x) else xp.zeros(shape, dtype=dtype)


# --- its transpose --------------------------------------------------------------------


def _transposed_vjp(ct: Any, k: Any, f: Any, a: Any, weight: Any, hr: Any, steps: Any) -> Any:
    """Run the recurrence with the cotangents as sources and first states; return both."""
    cotangents = _cotangents(ct)
    forward = linear_recurrence(*cotangents, k, f, a, weight, hr, steps=steps)
    return [*forward, cotangents.h_end, cotangents.c_end]


def _transposed_pair(shared: Any, out: Any) -> _Pair:
    *forward, h, c = shared
    return _Pair(_results(forward), h, c, _results(out))


@over_sequences(
    first=_transposed_vjp,
    weights=_WEIGHTS,
    s=lambda shared: _results(shared[:-2]).s,
    c=lambda shared: _results(shared[:-2]).c,
    h=lambda shared: _results(shared[:-2]).h,
    h_end=lambda shared: _results(shared[:-2]).h_end,
    c_end=lambda shared: _results(shared[:-2]).c_end,
    k=lambda shared, out, hr: _transposed_pair(shared, out).ct_k(hr),
    f=lambda shared, out, steps: _transposed_pair(shared, out).ct_f(steps),
    a=lambda shared, out, hr: (
        _transposed_pair(shared, out).projected_cotangent(hr) * _results(shared[:-2]).c
    ),
    weight=lambda shared, out, steps: _transposed_pair(shared, out).ct_weight(steps),
    hr=lambda shared, out, k, a: _transposed_pair(shared, out).ct_hr(k, a),
)
def transposed_recurrence(
    xp: Any,
    s: Any,
    c: Any,
    h: Any,
    h_end: Any,
    c_end: Any,
    k: Any,
    f: Any,
    a: Any,
    weight: Any,
    hr: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the cotangents of ``u``, ``v``, ``w`` and the first states from those of results."""
    has_memory, projects = is_given(a), is_given(hr)
    lead, dtype, width = k.shape[:-2], k.dtype, weight.shape[-1]
    size = a.shape[-1] if has_memory else width
    parts = k.shape[-1] // size
    sums = xp.empty(k.shape, dtype=dtype)
    outs = xp.empty((*k.shape[:-1], width), dtype=dtype)
    cells = xp.empty((*k.shape[:-1], size), dtype=dtype) if has_memory else outs
    ct_h = state(xp, h_end, (*lead, steps.sizes[0], width), dtype)
    ct_c = state(xp, c_end, (*lead, steps.sizes[0], size), dtype) if has_memory else ct_h
    output = [(ct_h, STATE), *(in_parts(h) if is_given(h) else [])]
    read, write = in_parts(k, parts), in_parts(sums, parts)
    if has_memory:
        read += [(ct_c, STATE), *in_parts(a), *in_parts(f)]
        write += [*in_parts(cells), (ct_c, STATE)]
    read += in_parts(c) if is_given(c) else []
    read += in_parts(s, parts) if is_given(s) else []
    settings: tuple[Any, ...] = parts, has_memory, is_given(c), is_given(s)
    if projects:
        product = weight_in_parts(hr.swapaxes(-1, -2), 1), (outs, PACKED)
        stages = [
            Stage(total, (), output, in_parts(outs)),
            Stage(_transposed_step, (*settings, False, False), read, write, *product),
        ]
    else:
        settings = *settings, is_given(h), True
        write += in_parts(outs)
        stages = [Stage(_transposed_step, settings, [*output, *read], write)]
    more = [*in_parts(f), *in_parts(outs)] if is_given(f) and not has_memory else []
    weights = weight_in_parts(weight.swapaxes(-1, -2), 1)
    stages.append(Stage(_old_state, (), more, [(ct_h, STATE)], weights, (sums, PACKED)))
    run_steps(k, stages, steps.reverse_order)
    return (sums, cells, outs, ct_h, ct_c) if has_memory else (sums, outs, ct_h)


def _transposed_step(
    parts: int, has_memory: bool, has_c: bool, has_s: bool, has_h: bool, writes: bool, *arrays: Any
) -> Any:
    """Compute the cotangents of a step's sums, memory, kept memory and output."""
    rest = Reader(arrays)
    (y,) = rest.take(1)
    x = y = rest.add(has_h, y)
    k, memory = rest.take(parts), []
    if has_memory:
        ct_c, a, f = rest.take(3)
        x = rest.add(has_c, a * y + ct_c)
        memory = [x, f * x]
    sums = [rest.add(has_s, factor * x) for factor in k[:-1]] + [rest.add(has_s, k[-1] * y)]
    return *sums, *memory, *([y] if writes else [])


def _old_state(state: Any, *product: Any) -> Any:
    return state + product[0] * product[1] if product else state
