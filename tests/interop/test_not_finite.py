"""NumPy's functions of traced arrays with NaN and infinities give NumPy's own results."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr

RNG = np.random.default_rng(0)
PLACES = np.sort(RNG.random(12))
EVEN = np.arange(12) * 0.5
QUERIES = np.concatenate([RNG.uniform(-0.2, 1.2, 20), PLACES[:3], PLACES[-2:], [np.inf, np.nan]])
KERNEL = np.array([1.0, 0.0, -2.0, 3.0])

FUNCTIONS = {
    "gradient": np.gradient,
    "gradient of order 2": lambda x: np.gradient(x, 0.3, edge_order=2),
    "gradient at places": lambda x: np.gradient(x, PLACES),
    "gradient of order 2 at places": lambda x: np.gradient(x, PLACES, edge_order=2),
    "gradient at even places": lambda x: np.gradient(x, EVEN, edge_order=2),
    "gradient of a matrix": lambda x: np.stack(np.gradient(x.reshape(3, 4))),
    "interp": lambda x: np.interp(QUERIES, PLACES, x),
    "interp with ends": lambda x: np.interp(QUERIES, PLACES, x, left=-1, right=np.inf),
    "interp at": lambda x: np.interp(x, PLACES, EVEN),
    "interp at even places": lambda x: np.interp(x, EVEN, PLACES),
    "convolve": lambda x: np.convolve(x, KERNEL),
    "convolve same": lambda x: np.convolve(KERNEL, x, "same"),
    "convolve valid": lambda x: np.convolve(x, KERNEL, "valid"),
    "correlate": lambda x: np.correlate(x, KERNEL, "full"),
    "diff": lambda x: np.diff(x, 2),
    "trapezoid": lambda x: np.trapezoid(x.reshape(3, 4), PLACES[:4]),
    "cumsum": lambda x: np.cumsum(x.reshape(3, 4), axis=1),
    "pad": lambda x: np.pad(x, 3, mode="linear_ramp"),
    "triu": lambda x: np.triu(x.reshape(3, 4)),
}
NUMBERS = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 0.25, 1.0, -3.0, PLACES[4]])


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.lists(NUMBERS, min_size=12, max_size=12).map(np.array))
def test_a_traced_function_gives_numpys_result(name, x):
    function = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(fdbr.vjp(function, x)[0], function(x), rtol=1e-10, atol=1e-12)


@given(st.lists(NUMBERS, min_size=12, max_size=12).map(np.array), st.booleans())
def test_the_places_of_a_gradient_may_be_traced(x, even):
    with np.errstate(all="ignore"):
        places = EVEN if even else PLACES
        out, _ = fdbr.vjp(np.gradient, x, places)
        np.testing.assert_allclose(out, np.gradient(x, places), rtol=1e-10, atol=1e-12)
        compiled = fdbr.jit(lambda x: np.gradient(x, places))
        np.testing.assert_allclose(compiled(x), np.gradient(x, places), rtol=1e-10, atol=1e-12)
