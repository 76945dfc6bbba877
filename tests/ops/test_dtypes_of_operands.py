"""Operands of different dtypes: the derivative is that of the values, in the dtype of the input."""

import itertools
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from compiler.comparing import plainly
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.core.primitive import registry
from fdbr.ops.declare import Unknown
from ops.cases import CASES, Case, few, jitted_if_asked
from ops.cases_scipy import SPECIAL
from ops.reasons import WITHOUT_DERIVATIVE

FLOATS = ("float32", "float64")
ALL = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", *FLOATS)


def derivatives(function: Any, args: Any, chosen: int) -> tuple[Any, Any]:
    """A function's value, and the gradient of its sum by one argument, in both modes."""

    def of_chosen(x: Any) -> Any:
        out = function(*args[:chosen], x, *args[chosen + 1 :])
        return ops.sum(ops.astype(out, "float64"))

    x = args[chosen]
    value = function(*args)
    gradient = fdbr.grad(of_chosen)(x)
    _, tangent = fdbr.jvp(of_chosen, (x,), (np.ones_like(x),))
    return value, (gradient, tangent)


def tolerance(*arrays: Any) -> float:
    """Of a result to which arrays of these dtypes lead."""
    return 1e3 * max((np.finfo(a.dtype).eps for a in arrays if a.dtype.kind == "f"), default=1e-16)


DIFFERENTIABLE = [case for case in (*CASES, *SPECIAL) if case.op not in WITHOUT_DERIVATIVE]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=repr)
@few(8)
@given(st.data())
def test_the_derivative_belongs_to_the_values_whatever_their_dtypes(
    case: Case, data: st.DataObject
) -> None:
    args = data.draw(case.arguments)
    floating = [i for i, arg in enumerate(args) if arg.dtype.kind == "f"]
    if not floating:
        return
    chosen = data.draw(st.sampled_from(floating))
    cast = list(args)
    for i in floating:
        # The cases of linear algebra stay away from singular matrices in arithmetic of their own.
        others = ("int16", *FLOATS) if case.op.startswith("linalg") else ALL
        dtype = np.dtype(data.draw(st.sampled_from(FLOATS if i == chosen else others)))
        scale = data.draw(st.sampled_from((1, 30))) if dtype.kind in "iu" else 1
        # Negative numbers would wrap to 2**64 - 1, whose cotangents overflow single precision.
        cast[i] = (scale * (np.abs(args[i]) if dtype.kind == "u" else args[i])).astype(dtype)
    check(case.function, cast, chosen, floating)


def check(function: Any, args: Any, chosen: int, floating: Any) -> None:
    """Compare with the derivative at the same values in float64."""
    exact = [arg.astype("float64") if i in floating else arg for i, arg in enumerate(args)]
    try:
        value, found = derivatives(function, args, chosen)
    except (TypeError, ValueError) as error:
        if not str(error).startswith("fdbr."):
            raise
        return  # such operands are refused
    expected_value, expected = derivatives(function, exact, chosen)
    rtol = tolerance(value, args[chosen])
    assert found[0].dtype == args[chosen].dtype
    if not np.allclose(value, expected_value, rtol, rtol, equal_nan=True):
        return  # the value itself overflows, or rounds to another side of a jump
    for f, e in zip(found, expected, strict=True):
        if np.all(abs(e) < np.finfo(args[chosen].dtype).max):
            np.testing.assert_allclose(f, e, rtol, rtol * 10)


WIDE = (0, 1, 2, 3, 5, 7, 11, 100, 127, 128, 200, 255, 300, 30_000, 50_000, 2**31 - 1, 2**40)
ELEMENTWISE = sorted(
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    and len(primitive.rules) > 1
    and any(primitive.rules)
    and primitive.value.__module__.startswith("fdbr.")
    # SciPy's functions have domains of their own, in which their cases above lie.
    and (
        "special" not in primitive.value.__module__
        or primitive.value.__module__.endswith("entropies")
    )
    and name != "ldexp"  # whose second operand is an integer
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ELEMENTWISE)
@few(1)
@given(st.data())
def test_rules_do_not_wrap_or_overflow_where_the_value_does_not(
    name: str, data: st.DataObject
) -> None:
    primitive = registry[name]
    count = len(primitive.rules)
    chosen = data.draw(st.sampled_from([i for i in range(count) if primitive.rules[i]]))
    args = []
    for i in range(count):
        dtype = np.dtype(data.draw(st.sampled_from(FLOATS if i == chosen else ALL)))
        most = 60_000 if dtype == "float16" else 2**40 if dtype.kind == "f" else None
        most = most or (1 if dtype.kind == "b" else np.iinfo(dtype).max)
        fits = st.sampled_from([n for n in WIDE if n <= most])
        numbers = data.draw(st.lists(fits, min_size=2, max_size=2))
        sign = data.draw(st.sampled_from((1, -1))) if dtype.kind in "fi" else 1
        part = 0.75 if dtype.kind == "f" else 1
        args.append((sign * part * np.array(numbers)).astype(dtype))
    check(jitted_if_asked(primitive.apply), args, chosen, range(count))


PAIRS = sorted(
    name
    for name, primitive in registry.items()
    if primitive.kind == "elementwise"
    and len(primitive.rules) == 2
    and primitive.value.__module__.startswith("fdbr.")
    and any(rule is not None and not isinstance(rule, Unknown) for rule in primitive.rules)
    and name not in ("ldexp", "astype_inexact")
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PAIRS)
def test_numbers_are_weak_in_derivatives_traced_or_not(name: str) -> None:
    primitive, x = registry[name], np.float32(0.6)
    for chosen, number in itertools.product((0, 1), (2, 0.75)):
        if getattr(primitive.rules[chosen], "pull", None) is None:
            continue

        def value(x: Any, number: Any, chosen: int = chosen) -> Any:
            return primitive.apply(*((x, number) if chosen == 0 else (number, x)))

        slope = fdbr.grad(value)
        try:
            if value(x, number).dtype != "float32":
                continue
            exact, found = slope(x, np.float64(number)), slope(x, number)
        except TypeError:  # an order that has to be an integer, say
            continue
        assert found.dtype == "float32"
        np.testing.assert_allclose(found, exact, rtol=1e-4)
        jitted = plainly(slope)(x, number)
        assert jitted.dtype == "float32"
        np.testing.assert_allclose(jitted, exact, rtol=1e-4)
        if number == 0.75 and getattr(primitive.rules[1 - chosen], "pull", None) is not None:
            assert fdbr.vjp(lambda n: slope(x, n), number)[0].dtype == "float32"  # noqa: B023


COMPLEX = ("complex64", "complex128")
BESIDE_COMPLEX = ("bool", "int8", "uint8", "int32", "uint64", "float16", *FLOATS, *COMPLEX)


def complex_derivatives(function: Any, args: Any, chosen: int) -> Any:
    """Value, gradient and tangent of a number made of a function's real and imaginary parts."""

    def of_chosen(x: Any) -> Any:
        out = ops.astype(function(*args[:chosen], x, *args[chosen + 1 :]), "complex128")
        return ops.sum(ops.real(out)) + 0.5 * ops.sum(ops.imag(out))

    x = args[chosen]
    direction = np.ones_like(x) * (1 + 0.25j if x.dtype.kind == "c" else 1)
    _, tangent = fdbr.jvp(of_chosen, (x,), (direction.astype(x.dtype),))
    return function(*args), fdbr.grad(of_chosen)(x), tangent


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ELEMENTWISE)
@few(12)
@given(st.data())
def test_complex_operands_beside_any_others_have_the_derivative_of_their_values(
    name: str, data: st.DataObject
) -> None:
    primitive = registry[name]
    count = len(primitive.rules)
    chosen = data.draw(st.sampled_from([i for i in range(count) if primitive.rules[i]]))
    kinds = [data.draw(st.sampled_from(BESIDE_COMPLEX)) for _ in range(count)]
    kinds[chosen] = data.draw(st.sampled_from((*FLOATS, *COMPLEX)))
    if not {*kinds} & {*COMPLEX}:
        kinds[chosen] = "complex64"
    args, exact = [], []
    for kind in kinds:
        numbers = data.draw(st.lists(st.sampled_from((1, 2, 3, 7, 100)), min_size=2, max_size=2))
        number = np.array(numbers) * (0.5 - 0.25j if kind in COMPLEX else 1)
        args.append(number.astype(kind))
        exact.append(args[-1].astype("complex128" if kind in COMPLEX else "float64"))
    try:
        value, *found = complex_derivatives(jitted_if_asked(primitive.apply), args, chosen)
    except (TypeError, ValueError) as error:
        if not str(error).startswith("fdbr."):
            raise
        return  # it takes no complex numbers
    expected_value, *expected = complex_derivatives(primitive.apply, exact, chosen)
    narrow = {value.dtype, args[chosen].dtype} & {np.dtype("f4"), np.dtype("c8")}
    rtol = 1e3 * np.finfo("f4" if narrow else "f8").eps
    assert found[0].dtype == args[chosen].dtype
    if np.allclose(value, expected_value, rtol, rtol, equal_nan=True):
        for f, e in zip(found, expected, strict=True):
            if np.all(abs(e) < 1e30):
                np.testing.assert_allclose(f, e, rtol, rtol * 10 * max(1.0, np.max(abs(e))))


X = np.linspace(-1, 1, 12).reshape(3, 4)
SIGNS, CLASSES = np.array([1.0, -1.0, 1.0]), np.array([0, 3, 1])
SETTINGS = [
    lambda x, a: ops.cosine_similarity(x, x, eps=a),
    lambda x, a: ops.normalize(x, a, 1, a),
    lambda x, a: ops.layer_norm(x, eps=a),
    lambda x, a: ops.standardize(x, eps=a),
    lambda x, a: ops.local_response_norm(x, 3, a, a, k=a),
    lambda x, a: ops.lp_pool(x[None] ** 2, a, 2),
    lambda x, a: ops.interpolate(x[None], None, a + 1, "linear"),
    lambda x, a: ops.elu(x, a),
    lambda x, a: ops.leaky_relu(x, a),
    lambda x, a: ops.softplus(x, a, a),
    lambda x, a: ops.gaussian_nll_loss(x, x, x * x, eps=a),
    lambda x, a: ops.hinge_embedding_loss(x[:, 0], SIGNS.astype(x.dtype), margin=a),
    lambda x, a: ops.margin_ranking_loss(x[0], x[1], np.ones(4, x.dtype), margin=a),
    lambda x, a: ops.multi_margin_loss(x, CLASSES, margin=a),
    lambda x, a: ops.pairwise_distance(x, x, p=a, eps=a),
    lambda x, a: ops.sigmoid_focal_loss(x, abs(x), alpha=a, gamma=a),
    lambda x, a: ops.huber_loss(x, x[::-1], delta=a),
    lambda x, a: ops.cosine_embedding_loss(x, x, SIGNS.astype(x.dtype), margin=a),
    lambda x, a: ops.triplet_margin_loss(x, x[::-1], x, margin=a, p=2 * a, eps=a),
    lambda x, a: ops.triplet_margin_with_distance_loss(x, x[::-1], x, margin=a),
    lambda x, a: ops.triplet(x, x[::-1], x, margin=a),
    lambda x, a: ops.discriminative_margin_based_clustering_loss(
        x.T[None, :, None], CLASSES[None, None], delta_v=a, delta_d=a, alpha=a, beta=a, gamma=a
    )[0],
    lambda x, a: ops.cross_entropy(x, CLASSES, label_smoothing=a),
    lambda x, a: ops.rotary_embedding(x, base=a),
    lambda x, a: ops.sinusoidal_embedding(x[:, 0], 4, base=a),
    lambda x, a: ops.dropout(x, a, key=fdbr.random.key(0)),
    lambda x, a: ops.gumbel_softmax(x, a, key=fdbr.random.key(0)),
]


@pytest.mark.parametrize("function", SETTINGS, ids=lambda f: f.__code__.co_names[1])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_setting_that_is_a_number_of_numpys_is_one_of_pythons(function, dtype):
    x = X.astype(dtype)
    plain, ours = function(x, 0.5), function(x, np.float64(0.5))
    assert ours.dtype == plain.dtype == dtype
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: ops.asarray(x, dtype=np.float32, copy=False),
        lambda x: ops.asarray([x[0], x[1]], copy=False),
    ],
)
def test_asarray_raises_for_traced_values_that_need_a_copy(make):
    x = np.arange(3.0)
    jitted = fdbr.jit(make)
    batched = lambda x: fdbr.vmap(make)(np.stack([x, x]))
    for f in (make, jitted, batched, lambda x: fdbr.vjp(make, x)):
        with pytest.raises(ValueError, match="a copy is needed"):
            f(x)
    same = lambda x: ops.asarray(x, dtype=x.dtype, copy=False)
    np.testing.assert_array_equal(fdbr.jit(same)(x), x)


INTEGERS = "bool int8 int16 int64 uint8 uint32 uint64".split()


@pytest.mark.parametrize("to", [*INTEGERS[1:], "float32"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_sum_of_integers_in_another_dtype_is_numpys(dtype, to):
    low, high = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.random.default_rng(0).integers(low, high, (5, 7), np.int8 if dtype == "bool" else dtype)
    x = x.astype(dtype)
    expected = np.sum(x, axis=1, dtype=to)
    for f in (lambda x: ops.sum(x, axis=1, dtype=to), lambda x: np.sum(x, axis=1, dtype=to)):
        for found in (f(x), fdbr.jit(f)(x), fdbr.vmap(f)(x[None])[0]):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_traced_sum_of_small_integers_makes_no_wide_copy():
    x = np.ones(1_000_000, np.int8)
    f = fdbr.jit(lambda x: np.sum(x, dtype=np.int64))
    tracemalloc.start()
    try:
        assert f(x) == 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 4 * x.nbytes
    finally:
        tracemalloc.stop()
