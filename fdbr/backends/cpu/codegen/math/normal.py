"""The error function and the normal distribution, of nodes."""

import math

import numpy as np

from fdbr.backends.cpu.codegen.math import coefficients as table
from fdbr.backends.cpu.codegen.math.arithmetic import absolute, fma, sqrt, where
from fdbr.backends.cpu.codegen.math.exponential import exp, log, tanh
from fdbr.backends.cpu.codegen.math.formulas import held, in_double, polynomial
from fdbr.backends.cpu.codegen.math.remainders import copysign
from fdbr.core.expr import InexpressibleError, Node

__all__ = [
    *("ERF", "ERF_END", "TAIL", "TAIL_RATE", "erf", "erfc", "erfcx", "erfinv", "gaussian"),
    *("log_ndtr", "ndtr", "ndtri"),
]

_SINGLE = np.dtype(np.float32)

# erf(x) is tanh(x * p(x**2)), with a polynomial that was fitted here for the least error relative
# to erf(x), 7.1e-8; beyond the end both are 1 in float32.  Lowest power first.
ERF_END = 3.9
ERF = (
    *(1.1283792471902032, 0.10276986403744685, -0.00019528781492339086, -0.0006148387128120084),
    *(8.459685670874113e-05, -4.794678512366526e-06, 2.7584918896820987e-08, 5.421224429654585e-09),
)

# The upper tail of the normal distribution is half of exp(-t**2 / 2) r p(1 - 2 r), where r is
# 1 / (1 + 5 t / 8), with a polynomial that was fitted here to a relative error of 2.3e-8.
TAIL_RATE = 0.625
TAIL = (
    *(0.7883732323294013, -0.2816167464947942, -0.0543107338139023, 0.03210262182643515),
    *(0.01966350437194548, 0.000990091242604756, -0.00439103177936108, -0.002973455821879365),
    *(-0.0005331655296784558, 0.0009243901873996116, 0.0006914961107006461, -8.79587551463215e-05),
    -0.00015438210329895614,
)
_TAIL_END = 40.0  # where it is 0 in float32


def _single(x: Node) -> Node:
    if x.dtype != _SINGLE:
        raise InexpressibleError("what has no formula as exact in double precision")
    return x


def gaussian(x: Node, rate: float) -> Node:
    """``exp(-rate * x**2)`` with what the square loses."""
    t = absolute(x)  # whose exponential is that of `ndtr` beside it, then
    t = where(t > _TAIL_END, _TAIL_END, t)
    s = t * t
    e = exp(-rate * s)
    return fma(-e, rate * fma(t, t, -s), e)


def _twice_upper(t: Node, bell: Node) -> Node:
    """Twice the upper tail at ``t``, where ``bell`` is ``exp(-t**2 / 2)``."""
    share = 1 / fma(t, TAIL_RATE, 1)
    return bell * share * polynomial(fma(-2, share, 1), TAIL[::-1])


def erf(x: Node) -> Node:
    x = held(_single(x), -ERF_END, ERF_END)
    return tanh(x * polynomial(x * x, ERF[::-1]))


def erfc(x: Node) -> Node:
    t = absolute(_single(x))
    tail = _twice_upper(math.sqrt(2) * t, gaussian(t, 1.0))
    return where(x < 0, 2 - tail, tail)


def ndtr(x: Node) -> Node:
    t = absolute(_single(x))
    tail = 0.5 * _twice_upper(t, gaussian(t, 0.5))
    return where(x > 0, 1 - tail, tail)


# --- scaled, and inverse ------------------------------------------------------------


def _scaled_tail(t: Node) -> Node:
    """``exp(t**2) * erfc(t)`` of positive ``t``."""
    share = 1 / fma(t, 0.5, 1)
    return share * polynomial(fma(-2, share, 1), table.ERFCX[::-1])


@in_double
def erfcx(x: Node) -> Node:
    tail = _scaled_tail(absolute(x))
    return where(x < 0, 2 * exp(x * x) - tail, tail)


@in_double
def log_ndtr(x: Node) -> Node:
    """By `erfcx` below 0, and above by ``log1p``, with one logarithm for both."""
    half = 0.5 * _scaled_tail(math.sqrt(0.5) * absolute(x))
    square = -0.5 * x * x
    upper = half * exp(square)
    rest = 1 - upper
    found = log(where(x < 0, half, rest))
    lost = 1 - rest  # that of it which is in `rest`
    above = where(lost == 0, -upper, found * (upper / where(lost == 0, 1, lost)))
    below = where(x == -math.inf, x, square + found)
    return where(x < 0, below, above)


# The intervals of `coefficients`: half of the first one's length, the middle of the other, and
# half of its length.
_BEND = 8.4
_FARTHER, _REACH = 7.2, 3.2


def _quantile(x: Node, w: Node) -> Node:
    """`erfinv` of ``x``, where ``w`` is ``-log(1 - x**2)`` and at most 16.8."""
    return x * polynomial(w * (1 / _BEND) - 1, table.ERFINV[::-1])


@in_double
def ndtri(x: Node) -> Node:
    """As `erfinv`, of ``2 x - 1``, which does not come as near to 1 as to -1."""
    q = 2 * x - 1
    w = -log(4 * x * (1 - x))
    s = (sqrt(w) - _FARTHER) * (1 / _REACH)
    far = copysign(polynomial(s, table.ERFINV_FAR[::-1]), q)
    out = math.sqrt(2) * where(w <= 2 * _BEND, _quantile(q, w), far)
    return where(w == math.inf, copysign(w, q), out)


def erfinv(x: Node) -> Node:
    """By a polynomial in ``log(1 - x**2)`` (Giles, Approximating the erfinv function, 2010)."""
    return _erfinv_single(x) if x.dtype == _SINGLE else _erfinv(x)


def _erfinv_single(x: Node) -> Node:
    """With its logarithm in single precision: of its error the root takes a half."""
    w = -log((1 - x) * (1 + x))
    t = w.astype(np.float64) * (1 / _BEND) - 1
    out = x * polynomial(t, table.ERFINV_SINGLE[::-1]).astype(_SINGLE) + 0
    return where(w == math.inf, copysign(w, x), out)  # of -0 it is 0, as SciPy's


@in_double
def _erfinv(x: Node) -> Node:
    w = -log((1 - x) * (1 + x))
    return where(w == math.inf, copysign(w, x), _quantile(x, w) + 0)
