"""The Array API standard 2024.12: names, signatures, promotion; arrays and traced values alike."""

import inspect
import operator
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

# The functions of the standard with their parameters; positional-only ones may be named freely.
FUNCTIONS = """
arange(a, /, stop, step, *, dtype, device)
asarray(a, /, *, dtype, device, copy)
empty(shape, *, dtype, device)
empty_like(a, /, *, dtype, device)
eye(a, b, /, *, k, dtype, device)
from_dlpack(a, /, *, device, copy)
full(shape, fill_value, *, dtype, device)
full_like(a, /, fill_value, *, dtype, device)
linspace(a, b, /, num, *, dtype, device, endpoint)
meshgrid(*arrays, indexing)
ones(shape, *, dtype, device)
ones_like(a, /, *, dtype, device)
tril(a, /, *, k)
triu(a, /, *, k)
zeros(shape, *, dtype, device)
zeros_like(a, /, *, dtype, device)
astype(a, b, /, *, copy, device)
can_cast(a, b, /)
finfo(a, /)
iinfo(a, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
clip(a, /, min, max)
matmul(a, b, /)
matrix_transpose(a, /)
tensordot(a, b, /, *, axes)
vecdot(a, b, /, *, axis)
broadcast_arrays(*arrays)
broadcast_to(a, /, shape)
concat(a, /, *, axis)
expand_dims(a, /, axis)
flip(a, /, *, axis)
moveaxis(a, b, c, /)
permute_dims(a, /, axes)
repeat(a, b, /, *, axis)
reshape(a, /, shape, *, copy)
roll(a, /, shift, *, axis)
squeeze(a, /, axis)
stack(a, /, *, axis)
tile(a, b, /)
unstack(a, /, *, axis)
argmax(a, /, *, axis, keepdims)
argmin(a, /, *, axis, keepdims)
count_nonzero(a, /, *, axis, keepdims)
nonzero(a, /)
searchsorted(a, b, /, *, side, sorter)
where(a, b, c, /)
unique_all(a, /)
unique_counts(a, /)
unique_inverse(a, /)
unique_values(a, /)
argsort(a, /, *, axis, descending, stable)
sort(a, /, *, axis, descending, stable)
cumulative_sum(a, /, *, axis, dtype, include_initial)
cumulative_prod(a, /, *, axis, dtype, include_initial)
max(a, /, *, axis, keepdims)
mean(a, /, *, axis, keepdims)
min(a, /, *, axis, keepdims)
prod(a, /, *, axis, dtype, keepdims)
std(a, /, *, axis, correction, keepdims)
sum(a, /, *, axis, dtype, keepdims)
var(a, /, *, axis, correction, keepdims)
take(a, b, /, *, axis)
take_along_axis(a, b, /, *, axis)
all(a, /, *, axis, keepdims)
any(a, /, *, axis, keepdims)
diff(a, /, *, axis, n, prepend, append)
__array_namespace_info__()
fft.fft(a, /, *, n, axis, norm)
fft.ifft(a, /, *, n, axis, norm)
fft.fftn(a, /, *, s, axes, norm)
fft.ifftn(a, /, *, s, axes, norm)
fft.rfft(a, /, *, n, axis, norm)
fft.irfft(a, /, *, n, axis, norm)
fft.rfftn(a, /, *, s, axes, norm)
fft.irfftn(a, /, *, s, axes, norm)
fft.hfft(a, /, *, n, axis, norm)
fft.ihfft(a, /, *, n, axis, norm)
fft.fftfreq(a, /, *, d, dtype, device)
fft.rfftfreq(a, /, *, d, dtype, device)
fft.fftshift(a, /, *, axes)
fft.ifftshift(a, /, *, axes)
""".split("\n")[1:-1]

UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag
isfinite isinf isnan log log1p log2 log10 logical_not negative positive real reciprocal round sign
signbit sin sinh square sqrt tan tanh trunc
""".split()
BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide
equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or
logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract
""".split()
OTHERS = """
__array_api_version__ __array_namespace_info__ e inf nan newaxis pi bool int8 int16 int32 int64
uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 fft linalg
""".split()
NAMES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh"} | {
    "atan": "arctan",
    "atanh": "arctanh",
    "atan2": "arctan2",
}

A = np.array([[0.5, -1.25, 2.0], [0.75, 0.25, -0.5]])
DTYPES = [
    np.dtype(name) for name in "bool int8 uint8 int32 uint64 float32 float64 complex64".split()
]


def named(path: str) -> Any:
    return operator.attrgetter(path)(ops)


# --- names and signatures -----------------------------------------------------------


@pytest.mark.parametrize("declaration", FUNCTIONS)
def test_functions_have_the_signatures_of_the_standard(declaration):
    path, _, rest = declaration.partition("(")
    namespace: dict[str, Any] = {}
    exec(f"def f({rest}: pass", namespace)
    desired = inspect.signature(namespace["f"]).parameters.values()
    found = inspect.signature(named(path)).parameters.values()
    assert [p.kind for p in found] == [p.kind for p in desired]
    free = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    assert [p.name for p in found if p.kind not in free] == [
        p.name for p in desired if p.kind not in free
    ]


@pytest.mark.parametrize(("names", "count"), [(UNARY, 1), (BINARY, 2)])
def test_functions_of_elements_take_positional_arguments_alone(names, count):
    for name in names:
        parameters = inspect.signature(named(name)).parameters.values()
        assert [p.kind for p in parameters] == [inspect.Parameter.POSITIONAL_ONLY] * count, name


def test_constants_dtypes_and_extensions_are_there():
    assert all(hasattr(ops, name) for name in OTHERS)
    assert ops.__array_api_version__ == "2024.12"


def test_the_namespace_tells_its_capabilities():
    info = ops.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"]
    assert info.default_device() in info.devices()
    assert info.default_dtypes(device="cpu")["real floating"] == np.float64
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"}
    assert set(info.dtypes()) == {
        n for n in OTHERS if hasattr(np.dtype, "kind") and n[-1].isdigit()
    } | {"bool"}
    assert len(info.dtypes(kind="integral", device="cpu")) == 8
    with pytest.raises(ValueError, match="'floats' is not a kind"):
        info.dtypes(kind="floats")


# --- promotion ----------------------------------------------------------------------


def numpys(name: str) -> Any:
    return getattr(np, NAMES.get(name, name))


def outcome(f: Any) -> Any:
    """The dtype of a result, or the error that there is none."""
    with np.errstate(all="ignore"):
        try:
            return f().dtype
        except TypeError:
            return TypeError


@pytest.mark.parametrize("name", BINARY)
def test_promotion_of_two_dtypes_is_numpys_on_raw_and_on_batched_arrays(name):
    f, g = named(name), numpys(name)
    for m in DTYPES:
        for n in DTYPES:
            x, y = np.ones(2, m), np.ones(2, n)
            desired = outcome(lambda x=x, y=y: g(x, y))
            assert outcome(lambda x=x, y=y: f(x, y)) == desired
            assert outcome(lambda x=x, y=y: fdbr.vmap(f)(x, y)) == desired
            if "f" in (m.kind, n.kind) and desired is not TypeError:
                traced = outcome(lambda x=x, y=y: fdbr.vjp(lambda xy: f(*xy), (x, y))[0])
                assert traced == desired


@pytest.mark.parametrize("name", UNARY)
def test_dtypes_of_functions_of_elements_are_numpys(name):
    f, g = named(name), numpys(name)
    for m in DTYPES:
        x = np.ones(2, m)
        desired = outcome(lambda x=x: g(x))
        if desired == np.float16 or (
            m.kind == "b" and name in ("sign", "ceil", "floor", "trunc", "conj")
        ):
            continue  # outside of the standard
        assert outcome(lambda x=x: f(x)) == desired
        assert outcome(lambda x=x: fdbr.vmap(f)(x)) == desired


@pytest.mark.parametrize("number", [2, 2.0, 2j])
@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "equal", "pow", "divide"])
def test_python_numbers_are_weak_on_both_sides(name, number):
    f, g = named(name), numpys(name)
    for m in DTYPES[1:]:
        x = np.ones(2, m)
        assert outcome(lambda x=x: f(x, number)) == outcome(lambda x=x: g(x, number))
        assert outcome(lambda x=x: f(number, x)) == outcome(lambda x=x: g(number, x))
        batched = outcome(lambda x=x: fdbr.vmap(lambda x: f(x, number))(x))
        assert batched == outcome(lambda x=x: g(x, number))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_a_dtype_that_is_asked_for_is_the_results(dtype):
    x = np.array([[1, 2], [3, 4]], dtype="int8")
    for f in (ops.sum, ops.prod):
        assert f(x, dtype=dtype).dtype == dtype
        assert fdbr.vmap(lambda x, f=f: f(x, dtype=dtype))(x).dtype == dtype
    for f in (ops.cumulative_sum, ops.cumulative_prod):
        assert f(x[0], dtype=dtype, include_initial=True).dtype == dtype
        assert fdbr.vmap(lambda x, f=f: f(x, dtype=dtype))(x).dtype == dtype


def test_sums_and_products_of_small_integers_are_large_ones_traced_or_not():
    x = np.array([[100, 100], [3, 4]], dtype="int8")
    for f in (ops.sum, ops.prod, ops.cumulative_sum, ops.cumulative_prod):
        assert_allclose(fdbr.vmap(f)(x), np.stack([f(row) for row in x]))
        assert fdbr.vmap(f)(x).dtype == f(x[0]).dtype == np.int64


def test_limits_of_dtypes_are_python_numbers():
    info = ops.finfo(np.float32)
    assert (info.bits, info.dtype, info.eps) == (32, np.float32, 2.0**-23)
    assert {type(v) for v in (info.eps, info.max, info.min, info.smallest_normal)} == {float}
    assert ops.finfo(np.complex64).dtype == np.float32
    assert ops.finfo(np.ones(2)).tiny == np.finfo(float).tiny
    assert repr(info) == repr(np.finfo(np.float32))
    assert ops.iinfo(np.int16).max == 32767


# --- traced values ------------------------------------------------------------------


def traced(f: Any) -> None:
    """Run a function on a traced matrix."""
    fdbr.vjp(lambda x: (f(x), x)[1], A)


def test_traced_values_hand_out_the_namespace_of_the_versions_that_it_fulfils():
    def check(x):
        assert x.__array_namespace__() is ops
        assert x.__array_namespace__(api_version="2023.12") is ops
        with pytest.raises(ValueError, match=r"2024\.12.*'2031\.12'"):
            x.__array_namespace__(api_version="2031.12")

    traced(check)


def test_traced_values_have_the_attributes_of_the_standard():
    def check(x):
        assert (x.ndim, x.shape, x.size, x.dtype, x.device) == (2, (2, 3), 6, np.float64, "cpu")
        assert x.T.shape == x.mT.shape == (3, 2)
        assert x.to_device("cpu") is x

    traced(check)
    fdbr.vmap(lambda x: check(x) or x)(np.stack([A, A]))


def test_traced_values_refuse_dlpack_with_advice():
    def check(x):
        for f in (x.__dlpack__, x.__dlpack_device__, lambda: np.from_dlpack(x)):
            with pytest.raises(TypeError, match="stop_gradient"):
                f()
        with pytest.raises(TypeError, match="traced values are passed as they are"):
            ops.from_dlpack(x)

    traced(check)


def test_from_dlpack_takes_what_hands_out_its_memory():
    x = np.arange(3.0)
    assert np.shares_memory(ops.from_dlpack(x), x)
    assert not np.shares_memory(ops.from_dlpack(x, copy=True), x)
    assert_allclose(ops.from_dlpack(x, device="cpu"), x)
    with pytest.raises(TypeError, match="DLPack"):
        ops.from_dlpack([1.0])


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    operator.floordiv,
]
INTEGER_OPERATORS = [
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    *(operator.floordiv, operator.mod, operator.add, operator.mul, operator.pow, operator.sub),
]


@pytest.mark.parametrize("f", OPERATORS)
def test_operators_on_traced_values_are_those_on_arrays(f):
    x, y = np.abs(A), np.abs(A[::-1]) + 0.25
    desired = f(x, y)
    for out in (
        fdbr.vjp(lambda x: (f(x, y), x), x)[0][0],
        fdbr.vjp(lambda y: (f(x, y), y), y)[0][0],
        fdbr.jvp(lambda x, y: f(x, y), (x, y), (x, y))[0],
        fdbr.vmap(f)(x, y),
    ):
        assert out.dtype == desired.dtype
        assert_allclose(out, desired)
    assert_allclose(fdbr.vmap(lambda x: f(x, 2.0))(x), f(x, 2.0))
    assert_allclose(fdbr.vmap(lambda x: f(2.0, x))(x), f(2.0, x))


@pytest.mark.parametrize("f", INTEGER_OPERATORS)
def test_operators_on_batches_of_integers_are_those_on_arrays(f):
    x, y = np.array([[5, 3], [1, 6]]), np.array([[1, 2], [3, 1]])
    for out, desired in (
        (fdbr.vmap(f)(x, y), f(x, y)),
        (fdbr.vmap(lambda x: f(x, 2))(x), f(x, 2)),
        (fdbr.vmap(lambda y: f(7, y))(y), f(7, y)),
    ):
        assert out.dtype == desired.dtype
        assert_allclose(out, desired)
    flags = x > 2
    if f in (operator.and_, operator.or_, operator.xor):
        assert_allclose(fdbr.vmap(lambda a: f(a, True))(flags), f(flags, True))


def test_a_function_written_for_the_standard_differentiates():
    def normalized(x):
        xp = x.__array_namespace__()
        spread = xp.max(x, axis=-1, keepdims=True) - xp.min(x, axis=-1, keepdims=True)
        ordered = xp.sort(x / spread, axis=-1)
        tails = xp.cumulative_sum(ordered, axis=-1, include_initial=True)
        weights = xp.asarray([1.0, 2.0, 3.0, 4.0], dtype=x.dtype, device=x.device)
        spectrum = xp.fft.rfft(xp.astype(tails, xp.float64) * weights)
        return xp.real(spectrum * xp.conj(spectrum))

    check_grads(normalized, A)
    each = np.stack([normalized(x) for x in (A, A * 2)])
    assert_allclose(fdbr.vmap(normalized)(np.stack([A, A * 2])), each)


# --- shapes that depend on elements ---------------------------------------------------


def test_what_is_not_zero_is_found_in_batches():
    x = np.array([[0.0, 2.0, 3.0], [4.0, 0.0, 5.0]])
    assert_allclose(fdbr.vmap(lambda x: ops.nonzero(x)[0])(x), np.array([[1, 2], [0, 2]]))
    assert_allclose(fdbr.vmap(lambda x: x[x > 0])(x), np.array([[2.0, 3.0], [4.0, 5.0]]))
    grid = np.stack([np.eye(3), np.ones((3, 3)) - np.eye(3)])
    sums = fdbr.vmap(lambda x: sum(ops.sum(i) for i in ops.nonzero(x)))(grid)
    assert_allclose(sums, np.array([6, 12]))


def test_examples_that_differ_in_number_go_separate_ways():
    x = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 3.0], [4.0, 4.0, 4.0]])
    assert_allclose(fdbr.vmap(lambda x: ops.unique_values(x).sum())(x), np.array([3.0, 6.0, 4.0]))
    gradient = fdbr.vmap(fdbr.grad(lambda x: (ops.unique_values(x) ** 2).sum()))(x)
    assert_allclose(gradient, np.array([[2.0, 4.0, 0.0], [2.0, 4.0, 6.0], [8.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match=r"returns shapes \[\(1,\), \(2,\), \(3,\)\]"):
        fdbr.vmap(ops.unique_values)(x)


def test_sets_of_traced_values_are_those_of_raw_ones():
    generator = np.random.default_rng(0)
    for _ in range(20):
        x = generator.integers(0, 4, (2, 3)) / 2.0
        for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
            f = getattr(ops, name)
            desired, found = f(x), fdbr.vmap(f)(x[None])
            pairs = (
                [(desired, found)]
                if name == "unique_values"
                else list(zip(desired, found, strict=True))
            )
            for a, b in pairs:
                assert_allclose(b[0], a)
                assert b.dtype == a.dtype
        y = generator.integers(0, 4, 3) / 2.0
        for invert in (False, True):
            desired = np.isin(x, y, invert=invert)
            assert_allclose(ops.isin(x, y, invert=invert), desired)
            for axes, args in (((0, None), (x, y)), ((None, 0), (x, np.stack([y, y])))):
                found = fdbr.vmap(lambda x, y, i=invert: ops.isin(x, y, invert=i), in_axes=axes)(
                    *args
                )
                assert_allclose(found, desired if axes[1] is None else np.stack([desired, desired]))


def test_each_nan_is_an_element_of_its_own():
    x = np.array([np.nan, 1.0, np.nan])
    for values in (ops.unique_values(x), fdbr.vmap(ops.unique_values)(x[None])[0]):
        assert_allclose(values, np.array([1.0, np.nan, np.nan]))
    assert not ops.isin(x, x)[0]
    assert not fdbr.vmap(lambda x: ops.isin(x, x))(x[None])[0, 0]
