"""Derivatives keep their digits over the whole range of a dtype, in the tails above all."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr.core.primitive import registry
from ops.cases import jitted_if_asked

_MAGNITUDES = np.concatenate([np.geomspace(1e-37, 1e38, 151), np.linspace(0.03, 40.0, 161)])
POINTS = np.concatenate([-_MAGNITUDES[::-1], _MAGNITUDES]).astype("float32")
SMALLEST, LARGEST = np.finfo("float32").smallest_normal, np.finfo("float32").max
UNARY = sorted(
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    and primitive.value.__module__.startswith("fdbr.")
    and isinstance(primitive.rules, list)
    and len(primitive.rules) == 1
    and primitive.rules[0] is not None
)
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "integer_power": [{"exponent": n} for n in (3, 4, -1, -2)],
    "half_integer_power": [{"exponent": e} for e in (1.5, 2.5, -1.5)],
    "leaky_relu": [{"slope": 0.1}],
    "elu": [{"above": 1.0, "scale": 1.0, "alpha": 1.0}],
    "hard_limits": [{"low": -1.0, "high": 1.0}],
    "gaussian": [{"rate": 0.5}, {"rate": 1.0}],
    "mean_power": [{"order": 0}, {"order": 1}],
    "sinc": [{"order": 0}, {"order": 1}],
}


def derivative_of(function: Any) -> Any:
    """The derivative of each element's value by the element."""

    def slope(x: Any) -> Any:
        value, pullback = fdbr.vjp(function, x)
        return pullback(np.ones_like(value))[0]

    return slope


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", UNARY)
def test_a_derivative_in_float32_is_that_in_float64_as_far_as_it_is_conditioned(name: str) -> None:
    for params in PARAMETERS.get(name, [{}]):
        try:
            function = jitted_if_asked(lambda x, p=params: registry[name].apply(x, **p))
            found = derivative_of(function)(POINTS)
        except TypeError:
            pytest.skip("it takes parameters of its own")
        wide = POINTS.astype("float64")
        exact, bend = derivative_of(function)(wide), derivative_of(derivative_of(function))(wide)
        there = np.isfinite(exact) & np.isfinite(bend)
        there &= (np.abs(exact) > SMALLEST) & (np.abs(exact) < LARGEST)
        scale = np.abs(exact) + np.abs(POINTS * bend)
        with np.errstate(all="ignore"):
            errors = np.where(there, np.abs(found - exact) / (scale * np.finfo("float32").eps), 0)
        at = int(np.argmax(errors))
        assert errors[at] < 16, (POINTS[at], found[at], exact[at])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [8, 5_000, 1 << 19])
def test_the_logistic_function_is_no_zero_before_it_must_be(dtype, size):
    least = np.log(float(np.finfo(dtype).tiny))
    x = np.resize(np.linspace(least, least + 8, 8), size).astype(dtype)
    found, exact = fdbr.ops.sigmoid(x), np.exp(x.astype("longdouble"))
    assert (np.abs(found - exact) <= 4 * np.spacing(exact.astype(dtype))).all()
