"""Sums over paths through states that advance by zero, one or two states in each frame.

`log_probabilities_of_states` computes the logarithms of their probabilities.  Its derivative is a
linear recurrence, `path_recurrence`, whose transpose is the same recurrence run backwards, so
derivatives of any order exist, each in one operation for all frames.  The last two axes of the
arrays are those of frames and of states.
"""

from typing import Any

import numpy as np

from fdbr.ops.declare import fit, leading, opaque
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.activations.exponentials import softmax
from fdbr.ops.shape.manipulation import flip, stack
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.typing import Array

__all__ = ["LOG_ZERO", "log_probabilities_of_states"]

LOG_ZERO = -1e30  # replaces log(0), as a finite number keeps NaN out of derivatives
_STEPS = range(3)  # the numbers of states by which a path may advance


def _shift(x: Any, frames: int, states: int, value: float = 0.0) -> Any:
    """Shift an array by numbers of frames and states, filling with a value."""
    around = [(0, 0)] * (x.ndim - 2) + [(frames, 0), (states, 0)]
    return pad(x, around, constant_values=value)[..., : x.shape[-2], : x.shape[-1]]


def _reverse_shares(share: Any, states: int) -> Any:
    """Return the shares of the next frame by the state that paths come from, in reverse order."""
    around = [(0, 0)] * (share.ndim - 2) + [(0, 1), (0, states)]
    return flip(pad(share, around)[..., 1:, states:], axis=(-2, -1))


def _frames_first(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast an array and move the axes of frames and states to the front.

    Each frame, and each state within it, is then contiguous in memory.
    """
    return xp.ascontiguousarray(xp.moveaxis(xp.broadcast_to(x, shape), (-2, -1), (0, 1)))


def _frames_last(xp: Any, x: Any) -> Any:
    return xp.ascontiguousarray(xp.moveaxis(x, (0, 1), (-2, -1)))


# --- the linear recurrence ----------------------------------------------------------


def _recurrence_vjp(ct: Any, zero: Any, one: Any, two: Any) -> Any:
    """Compute the cotangent of the term added in each frame."""
    turned = [_reverse_shares(share, k) for k, share in enumerate((zero, one, two))]
    return flip(path_recurrence(flip(ct, axis=(-2, -1)), *turned), axis=(-2, -1))


def _share_rule(states: int) -> Any:
    def vjp(ct: Any, zero: Any, one: Any, two: Any, out: Any, like: Any) -> Any:
        return fit(_recurrence_vjp(ct, zero, one, two) * _shift(out, 1, states), like)

    def jvp(t: Any, zero: Any, one: Any, two: Any, out: Any) -> Any:
        return path_recurrence(t * _shift(out, 1, states), zero, one, two)

    return vjp, jvp


@opaque(
    x=(
        lambda ct, zero, one, two, like: fit(_recurrence_vjp(ct, zero, one, two), like),
        lambda t, zero, one, two: path_recurrence(t, zero, one, two),
    ),
    zero=_share_rule(0),
    one=_share_rule(1),
    two=_share_rule(2),
    batch=leading(2),
    fresh=True,
    total=True,
)
def path_recurrence(xp: Any, x: Array, zero: Array, one: Array, two: Array) -> Array:
    """Sum in each frame the shares from the same state and the two before it, and add ``x``."""
    shape = np.broadcast_shapes(x.shape, zero.shape, one.shape, two.shape)
    x, zero, one, two = (_frames_first(xp, v, shape) for v in (x, zero, one, two))
    frames, states, *front = x.shape
    out = xp.zeros(
        (frames, states + 2, *front), (x[:1] * zero[:1]).dtype
    )  # with two more states in front
    out[:, 2:] = x
    for t in range(1, frames):
        before, after = out[t - 1], out[t, 2:]
        after += zero[t] * before[2:]
        after += one[t] * before[1:-1]
        after += two[t] * before[:-2]
    return _frames_last(xp, out[:, 2:])


# --- probabilities ------------------------------------------------------------------


def _transition_shares(out: Any, penalty: Any, inside: Any) -> list[Any]:
    """Compute the shares of paths in each state that advanced by zero, one and two states."""
    parts = [_shift(out, 1, k, LOG_ZERO) for k in _STEPS]
    parts[2] = parts[2] + penalty
    shares = softmax(stack(parts, axis=0), axis=0)
    return [where(inside, shares[k], 0.0 if k else 1.0) for k in _STEPS]


@opaque(
    x=(
        lambda ct, penalty, inside, out, like: fit(
            where(inside, _recurrence_vjp(ct, *_transition_shares(out, penalty, inside)), 0.0), like
        ),
        lambda t, penalty, inside, out: path_recurrence(
            where(inside, t, 0.0), *_transition_shares(out, penalty, inside)
        ),
    ),
    batch=leading(2),
    fresh=True,
    total=True,
)
def log_probabilities_of_states(xp: Any, x: Array, penalty: Array, inside: Any) -> Array:
    """Compute the log probabilities that paths are in each state in each frame.

    ``x`` has the log probabilities of the states' symbols; paths begin in the first frame.
    ``penalty`` is added where a path advances by two states.  After the frames that are ``inside``,
    which come first, nothing changes.
    """
    shape = np.broadcast_shapes(x.shape, penalty.shape, inside.shape)
    x, inside = _frames_first(xp, x, shape), _frames_first(xp, inside, (*shape[:-1], 1))
    penalty = _frames_first(xp, penalty, (*shape[:-2], 1, shape[-1]))[0]
    frames, states, *front = x.shape
    out = xp.full((frames, states + 2, *front), LOG_ZERO, (x[:1] + penalty).dtype)
    out[0, 2:] = x[0]
    for t in range(1, frames):
        before = out[t - 1]  # with two more states in front
        stay, one, two = before[2:], before[1:-1], before[:-2] + penalty
        most = xp.maximum(xp.maximum(stay, one), two)
        total = xp.exp(stay - most)
        total += xp.exp(one - most)
        total += xp.exp(two - most)
        most += xp.log(total)
        most += x[t]
        out[t, 2:] = xp.where(inside[t], most, stay)
    return _frames_last(xp, out[:, 2:])
