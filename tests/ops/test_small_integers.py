"""Integers and truth values are converted before floating arithmetic, so they do not wrap."""

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special

import fdbr
from fdbr import ops
from fdbr.core.primitive import registry
from fdbr.ops import special

INTEGERS = tuple(map(np.dtype, ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")))


def numbers(dtype: Any) -> Any:
    """Numbers that wrap when they are negated, squared, added or subtracted in the dtype."""
    if dtype.kind == "b":
        return np.array([False, True, True, False])
    least = 0 if dtype.kind == "u" else -128
    return np.array([least, 1, 3, 127, 100, 200 if dtype.kind == "u" else -100]).astype(dtype)


def compare(found: Any, expected: Any) -> None:
    """Compare floats with the results for float64 numbers, with the tolerance of their dtype."""
    found, expected = np.asarray(found), np.asarray(expected, float)
    limits = np.finfo(found.dtype)
    rtol = max(64 * float(limits.eps), 1e-9)
    fits = ~(abs(expected) > float(limits.max) / 2)  # or overflows in half precision
    wide = found.astype(float)
    atol = max(1e-30, 8 * float(limits.smallest_normal))
    np.testing.assert_allclose(wide[fits], expected[fits], rtol, atol)


def without_settings(primitive: Any) -> bool:
    parameters = list(inspect.signature(primitive.value).parameters.values())[1:]
    return all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


ELEMENTWISE = sorted(
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    and primitive.value.__module__.startswith("fdbr.")
    and ".special" not in primitive.value.__module__  # computed by SciPy's loops
    and without_settings(primitive)
    # `spacing` depends on the dtype, `ldexp` takes integers, and ops.tanh_shrink converts itself.
    and name not in ("spacing", "ldexp", "tanh_shrink")
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_floating_results_of_integers_are_those_of_the_same_floats(name: str) -> None:
    primitive = registry[name]
    count = len(primitive.rules)
    jitted = fdbr.jit(primitive.apply)
    for dtype in INTEGERS:
        args = [numbers(dtype)[:: -1 if i % 2 else 1] for i in range(count)]
        try:
            out = primitive.apply(*args)
        except (TypeError, ValueError):
            continue  # NumPy has no such operation on these dtypes
        if getattr(out, "dtype", np.dtype(int)).kind != "f":
            continue  # NumPy's integers
        expected = primitive.apply(*(x.astype(float) for x in args))
        compare(out, expected)
        compare(jitted(*args), expected)


PUBLIC = sorted(
    {name for room in (ops, special) for name in room.__all__}
    - {"linspace", "newaxis", "tri", "upsample"}  # which take sizes
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PUBLIC)
def test_float64_results_of_small_integers_have_the_digits_of_float64(name: str) -> None:
    """A loop of NumPy or SciPy for small integers computes in float16 or float32."""
    function = getattr(special, name, None) or getattr(ops, name)
    # SciPy computes integer orders by other formulas than floating ones.
    like: Any = np.int64 if name in special.__all__ else float
    for dtype in INTEGERS[:5]:
        x = np.array([3, 1, 2, 1] if dtype.kind == "u" else [-3, 1, 2, 0]).astype(dtype)
        for count in (1, 2, 3):
            args = [x, x[::-1], x][:count]
            try:
                found = fdbr.tree.leaves(function(*args))
                wide = fdbr.tree.leaves(function(*(a.astype(like) for a in args)))
            except (TypeError, ValueError, IndexError, NotImplementedError):
                continue  # it takes other arguments
            for one, other in zip(found, wide, strict=True):
                if getattr(one, "dtype", None) == np.float64 == getattr(other, "dtype", None):
                    np.testing.assert_allclose(one, other, 1e-11, 1e-300)


ALPHA = 1.6732632423543772
TRANSFORMED = [
    lambda f: f,
    fdbr.jit,
    fdbr.checkpoint,
    lambda f: lambda *args: fdbr.vmap(f)(*(np.stack([x, x]) for x in args))[0],
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (ops.sigmoid, scipy.special.expit),
        (ops.silu, lambda x: x * scipy.special.expit(x)),
        (ops.log_sigmoid, scipy.special.log_expit),
        (ops.softplus, lambda x: np.logaddexp(x, 0)),
        (ops.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, ALPHA * np.expm1(x))),
        (lambda x: ops.squareplus(x, x**0), lambda x: (x + np.hypot(x, 1)) / 2),
        (lambda x: special.agm(3, x), lambda x: scipy.special.agm(3.0, x)),
        (special.entr, scipy.special.entr),
        (lambda x: ops.softplus(x, beta=2.0), lambda x: np.logaddexp(2 * x, 0) / 2),
        (special.softplus, lambda x: np.logaddexp(x, 0)),
        (ops.softsign, lambda x: x / (1 + abs(x))),
        (ops.tanh_shrink, lambda x: x - np.tanh(x)),
        (ops.sparse_plus, lambda x: np.where(x >= 1, x, np.where(x <= -1, 0, (x + 1) ** 2 / 4))),
        (ops.hard_shrink, lambda x: np.where(abs(x) <= 0.5, 0, x)),
        (ops.soft_shrink, lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
        (ops.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
        (ops.softmax, scipy.special.softmax),
        (ops.logsumexp, scipy.special.logsumexp),
        (ops.mean, np.mean),
        (ops.var, np.var),
    ],
)
def test_activations_of_integers(function: Any, reference: Any, dtype: Any) -> None:
    if dtype.kind == "b" and function is special.softplus:
        return
    x = numbers(dtype)
    for transformed in TRANSFORMED:
        out = np.asarray(transformed(function)(x))
        if out.dtype.kind in "biu":
            np.testing.assert_array_equal(out, reference(x.astype(float)))
        else:
            compare(out, reference(x.astype(float)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("other", [None, "f4"])
def test_squared_errors_of_integers(dtype: Any, other: Any) -> None:
    x, y = numbers(dtype), numbers(dtype)[::-1]
    y = y if other is None else y.astype(other)
    expected = (x.astype(float) - y.astype(float)) ** 2
    for transformed in TRANSFORMED:
        compare(transformed(ops.mean_squared_error)(x, y), expected.mean())
        each = transformed(lambda x, y: ops.mean_squared_error(x, y, reduction="none"))(x, y)
        compare(each, expected)


SMALL = [dtype for dtype in INTEGERS if dtype.itemsize < 8]


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_products_of_integers_that_a_floating_operand_joins(dtype: Any) -> None:
    x = np.resize(numbers(dtype), (2, 3, 4))
    w = np.resize(numbers(dtype)[::-1], (5, 3, 2))
    bias, wide = np.linspace(0, 1, 5), (x.astype(float), w.astype(float))
    for transformed in TRANSFORMED[:3]:
        for function in (
            lambda x, w: ops.conv(x, w, bias),
            lambda x, w: ops.conv_transpose(x, np.swapaxes(w, 0, 1), bias),
            lambda x, w: ops.local_conv(x, w[:, None, :, :].repeat(3, 1), np.stack([bias] * 3, 1)),
            lambda x, w: ops.linear(x[..., :2], w[:, 0], bias),
            lambda x, w: ops.einsum("nci,oci,o->no", x[..., :2], w, bias),
            lambda x, w: ops.linalg.multi_dot([x[0, :, :2].T, w[0], np.eye(2)]),
        ):
            compare(transformed(function)(x, w), function(*wide))
    batched = fdbr.vmap(lambda x, w: ops.linear(x[0], w[:, :1].repeat(4, 1), bias))
    w = np.stack([w[..., 0]] * 2)
    compare(batched(x, w), batched(wide[0], w.astype(float)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_known_statistics_of_integers(dtype: Any) -> None:
    x = np.resize(numbers(dtype), (4, 3))
    mean, variance = numbers(dtype)[:3], np.array([1.0, 2.0, 3.0])
    expected = (x.astype(float) - mean.astype(float)) / np.sqrt(variance + 1e-5)
    compare(ops.batch_norm(x, mean=mean, variance=variance)[0], expected)
    compare(ops.standardize(x, mean=mean, variance=variance), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scattered_means_of_integers(dtype: Any) -> None:
    src = np.resize(numbers(dtype), 300)
    found = ops.scatter(
        np.zeros(1, dtype), 0, np.zeros(300, int), src, reduce="mean", include_self=False
    )
    compare(found, [src.astype(float).mean()])


def test_padding_is_a_number_of_the_common_dtype() -> None:
    found = ops.pad_sequence([np.array([1, 2]), np.array([0.5])], padding_value=0.5)
    np.testing.assert_array_equal(found, [[1, 0.5], [2, 0.5]])
    found = ops.pad_sequence([np.array([1]), np.array([0.5, 1.5])], padding_value=0.25)
    np.testing.assert_array_equal(found, [[1, 0.5], [0.25, 1.5]])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["u1", "i1", "bool"])
@pytest.mark.parametrize("other", ["f4", "u2"])
def test_gates_of_mixed_dtypes(dtype: str, other: str) -> None:
    x, gate = numbers(np.dtype(dtype))[:4], np.array([0, 1, 2, 3]).astype(other)
    for name in ("gated", "swish", "squareplus"):
        function = registry[name].apply
        expected = function(x.astype(float), gate.astype(float))
        found = np.asarray(function(x, gate))
        np.testing.assert_allclose(found, expected, 1e-3 if found.dtype == "f2" else 1e-5)
