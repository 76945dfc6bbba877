"""NumPy's functions with floating arithmetic, of integer arrays, beside NumPy itself."""

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops

INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
few = settings(max_examples=10, deadline=None)


def jitted(function: Any, *args: Any) -> Any:
    return fdbr.jit(function)(*args)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("decimals", [-20, -5, -2, -1, 0, 2])
def test_integers_are_rounded_to_digits(dtype: str, decimals: int) -> None:
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.max, limits.max // 3, 0, 5, 15, 25, 50, 51, 99, 100, 127]
    numbers += [50_000, 50_001, 150_000, 2**53 + 5, 2**60 + 7]
    x = np.array([n for n in numbers if n <= limits.max], dtype)
    same(jitted(lambda x: np.round(x, decimals), x), np.round(x, decimals))
    same(fdbr.vmap(lambda x: np.round(x, decimals))(x), np.round(x, decimals))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("decimals", [-5, -1, 1, 5])
def test_floats_are_rounded_to_digits(dtype: str, decimals: int) -> None:
    x = np.random.default_rng(0).normal(scale=1e4, size=100).astype(dtype)
    same(jitted(lambda x: np.round(x, decimals), x), np.round(x, decimals))
    found, _ = fdbr.vjp(lambda x: np.round(x, decimals), x)
    same(found, np.round(x, decimals))


MODES = [
    ("mean", {}),
    ("mean", {"stat_length": 2}),
    ("median", {}),
    ("median", {"stat_length": 2}),
    ("linear_ramp", {}),
    ("linear_ramp", {"end_values": ((3, 100),)}),
    ("maximum", {}),
    ("reflect", {"reflect_type": "odd"}),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("mode", "options"), MODES)
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
@few
@given(st.data())
def test_integers_are_padded(mode: Any, options: Any, dtype: str, data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=2, max_side=4))
    x = data.draw(hnp.arrays(dtype, shape))
    width = data.draw(st.sampled_from([1, 3, (2, 5)]))
    expected = np.pad(x, width, mode, **options)
    same(ops.pad(x, width, mode=mode, **options), expected)
    same(jitted(lambda x: np.pad(x, width, mode, **options), x), expected)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
@pytest.mark.parametrize("q", [0.0, 0.1, 0.2, 0.3, 0.6, 0.7, 1.0, np.float32(0.3)])
def test_weighted_quantiles_at_ties(dtype: str, q: Any) -> None:
    rng = np.random.default_rng(0)
    for n in (3, 5, 10):
        x = rng.permutation(n).astype(dtype)
        for weights in (np.ones(n), np.ones(n, "f4"), rng.integers(1, 4, n)):

            def quantile(x: Any, w: Any) -> Any:
                return np.quantile(x, q, weights=w, method="inverted_cdf")

            same(jitted(quantile, x, weights), np.asarray(quantile(x, weights)))
            if np.dtype(dtype).kind == "f":
                found, _ = fdbr.vjp(lambda x, w=weights: quantile(x, w), x)
                same(found, np.asarray(quantile(x, weights)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
@pytest.mark.parametrize(
    "function",
    [
        np.mean,
        np.var,
        np.std,
        np.median,
        np.average,
        np.ptp,
        np.linalg.norm,
        np.cov,
        np.corrcoef,
        np.gradient,
        np.trapezoid,
        lambda x: np.interp(1.5, np.arange(len(x)), x),
        lambda x: np.nanmean(x),
        lambda x: np.nanvar(x, ddof=1),
        lambda x: np.quantile(x, 0.3),
        lambda x: np.percentile(x, 30),
        lambda x: np.histogram(x, 4)[1],
        lambda x: np.sinc(x),
        lambda x: np.i0(x),
        lambda x: np.logaddexp(x, x[::-1]),
        lambda x: np.hypot(x, x[::-1]),
        lambda x: np.arctan2(x, x[::-1]),
        lambda x: np.true_divide(x, x[::-1]),
        lambda x: np.linspace(0, x[0], 4),
        lambda x: np.angle(x),
        lambda x: np.polyval(x, 0.5),
    ],
)
def test_functions_of_integers_are_numpys(function: Any, dtype: str) -> None:
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    limits = tuple(max(-(2**40), min(n, 2**40)) for n in limits)  # so that floats hold differences
    x = np.array([*limits, 1, 0, limits[1] // 2, 1, 7 % (limits[1] + 1)]).astype(dtype)
    try:
        expected = function(x)
    except (TypeError, ValueError):
        return  # of truth values
    found = jitted(function, x)
    for one, other in zip(
        *((v if type(v) is list else [v]) for v in (found, expected)), strict=True
    ):
        rtol = {"f2": 2e-3, "f4": 1e-5}.get(np.asarray(other).dtype.str[1:], 1e-10)
        np.testing.assert_allclose(one, other, rtol, rtol)
        assert np.asarray(one).dtype == np.asarray(other).dtype
