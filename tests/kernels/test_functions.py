"""The functions of kernels are NumPy's and SciPy's, to within some units in the last place."""

import numpy as np
import pytest
import scipy.special

from fdbr import kernels
from fdbr.kernels import functions

MOST = {"erfc": 6, "ndtr": 6, "erf": 4}  # ulps; of the others three
SINGLE = ("erf", "erfc", "ndtr", "logit")
UNARY = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log1p", "tanh")},
    **{name: getattr(np, name) for name in ("sqrt", "floor", "ceil", "trunc", "round", "sign")},
    **{name: getattr(np, name) for name in ("abs", "square", "reciprocal", "negative")},
    **{name: getattr(np, name) for name in ("positive", "isfinite", "isnan")},
    **{name: getattr(scipy.special, name) for name in (*SINGLE, "expit")},
}
BINARY = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide")},
    **{
        name: getattr(np, name) for name in ("maximum", "minimum", "logaddexp", "copysign", "hypot")
    },
    **{name: getattr(np, name) for name in ("equal", "not_equal", "less", "less_equal")},
    **{name: getattr(np, name) for name in ("greater", "greater_equal")},
}


def everywhere(dtype):
    """Numbers of all magnitudes, and those at the ends."""
    rng, limits = np.random.default_rng(0), np.finfo(dtype)
    low, high = np.log(float(limits.tiny)), np.log(float(limits.max))
    x = np.concatenate(
        [
            rng.standard_normal(20_000) * 3,
            np.exp(rng.uniform(low, high * 0.999, 20_000)) * rng.choice([-1, 1], 20_000),
            np.exp(rng.uniform(-20, 6, 20_000)) * rng.choice([-1, 1], 20_000),
        ]
    ).astype(dtype)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, limits.tiny, -limits.tiny, limits.max]
    ends += [-limits.max, limits.smallest_subnormal, -limits.smallest_subnormal, 0.5, 709.7, 88.7]
    x[: len(ends)] = ends
    return x


def ulps(found, exact):
    """The largest error, in units of the last place; signs of zeros and NaN count as well."""
    with np.errstate(over="ignore"):
        desired = exact.astype(found.dtype)
    same = (found == desired) | (np.isnan(found) & np.isnan(desired))
    zeros = (found == 0) & (desired == 0)
    assert (np.signbit(found) == np.signbit(desired))[zeros].all()
    assert (np.isfinite(found) == np.isfinite(desired))[~same].all()
    unit = np.maximum(np.spacing(np.abs(desired[~same])), np.finfo(found.dtype).tiny)
    return float(np.max(np.abs(found[~same] - exact[~same]) / unit, initial=0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_are_as_exact_as_is_said(name, dtype):
    x = everywhere(dtype)
    found = kernels.elementwise(name, getattr(functions, name), (x,))
    if name in SINGLE and dtype == "float64":
        assert found is None  # there is no formula as exact
        return
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype("float64" if name in SINGLE else "longdouble"))
    if found.dtype == bool:
        assert (found == exact).all()
        return
    assert found.dtype == x.dtype
    assert ulps(found, exact) <= MOST.get(name, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_are_as_exact_as_is_said(name, dtype):
    x = everywhere(dtype)
    y = np.random.default_rng(1).permutation(x)
    x, y = np.concatenate([x, x]), np.concatenate([y, x])
    found = kernels.elementwise(name, getattr(functions, name), (x, y))
    with np.errstate(all="ignore"):
        exact = BINARY[name](x.astype("longdouble"), y.astype("longdouble"))
    if found.dtype == bool:
        assert (found == exact).all()
        return
    if name in ("maximum", "minimum"):  # of two zeros either may be the larger one
        found, exact = found + 0.0, exact + 0.0
    if name == "logaddexp":  # where the operands cancel, so do their digits
        kept = ~(np.abs(exact) < np.abs(np.maximum(x, y)))
        found, exact = found[kept], exact[kept]
    assert ulps(found, exact) <= (12 if name == "logaddexp" else 3)  # of a difference's exponential


def test_every_function_is_tested_here():
    elsewhere = {"ERF", "ERF_END", "TAIL", "TAIL_RATE", "dtype", "asarray", "result_type"}
    elsewhere |= {"full_like", "zeros_like", "ones_like", "where", "absolute", "fma", "gaussian"}
    elsewhere |= {"logical_and", "logical_or", "logical_not"}  # in test_calling.py
    assert set(functions.__all__) == set(UNARY) | set(BINARY) | elsewhere
