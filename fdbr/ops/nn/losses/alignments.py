"""Paths through states, frame by frame, of which each goes on by none, one or two states.

`reached` has the logarithms of their probabilities.  Its derivative is a linear recurrence,
`carried`, whose transpose is the same backwards: so there are derivatives of any order, each in one
operation of all frames.  Arrays end in the axes of frames and of states.
"""

from typing import Any

import numpy as np

from fdbr.ops.declare import fit, leading, opaque
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.activations.exponentials import softmax
from fdbr.ops.shape.manipulation import flip, stack
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["NEVER", "reached"]

NEVER = -1e30  # the logarithm of a probability of 0: finite, so that no derivative is NaN
_STEPS = range(3)  # by how many states a path goes on


def _moved(x: Any, frames: int, states: int, value: float = 0.0) -> Any:
    """The numbers that stood so many frames and states before."""
    around = [(0, 0)] * (x.ndim - 2) + [(frames, 0), (states, 0)]
    return pad(x, around, constant_values=value)[..., : x.shape[-2], : x.shape[-1]]


def _turned(share: Any, states: int) -> Any:
    """The shares of the frame after, by the state that a path comes from, in the opposite order."""
    around = [(0, 0)] * (share.ndim - 2) + [(0, 1), (0, states)]
    return flip(pad(share, around)[..., 1:, states:], axis=(-2, -1))


def _frames_first(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """An array of some shape with the axes of frames and states first.

    So a frame is one piece of memory, and what is beside a state is, too.
    """
    return xp.ascontiguousarray(xp.moveaxis(xp.broadcast_to(x, shape), (-2, -1), (0, 1)))


def _frames_last(xp: Any, x: Any) -> Any:
    return xp.ascontiguousarray(xp.moveaxis(x, (0, 1), (-2, -1)))


# --- the linear recurrence ----------------------------------------------------------


def _carried_pull(ct: Any, zero: Any, one: Any, two: Any) -> Any:
    """The cotangent of what is added at each frame."""
    turned = [_turned(share, k) for k, share in enumerate((zero, one, two))]
    return flip(carried(flip(ct, axis=(-2, -1)), *turned), axis=(-2, -1))


def _by_share(states: int) -> Any:
    def pull(ct: Any, zero: Any, one: Any, two: Any, out: Any, like: Any) -> Any:
        return fit(_carried_pull(ct, zero, one, two) * _moved(out, 1, states), like)

    def push(t: Any, zero: Any, one: Any, two: Any, out: Any) -> Any:
        return carried(t * _moved(out, 1, states), zero, one, two)

    return pull, push


@opaque(
    x=(
        lambda ct, zero, one, two, like: fit(_carried_pull(ct, zero, one, two), like),
        lambda t, zero, one, two: carried(t, zero, one, two),
    ),
    zero=_by_share(0),
    one=_by_share(1),
    two=_by_share(2),
    batch=leading(2),
    fresh=True,
    total=True,
)
def carried(xp: Any, x: ArrayLike, zero: ArrayLike, one: ArrayLike, two: ArrayLike) -> Array:
    """Each state's share of what was there, and one and two states before, plus what is added."""
    shape = np.broadcast_shapes(x.shape, zero.shape, one.shape, two.shape)
    x, zero, one, two = (_frames_first(xp, v, shape) for v in (x, zero, one, two))
    frames, states, *front = x.shape
    out = xp.zeros((frames, states + 2, *front), (x[:1] * zero[:1]).dtype)  # two before the first
    out[:, 2:] = x
    for t in range(1, frames):
        before, after = out[t - 1], out[t, 2:]
        after += zero[t] * before[2:]
        after += one[t] * before[1:-1]
        after += two[t] * before[:-2]
    return _frames_last(xp, out[:, 2:])


# --- probabilities ------------------------------------------------------------------


def _shares(out: Any, penalty: Any, inside: Any) -> list[Any]:
    """Of the paths in each state, the shares of those that went on by none, one and two."""
    parts = [_moved(out, 1, k, NEVER) for k in _STEPS]
    parts[2] = parts[2] + penalty
    shares = softmax(stack(parts, axis=0), axis=0)
    return [where(inside, shares[k], 0.0 if k else 1.0) for k in _STEPS]


@opaque(
    x=(
        lambda ct, penalty, inside, out, like: fit(
            where(inside, _carried_pull(ct, *_shares(out, penalty, inside)), 0.0), like
        ),
        lambda t, penalty, inside, out: carried(
            where(inside, t, 0.0), *_shares(out, penalty, inside)
        ),
    ),
    batch=leading(2),
    fresh=True,
    total=True,
)
def reached(xp: Any, x: ArrayLike, penalty: ArrayLike, inside: Any) -> Array:
    """The logarithms of the probabilities with which paths are in each state at each frame.

    ``x`` has those of the states' symbols; in the first frame all paths begin.  ``penalty`` is what
    is added where one goes on by two states, and behind the frames that are ``inside``, the first
    of all, nothing changes.
    """
    shape = np.broadcast_shapes(x.shape, penalty.shape, inside.shape)
    x, inside = _frames_first(xp, x, shape), _frames_first(xp, inside, (*shape[:-1], 1))
    penalty = _frames_first(xp, penalty, (*shape[:-2], 1, shape[-1]))[0]
    frames, states, *front = x.shape
    out = xp.full((frames, states + 2, *front), NEVER, (x[:1] + penalty).dtype)
    out[0, 2:] = x[0]
    for t in range(1, frames):
        before = out[t - 1]  # with two states before the first
        stay, one, two = before[2:], before[1:-1], before[:-2] + penalty
        most = xp.maximum(xp.maximum(stay, one), two)
        total = xp.exp(stay - most)
        total += xp.exp(one - most)
        total += xp.exp(two - most)
        most += xp.log(total)
        most += x[t]
        out[t, 2:] = xp.where(inside[t], most, stay)
    return _frames_last(xp, out[:, 2:])
