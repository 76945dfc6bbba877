"""An element's value and derivative do not depend on the array's other elements.

A method chosen, or a number of terms, by the largest element of an array would make them do so.
"""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import scipy.special

import fdbr
from benchmarks.accuracy.others import WHOLE
from fdbr.core.primitive import registry
from fdbr.ops.declare import Unknown
from ops.test_special_values import derived, special

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = [
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    and primitive.value.__module__.startswith("fdbr.ops.special")
    and not name.startswith("ncf")  # SciPy's loops do not end at extreme operands
]
PARAMETERS: dict[str, dict[str, Any]] = {
    "betainc_by": {"i": 1, "j": 0},
    "carlson": {"n": 0, "powers": (1.5, 0.5, 0.5, 1)},
    "gammainc_by": {"n": 1},
    "hankel_expansion": {"signs": 1, "order": 1},
    "log1p_ratio": {"order": 0},
    "mean_power": {"order": 1},
    "polygamma": {"n": 1},
    "sinc": {"order": 0},
    "smirnov_by": {"order": 1},
}
ENDLESS = (
    *("gammasgn", "hyp", "log_wright_bessel", "mathieu_", "obl_", "pro_", "smirnov"),
    "wright_bessel",
)
"""Functions whose time, or SciPy's, grows with their operands."""

ORDINARY = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.3, 2.0, 2.5, 3.0, 4.0, 7.5, 0.0, -0.0, -0.5, -1.0, -2.5)
KEPT, OTHERS = 24, 40


def operands(name: str, dtype: str, count: int, share: float, seed: int) -> list[Any]:
    """Rows of which a share is special, the rest are ordinary."""
    random = np.random.default_rng(seed)
    values = special(dtype)
    if name.startswith(ENDLESS):
        values = values[~(abs(values) > 40) | np.isinf(values)]
    out = []
    for i in range(number_of_operands(name)):
        few = random.choice(values, count)
        x = np.where(random.random(count) < share, few, random.choice(ORDINARY, count))
        if name in WHOLE and i == 0:
            x = np.clip(np.nan_to_num(x), 0, 5)
        out.append(x.astype("int32" if name in WHOLE and i == 0 else dtype))
    return out


def number_of_operands(name: str) -> int:
    parameters = inspect.signature(registry[name].value).parameters.values()
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) - 1


def with_derivatives(name: str) -> Any:
    """The value, and the derivatives that are known."""
    primitive, params = registry[name], PARAMETERS.get(name, {})
    rules = primitive.rules
    known = [rule is not None and not isinstance(rule, Unknown) for rule in rules]

    def f(*args: Any) -> Any:
        moving = [i for i, mine in enumerate(known) if mine]
        if not moving:
            return [primitive.apply(*args, **params)]

        def of_moving(*moved: Any) -> Any:
            every = list(args)
            for i, x in zip(moving, moved, strict=True):
                every[i] = x
            return primitive.apply(*every, **params)

        return derived(of_moving, *(args[i] for i in moving))

    return f


def check(name: str, f: Any) -> None:
    """Elements keep their results, bit by bit, beside ordinary and beside special neighbours."""
    kept = operands(name, "float64", KEPT, 0.0, seed=0)
    ordinary, strange = (
        [
            np.asarray(part)[:KEPT]
            for part in f(*(np.concatenate(pair) for pair in zip(kept, others, strict=True)))
        ]
        for others in (
            operands(name, "float64", OTHERS, 0.0, seed=1),
            operands(name, "float64", OTHERS, 1.0, seed=2),
        )
    )
    for found, desired in zip(strange, ordinary, strict=True):
        np.testing.assert_array_equal(found, desired)


@pytest.mark.parametrize("name", NAMES)
def test_an_element_of_a_special_function_does_not_depend_on_its_neighbours(name):
    check(name, with_derivatives(name))


FEW = ("elliprc", "elliprd", "elliprj", "ive", "j0", "kve", "smirnov", "spence")


@pytest.mark.parametrize("name", FEW)
def test_an_element_of_a_jitted_special_function_does_not_depend_on_its_neighbours(name):
    check(name, fdbr.jit(with_derivatives(name)))


def test_derivatives_of_carlson_are_infinite_where_their_integrals_diverge():
    x, y, z = np.array([0.0, 1.3, 0.5]), np.array([0.1, 0.0, 0.7]), np.array([3.0, 2.5, 2.5])
    by_x, by_y, by_z = fdbr.vjp(registry["elliprd"].apply, x, y, z)[1](np.ones(3))
    np.testing.assert_array_equal(by_x == -math.inf, [True, False, False])
    np.testing.assert_array_equal(by_y == -math.inf, [False, True, False])
    assert np.isfinite(by_z).all()


def test_the_derivative_of_smirnov_is_that_of_whole_numbers_of_draws():
    n = np.array([1.0, 2.5, 3.0, 20.0, -1.0, math.inf, math.nan])
    (found,) = fdbr.vjp(lambda d: registry["smirnov"].apply(n, d), np.full(7, 0.3))[1](np.ones(7))
    whole = np.array([1.0, 2.0, 3.0, 20.0])
    h = 1e-6
    ends = (scipy.special.smirnov(whole, 0.3 + step) for step in (h, -h))
    np.testing.assert_allclose(found[:4], np.subtract(*ends) / (2 * h), rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(found[4:]), True)
