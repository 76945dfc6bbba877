"""Elementwise operations in kernels: exact, and one kernel with others, a user's too."""

import inspect
import warnings

import numpy as np
import pytest
from compiler.comparing import assert_as_eager
from compiler.recorded import normal, recorded

import fdbr
from fdbr import ops
from fdbr.backends.cpu.codegen.formulas import is_elementwise
from fdbr.backends.cpu.codegen.math import functions
from fdbr.backends.cpu.codegen.nest_kernels import write_nest
from fdbr.backends.cpu.codegen.scalar_functions import MODULE
from fdbr.backends.cpu.runtime import compiling
from fdbr.compiler.ir.program import Fused
from fdbr.compiler.passes.loop_fusion import fuse_loops
from fdbr.core.array_modules import array_module
from fdbr.core.expr import Graph
from fdbr.core.primitive import registry
from fdbr.ops.declare import elementwise

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.7, 88.73, -87.4, -103.9, -110.0]
EDGES += [709.7, 709.8, -745.0, -746.0, 0.625, 1.0, -1.0, 1e-310, 1e-40, 1e308, 3e38]

FUNCTIONS = {
    "exp": (np.exp, 2),
    "log": (np.log, 2),
    "log1p": (np.log1p, 3),
    "tanh": (np.tanh, 3),
    "sign": (np.sign, 0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
}


def points(dtype):
    generator = np.random.default_rng(0)
    spread = [generator.normal(size=20_000) * s for s in (1e-4, 0.1, 1, 10, 60)]
    with np.errstate(over="ignore"):
        return np.concatenate([*spread, EDGES]).astype(dtype)


def compiled(f):
    return fdbr.jit(f)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_a_few_units_in_the_last_place(name, dtype):
    reference, ulps = FUNCTIONS[name]
    x = points(dtype)
    f = getattr(ops, name)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble)).astype(dtype)
        found, _ = compiled(lambda x: (f(x), f(x) * 2))(x)
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        assert np.isfinite(exact[~same]).all()
        distance = np.abs(found[~same].astype(np.longdouble) - exact[~same])
        assert (distance <= ulps * np.spacing(np.abs(exact[~same]))).all()
    assert np.array_equal(np.signbit(found[same & (x == 0)]), np.signbit(exact[same & (x == 0)]))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "log", "sinh", "copysign"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_over_formulas_vectorise(name, dtype):
    f = getattr(ops, name)
    two = len(inspect.signature(f).parameters) == 2
    x = np.abs(normal(5000)).astype(dtype)
    kernels, _ = kernels_of(lambda x: (f(x, 1 - x) if two else f(x)) * 2, x)
    text, _ = compiling.translated(write_nest(kernels[0]).source)
    assert f"x {'float' if dtype == np.float32 else 'double'}>" in text


ANGLES = {"sin": (np.sin, 2), "cos": (np.cos, 2), "tan": (np.tan, 3)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ANGLES)
def test_functions_of_angles_are_exact_to_a_few_units(name, dtype):
    (reference, ulps), f = ANGLES[name], getattr(ops, name)
    x = points(dtype)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble)).astype(dtype)
        known = np.isnan(exact) | (np.abs(x) < 1e4)  # others NumPy reduces with less care here
        x, exact = x[known], exact[known]
        found, _ = compiled(lambda x: (f(x), f(x) * 2))(x)
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        distance = np.abs(found[~same].astype(np.longdouble) - exact[~same])
        assert (distance <= ulps * np.spacing(np.abs(exact[~same]))).all()
    assert np.array_equal(np.signbit(found[x == 0]), np.signbit(exact[x == 0]))


@pytest.mark.parametrize("shape", [(3,), (100, 60)])
@pytest.mark.parametrize("name", ANGLES)
def test_angles_beyond_what_kernels_reduce_are_left_to_numpy(name, shape):
    f = lambda x: getattr(ops, name)(x * 2) + 1
    x = normal(*shape).astype(np.float64)
    far, farther = x.copy(), x.astype(np.float32)
    far.flat[1], farther.flat[2], farther.flat[0] = 1e22, 3e37, np.inf
    with np.errstate(all="ignore"):
        assert_as_eager(f, (x,), (far,), (x,))
        assert_as_eager(f, (x.astype(np.float32),), (farther,))


# --- a user's operations ---------------------------------------------------------------


@elementwise(x=lambda out, x: out * (1 - 2 * x * x) / x)
def ricker(xp, x):
    """``x * exp(-x**2)``, and a constant of NumPy's."""
    return np.float32(1.5) * x * xp.exp(-(x**2))


@elementwise(x=lambda y, gain: gain * ops.cos(y), y=lambda x, y, gain: -gain * x * ops.sin(y))
def swayed(xp, x, y, *, gain):
    """It chooses by a keyword, which is known, and by values, through `where`."""
    out = xp.where(x > y, x * 2, abs(y))
    return gain * out if gain > 1 else out + 1


@elementwise(x=None)
def decided(xp, x):
    """It decides by values, so that no formula says what it computes."""
    return x if x.sum() > 0 else -x


def kernels_of(f, *args):
    program = fuse_loops(recorded(f, *args)[0])
    return [step for step in program.steps if type(step) is Fused], program.steps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_operation_of_a_user_is_one_kernel_with_its_neighbours(dtype):
    x = normal(100, 60).astype(dtype)

    def f(x):
        y = ricker(ops.tanh(x)) + 1
        return ops.sqrt(swayed(y, x, gain=2.5) ** 2 + 1)

    def derivatives(x):
        return fdbr.grad(lambda x: ops.sum(ricker(x * 2) * ops.tanh(x)))(x)

    kernels, steps = kernels_of(f, x)
    assert len(kernels) == len(steps) == 1
    assert_as_eager(f, (x,), (x * 3,))
    kernels, steps = kernels_of(derivatives, x)
    assert len(kernels) == len([step for step in steps if step.outs[0].kind.shape]) == 1
    assert_as_eager(derivatives, (x,), (x * 3,))


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (100, 60)])
def test_it_gives_what_it_gives_alone_in_kernels_of_all_sizes(shape):
    x, y = normal(*shape), np.asarray(normal(*shape, seed=1), np.float64)

    def f(x, y, n):
        a = ricker(x) + ops.logical_xor(x > 0, y > 0) * n
        return a, swayed(a, y, gain=0.5), ops.copysign(ops.hypot(a, 2.0), y), ricker(y) < x

    # `ricker` computes in float32, where kernels round otherwise, and is added to float64.
    assert_as_eager(f, (x, y, 2), (y, x, -1), ulps=1 << 31)


def test_what_decides_by_values_runs_as_it_is():
    x = normal(100, 60)
    f = lambda x: decided(ops.tanh(x) * 2) + 1
    assert len(kernels_of(f, x)[1]) > 1
    assert_as_eager(f, (x,), (-x,))


INTEGERS = {
    "sums": lambda x, n: (x + n) * n - x,
    "bits": lambda x, n: ops.bitwise_xor(ops.bitwise_and(x, 6), ops.bitwise_invert(n)),
    "comparisons": lambda x, n: (x < n) | (x == 2) ^ (n >= 0.5),
    "extremes": lambda x, n: ops.maximum(ops.abs(x), n) - ops.minimum(x, -n),
    "quotients": lambda x, n: x / 4 + ops.exp(x * 0.5),
    "choices": lambda x, n: ops.where(x > 0, x, n) + ops.where(x > 1, 2, 3),
    "casts": lambda x, n: ops.astype(x, bool) ^ ops.astype(n, np.float32).astype(bool),
    "of numbers": lambda x, n: ops.tanh(n) + ops.sqrt(ops.abs(x)),
}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_and_truth_values_are_elements_too(name, dtype):
    x = np.arange(-3000, 3000).reshape(100, 60).astype(dtype)
    n = x[::-1] // 7
    x[0, :3] = np.iinfo(dtype).max, np.iinfo(dtype).min, 0
    with np.errstate(all="ignore"):
        assert_as_eager(INTEGERS[name], (x, n), (x[:2, :3], n[:2, :3]))


# --- all of them -----------------------------------------------------------------------

PARAMS = {
    "astype_exact": {"to": np.dtype(bool)},
    "astype_inexact": {"to": np.dtype(np.float64)},
    "clipped": {"low": -1.0, "high": 0.5},
    "elu": {"above": 1.0, "scale": 1.0, "alpha": 1.5},
    "full_like": {"value": 2.0, "dtype": None},
    "gaussian": {"rate": 0.5},
    "half_integer_power": {"exponent": 2.5},
    "hankel_expansion": {"signs": 1.0, "order": 1},
    "hard_limits": {"low": -1.0, "high": 0.5},
    "hard_shrink": {"lambd": 0.5},
    "hard_sigmoid": {"slope": 0.2},
    "integer_power": {"exponent": 3},
    "leaky_relu": {"slope": 0.1},
    "log1p_ratio": {"order": 1},
    "mean_power": {"order": 1},
    "polygamma": {"n": 0},
    "power_or_zero": {"exponent": -1.0},
    "root_or_zero": {"exponent": 0.5},
    "scaled_huber": {"delta": 0.5, "divisor": 0.25},
    "sinc": {"order": 0},
    "soft_shrink": {"lambd": 0.5},
    "softplus": {"beta": 2.0},
}

REASONS = {
    **dict.fromkeys(
        ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"), "of integers alone"
    ),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), "of integers alone"),
    **dict.fromkeys(("ldexp", "eval_hermite", "eval_hermitenorm"), "an operand is an integer"),
    "exponent": "an integer of a floating number",
    **dict.fromkeys(("hankel1", "hankel2", "hankel1e", "hankel2e", "wofz"), "complex values"),
    **dict.fromkeys(("lambertw", "of_parts"), "complex values"),
    **dict.fromkeys(("spherical_in", "spherical_jn", "spherical_kn", "spherical_yn"), "orders"),
    **dict.fromkeys(("betainc_by", "gammainc_by", "carlson", "log_moment"), "quadratures"),
    "smirnov_by": "as many terms as the largest element says",
    **dict.fromkeys(("bdtr", "bdtrc", "bdtri", "nbdtr", "nbdtrc", "nbdtri"), "orders"),
    **dict.fromkeys(("pdtri", "expn", "kn", "yn", "smirnov", "smirnovi"), "orders"),
    "zeta": "SciPy has no such function in C, and kernels a formula for few orders alone",
}
"""Operations that are not joined with others, and why not."""

OF_SINGLE = {"floor_divide", "remainder", "sinc"}  # no formula is as exact for doubles
NUMPYS = {"power"}  # whose loop NumPy has in vectors, faster than any formula
ELEMENTWISE = sorted(
    name
    for name, p in registry.items()
    if p.facts.elementwise and p.value.__module__.startswith("fdbr.")
)


def operands(primitive, dtype, size):
    """As many arrays as an operation takes; a condition is one of truth values."""
    parameters = list(inspect.signature(inspect.unwrap(primitive.value)).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    arrays = [np.linspace(0.2, 0.9, size) * (1 + 0.1 * i) for i in range(len(names))]
    return [
        (x > 0.5) if name == "condition" else x.astype(dtype)
        for name, x in zip(names, arrays, strict=True)
    ]


def narrowed(arrays):
    """Every second array in float32."""
    single = [x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays]
    return [single[i] if i % 2 else x for i, x in enumerate(arrays)]


def applied(name):
    return lambda *xs: registry[name].apply(*xs, **PARAMS.get(name, {}))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_elementwise_operation_is_joined_with_its_neighbours(dtype):
    alone = set()
    for name in ELEMENTWISE:
        if name in REASONS:
            continue
        f, xs = applied(name), operands(registry[name], dtype, 3000)

        def joined(*xs, f=f):
            out = f(*[x if x.dtype == bool else x * 0.5 for x in xs])
            return ops.where(out == 0, 1.0, out * 1.0)

        with np.errstate(all="ignore"):
            kernels, steps = kernels_of(joined, *xs)
        if len(kernels) != 1 or len(steps) != 1:
            alone.add(name)
    assert alone == NUMPYS | (OF_SINGLE if dtype == np.float64 else set())


def test_reasons_are_of_operations_that_need_them():
    for name in REASONS:
        primitive = registry[name]
        assert primitive.facts.elementwise
        if REASONS[name] in ("of integers alone", "an operand is an integer"):
            continue
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = recorded(applied(name), *operands(primitive, np.float64, 3000))[0]
            except TypeError:  # keywords without which there is no value
                continue
        assert not any(map(is_elementwise, program.steps)), name


SHARES = [ELEMENTWISE[i::12] for i in range(12)]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("share", SHARES, ids=range(len(SHARES)))
def test_joined_operations_give_what_they_give_alone(share, mixed):
    names = [n for n in share if n not in REASONS]
    inputs = {name: operands(registry[name], np.float64, 40) for name in names}
    if mixed:
        inputs = {name: narrowed(xs) for name, xs in inputs.items() if len(xs) > 1}

    def every(inputs):
        out = {}
        for name, xs in inputs.items():
            found = applied(name)(*xs)
            out[name] = found if found.dtype == bool else found * 1.0
        return out

    with np.errstate(all="ignore"):
        # Steps on a float32 operand only may round in float32.
        assert_as_eager(every, (inputs,), ulps=1 << 31 if mixed else 64)


def test_nodes_of_programs_and_of_eager_kernels_have_modules_of_their_own():
    for module in (functions, MODULE, functions):
        node = Graph(module).node("operand", np.dtype(np.float64), (), (0, True))
        assert array_module(node) is module
