"""Sines and cosines of single numbers, in double precision and without a last digit lost.

Angles are reduced by what single numbers are: multiples of pi exactly, and others by products with
pieces of 1 / (2 pi) that are short enough to be exact (Payne and Hanek).
"""

import math
from fractions import Fraction
from typing import Any

from fdbr.backends.cpu.codegen.math.arithmetic import floor, round, where
from fdbr.backends.cpu.codegen.math.formulas import in_double, polynomial
from fdbr.core.expr import Node

__all__ = ["sinpi"]

# 1 / (2 pi) in pieces of 24 bits: as many as single numbers of any size need.
_DIGITS = "0.159154943091895335768883763372514362034459645740456448747667344058896797634226535"
_PIECES = 9
_SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
_COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(9)]


def _pieces() -> list[float]:
    rest, found = Fraction(_DIGITS), []
    for k in range(1, _PIECES + 1):
        unit = Fraction(1, 1 << 24 * k + 2)
        found.append(float(math.floor(rest / unit) * unit))
        rest %= unit
    return found


def turns(x: Node) -> Node:
    """``x / (2 pi)`` less the nearest integer."""
    total: Any = 0.0
    for piece in _pieces():
        share = x * piece
        total = total + (share - round(share))
    return total - round(total)


def of_half_turns(x: Node, quarters: int = 0) -> tuple[Node, Node]:
    """The sine and the cosine of ``pi * (x + quarters / 2)``."""
    quarter = round(2 * x)
    angle = math.pi * (x - 0.5 * quarter)
    square = angle * angle
    sine = angle * polynomial(square, _SINE[::-1])
    cosine = polynomial(square, _COSINE[::-1])
    quadrant = quarter - 4 * floor(0.25 * quarter) + quarters
    quadrant = where(quadrant >= 4, quadrant - 4, quadrant)
    turned = (quadrant == 1) | (quadrant == 3)
    first, second = where(turned, cosine, sine), where(turned, sine, cosine)
    behind = quadrant >= 2
    left = (quadrant == 1) | (quadrant == 2)
    return where(behind, -first, first), where(left, -second, second)


@in_double
def sinpi(x: Node, quarters: int = 0) -> Node:
    """``sin(pi * (x + quarters / 2))``."""
    return of_half_turns(x, quarters)[0]
