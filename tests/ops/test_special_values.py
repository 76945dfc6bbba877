"""Zeros, subnormals, infinities and NaN: an operation's answer does not depend on the length.

Small arrays are NumPy's and SciPy's, those in the middle are several of NumPy's functions, and
large ones are kernels'.  All of them agree in what is NaN, in infinities, in signs of zeros, and
to within some units in the last place; jitted functions too.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fdbr
from benchmarks.accuracy.others import PARAMETERS, WHOLE
from fdbr import ops
from fdbr.core.primitive import registry
from fdbr.ops.declare import Unknown
from ops.short import SHORT

inf, nan = math.inf, math.nan
LENGTHS = (1, 3, 8, 17, 100, 700, 5_000, 20_000, 40_000, 300_000)  # around every threshold
ULPS = 8

OF_ONE: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(ops, name)
        for name in (
            *("celu", "clipped_relu", "elu", "gelu", "hard_shrink", "hard_sigmoid", "hard_swish"),
            *("hard_tanh", "leaky_relu", "log1mexp", "log_sigmoid", "mish", "relu", "relu6"),
            *("selu", "sigmoid", "silu", "soft_shrink", "softplus", "softsign", "sparse_plus"),
            *("sparse_sigmoid", "squareplus", "tanh_shrink"),
        )
    },
    "celu-2": lambda x: ops.celu(x, alpha=2.0),
    "elu-0.5": lambda x: ops.elu(x, alpha=0.5),
    "gelu-tanh": lambda x: ops.gelu(x, approximate=True),
    "leaky_relu-2": lambda x: ops.leaky_relu(x, 2.0),
    "softplus-2": lambda x: ops.softplus(x, beta=2.0),
    "softplus-threshold": lambda x: ops.softplus(x, threshold=20.0),
    "swish-2": lambda x: ops.swish(x, 2.0),
    "threshold": lambda x: ops.threshold(x, 0.0, 5.0),
    "clip": lambda x: ops.clip(x, 0.0, 1.0),
    "maximum-0": lambda x: ops.maximum(x, 0.0),
    "minimum-0": lambda x: ops.minimum(0.0, x),
    "power-2.3": lambda x: x**2.3,
}
"""Activation functions, and others with kinks and numbers beside the operand."""


def special(dtype: Any) -> Any:
    """Special values of a dtype, and their opposites."""
    limits = np.finfo("float32") if str(dtype) == "bfloat16" else np.finfo(dtype)
    eps = 2.0**-7 if str(dtype) == "bfloat16" else float(limits.eps)
    tiny, most = float(limits.smallest_normal), 0.9 * float(limits.max)
    values = [
        *(
            0.0,
            tiny * eps,
            3 * tiny * eps,
            tiny / 2,
            tiny,
            1e-3 * eps,
            eps / 2,
            eps,
            math.sqrt(tiny),
        ),
        *(1e-4, 0.01, 0.25, 0.5, math.log(2), 1.0, 1 + eps, 1 - eps / 2, 1.5, 2.0, 2 + 2 * eps),
        *(3.0, 5.0, 6.0, 10.0, 20.0, 30.0, 45.0, 60.0, 87.0, 88.5, 89.0, 100.0, 300.0, 709.0),
        *(710.0, 745.0, 1e4, most**0.25, most**0.5, 4 * most**0.5, most / 4, most, inf, nan),
    ]
    return np.array([*values, *(-value for value in values)]).astype(dtype)


def derived(f: Callable[..., Any], *args: Any) -> list[Any]:
    """The value, and the derivative in each operand that is not whole."""
    moving = [i for i, x in enumerate(args) if x.dtype.kind not in "biu"]

    def chosen(*moved: Any) -> Any:
        every = list(args)
        for i, x in zip(moving, moved, strict=True):
            every[i] = x
        return f(*every)

    value, pullback = fdbr.vjp(chosen, *(args[i] for i in moving))
    if value.dtype.kind in "biu":
        return [value]
    return [value, *pullback(np.ones(value.shape, value.dtype))]


def same(found: Any, desired: Any, least: float, what: str) -> None:
    """NaN and infinities in the same positions, signs of zeros, and all else to some ulps."""
    assert found.dtype == desired.dtype, what
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, desired, err_msg=what)
        return
    if found.dtype.kind == "c":
        same(found.real, desired.real, least, what)
        same(found.imag, desired.imag, least, what)
        return
    short = found.dtype in SHORT
    wide = np.float32 if short else found.dtype
    limits = np.finfo(wide)
    eps = {2: 2.0**-7, 4: float(limits.eps), 8: float(limits.eps)}[found.dtype.itemsize]
    a, b = found.astype(wide), desired.astype(wide)
    np.testing.assert_allclose(a, b, rtol=ULPS * eps, atol=least, err_msg=what)  # NaN and inf, too
    zeros = (a == 0) & (b == 0)
    np.testing.assert_array_equal(
        np.signbit(a[zeros]), np.signbit(b[zeros]), err_msg=f"zeros of {what}"
    )


def check(f: Callable[..., Any], args: Any, lengths: Any, jits: Any, least: float = 0.0) -> None:
    """The same for every length, of a function of arrays that it takes element by element."""
    desired = [
        np.concatenate([np.atleast_1d(part) for part in parts])
        for parts in zip(
            *(derived(f, *(x[i : i + 2] for x in args)) for i in range(0, len(args[0]), 2)),
            strict=True,
        )
    ]
    compiled = fdbr.jit(lambda *args: derived(f, *args))
    for length in lengths:
        longer = [np.resize(x, length) for x in args]
        for how in (derived, compiled)[: 1 + (length in jits)]:
            found = compiled(*longer) if how is compiled else derived(f, *longer)
            for one, other in zip(found, desired, strict=True):
                same(np.asarray(one), np.resize(other, length), least, f"{length} elements")


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def floor(dtype: Any) -> float:
    """The size of errors that count as none: where results are subnormal digits are lost."""
    return 1e3 * float(np.finfo("float32" if np.dtype(dtype) in SHORT else dtype).smallest_normal)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OF_ONE)
def test_an_activation_gives_the_same_at_every_length(name, dtype):
    lengths, jits = ((100, 5_000, 300_000), (100,)) if dtype == "float32" else ((40_000,), ())
    check(OF_ONE[name], [special(dtype)], lengths, jits, floor(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", *SHORT], ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_an_activation_gives_the_same_at_every_length_and_jitted(name, dtype):
    check(OF_ONE[name], [special(dtype)], LENGTHS, LENGTHS[3:8:2], floor(dtype))


ELEMENTWISE = [
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    # SciPy's special functions have other methods for single numbers, and far out.
    and primitive.value.__module__.startswith(("fdbr.ops.elementwise.", "fdbr.ops.nn."))
]
ABSOLUTE = {
    "logaddexp": "terms of two signs cancel",
    "logaddexp2": "terms of two signs cancel",
    "swish": "the product of the operands is rounded",
}
"""Operations that have an absolute error, and why."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_operation_gives_the_same_at_every_length(name, dtype):
    primitive, params = registry[name], PARAMETERS.get(name, {})
    known = [rule is not None and not isinstance(rule, Unknown) for rule in primitive.rules]
    x = special(dtype)
    axes = [x[:: {1: 1, 2: 4}.get(len(known), 11)]] * len(known)
    args = [grid.ravel() for grid in np.meshgrid(*axes)]
    if name in WHOLE:
        args = [
            each if mine else np.clip(np.nan_to_num(each), -5, 5).astype("int32")
            for each, mine in zip(args, known, strict=True)
        ]

    def f(*operands: Any) -> Any:
        return primitive.apply(*operands, **params)

    try:
        f(*(each[:1] for each in args))
    except TypeError:
        pytest.skip("it takes other dtypes or keywords")
    least = 4 * float(np.finfo(dtype).eps) if name in ABSOLUTE else floor(dtype)
    check(f, args, (100, 5_000, 40_000, 300_000), (), least)


# --- what the answers are -----------------------------------------------------------

EDGES = np.array([-0.0, 0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, -1.2e-38], "float32")
of_any_length = pytest.mark.parametrize("length", [8, 5_000, 40_000, 300_000])


@of_any_length
@pytest.mark.parametrize("f", [ops.elu, ops.celu, ops.expm1, ops.tanh, ops.asinh, ops.softsign])
def test_functions_that_are_the_identity_at_zero_keep_tiny_numbers_and_signs(f, length):
    x = np.resize(EDGES, length)
    for function in (f, fdbr.jit(f)):
        found = function(x)
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


@of_any_length
def test_log1mexp_of_tiny_numbers_is_their_logarithm(length):
    x = np.resize(EDGES[2::2], length)
    desired = np.log(x.astype(float))
    np.testing.assert_allclose(ops.log1mexp(x), desired, rtol=1e-6)


@of_any_length
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tanh_shrink_keeps_its_digits_next_to_zero(dtype, length):
    few = np.array([1e-9, -1e-6, 1e-3, 0.02, 0.3, -1.0, 1.9, 2.1, 9.0], dtype)
    x, wide = np.resize(few, length), few.astype(np.longdouble)
    near = sum(2 * k * wide ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(1, 20))
    desired = np.where(abs(wide) < 2, near / np.cosh(wide), wide - np.tanh(wide)).astype(float)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(ops.tanh_shrink(x), np.resize(desired, length), rtol=8 * eps)
    gradient = fdbr.vjp(ops.tanh_shrink, x)[1](np.ones_like(x))[0]
    desired = (np.tanh(wide) ** 2).astype(float)
    np.testing.assert_allclose(gradient, np.resize(desired, length), rtol=8 * eps)


@of_any_length
def test_threshold_leaves_nan_as_it_is(length):
    x = np.resize(np.array([nan, -1.0, 0.5, 0.75], "float32"), length)
    out, pullback = fdbr.vjp(lambda x: ops.threshold(x, 0.5, 5.0), x)
    np.testing.assert_array_equal(out[:4], [nan, 5, 5, 0.75])
    np.testing.assert_array_equal(pullback(np.ones_like(x))[0][:4], [1, 0, 0, 1])


SMOOTH = {
    "elu": (0, 1),
    "gelu": (0, 1),
    "log_sigmoid": (1, 0),
    "mish": (0, 1),
    "silu": (0, 1),
    "softplus": (0, 1),
    "softsign": (0, 0),
    "sparse_plus": (0, 1),
    "squareplus": (0, 1),
    "swish": (0, 1),
    "tanh_shrink": (1, 1),
}
"""The derivatives at the ends."""


@of_any_length
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_finite_at_the_largest_numbers(name, dtype, length):
    most = np.finfo(dtype).max
    x = np.resize(np.array([-most, -most / 2, -1e5, 1e5, most / 2, most], dtype), length)
    out, pullback = fdbr.vjp(getattr(ops, name), x)
    assert np.isfinite(out).all()
    (gradient,) = pullback(np.full_like(x, 64))
    low, high = SMOOTH[name]
    desired = np.where(x < 0, 64 * low, 64 * high)
    np.testing.assert_allclose(gradient, desired, rtol=1e-6, atol=1e-4)


@of_any_length
def test_what_the_logistic_function_gives_is_not_zero_before_it_must_be(length):
    x = np.resize(np.array([-87.0, -89.0, -95.0, -103.0], "float32"), length)
    desired = np.exp(x.astype(float))
    np.testing.assert_allclose(ops.sigmoid(x), desired, rtol=1e-5, atol=1e-45)
    np.testing.assert_allclose(ops.silu(x), x * desired, rtol=1e-5, atol=1e-42)


@of_any_length
def test_sparse_plus_of_minus_infinity_is_zero(length):
    x = np.resize(np.array([-inf, inf, nan]), length)
    np.testing.assert_array_equal(ops.sparse_plus(x)[:3], [0, inf, nan])
