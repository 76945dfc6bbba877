"""Comparison, logic and choice, element by element."""

import operator
from typing import Any

import numpy as np

from fdbr.ops.declare import aligned, dtype_of, elementwise, fit, linear
from fdbr.pytrees.typing import Array, ArrayLike, Mask

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "signbit",
    "where",
]


@linear(
    x=lambda ct, condition, like: fit(where(condition, ct, 0), like),
    y=lambda ct, condition, like: fit(where(condition, 0, ct), like),
    batch=aligned,
    elementwise=True,
)
def where(xp: Any, condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    """``x`` where the condition is true and ``y`` elsewhere, with broadcasting.

    The operand that is not selected gets derivative 0 there.  If the function that computed it
    has an infinite derivative, NaN can still arise, as 0 * inf is NaN.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.where(np.array([True, False]), 1.0, 0.0)
    array([1., 0.])
    """
    return xp.where(condition, x, y)


@elementwise(x=None, y=None, exact=operator.eq)
def equal(xp: Any, x: ArrayLike, y: ArrayLike) -> Any:
    """Whether ``x == y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.equal(1.0, 1.0))
    True
    """
    try:
        return xp.equal(x, y)
    except TypeError:  # a number and a string
        return x == y


@elementwise(x=None, y=None, exact=operator.ne)
def not_equal(xp: Any, x: ArrayLike, y: ArrayLike) -> Any:
    """Whether ``x != y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.not_equal(1.0, 2.0))
    True
    """
    try:
        return xp.not_equal(x, y)
    except TypeError:  # a number and a string
        return x != y


@elementwise(x=None, y=None, exact=operator.lt)
def less(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether ``x < y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.less(1.0, 2.0))
    True
    """
    return xp.less(x, y)


@elementwise(x=None, y=None, exact=operator.le)
def less_equal(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether ``x <= y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.less_equal(1.0, 2.0))
    True
    """
    return xp.less_equal(x, y)


@elementwise(x=None, y=None, exact=operator.gt)
def greater(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether ``x > y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.greater(2.0, 1.0))
    True
    """
    return xp.greater(x, y)


@elementwise(x=None, y=None, exact=operator.ge)
def greater_equal(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether ``x >= y``, element by element.

    >>> from fdbr import ops
    >>> bool(ops.greater_equal(2.0, 1.0))
    True
    """
    return xp.greater_equal(x, y)


def _truths(xp: Any, *operands: Any) -> Any:
    """Compare complex operands to zero: CuPy's logical functions do not accept complex numbers."""
    return [x != 0 if np.result_type(dtype_of(x)).kind == "c" else x for x in operands]


@elementwise(x=None, y=None)
def logical_and(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether both ``x`` and ``y`` are true, element by element.

    >>> from fdbr import ops
    >>> bool(ops.logical_and(True, True))
    True
    """
    return xp.logical_and(*_truths(xp, x, y))


@elementwise(x=None, y=None)
def logical_or(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether at least one of ``x`` and ``y`` is true, element by element.

    >>> from fdbr import ops
    >>> bool(ops.logical_or(True, False))
    True
    """
    return xp.logical_or(*_truths(xp, x, y))


@elementwise(x=None, y=None)
def logical_xor(xp: Any, x: ArrayLike, y: ArrayLike) -> Mask:
    """Whether exactly one of ``x`` and ``y`` is true, element by element.

    >>> from fdbr import ops
    >>> bool(ops.logical_xor(True, False))
    True
    """
    return xp.logical_xor(*_truths(xp, x, y))


@elementwise(x=None)
def logical_not(xp: Any, x: ArrayLike) -> Mask:
    """Whether ``x`` is false, element by element.

    >>> from fdbr import ops
    >>> bool(ops.logical_not(False))
    True
    """
    return xp.logical_not(*_truths(xp, x))


@elementwise(x=None)
def isfinite(xp: Any, x: ArrayLike) -> Mask:
    """Whether ``x`` is finite, element by element.

    >>> from fdbr import ops
    >>> bool(ops.isfinite(0.0))
    True
    """
    return xp.isfinite(x)


@elementwise(x=None)
def isinf(xp: Any, x: ArrayLike) -> Mask:
    """Whether ``x`` is infinite, element by element.

    >>> from fdbr import ops
    >>> bool(ops.isinf(float('inf')))
    True
    """
    return xp.isinf(x)


@elementwise(x=None)
def isnan(xp: Any, x: ArrayLike) -> Mask:
    """Whether ``x`` is not a number, element by element.

    >>> from fdbr import ops
    >>> bool(ops.isnan(float('nan')))
    True
    """
    return xp.isnan(x)


@elementwise(x=None)
def signbit(xp: Any, x: ArrayLike) -> Mask:
    """Whether the sign bit of ``x`` is set, element by element.

    >>> from fdbr import ops
    >>> bool(ops.signbit(-0.0))
    True
    """
    return xp.signbit(x)


@elementwise(x=None, y=None, exact=operator.and_)
def bitwise_and(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The bitwise AND of integers or booleans.

    >>> from fdbr import ops
    >>> int(ops.bitwise_and(6, 3))
    2
    """
    return xp.bitwise_and(x, y)


@elementwise(x=None, y=None, exact=operator.or_)
def bitwise_or(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The bitwise OR of integers or booleans.

    >>> from fdbr import ops
    >>> int(ops.bitwise_or(6, 3))
    7
    """
    return xp.bitwise_or(x, y)


@elementwise(x=None, y=None, exact=operator.xor)
def bitwise_xor(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The bitwise XOR of integers or booleans.

    >>> from fdbr import ops
    >>> int(ops.bitwise_xor(6, 3))
    5
    """
    return xp.bitwise_xor(x, y)


@elementwise(x=None, y=None, exact=operator.lshift)
def bitwise_left_shift(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of the integer ``x`` shifted left by ``y``.

    >>> from fdbr import ops
    >>> int(ops.bitwise_left_shift(3, 2))
    12
    """
    return xp.bitwise_left_shift(x, y)


@elementwise(x=None, y=None, exact=operator.rshift)
def bitwise_right_shift(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The bits of the integer ``x`` shifted right by ``y``.

    >>> from fdbr import ops
    >>> int(ops.bitwise_right_shift(12, 2))
    3
    """
    return xp.bitwise_right_shift(x, y)


@elementwise(x=None)
def bitwise_invert(xp: Any, x: ArrayLike) -> Array:
    """The bitwise NOT of integers or booleans.

    >>> from fdbr import ops
    >>> int(ops.bitwise_invert(5))
    -6
    """
    return xp.bitwise_invert(x)
