"""Derivatives of scaled Bessel functions far out, where recurrences cancel.

``exp(-x) * iv(v, x)``, ``exp(x) * kv(v, x)`` and ``exp(-1j * x) * hankel1(v, x)`` fall as
``x**-0.5`` does, and their derivatives as ``x**-1.5``; as differences of neighbours in order they
lose a digit for each in ``x``.  Hankel's expansion (https://dlmf.nist.gov/10.40 and 10.17) has all
their digits there, and so have its derivatives.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise.arithmetic import abs, remainder, round, sign
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import imag, real
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.elementwise.trigonometric import sin
from fdbr.ops.special.library import unknown
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["FALLING", "GROWING", "hankel_derivative", "derivative_far_out"]

FALLING = 1, math.sqrt(math.pi / 2)  # signs and scale: those of kv
GROWING = -1, 1 / math.sqrt(2 * math.pi)  # and of iv


def _turning(v: Array, way: int) -> tuple[Any, Any]:
    """Signs and scale of Hankel's functions: of the first kind ``way`` is 1, of the second -1."""
    return 1j * way, math.sqrt(2 / math.pi) * exp(-1j * way * (v * (math.pi / 2) + math.pi / 4))


_FAR = 30.0
_TERMS = 18


@elementwise(
    v=unknown("ive", "v"),
    x=lambda v, x, signs, order: hankel_expansion(v, x, signs=signs, order=order + 1),
)
def hankel_expansion(xp: Any, v: ArrayLike, x: ArrayLike, *, signs: complex, order: int) -> Array:
    """The derivative of some order of Hankel's expansion, from ``30 + v**2`` on."""
    total: Any = math.prod(-0.5 - i for i in range(order))
    term, square = total, 4.0 * v * v
    for k in range(1, _TERMS):
        ratio = signs * (k - 0.5 + order) / ((k - 0.5) * 8 * k)
        term = term * ((square - (2 * k - 1) ** 2) * ratio / x)
        total = total + term
    return total * xp.power(x, -0.5 - order)


def derivative_far_out(
    kind: tuple[Any, Any], v: Any, x: Array, near: Callable[[Any], Any], parity: int = 0
) -> Any:
    """The derivative of a scaled function of order ``v``: ``near(x)``, but for large ``x``.

    A function that is even or odd has the ``parity`` 1 or -1.  Others are those of positive
    numbers, and of complex ones to the right of 0.
    """
    size = abs(x) if parity else x
    bound = _FAR + v * v
    far = (abs(x) > bound) & (real(x) >= 0) if is_complex(x) else size > bound
    if type(far) is np.ndarray and not far.any():
        return near(x)
    signs, scale = kind
    slope = scale * hankel_expansion(v, where(far, size, bound), signs=signs, order=1)
    slope = slope * sign(x) if parity == 1 else slope
    return where(far, slope, near(where(far, 1.0, x)))


def hankel_derivative(way: int, v: Array, z: Array, near: Callable[[Any], Any]) -> Any:
    """The derivative of ``exp(-1j * way * z)`` times Hankel's function: ``near(z)``, but far out.

    To the left of 0 by those of ``-z`` (https://dlmf.nist.gov/10.11), where all functions of the
    two kinds fall: beyond the negative axis, on the side from which the function is not continued
    to it, there are both.
    """

    def beside(z: Any) -> Any:
        bound = _FAR + v * v
        left = (abs(z) > bound) & (real(z) < 0)
        return where(left, to_the_left(where(left, -z, bound)), near(where(left, 1.0, z)))

    def to_the_left(w: Any) -> Any:
        derivatives, values = (
            [
                scale * hankel_expansion(v, w, signs=signs, order=order)
                for signs, scale in (_turning(v, way), _turning(v, -way))
            ]
            for order in (1, 0)
        )
        turned = exp(-1j * way * math.pi * v) * derivatives[1]
        beyond = imag(w) > 0 if way == 1 else imag(w) <= 0
        share = 2 * _cosine_of_turns(v) * exp(2j * way * where(beyond, w, 0.0))
        both = turned + share * (derivatives[0] + 2j * way * values[0])
        return where(beyond, -both, turned)

    return derivative_far_out(_turning(v, way), v, z, beside)


def _cosine_of_turns(v: Array) -> Any:
    """``cos(pi * v)``, which is 0 between integers."""
    whole = round(v)
    return sin(math.pi * (0.5 - abs(v - whole))) * (1 - 2 * remainder(whole, 2))
