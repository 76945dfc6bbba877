"""Derivatives of scaled Bessel functions far out, where recurrences cancel.

``exp(-x) * iv(v, x)``, ``exp(x) * kv(v, x)`` and ``exp(-1j * x) * hankel1(v, x)`` fall as
``x**-0.5`` does, and their derivatives as ``x**-1.5``; as differences of neighbours in order they
lose a digit for each in ``x``.  Hankel's expansion (https://dlmf.nist.gov/10.40 and 10.17) has all
their digits there, and so have its derivatives.
"""

import math
from collections.abc import Callable
from typing import Any

from fdbr.backend import Array
from fdbr.ops.dtypes import is_complex
from fdbr.ops.elementwise.arithmetic import abs, sign
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import real
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.kinds import elementwise
from fdbr.ops.special.library import unknown

__all__ = ["FALLING", "GROWING", "slope_far_out", "turning"]

FALLING = 1, math.sqrt(math.pi / 2)  # signs and scale: those of kv
GROWING = -1, 1 / math.sqrt(2 * math.pi)  # and of iv


def turning(v: Array, way: int) -> tuple[Any, Any]:
    """Signs and scale of Hankel's functions: of the first kind ``way`` is 1, of the second -1."""
    return 1j * way, math.sqrt(2 / math.pi) * exp(-1j * way * (v * (math.pi / 2) + math.pi / 4))


_FAR = 30.0
_TERMS = 18


@elementwise(
    v=unknown("ive", "v"),
    x=lambda v, x, signs, order: hankel_expansion(v, x, signs=signs, order=order + 1),
)
def hankel_expansion(xp: Any, v: Array, x: Array, *, signs: complex, order: int) -> Array:
    """The derivative of some order of Hankel's expansion, from ``30 + v**2`` on."""
    total: Any = math.prod(-0.5 - i for i in range(order))
    term, square = total, 4.0 * v * v
    for k in range(1, _TERMS):
        ratio = signs * (k - 0.5 + order) / ((k - 0.5) * 8 * k)
        term = term * ((square - (2 * k - 1) ** 2) * ratio / x)
        total = total + term
    return total * xp.power(x, -0.5 - order)


def slope_far_out(
    kind: tuple[Any, Any], v: Array, x: Array, near: Callable[[Any], Any], parity: int = 0
) -> Any:
    """The derivative of a scaled function of order ``v``: ``near(x)``, but for large ``x``.

    A function that is even or odd has the ``parity`` 1 or -1.  Others are those of positive
    numbers, and of complex ones to the right of 0.
    """
    size = abs(x) if parity else x
    bound = _FAR + v * v
    far = (abs(x) > bound) & (real(x) >= 0) if is_complex(x) else size > bound
    signs, scale = kind
    slope = scale * hankel_expansion(v, where(far, size, bound), signs=signs, order=1)
    slope = slope * sign(x) if parity == 1 else slope
    return where(far, slope, near(where(far, 1.0, x)))
