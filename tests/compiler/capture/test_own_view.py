"""What a function sees of its arguments under jit is what it sees without, or it is an error."""

import copy

import numpy as np
import pytest
from compiler.comparing import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ImpureError, ops

X = np.array([1.0, -2.0, 3.0])


def agree(f, *calls):
    """Check that a jitted function and the function give the same, call by call, several times."""
    jitted = fdbr.jit(f)
    for args in calls * 2:
        for _ in range(2):
            assert_same(jitted(*args), f(*args))
    return jitted


# --- identity -----------------------------------------------------------------------


def test_one_array_given_twice_is_one_object():
    jitted = agree(lambda x, y: x * 2 if x is y else x + y, (X, X), (X, X.copy()), (X.copy(), X))
    assert "one object" in str(jitted.report())
    assert len(jitted.report().traces) == 1
    agree(lambda t: t["a"] * 2 if t["a"] is t["b"] else t["b"], ({"a": X, "b": X},))
    agree(lambda x, y: x * 2 if id(x) == id(y) else x, (X, X), (X, X.copy()))


def test_an_argument_may_be_an_array_around_the_function():
    agree(lambda x: x * 2 if x is X else x, (X,), (X.copy(),), (X,))


def test_what_is_compared_with_none_and_the_like_is_recorded():
    jitted = fdbr.jit(lambda x, y=None: x if y is None else x + y)
    for _ in range(3):
        assert_same(jitted(X, X), X + X)
    assert jitted.report().traces[0].runs == 2


# --- numbers ------------------------------------------------------------------------

LARGE = 2**53
COMPARISONS = [
    lambda x, y: x < y, lambda x, y: x <= y, lambda x, y: x > y, lambda x, y: x >= y,
    lambda x, y: x == y, lambda x, y: x != y, max, min, lambda x, y: 1 if x > y else 2.0,
]  # fmt: skip


@pytest.mark.parametrize("compare", COMPARISONS)
def test_integers_are_compared_with_floating_numbers_exactly(compare):
    near = [LARGE + i for i in (-1, 0, 1, 2)] + [10**30, -(10**30)]
    calls = [(n, float(m)) for n in near for m in near]
    agree(compare, *calls)
    agree(lambda y, x: compare(x, y), *[(m, n) for n, m in calls])
    agree(lambda n: compare(n, float(LARGE)), *[(n,) for n in near])


def test_classes_are_those_of_the_values():
    agree(
        lambda x: [isinstance(x, kind) for kind in (float, int, bool, np.ndarray, np.floating)],
        (1.5,), (2,), (X,), (np.float64(2),), (np.float32(2),),
    )  # fmt: skip


def test_a_text_of_a_number_is_its_own():
    for text in (lambda x: f"{x:.1f}", str, repr, lambda x: f"{x}", lambda x: "%.2f" % x):  # noqa: UP031
        agree(lambda x, text=text: float(text(x)) * x, (1.54,), (2.57,))


# --- arguments that are written to --------------------------------------------------


def put(x, d):
    d["b"] = x * 2
    return x


def put_over(x, d):
    d["a"] = x * 2
    return x


def pop(x, d):
    return d.pop("a") * x


def append(x, d):
    d["list"].append(x)
    return x


def put_into_list(x, d):
    d["list"][0] = x
    return x


@pytest.mark.parametrize("f", [put, put_over, pop, append, put_into_list])
def test_a_function_that_writes_into_its_arguments_is_refused(f):
    given = {"a": X, "list": [X]}
    for _ in range(2):
        before = copy.deepcopy(given)
        with pytest.raises(ImpureError, match=f"{f.__name__} assigns into a list or dict among"):
            fdbr.jit(f)(X, given)
        assert_same(given, before)
    with pytest.raises(ImpureError, match="assigns into a list or dict among"):
        fdbr.grad(lambda x: ops.sum(fdbr.jit(f)(x, given)))(X)


def test_a_function_may_write_into_what_it_has_copied():
    def f(x, d):
        d = {**d, "b": x * 2}
        return d["b"] + d["a"]

    agree(f, (X, {"a": X}))


# --- other classes of arrays --------------------------------------------------------


class Special(np.ndarray):
    def __add__(self, other):
        return "mine"

    def __array_wrap__(self, out, context=None, return_scalar=False):
        return out.view(Special)


SPECIAL = X.view(Special)


@pytest.mark.parametrize("f", [
    lambda x: SPECIAL + x, lambda x: x * SPECIAL, lambda x: SPECIAL * x, lambda x: (x, SPECIAL),
    lambda x: x * X.view(Special), lambda x: np.exp(X.view(Special)) * x,
])  # fmt: skip
def test_arrays_of_another_class_around_a_function_keep_their_operators(f):
    jitted = fdbr.jit(f)
    for _ in range(3):
        found, desired = jitted(X), f(X)
        assert repr(found) == repr(desired)
    assert "operators of its own" in str(jitted.report())


def test_arrays_of_another_class_among_arguments_keep_their_operators():
    jitted = fdbr.jit(lambda x, y: (x + y, x * y))
    for _ in range(3):
        assert repr(jitted(SPECIAL, X)) == repr((SPECIAL + X, SPECIAL * X))
    assert_same(jitted(X, X), (X + X, X * X))
    assert "operators of its own" in str(jitted.report())


# --- constants ----------------------------------------------------------------------

SHAPES = [(), (1,), (3,), (4, 1), (4, 3), (1, 3), (2, 4, 3), (1, 1, 1), (2, 1, 1)]
UNARY = [lambda x: np.exp(-abs(x)), np.tanh, np.negative, ops.relu, lambda x: x]
BINARY = [np.add, np.subtract, np.multiply, np.maximum, lambda x, y: np.where(x > y, x, y)]
REDUCTIONS = [
    lambda x: np.sum(x, axis=-1), lambda x: np.sum(x, axis=-1, keepdims=True), np.sum,
    lambda x: np.mean(x, axis=0), lambda x: np.max(x, axis=-1), lambda x: x,
]  # fmt: skip


def constant(shape, kind):
    """An array of one number everywhere, of different ones, a number, or another dtype."""
    values = np.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape) / 7
    return {
        "different": values, "uniform": np.full(shape, 0.5), "shown": np.broadcast_to(0.5, shape),
        "integers": np.ceil(values).astype(int), "float32": values.astype(np.float32),
        "transposed": np.asfortranarray(values), "number": 0.5,
        "list": values.tolist(),
    }[kind]  # fmt: skip


KINDS = "different uniform shown integers float32 transposed number list".split()
STEPS = st.tuples(
    st.sampled_from(UNARY), st.sampled_from(BINARY), st.sampled_from(SHAPES),
    st.sampled_from(KINDS), st.booleans(), st.sampled_from(REDUCTIONS),
)  # fmt: skip


@settings(max_examples=settings.default.max_examples // 3)
@given(st.sampled_from(SHAPES), st.lists(STEPS, min_size=1, max_size=2))
def test_constants_of_every_shape_in_every_position(shape, steps):
    def f(x):
        for unary, binary, other, kind, first, reduction in steps:
            x, c = unary(x), constant(other, kind)
            x = binary(c, x) if first else binary(x, c)
            x = reduction(x) if np.ndim(x) else x
        return x

    x = np.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)
    try:
        desired = f(x)
    except (ValueError, TypeError, IndexError, np.exceptions.AxisError) as error:
        with pytest.raises(type(error)):
            fdbr.jit(f)(x)
        return
    jitted = fdbr.jit(f)
    for _ in range(3):
        assert_same(jitted(x), desired, ulps=64)


def test_a_reduction_of_rows_may_meet_an_array_with_one_element_a_row():
    agree(lambda x: np.sum(np.exp(x), axis=1) * np.arange(4.0), (np.ones((4, 3)),))
