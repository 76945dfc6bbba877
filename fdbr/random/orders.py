"""Random orders, and draws from given elements."""

import math
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import lock
from fdbr.core.tracer import holds, stop_gradient
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.random.arguments import Shape, check_key, drawing, shape_of
from fdbr.random.continuous import gumbel, uniform
from fdbr.random.discrete import randint
from fdbr.random.keys import bits

__all__ = ["choice", "permutation"]


@public("fdbr.random")
@drawing
def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """A random permutation.

    Parameters
    ----------
    key
        A key.
    x
        An integer ``n`` for a permutation of ``0 .. n - 1``, or an array to permute.
    axis
        The axis of the array along which its parts change places.

    Returns
    -------
    array
        int64 of shape ``(n,)``, or an array of ``x``'s shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no array and no integer ≥ 0, or has no such axis.

    >>> import fdbr
    >>> sorted(fdbr.random.permutation(fdbr.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    check_key("permutation", key)
    if getattr(x, "shape", ()) == ():
        return _order(key, integer("fdbr.random.permutation", "x", x, least=0))
    if not -len(x.shape) <= axis < len(x.shape):
        raise ValueError(f"fdbr.random.permutation: x {describe(x)} has no axis {axis}")
    return lock(ops.take(x, _order(key, x.shape[axis]), axis=axis))


@public("fdbr.random")
@drawing
def choice(
    key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0
) -> Any:
    """Elements drawn from an array.

    Parameters
    ----------
    key
        A key.
    a
        An array, or an integer ``n`` for the elements ``0 .. n - 1``.
    shape
        The shape of the draws.
    replace
        Whether one element may be drawn several times.
    p
        The probability of each element, shape ``(n,)``; uniform by default.
    axis
        The axis of ``a`` on which the elements lie.

    Returns
    -------
    array
        Shape ``shape + a.shape`` without ``axis``, the draws in front.

    Raises
    ------
    TypeError, ValueError
        If there are too few elements, or ``p`` is no distribution over them.

    >>> import fdbr
    >>> sorted(fdbr.random.choice(fdbr.random.key(0), 3, (3,), replace=False).tolist())
    [0, 1, 2]
    """
    check_key("choice", key)
    shape = shape_of("choice", shape)
    whole = getattr(a, "shape", ()) == ()
    if not whole and not -len(a.shape) <= axis < len(a.shape):
        raise ValueError(f"fdbr.random.choice: a {describe(a)} has no axis {axis}")
    count = integer("fdbr.random.choice", "a", a) if whole else a.shape[axis]
    draws = math.prod(shape)
    if count < 1 or (not replace and draws > count):
        raise ValueError(
            f"fdbr.random.choice: cannot draw {draws} of {count} elements"
            + ("" if replace else " without replacement")
        )
    if p is None:
        where = randint(key, shape, 0, count) if replace else _order(key, count)[:draws]
    else:
        where = _weighted(key, shape, replace, _distribution(p, count))
    if whole:
        return lock(ops.reshape(where, shape))
    first = ops.moveaxis(a, axis, 0)
    chosen = ops.take(first, ops.reshape(where, -1), axis=0)
    return lock(ops.reshape(chosen, (*shape, *first.shape[1:])))


def _order(key: Any, count: int) -> Any:
    return lock(ops.argsort(bits(key, (count,)), stable=False))


def _weighted(key: Any, shape: tuple[int, ...], replace: bool, p: Any) -> Any:
    if replace:
        steps = ops.cumulative_sum(p)
        return ops.searchsorted(steps, uniform(key, shape) * steps[-1], side="right")
    draws = math.prod(shape)
    enough = ops.sum(p > 0) >= draws
    if not bool(enough):
        raise ValueError(
            f"fdbr.random.choice: cannot draw {draws} elements without replacement, only "
            f"{ops.sum(p > 0)} have a probability above 0"
        )
    with np.errstate(divide="ignore"):
        scores = ops.log(p) + gumbel(key, p.shape)
    return ops.argsort(-scores)[:draws]


def _distribution(p: Any, count: int) -> Any:
    p = ops.asarray(stop_gradient(p), dtype=np.float64)
    if p.shape != (count,) or not (holds(p >= 0) and holds(abs(p.sum() - 1) <= 1e-4)):
        raise ValueError(
            f"fdbr.random.choice: p must hold {count} probabilities that sum to 1, got "
            f"{describe(p)} with sum {p.sum()}"
        )
    return p
