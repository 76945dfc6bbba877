"""Cases of activation functions and special functions."""

import hypothesis.strategies as st
import numpy as np
import scipy.special as sp

from fdbr import ops
from ops.cases import (
    ANY,
    CASES,
    INSIDE,
    NONZERO,
    OFF_GRID,
    POSITIVE,
    binary,
    case,
    grid,
    unary,
)
from ops.seeds import seeded, several

_FIRST = len(CASES)

# --- activations --------------------------------------------------------------------


def minus(x: np.ndarray) -> np.ndarray:
    return np.minimum(x, 0)


_SELU = 1.0507009873554805, 1.6732632423543772

unary("relu6", grid(-2, 8, 1 / 16), lambda x: np.clip(x, 0, 6))
unary("hard_tanh", OFF_GRID, lambda x: np.clip(x, -1, 1))
unary("leaky_relu", NONZERO, lambda x: np.where(x > 0, x, 0.01 * x))
unary(
    "leaky_relu",
    NONZERO,
    lambda x: np.where(x > 0, x, -2 * x),
    function=lambda x: ops.leaky_relu(x, slope=-2),
    setting="slope",
)
unary("elu", NONZERO, lambda x: np.where(x > 0, x, np.expm1(minus(x))))
unary(
    "celu",
    NONZERO,
    lambda x: np.where(x > 0, x, 2 * np.expm1(minus(x) / 2)),
    function=lambda x: ops.celu(x, alpha=2),
)
unary("selu", NONZERO, lambda x: _SELU[0] * np.where(x > 0, x, _SELU[1] * np.expm1(minus(x))))
unary("softplus", grid(-8, 8), lambda x: np.logaddexp(x, 0))
unary("log_sigmoid", grid(-8, 8), sp.log_expit)
unary("softsign", NONZERO, lambda x: x / (1 + np.abs(x)))
unary("silu", ANY, lambda x: x * sp.expit(x))
unary("gelu", ANY, lambda x: x * sp.ndtr(x))
unary(
    "gelu",
    ANY,
    lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    function=lambda x: ops.gelu(x, approximate=True),
    setting="approximate",
)
unary("mish", ANY, lambda x: x * np.tanh(np.logaddexp(x, 0)))
case("glu", several((2, 4)), lambda x: x[:, :2] * sp.expit(x[:, 2:]))
case(
    "glu",
    several((2, 3)),
    lambda x: x[:1] * sp.expit(x[1:]),
    lambda x: ops.glu(x, axis=0),
    "first axis",
)

# --- special functions --------------------------------------------------------------

UNIT = st.integers(1, 7).map(lambda k: k / 8)

for op, elements in (
    ("erf", ANY),
    ("erfc", ANY),
    ("erfcx", ANY),
    ("erfinv", INSIDE),
    ("erfcinv", grid(0.25, 1.75)),
    ("ndtr", ANY),
    ("log_ndtr", grid(-4, 2)),
    ("ndtri", UNIT),
    ("gamma", grid(0.5, 4)),
    ("gammaln", grid(0.5, 4)),
    ("digamma", grid(0.5, 4)),
    ("entr", POSITIVE),
    ("expit", ANY),
    ("logit", UNIT),
    ("cbrt", NONZERO),
    ("i0", ANY),
    ("i1", ANY),
    ("i0e", NONZERO),
    ("i1e", NONZERO),
):
    unary(op, elements, getattr(sp, op))
unary("gamma", st.sampled_from((-1.5, -0.375, -2.5)), sp.gamma, setting="below 0")
unary("erfcx", grid(8, 13), sp.erfcx, setting="far out")
unary("sinc", ANY, np.sinc)
unary("sinc", st.integers(-2, 2).map(float), np.sinc, setting="at integers")
for n in (0, 1, 3):
    unary(
        "polygamma",
        grid(0.5, 4),
        lambda x, n=n: sp.polygamma(n, x),
        function=lambda x, n=n: ops.polygamma(n, x),
        setting=f"order {n}",
    )
unary("zeta", grid(0.5, 4), lambda q: sp.zeta(3.0, q), function=lambda q: ops.zeta(3.0, q))
for op, x, y in (
    ("beta", grid(0.5, 3), grid(0.5, 3)),
    ("betaln", grid(0.5, 3), grid(0.5, 3)),
    ("xlogy", ANY, POSITIVE),
    ("xlog1py", ANY, grid(-0.5, 3)),
    ("rel_entr", POSITIVE, POSITIVE),
    ("kl_div", POSITIVE, POSITIVE),
):
    binary(op, x, y, getattr(sp, op))
for op in ("gammainc", "gammaincc"):
    case(op, seeded(((2, 1), (0.5, 3)), ((3,), (0.5, 4))), getattr(sp, op))
case(
    "betainc", seeded(((), (0.5, 3)), ((2, 1), (0.5, 3)), ((2,), (0.25, 0.75)), count=2), sp.betainc
)

OWN = CASES[_FIRST:]
