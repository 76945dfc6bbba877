"""Reductions that users declare: map, combine, identity, finish."""

import inspect
import operator

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.ops.declare import reduction
from fdbr.testing import assert_allclose, check_grads
from ops.cases import few
from ops.declared import first_largest, join_moments, log_sum, product, variance

NUMBERS = st.integers(-8, 8).map(lambda k: k / 4)


@st.composite
def reduced(draw, least=0, dtype=np.float64, elements=NUMBERS):
    """An array of any shape, and axes to reduce as NumPy takes them."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=5))
    x = draw(hnp.arrays(dtype, shape, elements=elements))
    places = st.integers(-len(shape), len(shape) - 1) if shape else st.nothing()
    several = st.lists(places, unique_by=lambda i: i % len(shape)).map(tuple)
    return x, draw(st.one_of(st.none(), places, several))


@given(reduced(least=1), st.booleans())
def test_the_values_are_those_of_numpy_along_any_axes(case, keepdims):
    x, axis = case
    both = {"axis": axis, "keepdims": keepdims}
    assert_allclose(product(x, **both), np.prod(x, **both))
    assert_allclose(variance(x, **both), np.var(x, **both), atol=1e-12)
    assert_allclose(log_sum(x, **both), np.log(np.sum(np.exp(x), **both)))
    assert product(x, **both).dtype == x.dtype


@given(reduced())
def test_what_has_no_elements_is_the_identity_or_an_error(case):
    x, axis = case
    if np.prod(x, axis=axis).size and not x.size:
        assert_allclose(product(x, axis=axis), np.prod(x, axis=axis))
        with pytest.raises(ValueError, match="no elements, and there is no identity"):
            first_largest(x, np.zeros(x.shape, int), axis=axis)
    else:
        assert product(x, axis=axis).shape == np.prod(x, axis=axis).shape


@given(reduced(least=1), st.data())
def test_elements_that_are_left_out_do_not_count_nor_change_derivatives(case, data):
    x, axis = case
    where = data.draw(hnp.arrays(bool, x.shape))
    mean = reduction(
        lambda x: x * x, combine=ops.add, identity=0, finish=lambda s, count: s / count
    )
    assert_allclose(product(x, axis=axis, where=where), np.prod(x, axis=axis, where=where))
    if np.all(np.any(where, axis=axis)):
        assert_allclose(mean(x, axis=axis, where=where), np.mean(x * x, axis=axis, where=where))
    hidden = np.where(where, x, np.nan)
    gradient = fdbr.grad(lambda x: product(x, axis=axis, where=where).sum())(hidden)
    assert_allclose(
        gradient, fdbr.grad(lambda x: product(x, axis=axis).sum())(np.where(where, x, 1)) * where
    )


@pytest.mark.slow
@few(4)
@given(reduced(least=1, elements=st.sampled_from((0.0, 0.0, 0.5, -1.5, 2.0))))
def test_derivatives_are_right_in_every_mode_and_order_with_zeros_too(case):
    x, axis = case
    check_grads(lambda x: product(x, axis=axis), x)
    check_grads(lambda x: variance(x, axis=axis), x)
    check_grads(fdbr.grad(lambda x: log_sum(x, axis=axis).sum()), x)


@pytest.mark.slow
@few(4)
@given(reduced(least=1))
def test_a_batch_is_a_loop_and_jit_gives_what_the_function_gives(case):
    x, axis = case
    batch = np.stack([x, x + 1, 0 * x])
    for reduce in (product, log_sum, variance):

        def gradient(x, reduce=reduce):
            return fdbr.grad(lambda x: (reduce(x, axis=axis) ** 2).sum())(x)

        for f in (lambda x, reduce=reduce: reduce(ops.tanh(x), axis=axis), gradient):
            one_by_one = np.stack([f(row) for row in batch])
            assert_allclose(fdbr.vmap(f)(batch), one_by_one, atol=1e-12)
            assert_allclose(fdbr.jit(f)(x), f(x), atol=1e-12)
            assert_allclose(fdbr.jit(fdbr.vmap(f))(batch), one_by_one, atol=1e-12)


def test_parts_of_a_state_may_be_batched_alone():
    x, w = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    pairs = reduction(
        lambda x, w: (x, w), combine=lambda a, b: (a[0] * b[1] + b[0] * a[1], a[1] * b[1])
    )
    for axes in ((0, None), (None, 0)):
        args = (x, w) if axes[0] == 0 else (w, x)
        rows = [pairs(r, w) if axes[0] == 0 else pairs(w, r) for r in x]
        found = fdbr.vmap(pairs, axes)(*args)
        assert_allclose(found, tuple(np.stack(part) for part in zip(*rows, strict=True)))


def test_arrays_of_other_modules_stay_there(xp, to_numpy):
    x = np.linspace(-1, 1, 30).reshape(2, 5, 3)
    given_ = xp.asarray(x)
    out, pullback = fdbr.vjp(lambda x: log_sum(x, axis=(0, 2)), given_)
    assert type(out) is type(given_)
    assert_allclose(to_numpy(out), ops.logsumexp(x, axis=(0, 2)))
    (found,) = pullback(xp.ones(5))
    assert_allclose(to_numpy(found), fdbr.grad(lambda x: ops.logsumexp(x, axis=(0, 2)).sum())(x))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "f2", "f4", "c8", "c16"])
def test_a_state_keeps_its_dtype(dtype):
    x = np.array([[1, 0, 1], [1, 1, 1]]).astype(dtype)
    for combine in (lambda a, b: a * b, lambda a, b: ops.where(b == b, a, a) * b, np.multiply):
        out = reduction(lambda x: x, combine=combine, identity=1)(x, axis=1)
        assert out.dtype == dtype
        assert out.tolist() == [0, 1]


def test_what_has_sixteen_bits_is_computed_in_single_precision_and_rounded_once():
    x = np.full(5000, 0.25, np.float16)
    squares = reduction(lambda x: x * x, combine=operator.add, finish=ops.sqrt)
    assert squares(x).dtype == np.float16
    assert squares(x) == np.float16(np.sqrt(5000 / 16))
    assert fdbr.grad(squares)(x).dtype == np.float16
    assert variance(np.array([600, 601, 602], np.float16)) == np.float16(2 / 3)


def test_bfloat16_is_a_floating_dtype_too():
    dtype = pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16").bfloat16
    x = np.full(1000, 0.5, dtype)
    assert log_sum(x).dtype == dtype
    assert float(log_sum(x)) == float(np.asarray(0.5 + np.log(1000)).astype(dtype))


def test_big_endian_arrays_are_reduced_as_native_ones():
    x = np.linspace(0, 1, 7)
    for f in (variance, log_sum):
        assert_allclose(f(x.astype(">f8")), f(x))
        assert_allclose(fdbr.grad(f)(x.astype(">f8")), fdbr.grad(f)(x))


NAMED = {
    "sum": (ops.add, np.add, operator.add, lambda a, b: a + b, lambda a, b: b + a),
    "prod": (ops.multiply, np.multiply, operator.mul, lambda a, b: a * b),
    "max": (ops.maximum, np.maximum, lambda a, b: ops.maximum(b, a), lambda a, b: np.maximum(a, b)),
    "min": (ops.minimum, np.minimum, lambda a, b: ops.minimum(a, b)),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_the_library_has_itself_is_recognised_with_its_derivatives(name):
    x = np.array([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, np.nan, 5.0]])
    theirs = getattr(ops, name)
    for combine in NAMED[name]:
        ours = reduction(lambda x: 2 * x, combine=combine)
        program = fdbr.jit(lambda x, f=ours: f(x, axis=1))
        np.testing.assert_array_equal(program(x), theirs(2 * x, axis=1))
        assert f"= {name}(" in str(program.programs()[0])
        with np.errstate(invalid="ignore"):  # of NaN
            gradient = fdbr.grad(lambda x: theirs(2 * x, axis=1)[0])(x)
            found = fdbr.grad(lambda x, f=ours: f(x, axis=1)[0])(x)
        np.testing.assert_array_equal(found, gradient)
    both = reduction(lambda x: (x, x * x), combine=lambda a, b: (a[0] + b[0], combine(a[1], b[1])))
    assert_allclose(both(x[0]), (10.0, theirs(x[0] ** 2)))


def test_integers_are_reduced_beside_what_is_differentiated():
    x = np.array([[3.0, 7.0, 7.0], [1.0, 0.0, 1.0]])
    places = np.arange(3)
    assert first_largest(x, places, axis=1).tolist() == np.argmax(x, axis=1).tolist()
    best = reduction(
        lambda x, place: (x, place),
        combine=lambda a, b: tuple(
            ops.where(a[0] >= b[0], p, q) for p, q in zip(a, b, strict=True)
        ),
    )
    (gradient,) = fdbr.vjp(lambda x: best(x, places, axis=1)[0], x)[1](np.ones(2))
    assert gradient.sum(axis=1).tolist() == [1.0, 1.0]
    (value, place), (moved, still) = fdbr.jvp(lambda x: best(x, places, axis=1), (x,), (2 * x,))
    assert moved.tolist() == (2 * value).tolist()
    assert still is None
    assert place.dtype == places.dtype


def test_keywords_go_to_map_and_by_name_to_finish():
    @reduction(
        combine=ops.add, identity=0, finish=lambda total, count, p: (total / count) ** (1 / p)
    )
    def power_mean(x, *, p):
        """The power mean."""
        return ops.abs(x) ** p

    x = np.array([[1.0, 7.0], [3.0, 4.0]])
    assert_allclose(power_mean(x, p=2, axis=1), [5.0, np.sqrt(12.5)])
    assert power_mean.__name__ == "power_mean"
    assert power_mean.__doc__ == "The power mean."
    assert (
        str(inspect.signature(power_mean)) == "(x, /, *, axis=None, keepdims=False, where=None, p)"
    )


def test_a_long_reduction_joins_whole_arrays_a_few_times():
    iterations = []

    def joined(a, b):
        if isinstance(a, np.ndarray):  # not an expression by which it is recognised
            iterations.append(a.size)
        return (a + 0) * b

    reduction(lambda x: x, combine=joined)(np.ones(1 << 20), axis=0)
    assert len(iterations) <= 2 * 20 + 1
    assert sum(iterations) <= 1 << 20


def test_a_function_that_nobody_may_read_twice_sees_what_was_given_even_if_it_is_changed():
    x = np.array([2.0, 3.0, 4.0])
    (_, pullback) = fdbr.vjp(product, x)
    x[...] = 0
    assert pullback(1.0)[0].tolist() == [12.0, 8.0, 6.0]


IDENTICAL = lambda x: x
BAD = {
    "combine must be a function, not int 3": lambda: reduction(IDENTICAL, combine=3),
    "finish must be a function": lambda: reduction(IDENTICAL, combine=ops.add, finish=2),
    "has a parameter 'axis', which is one of the reduction": lambda: reduction(
        lambda x, axis: x, combine=ops.add
    ),
    "map must be a function": lambda: reduction(3, combine=ops.add),
    r"identity must be a number.*float64\[3\]": lambda: reduction(
        IDENTICAL, combine=ops.add, identity=np.zeros(3)
    ),
    "identity has 2 parts, and the state that map returns 1": lambda: reduction(
        IDENTICAL, combine=ops.add, identity=(0, 0)
    )(np.zeros(0)),
    "identity -inf is no number of dtype int64": lambda: reduction(
        IDENTICAL, combine=ops.maximum, identity=-np.inf
    )(np.zeros(0, int)),
    r"combine must keep shape and dtype, of int64\[1\] it made float64\[1\]": lambda: reduction(
        IDENTICAL, combine=operator.truediv
    )(np.arange(2)),
    r"combine must keep shape and dtype, of float64\[2\] it made float64\[1\]": lambda: reduction(
        IDENTICAL, combine=lambda a, b: (a + b)[:1]
    )(np.ones(4)),
    "takes two tuples of 2 arrays": lambda: reduction(lambda x: (x, x), combine=lambda a, b: a[0])(
        np.ones(4)
    ),
    r"part 1 of its result": lambda: reduction(
        lambda x: (x, x), combine=lambda a, b: (a[0], a[1] > b[1])
    )(np.ones(4)),
    "map must act on each element": lambda: reduction(lambda x: x[1:], combine=ops.add)(np.ones(4)),
    "map must return an array": lambda: reduction(lambda x: "x", combine=ops.add)(np.ones(4)),
    "map returned an empty tuple": lambda: reduction(lambda x: (), combine=ops.add)(np.ones(4)),
    "finish must act on each element": lambda: reduction(
        IDENTICAL, combine=ops.add, finish=lambda x: x[0]
    )(np.ones((4, 2)), axis=0),
    "has a parameter 'rate' more": lambda: reduction(
        IDENTICAL, combine=ops.add, finish=lambda x, rate: x
    )(np.ones(4)),
    "the operands do not broadcast": lambda: (
        log_sum.__wrapped__ and reduction(lambda x, y: x, combine=ops.add)(np.ones(3), np.ones(4))
    ),
    "operands must be arrays or numbers, got str": lambda: log_sum("a"),
    "where must be truth values": lambda: log_sum(np.ones(3), where=np.ones(3)),
    "where= leaves elements out, for which there is no identity": lambda: first_largest(
        np.ones(3), np.arange(3), where=np.ones(3, bool)
    ),
    "axis 2 is out of range": lambda: log_sum(np.ones(3), axis=2),
    "there is nothing to reduce": lambda: log_sum(),
}


@pytest.mark.parametrize("message", BAD)
def test_what_does_not_fit_is_refused_by_name(message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        BAD[message]()
    assert str(error.value).startswith("fdbr.ops.")


def test_chains_of_moments_are_joined_as_the_whole():
    x = np.random.default_rng(0).normal(3.0, 2.0, size=1001)
    moments = reduction(lambda x: (1.0, x, 0.0), combine=join_moments)
    count, mean, squares = moments(x)
    assert_allclose((count, mean, squares / count), (1001.0, x.mean(), x.var()))
    parts = [moments(part) for part in np.split(x, [10, 500, 501])]
    joined = parts[0]
    for part in parts[1:]:
        joined = join_moments(joined, part)
    assert_allclose(joined, (count, mean, squares))


RATE = 1.0


def test_what_a_function_of_a_reduction_reads_may_change():
    for reduce in (
        reduction(lambda x: RATE * x, combine=ops.add),
        reduction(lambda x: x, combine=lambda a, b: a + RATE * a * b + b),
        reduction(lambda x: x, combine=ops.add, finish=lambda x: RATE * x),
    ):
        x = np.linspace(0.0, 0.1, 200)
        jitted = fdbr.jit(lambda x, f=reduce: f(ops.sin(x)))
        with pytest.MonkeyPatch.context() as patch:
            for rate in (1.0, 2.0, 0.5):
                patch.setitem(globals(), "RATE", rate)
                assert_allclose(jitted(x), reduce(np.sin(x)))
