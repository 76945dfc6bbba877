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
    weight_t = weight.swapaxes(-1, -2)
    front, last = slice(2 * size), slice(2 * size, None)
    for rows, count in steps:
        old, s, x = h[..., :count, :], sums[..., rows, :], resets[..., rows, :]
        s[..., front] = xp.matmul(old, weight_t[..., front])
        if is_given(u):
            s[..., front] += u[..., rows, front]
        x[...] = q[..., rows, :] * old + j[..., rows, :] * s[..., :size]
        if is_given(y):
            x += y[..., rows, :]
        s[..., last] = xp.matmul(x, weight_t[..., last])
        if is_given(u):
            s[..., last] += u[..., rows, last]
        k_z, k_n = parts_of(k[..., rows, :], 2)
        old *= f[..., rows, :]
        old += k_z * s[..., size : 2 * size]
        old += k_n * s[..., last]
        if is_given(w):
            old += w[..., rows, :]
        outs[..., rows, :] = old
    return sums, resets, outs, h


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
    ct_h_next = state(xp, h_end, (*f.shape[:-2], steps.sizes[0], size), dtype)
    front, last = slice(2 * size), slice(2 * size, None)
    for rows, count in steps.reverse_order:
        ct_state, out = ct_h_next[..., :count, :], outs[..., rows, :]
        if is_given(h):
            ct_state += h[..., rows, :]
        out[...] = ct_state
        k_z, k_n = parts_of(k[..., rows, :], 2)
        part, transposed = sums[..., rows, :], resets[..., rows, :]
        xp.multiply(k_n, out, out=part[..., last])
        xp.multiply(k_z, out, out=part[..., size : 2 * size])
        if is_given(s):
            part[..., size:] += s[..., rows, size:]
        xp.matmul(part[..., last], weight[..., last, :], out=transposed)
        if is_given(x):
            transposed += x[..., rows, :]
        xp.multiply(j[..., rows, :], transposed, out=part[..., :size])
        if is_given(s):
            part[..., :size] += s[..., rows, :size]
        ct_state *= f[..., rows, :]
        ct_state += q[..., rows, :] * transposed
        ct_state += xp.matmul(part[..., front], weight[..., front, :])
    return sums, resets, outs, ct_h_next
