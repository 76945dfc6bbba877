"""Trigonometric functions of nodes and their inverses, under NumPy's names.

Angles are reduced by multiples of pi / 2 in three parts (Cody and Waite), with products that are
not rounded; that holds as far as `Graph.require` says.  Polynomials are those of Cephes.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.arithmetic import absolute, fma, maximum, minimum, sqrt, where
from fdbr.backends.cpu.codegen.math.formulas import bits_of, both, integers, polynomial
from fdbr.backends.cpu.codegen.math.remainders import copysign
from fdbr.core.expr import FLOATS, InexpressibleError, Node

__all__ = ["arccos", "arcsin", "arctan", "arctan2", "cos", "sin", "tan"]

_DOUBLE = np.dtype(np.float64)
_MAGIC = 1.5 * 2**52  # rounds what is added to it
_QUARTERS = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33
_FAR = {np.dtype(np.float32): 2.0**24, _DOUBLE: 2.0**44}  # the largest angles

_SINE: Any = {
    np.dtype(np.float32): (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    _DOUBLE: (
        *(1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6),
        *(-1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1),
    ),
}
_COSINE: Any = {
    np.dtype(np.float32): (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    _DOUBLE: (
        *(-1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7),
        *(2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2),
    ),
}


def _reduced(x: Node) -> tuple[Node, Node, Node]:
    """The number of quarter turns, and sine and cosine of what is left."""
    dtype = x.dtype
    if dtype not in FLOATS:
        raise InexpressibleError("functions of integers")
    size = absolute(x)
    x.graph.require((size <= _FAR[dtype]) | ~(size < math.inf))
    wide = x.astype(_DOUBLE)
    moved = fma(wide, 2 / math.pi, _MAGIC)
    n = moved - _MAGIC
    parts = _QUARTERS if dtype == _DOUBLE else _QUARTERS[:2]
    for part in parts:
        wide = fma(n, -part, wide)
    r = wide.astype(dtype)
    square = r * r
    sine = fma(r * square, polynomial(square, _SINE[dtype]), r)
    cosine = fma(square * square, polynomial(square, _COSINE[dtype]), fma(square, -0.5, 1))
    return bits_of(moved), sine, cosine


def _is_set(number: Node, bit: int) -> Node:
    return integers("iand", number, bit) != 0


def sin(x: Node) -> Node:
    """The sine."""
    k, sine, cosine = _reduced(x)
    out = where(_is_set(k, 1), cosine, sine)
    return where(x == 0, x, where(_is_set(k, 2), -out, out))


def cos(x: Node) -> Node:
    """The cosine."""
    k, sine, cosine = _reduced(x)
    out = where(_is_set(k, 1), sine, cosine)
    return where(_is_set(integers("iadd", k, 1), 2), -out, out)


def tan(x: Node) -> Node:
    """The tangent, as a quotient."""
    k, sine, cosine = _reduced(x)
    turned = _is_set(k, 1)
    out = where(turned, -cosine, sine) / where(turned, sine, cosine)
    return where(x == 0, x, out)


# --- inverses -----------------------------------------------------------------------

_ARC_SINGLE = 8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1
_ARC_ABOVE = (
    *(-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1),
    *(-1.228866684490136173410e2, -6.485021904942025371773e1),
)
_ARC_BELOW = (
    *(1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2),
    *(4.853903996359136964868e2, 1.945506571482613964425e2),
)
_HALF = math.tan(math.pi / 8)
_EIGHTH = math.pi / 4, 3.061616997868383e-17


def _arc(t: Node) -> Node:
    """The angle whose tangent is ``t``, from 0 to 1."""
    far = t > _HALF
    r = where(far, (t - 1) / (t + 1), t)
    square = r * r
    if t.dtype == _DOUBLE:
        share = polynomial(square, _ARC_ABOVE) / polynomial(square, _ARC_BELOW)
    else:
        share = polynomial(square, _ARC_SINGLE)
    angle = fma(r * square, share, r)
    return where(far, _EIGHTH[0] + (angle + _EIGHTH[1]), angle)


def arctan(x: Node) -> Node:
    """The angle of a tangent; of large ones by the reciprocal."""
    size = absolute(x)
    far = size > 1
    angle = _arc(where(far, 1 / size, size))
    angle = where(far, _QUARTERS[0] - (angle - _QUARTERS[1]), angle)
    return copysign(angle, x)


def arctan2(y: Any, x: Any) -> Node:
    """The angle of a point, by the smaller of the two quotients."""
    y, x = both(y, x)
    if y.dtype != x.dtype:
        raise InexpressibleError("numbers of two dtypes")
    high, wide = absolute(y), absolute(x)
    larger, smaller = maximum(high, wide), minimum(high, wide)
    ratio = where(smaller == math.inf, 1, smaller / where(larger == 0, 1, larger))
    angle = _arc(ratio)
    angle = where(high > wide, _QUARTERS[0] - (angle - _QUARTERS[1]), angle)
    behind = bits_of(x) < 0
    angle = where(behind, 2 * _QUARTERS[0] - (angle - 2 * _QUARTERS[1]), angle)
    return copysign(angle, y)


def arcsin(x: Node) -> Node:
    """By the other side of the triangle."""
    return arctan2(x, sqrt((1 - x) * (1 + x)))


def arccos(x: Node) -> Node:
    """By the other side of the triangle."""
    return arctan2(sqrt((1 - x) * (1 + x)), x)
