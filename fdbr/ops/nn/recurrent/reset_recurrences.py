"""Linear recurrences of units that reset the state before its product, and their transposes.

As in `recurrences`, for networks whose derivative is, with ``'`` for the previous step::

    s[:-1] = h' @ weight[:-1].T + u[:-1]          the inputs of the gates
    x = q * h' + j * s[0] + y                     the state after the reset
    s[-1] = x @ weight[-1].T + u[-1]              the input of the candidate state
    h = f * h' + k[1] * s[1] + k[2] * s[2] + w
"""

from typing import Any, NamedTuple

from fdbr.ops.nn.recurrent.recurrences import previous_or_zeros, state, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import is_given, over_sequences
from fdbr.ops.nn.recurrent.stages import (
    PACKED,
    STATE,
    Reader,
    Stage,
    in_parts,
    run_steps,
    weight_in_parts,
)
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat

__all__ = ["ct_weight", "reset_recurrence", "transposed_reset_recurrence"]

_WEIGHTS = frozenset({"weight"})


class _Results(NamedTuple):
    """The results of a recurrence for each step, and at its end."""

    s: Any
    x: Any
    h: Any
    h_end: Any


class _Pair(NamedTuple):
    """The results of a recurrence with its first state, and of its transpose.

    They determine the derivatives in the coefficients.
    """

    forward: _Results
    first: Any
    transposed: _Results

    def ct_k(self) -> Any:
        _, z, n = parts_of(self.forward.s, 3)
        return concat([self.transposed.h * z, self.transposed.h * n], axis=z.ndim - 1)

    def ct_f(self, steps: Steps) -> Any:
        return self.transposed.h * previous_or_zeros(self.forward.h, self.first, steps)

    def ct_q(self, steps: Steps) -> Any:
        return self.transposed.x * previous_or_zeros(self.forward.h, self.first, steps)

    def ct_j(self) -> Any:
        return self.transposed.x * parts_of(self.forward.s, 3)[0]

    def ct_weight(self, steps: Steps) -> Any:
        return ct_weight(
            self.transposed.s, previous_or_zeros(self.forward.h, self.first, steps), self.forward.x
        )


def ct_weight(transposed: Any, old: Any, reset: Any) -> Any:
    """Compute the cotangent of the weight; its last rows multiply the reset state."""
    size = 2 * old.shape[-1]
    front, last = transposed[..., :size], transposed[..., size:]
    return concat(
        [weight_cotangent(front, old), weight_cotangent(last, reset)], axis=transposed.ndim - 2
    )


def _cotangents(ct: Any) -> _Results:
    return _Results(*[0 if x is None else x for x in ct])


# --- the recurrence -------------------------------------------------------------------


def _vjp(ct: Any, k: Any, f: Any, q: Any, j: Any, weight: Any, steps: Any) -> Any:
    return list(transposed_reset_recurrence(*_cotangents(ct), k, f, q, j, weight, steps=steps))


def _pair(shared: Any, out: Any, h: Any) -> _Pair:
    return _Pair(_Results(*out), h, _Results(*shared))


@over_sequences(
    first=_vjp,
    weights=_WEIGHTS,
    u=lambda shared: shared[0],
    y=lambda shared: shared[1],
    w=lambda shared: shared[2],
    h=lambda shared: shared[3],
    k=lambda shared, out, h: _pair(shared, out, h).ct_k(),
    f=lambda shared, out, h, steps: _pair(shared, out, h).ct_f(steps),
    q=lambda shared, out, h, steps: _pair(shared, out, h).ct_q(steps),
    j=lambda shared, out, h: _pair(shared, out, h).ct_j(),
    weight=lambda shared, out, h, steps: _pair(shared, out, h).ct_weight(steps),
)
def reset_recurrence(
    xp: Any,
    u: Any,
    y: Any,
    w: Any,
    h: Any,
    k: Any,
    f: Any,
    q: Any,
    j: Any,
    weight: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the sums, the reset states and the outputs of all steps, and the last states."""
    size, dtype = f.shape[-1], f.dtype
    sums = xp.empty((*f.shape[:-1], 3 * size), dtype=dtype)
    resets, outs = xp.empty(f.shape, dtype=dtype), xp.empty(f.shape, dtype=dtype)
    h = state(xp, h, (*f.shape[:-2], steps.sizes[0], size), dtype)
    (r, z, n), (k_z, k_n) = in_parts(sums, 3), in_parts(k, 2)
    given: Any = in_parts(u, 3) if is_given(u) else (None, None, None)
    u_r, u_z, u_n = given
    has_u, has_y, has_w = is_given(u), is_given(y), is_given(w)
    first = [*in_parts(q), (h, STATE), *in_parts(j), *([u_r, u_z] if has_u else [])]
    first += in_parts(y) if has_y else []
    second = [*in_parts(f), (h, STATE), k_z, z, k_n, *([u_n] if has_u else [])]
    second += in_parts(w) if has_w else []
    gates, last = weight[..., : 2 * size, :], weight[..., 2 * size :, :]
    stages = [
        Stage(
            *(_reset, (has_u, has_y), first, [r, z, *in_parts(resets)]),
            *(weight_in_parts(gates, 2), (h, STATE)),
        ),
        Stage(
            *(_new, (has_u, has_w), second, [n, *in_parts(outs)]),
            *(weight_in_parts(last, 1), (resets, PACKED)),
        ),
    ]
    run_steps(f, stages, steps, (outs, h))
    return sums, resets, outs, h


def _reset(has_u: bool, has_y: bool, *arrays: Any) -> Any:
    r, z, q, h, j, *more = arrays
    rest = Reader(more)
    r, z = rest.add(has_u, r), rest.add(has_u, z)
    return r, z, rest.add(has_y, q * h + j * r)


def _new(has_u: bool, has_w: bool, *arrays: Any) -> Any:
    n, f, h, k_z, z, k_n, *more = arrays
    rest = Reader(more)
    n = rest.add(has_u, n)
    return n, rest.add(has_w, f * h + k_z * z + k_n * n)


# --- its transpose --------------------------------------------------------------------


def _transposed_vjp(ct: Any, k: Any, f: Any, q: Any, j: Any, weight: Any, steps: Any) -> Any:
    cotangents = _cotangents(ct)
    return [*reset_recurrence(*cotangents, k, f, q, j, weight, steps=steps), cotangents.h_end]


def _transposed_pair(shared: Any, out: Any) -> _Pair:
    *forward, h = shared
    return _Pair(_Results(*forward), h, _Results(*out))


@over_sequences(
    first=_transposed_vjp,
    weights=_WEIGHTS,
    s=lambda shared: shared[0],
    x=lambda shared: shared[1],
    h=lambda shared: shared[2],
    h_end=lambda shared: shared[3],
    k=lambda shared, out: _transposed_pair(shared, out).ct_k(),
    f=lambda shared, out, steps: _transposed_pair(shared, out).ct_f(steps),
    q=lambda shared, out, steps: _transposed_pair(shared, out).ct_q(steps),
    j=lambda shared, out: _transposed_pair(shared, out).ct_j(),
    weight=lambda shared, out, steps: _transposed_pair(shared, out).ct_weight(steps),
)
def transposed_reset_recurrence(
    xp: Any,
    s: Any,
    x: Any,
    h: Any,
    h_end: Any,
    k: Any,
    f: Any,
    q: Any,
    j: Any,
    weight: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the cotangents of ``u``, ``y``, ``w`` and the first states from those of results."""
    size, dtype = f.shape[-1], f.dtype
    sums = xp.empty((*f.shape[:-1], 3 * size), dtype=dtype)
    resets, outs = xp.empty(f.shape, dtype=dtype), xp.empty(f.shape, dtype=dtype)
    ct_h = state(xp, h_end, (*f.shape[:-2], steps.sizes[0], size), dtype)
    (r, z, n), (k_z, k_n) = in_parts(sums, 3), in_parts(k, 2)
    given: Any = in_parts(s, 3) if is_given(s) else (None, None, None)
    s_r, s_z, s_n = given
    has_s, has_h, has_x = is_given(s), is_given(h), is_given(x)
    first = [k_z, k_n, (ct_h, STATE), *(in_parts(h) if has_h else [])]
    first += [s_z, s_n] if has_s else []
    second = [*in_parts(j), *(in_parts(x) if has_x else []), *([s_r] if has_s else [])]
    third = [*in_parts(f), *in_parts(outs), *in_parts(q), *in_parts(resets)]
    transposed = weight.swapaxes(-1, -2)
    gates = weight_in_parts(transposed[..., : 2 * size], 1), (sums[..., : 2 * size], PACKED)
    last = weight_in_parts(transposed[..., 2 * size :], 1), n
    stages = [
        Stage(_ct_output, (has_h, has_s), first, [z, n, *in_parts(outs)]),
        Stage(_ct_reset, (has_x, has_s), second, [r, *in_parts(resets)], *last),
        Stage(_ct_state, (), third, [(ct_h, STATE)], *gates),
    ]
    run_steps(f, stages, steps.reverse_order)
    return sums, resets, outs, ct_h


def _ct_output(has_h: bool, has_s: bool, *arrays: Any) -> Any:
    k_z, k_n, ct_h, *more = arrays
    rest = Reader(more)
    out = rest.add(has_h, ct_h)
    return rest.add(has_s, k_z * out), rest.add(has_s, k_n * out), out


def _ct_reset(has_x: bool, has_s: bool, *arrays: Any) -> Any:
    transposed, j, *more = arrays
    rest = Reader(more)
    transposed = rest.add(has_x, transposed)
    return rest.add(has_s, j * transposed), transposed


def _ct_state(total: Any, f: Any, out: Any, q: Any, transposed: Any) -> Any:
    return total + f * out + q * transposed
