"""Each elementwise operation beside its exact value and derivative, by mpmath.

`PROGRAMS` has the operations of one operand, and those of two with one of them held fixed or both
drawn.  A derivative is written out rather than differenced, so that it is exact as far as mpmath is
precise.
"""

from collections.abc import Callable
from typing import Any

import attrs
import mpmath
from mpmath import mp

from fdbr import ops

__all__ = ["PROGRAMS", "Program"]

Function = Callable[..., Any]
LARGE = 3.4028234663852886e38


@attrs.frozen
class Program:
    """An operation, its exact value, and its exact derivative in each operand."""

    name: str
    function: Function
    value: Function
    derivatives: tuple[Function, ...]
    domain: tuple[float, float] = (-LARGE, LARGE)
    reason: str = ""


PROGRAMS: list[Program] = []


def enter(
    name: str,
    value: Function,
    *derivatives: Function,
    domain: tuple[float, float] = (-LARGE, LARGE),
    function: Function | None = None,
    reason: str = "",
) -> None:
    """Enter an operation of as many operands as there are slopes."""
    function = getattr(ops, name) if function is None else function
    PROGRAMS.append(Program(name, function, value, derivatives, domain, reason))


POSITIVE = (0.0, LARGE)
UNIT = (-1.0, 1.0)


def sech(x: Any) -> Any:
    """The hyperbolic secant, also where the cosine is beyond what mpmath takes."""
    return 2 * mp.exp(-abs(x)) / (1 + mp.exp(-2 * abs(x)))


def logistic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x)) if x >= 0 else mp.exp(x) / (1 + mp.exp(x))


def density(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def distribution(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


# --- powers and roots ---------------------------------------------------------------

enter("square", lambda x: x * x, lambda x: 2 * x)
enter("sqrt", mp.sqrt, lambda x: 1 / (2 * mp.sqrt(x)), domain=POSITIVE)
enter(
    "cbrt",
    lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    lambda x: 1 / (3 * mp.cbrt(abs(x)) ** 2),
    reason="three roundings of a root that is itself rounded",
)
enter("reciprocal", lambda x: 1 / x, lambda x: -1 / x**2)
for exponent in (3, 4, 5, 7, -2, -3):
    enter(
        f"power {exponent}",
        lambda x, n=exponent: x**n,
        lambda x, n=exponent: n * x ** (n - 1),
        function=lambda x, n=exponent: ops.power(x, n),
    )
for half in (1.5, 2.5, 5.5, -1.5):
    enter(
        f"power {half}",
        lambda x, n=half: mp.power(x, n),
        lambda x, n=half: n * mp.power(x, n - 1),
        domain=POSITIVE,
        function=lambda x, n=half: ops.power(x, n),
    )
enter(
    "power 0.5",
    mp.sqrt,
    lambda x: 1 / (2 * mp.sqrt(x)),
    domain=POSITIVE,
    function=lambda x: ops.power(x, 0.5),
)

# --- exponentials and logarithms ----------------------------------------------------

enter("exp", mp.exp, mp.exp)
enter(
    "exp2",
    lambda x: mp.power(2, x),
    lambda x: mp.power(2, x) * mp.log(2),
    reason="the slope is made of the value, which overflows where the slope does not yet",
)
enter("expm1", mp.expm1, mp.exp)
enter("log", mp.log, lambda x: 1 / x, domain=POSITIVE)
enter("log2", lambda x: mp.log(x, 2), lambda x: 1 / (x * mp.log(2)), domain=POSITIVE)
enter("log10", mp.log10, lambda x: 1 / (x * mp.log(10)), domain=POSITIVE)
enter("log1p", mp.log1p, lambda x: 1 / (1 + x), domain=(-1.0, LARGE))

# --- trigonometric ------------------------------------------------------------------

enter("sin", mp.sin, mp.cos)
enter("cos", mp.cos, lambda x: -mp.sin(x))
enter(
    "tan",
    mp.tan,
    lambda x: 1 + mp.tan(x) ** 2,
    reason="the square of a rounded cosine",
)
enter("asin", mp.asin, lambda x: 1 / mp.sqrt(1 - x * x), domain=UNIT)
enter("acos", mp.acos, lambda x: -1 / mp.sqrt(1 - x * x), domain=UNIT)
enter("atan", mp.atan, lambda x: 1 / (1 + x * x))
enter("sinh", mp.sinh, mp.cosh, domain=(-200.0, 200.0))
enter("cosh", mp.cosh, mp.sinh, domain=(-200.0, 200.0))
enter("tanh", mp.tanh, lambda x: sech(x) ** 2)
enter("asinh", mp.asinh, lambda x: 1 / mp.sqrt(1 + x * x))
enter("acosh", mp.acosh, lambda x: 1 / mp.sqrt(x * x - 1), domain=(1.0, LARGE))
enter("atanh", mp.atanh, lambda x: 1 / (1 - x * x), domain=UNIT)
enter(
    "sinc",
    lambda x: mp.sincpi(x),
    lambda x: (mp.cospi(x) - mp.sincpi(x)) / x,
    domain=(-1e4, 1e4),
    reason="the slope at 0 is 0, and its operand, a multiple of pi, is rounded",
)

# --- activations --------------------------------------------------------------------

for name in ("sigmoid", "expit"):
    enter(name, logistic, lambda x: logistic(x) * logistic(-x))
enter("log_sigmoid", lambda x: min(x, 0) - mp.log1p(mp.exp(-abs(x))), lambda x: logistic(-x))
enter("softplus", lambda x: max(x, 0) + mp.log1p(mp.exp(-abs(x))), logistic)
enter(
    "silu",
    lambda x: x * logistic(x),
    lambda x: logistic(x) * (1 + x * logistic(-x)),
    reason="the slope has a zero; far below 0 both are made of subnormal numbers",
)
enter("softsign", lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x)) ** 2)
enter(
    "gelu",
    lambda x: x * distribution(x),
    lambda x: distribution(x) + x * density(x),
    reason="a polynomial in the place of the distribution function; the slope has a zero",
)
TWICE, CUBE = 2 * mp.sqrt(2 / mp.pi), mp.mpf("0.044715")


def gelu_tanh_derivative(x: Any) -> Any:
    inner = TWICE * (x + CUBE * x**3)
    return logistic(inner) + x * logistic(inner) * logistic(-inner) * TWICE * (1 + 3 * CUBE * x * x)


enter(
    "gelu tanh",
    lambda x: x * logistic(TWICE * (x + CUBE * x**3)),
    gelu_tanh_derivative,
    function=lambda x: ops.gelu(x, approximate=True),
    domain=(-100.0, 100.0),
    reason="the exponent is a polynomial, and is rounded; the slope has a zero",
)


def mish_derivative(x: Any) -> Any:
    inner = max(x, 0) + mp.log1p(mp.exp(-abs(x)))
    return mp.tanh(inner) + x * sech(inner) ** 2 * logistic(x)


enter(
    "mish",
    lambda x: x * mp.tanh(max(x, 0) + mp.log1p(mp.exp(-abs(x)))),
    mish_derivative,
    reason="the slope has a zero; far below 0 it is made of subnormal numbers",
)
enter("elu", lambda x: x if x > 0 else mp.expm1(x), lambda x: 1 if x > 0 else mp.exp(x))
enter(
    "celu 2",
    lambda x: x if x > 0 else 2 * mp.expm1(x / 2),
    lambda x: 1 if x > 0 else mp.exp(x / 2),
    function=lambda x: ops.celu(x, alpha=2.0),
)
SCALE, ALPHA = mp.mpf("1.0507009873554805"), mp.mpf("1.6732632423543772")
enter(
    "selu",
    lambda x: SCALE * (x if x > 0 else ALPHA * mp.expm1(x)),
    lambda x: SCALE * (1 if x > 0 else ALPHA * mp.exp(x)),
)

# --- special functions --------------------------------------------------------------

ROOT_PI = mp.sqrt(mp.pi)


def tail(x: Any) -> Any:
    """``erfc``, also far out where mpmath's is slow."""
    return mp.erfc(x) if x < 30 else mpmath.mpf(0)


enter("erf", mp.erf, lambda x: 2 / ROOT_PI * mp.exp(-x * x))
enter("erfc", tail, lambda x: -2 / ROOT_PI * mp.exp(-x * x))
enter(
    "erfcx",
    lambda x: mp.exp(x * x) * mp.erfc(x),
    lambda x: 2 * x * mp.exp(x * x) * mp.erfc(x) - 2 / ROOT_PI,
    domain=(-9.0, 30.0),
)
enter("erfinv", mp.erfinv, lambda x: ROOT_PI / 2 * mp.exp(mp.erfinv(x) ** 2), domain=UNIT)
enter(
    "ndtr",
    distribution,
    density,
    reason="compiled: a polynomial in its place",
)
enter(
    "log_ndtr",
    lambda x: mp.log(distribution(x)),
    lambda x: density(x) / distribution(x),
    domain=(-1e4, 1e4),
)
enter(
    "ndtri",
    lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    lambda p: mp.sqrt(2 * mp.pi) * mp.exp(mp.erfinv(2 * p - 1) ** 2),
    domain=(0.0, 1.0),
)
enter("logit", lambda x: mp.log(x / (1 - x)), lambda x: 1 / (x * (1 - x)), domain=(0.0, 1.0))
enter("gammaln", lambda x: mp.loggamma(x).real, mp.digamma, domain=(0.0, 1e30))
enter("digamma", mp.digamma, lambda x: mp.psi(1, x), domain=(0.0, 1e30))
enter(
    "entr",
    lambda x: -x * mp.log(x),
    lambda x: -mp.log(x) - 1,
    domain=POSITIVE,
    reason="the slope has a zero",
)
enter(
    "i0e",
    lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
    lambda x: mp.exp(-abs(x)) * (mp.besseli(1, x) - mp.sign(x) * mp.besseli(0, x)),
    domain=(-500.0, 500.0),
)

# --- of two operands ----------------------------------------------------------------

enter("add", lambda x, y: x + y, lambda x, y: 1, lambda x, y: 1)
enter("multiply", lambda x, y: x * y, lambda x, y: y, lambda x, y: x)
enter("divide", lambda x, y: x / y, lambda x, y: 1 / y, lambda x, y: -x / y**2)
enter(
    "atan2",
    mp.atan2,
    lambda y, x: x / (x * x + y * y),
    lambda y, x: -y / (x * x + y * y),
    reason="two quotients by a length that is itself rounded",
)
enter(
    "hypot",
    lambda x, y: mp.sqrt(x * x + y * y),
    lambda x, y: x / mp.sqrt(x * x + y * y),
    lambda x, y: y / mp.sqrt(x * x + y * y),
)
enter(
    "logaddexp",
    lambda x, y: max(x, y) + mp.log1p(mp.exp(-abs(x - y))),
    lambda x, y: logistic(x - y),
    lambda x, y: logistic(y - x),
    reason="a difference next to its zero, as in NumPy",
)
enter(
    "power",
    mp.power,
    lambda x, y: y * mp.power(x, y - 1),
    lambda x, y: mp.power(x, y) * mp.log(x),
    domain=(0.0, 300.0),
    reason="the exponent less 1 is rounded, and counts where the base is far from 1",
)
enter(
    "xlogy", lambda x, y: x * mp.log(y), lambda x, y: mp.log(y), lambda x, y: x / y, domain=POSITIVE
)
