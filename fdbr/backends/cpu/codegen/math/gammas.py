"""The gamma function's relatives, of nodes.

Of positive numbers below 8 they are those of a number that is larger by 8, with what lies between,
as one quotient; from there on by Stirling's asymptotic series.  Of negative numbers they are
reflected (https://dlmf.nist.gov/5.5 and 5.11, 25.11).
"""

import math
from typing import Any

from fdbr.backends.cpu.codegen.math.angles import of_half_turns
from fdbr.backends.cpu.codegen.math.arithmetic import absolute, fma, where
from fdbr.backends.cpu.codegen.math.exponential import log, power
from fdbr.backends.cpu.codegen.math.formulas import in_double, polynomial
from fdbr.core.expr import InexpressibleError, Node

__all__ = ["digamma", "gammaln", "zeta"]

_STEPS = 8
_BERNOULLI = 1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510
_MOST = 8  # the highest order of `zeta` for which so many terms will do


@in_double
def gammaln(x: Node) -> Node:
    """By Stirling's series, with one logarithm for all the rest."""
    y = where(x < 0, 1 - x, x)
    near = y < _STEPS
    product = y
    for k in range(1, _STEPS):
        product = product * (y + k)
    product = where(near, product, 1)
    z = where(near, y + _STEPS, y)
    inverse = 1 / z
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    rest = inverse * polynomial(inverse * inverse, terms[::-1])
    whole = where(z == math.inf, z, (z - 0.5) * log(z) - z + 0.5 * math.log(2 * math.pi) + rest)
    sine = absolute(of_half_turns(x)[0])
    logarithm = log(where(x < 0, math.pi * product / sine, product))
    out = where(x < 0, logarithm - whole, whole - logarithm)
    out = where((x == 1) | (x == 2), 0, out)
    out = where((x <= 0) & (sine == 0), math.inf, out)
    return where(x == -math.inf, x, out)


@in_double
def digamma(x: Node) -> Node:
    """The derivative of `gammaln`."""
    y = where(x < 0, 1 - x, x)
    near = y < _STEPS
    above: Any = 1.0
    below = y
    for k in range(1, _STEPS):  # the sum of 1 / (y + k)
        above = fma(above, y + k, below)
        below = below * (y + k)
    z = where(near, y + _STEPS, y)
    inverse = 1 / z
    square = inverse * inverse
    terms = [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    out = log(z) - fma(square, polynomial(square, terms[::-1]), 0.5 * inverse)
    out = out - where(near, above, 0) / where(near, below, 1)
    sine, cosine = of_half_turns(x)
    return where(x < 0, where(sine == 0, math.nan, out - math.pi * cosine / sine), out)


@in_double
def zeta(s: Any, q: Node) -> Node:
    """Of a number ``s`` that is an integer: by Euler's and Maclaurin's series."""
    if isinstance(s, Node) or not float(s).is_integer() or not 1 < s <= _MOST:
        raise InexpressibleError("zeta of other than few orders")
    n = int(s) - 1
    y = where(q < 0, 1 - q, q)
    near = y < _STEPS
    above: Any = 1.0
    below = power(y, n + 1)
    for k in range(1, _STEPS):
        factor = power(y + k, n + 1)
        above = fma(above, factor, below)
        below = below * factor
    z = where(near, y + _STEPS, y)
    inverse = 1 / z
    square = inverse * inverse
    terms = [
        b * math.prod(range(n + 1, n + 2 * k)) / math.factorial(2 * k)
        for k, b in enumerate(_BERNOULLI, 1)
    ]
    rest = fma(square, polynomial(square, terms[::-1]), fma(inverse, 0.5, 1 / n))
    out = power(inverse, n) * rest + where(near, above, 0) / where(near, below, 1)
    mirrored = _cotangents_derivative(q, n) - out if n % 2 else _cotangents_derivative(q, n) + out
    return where((q == 0) | (q == -math.inf), math.inf, where(q < 0, mirrored, out))


def _cotangents_derivative(x: Node, n: int) -> Node:
    """``(-1)**n / n!`` of the derivative of order ``n`` of ``pi / tan(pi * x)``.

    It is a polynomial in the cotangent, whose derivative is ``-1`` less its square.
    """
    coefficients = [0.0, 1.0]  # lowest power first
    for _ in range(n):
        derivatives = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [
            a + b for a, b in zip([0.0, 0.0, *derivatives], [*derivatives, 0.0, 0.0], strict=True)
        ]
    scale = math.pi ** (n + 1) / math.factorial(n)
    sine, cosine = of_half_turns(x)
    cotangent = cosine / sine
    out = polynomial(cotangent, [scale * c for c in coefficients[::-1]])
    return where(sine == 0, math.inf, out)
