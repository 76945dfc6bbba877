"""The functions of kernels are NumPy's and SciPy's, to within some units in the last place."""

import functools

import numpy as np
import pytest
import scipy.special

from fdbr import ops
from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.codegen.math import functions

MOST = {"erfc": 6, "ndtr": 6, "erf": 4, "arcsin": 4, "arccos": 4}  # ulps; of the others three
SPECIAL = (
    *("erf", "erfc", "erfcx", "erfinv", "ndtr", "ndtri", "log_ndtr", "logit", "gammaln"),
    *("digamma", "i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1"),
)
SINGLE = (*SPECIAL, "remainder", "fmod", "floor_divide", "power")
UNARY = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log1p", "tanh")},
    **{name: getattr(np, name) for name in ("sqrt", "floor", "ceil", "trunc", "round", "sign")},
    **{name: getattr(np, name) for name in ("abs", "square", "reciprocal", "negative")},
    **{name: getattr(np, name) for name in ("positive", "isfinite", "isinf", "isnan", "signbit")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "arcsinh", "arccosh", "arctanh")},
    **{name: getattr(np, name) for name in ("arctan", "arcsin", "arccos", "log2", "log10", "cbrt")},
    **{name: getattr(scipy.special, name) for name in (*SPECIAL, "expit", "entr")},
}
BINARY = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide")},
    **{name: getattr(np, name) for name in ("maximum", "minimum", "logaddexp", "logaddexp2")},
    **{name: getattr(np, name) for name in ("copysign", "hypot")},
    **{name: getattr(np, name) for name in ("equal", "not_equal", "less", "less_equal")},
    **{name: getattr(np, name) for name in ("greater", "greater_equal", "power")},
    **{name: getattr(scipy.special, name) for name in ("xlogy", "xlog1py")},
    "arctan2": np.arctan2,
}
TO_THE_LAST_BIT = {
    name: getattr(np, name) for name in ("nextafter", "remainder", "fmod", "floor_divide")
}
OF_ORDERS = {
    **dict.fromkeys(("iv", "ive", "jv", "kv", "kve", "yv"), (0.0, 1.0, 2.0)),
    "zeta": (2.0, 3.0, 4.0, 8.0),
    "power": (2, 3, 7, 9, -1, -2, -0.5, 1.5, -2.5, 2.2),
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
            rng.uniform(-1, 12, 20_000),
        ]
    ).astype(dtype)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, limits.tiny, -limits.tiny, limits.max]
    ends += [-limits.max, limits.smallest_subnormal, -limits.smallest_subnormal, 0.5, 709.7, 88.7]
    ends += [2, -2, -0.5, 1.4616321, 8, 1 - limits.epsneg]
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


def far_out(name, x):
    """Where SciPy in double precision is no reference.

    It loses the phase of what oscillates, has no scaled functions, and adds up what cancels.
    """
    if name in ("ive", "kve"):
        return np.abs(x) > 1e6
    if name in ("j0", "j1", "y0", "y1", "jv", "yv"):
        return (np.abs(x) > 1e6) & np.isfinite(x)
    return (x < -1e3) & np.isfinite(x) if name == "zeta" else np.zeros(x.shape, bool)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_operand_are_as_exact_as_is_said(name, dtype):
    x = everywhere(dtype)
    found = kernels.elementwise(name, getattr(functions, name), (x,))
    if name in SINGLE and dtype == "float64":
        assert found is None  # there is no formula as exact
        return
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype("float64" if name in (*SINGLE, "entr") else "longdouble"))
    if found.dtype == bool:
        assert (found == exact).all()
        return
    assert found.dtype == x.dtype
    known = ~far_out(name, x)
    assert ulps(found[known], exact[known]) <= MOST.get(name, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_are_as_exact_as_is_said(name, dtype):
    x = everywhere(dtype)
    y = np.random.default_rng(1).permutation(x)
    ends = x[:22]
    x, y = np.concatenate([x, x, ends.repeat(22)]), np.concatenate([y, x, np.tile(ends, 22)])
    found = kernels.elementwise(name, getattr(functions, name), (x, y))
    if name in SINGLE and dtype == "float64":
        assert found is None
        return
    wide = "float64" if name in ("power", "xlogy", "xlog1py") else "longdouble"
    with np.errstate(all="ignore"):
        exact = BINARY[name](x.astype(wide), y.astype(wide))
    if found.dtype == bool:
        assert (found == exact).all()
        return
    if name in ("maximum", "minimum"):  # of two zeros either may be the larger one
        found, exact = found + 0.0, exact + 0.0
    if name in ("logaddexp", "logaddexp2"):  # where the operands cancel, so do their digits
        kept = ~(np.abs(exact) < np.abs(np.maximum(x, y)))
        found, exact = found[kept], exact[kept]
    # Of an exponential's difference, and of products.
    most = {"logaddexp": 24, "logaddexp2": 16, "xlogy": 4, "xlog1py": 4}
    assert ulps(found, exact) <= most.get(name, 3)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, -0.0])
@pytest.mark.parametrize(
    "name", sorted({*BINARY, *TO_THE_LAST_BIT} - {"power"})
)  # which has formulas of its own
def test_a_number_is_an_operand_as_an_array_of_it_is(name, number):
    x, function = everywhere("float32")[:22], getattr(functions, name)
    whole = np.full_like(x, number)
    for side, args in enumerate([(whole, x), (x, whole)]):
        of_number = (
            functools.partial(function, number) if side == 0 else lambda x: function(x, number)
        )
        found = kernels.elementwise((name, number, side, "of a number"), of_number, (x,))
        exact = kernels.elementwise(name, function, args)
        if found is not None:
            np.testing.assert_array_equal(found + 0, exact + 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TO_THE_LAST_BIT)
def test_neighbours_and_remainders_are_numpys_to_the_last_bit(name, dtype):
    x = everywhere(dtype)
    rng = np.random.default_rng(1)
    y, whole = rng.permutation(x), rng.integers(-20, 20, (2, 20_000)).astype(dtype)
    ends = x[:22]
    x = np.concatenate([x, whole[0], ends.repeat(22)])
    y = np.concatenate([y, whole[1], np.tile(ends, 22)])
    found = kernels.elementwise(name, getattr(functions, name), (x, y))
    if name in SINGLE and dtype == "float64":
        assert found is None
        return
    with np.errstate(all="ignore"):
        exact = TO_THE_LAST_BIT[name](x, y)
    assert np.array_equal(found, exact, equal_nan=True)
    assert (np.signbit(found) == np.signbit(exact))[found == 0].all()


@pytest.mark.parametrize("name", OF_ORDERS)
def test_functions_of_some_orders_are_as_exact_as_is_said(name):
    x = everywhere("float32")
    x = x[~far_out(name, x)] + np.float32(0)  # SciPy's `jv` has no sign of zeros
    reference = np.power if name == "power" else getattr(scipy.special, name)
    for order in OF_ORDERS[name]:

        def applied(function, x, order=order):
            return function(x, order) if name == "power" else function(order, x)

        of_nodes = functools.partial(applied, getattr(functions, name))
        found = kernels.elementwise((name, order), of_nodes, (x,))
        with np.errstate(all="ignore"):
            # As NumPy does, kernels round a number to the dtype of the array beside it.
            exact = applied(reference, x.astype(float), float(x.dtype.type(order)))
        assert found.dtype == x.dtype
        assert ulps(found, exact) <= 3, order


@pytest.mark.parametrize(
    ("name", "x", "exact"),
    [  # by mpmath with 400 bits
        ("j0", 2.0050977e32, 3.9855646338296198e-17),
        ("y0", 9.7945892e18, -1.8061124360080115e-10),
        ("y1", 9.7945892e18, -1.7993517215194124e-10),
    ],
)
def test_oscillations_keep_their_phase_however_far_out(name, x, exact):
    found = kernels.elementwise(name, getattr(functions, name), (np.full(100, x, "float32"),))
    assert ulps(found, np.full(100, exact)) <= 0.51


@pytest.mark.parametrize("quarters", range(4))
def test_sines_of_multiples_of_pi_lose_no_digit(quarters):
    x = everywhere("float32")
    x = x[np.isfinite(x)]
    found = kernels.elementwise(("sinpi", quarters), lambda x: functions.sinpi(x, quarters), (x,))
    rest = (x - 2 * np.rint(x / 2)).astype(float)  # exactly
    quarter = np.rint(2 * rest)
    angle = np.pi * (rest - quarter / 2)
    sines = np.array([np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)])
    exact = np.take_along_axis(sines, ((quarter + quarters) % 4).astype(int)[None], 0)[0]
    assert ulps(found + 0, exact + 0) <= 0.51


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_are_exact_of_everyday_numbers_and_else_nan(name):
    rng, end = np.random.default_rng(0), everywhere("float32")[:22]
    a = np.concatenate([rng.uniform(0, 25, 20_000), np.exp(rng.uniform(-12, 3, 20_000))])
    x = np.concatenate([rng.uniform(0, 50, 20_000), np.exp(rng.uniform(-20, 5, 20_000))])
    near = a * rng.uniform(0.9, 1.1, a.shape)
    a, x = np.concatenate([a, a, end.repeat(22)]), np.concatenate([x, near, np.tile(end, 22)])
    a, x = a.astype("float32"), x.astype("float32")
    found = kernels.elementwise(name, getattr(kernels.incomplete, name), (a, x))
    known = (a >= 1e-4) & (a <= 20) & (x > 0) & (x <= 3e38)
    assert (np.isnan(found) == ~known).all()
    exact = getattr(scipy.special, name)(a.astype(float), x.astype(float))
    assert ulps(found[known], exact[known]) <= 0.51
    repeated = np.resize(a, 300_000), np.resize(x, 300_000)
    large = getattr(ops, name)(*repeated)  # where the rest is SciPy's
    assert ulps(large, getattr(scipy.special, name)(*repeated).astype(float)) <= 1
    assert getattr(ops, name)(1e3, np.resize(x, 300_000)).shape == (300_000,)


def test_derivatives_in_double_precision_have_kernels_where_operands_are_single():
    x = np.linspace(0.1, 0.9, 100, dtype="float32")
    wide = lambda x: functions.erfinv(x.astype(float) * 1.0)
    assert kernels.elementwise("wide", wide, (x,)).dtype == np.float64
    assert kernels.elementwise("wide", wide, (x.astype(float),)) is None


def test_every_function_is_tested_here():
    elsewhere = {"ERF", "ERF_END", "TAIL", "TAIL_RATE", "dtype", "asarray", "result_type"}
    elsewhere |= {"full_like", "zeros_like", "ones_like", "where", "absolute", "fma", "gaussian"}
    elsewhere |= {"logical_and", "logical_or", "logical_not"}  # in test_calling.py
    # in tests/backends/cpu/codegen/test_formulas.py
    elsewhere |= {"sin", "cos", "tan", "astype", "logical_xor", "bitwise_and", "bitwise_or"}
    elsewhere |= {"bitwise_xor", "bitwise_not", "bitwise_invert", "invert"}
    tested = {"sinpi", *UNARY, *BINARY, *TO_THE_LAST_BIT, *OF_ORDERS}
    assert set(functions.__all__) == tested | elsewhere
