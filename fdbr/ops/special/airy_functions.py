"""The functions of Airy, their integrals, and the scaled ones.

>>> import fdbr
>>> from fdbr.ops import special
>>> bool(fdbr.grad(lambda x: special.airy(x)[0])(1.0) == special.airy(1.0)[1])
True
"""

from typing import Any

from fdbr.ops.declare import several
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.special.library import refuse_complex, scipy_functions, scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["airy", "airye", "itairy"]

airy = scipy_functions(
    *("airy", "z", "Airy's functions and their derivatives: ``(Ai, Aip, Bi, Bip)``."),
    z=lambda z, out: (out[1], z * out[0], out[3], z * out[2]),
)
itairy = scipy_functions(
    "itairy",
    "x",
    "The integrals of Ai and Bi from 0 to ``x``, and of ``Ai(-t)`` and ``Bi(-t)``.",
    x=lambda x: (airy(x)[0], airy(x)[2], airy(-x)[0], airy(-x)[2]),
)


def _scaled_derivatives(z: Any, out: Any) -> Any:
    """By the factor, which grows as ``exp(2 / 3 * z**1.5)`` does where ``z`` is positive."""
    above = z > 0
    root = where(above, sqrt(where(above, z, 1)), 0)
    ai, aip, bi, bip = out
    return aip + root * ai, z * ai + root * aip, bip - root * bi, z * bi - root * bip


@several(z=_scaled_derivatives)
def airye(xp: Any, z: ArrayLike) -> Array:
    """Airy's functions with their growth taken off, of real ``z``: ``(eAi, eAip, eBi, eBip)``.

    ``eAi = exp(2 / 3 * z**1.5) * Ai``, which is NaN below 0; ``eBi = exp(-2 / 3 * z**1.5) * Bi``
    where ``z`` is positive, and ``Bi`` below.
    """
    refuse_complex("special.airye", z)
    return scipy_special.on(xp)(xp, "airye", z)
