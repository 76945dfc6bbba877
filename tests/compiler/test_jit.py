"""What a jitted function takes, and what it gives: as the function itself, but read-only."""

from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import shadow

import fdbr
from compiler.comparing import assert_as_eager, assert_same
from fdbr import ops
from fdbr.compiler.ir.program import Fused, Small

X = np.array([1.0, -2.0, 3.0])


def count(jitted):
    return len(jitted.report().traces)


# --- types --------------------------------------------------------------------------

SCALARS = [3, 2.5, 2 + 1j, np.float32(1.5), np.float64(1.5), np.int64(4), np.bool_(True),
           np.complex64(1j), np.array(2.0), np.array(3, "i4"), np.array(1.5, "f4")]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c8"])
@pytest.mark.parametrize("y", SCALARS, ids=lambda y: f"{type(y).__name__} {np.asarray(y).dtype}")
def test_numbers_promote_as_ever_and_results_have_the_types_of_the_function(y, dtype):
    x = np.array([1, 2, 3], dtype)

    def f(x, y):
        return x * y, y + 1, y * y, 2 * y, +x, x + 1, x + 1.5, y == 1, [y, x[0], x.sum() * y]

    assert_as_eager(f, (x, y), (x + 1, y + type(y)(1)), (x, y))


def test_numbers_of_python_stay_python_numbers():
    def f(n, x):
        return (
            n // 2,
            n % 3,
            n**2,
            2**n,
            n / 2,
            -n,
            abs(n),
            n > 1,
            n & 1,
            divmod(n, 2),
            x > n,
            x + n,
        )

    jitted = assert_as_eager(f, (5, 1.5), (4, 0.5), (6, -2.5))
    assert [type(leaf) for leaf in fdbr.tree.leaves(jitted(7, 1.0))].count(bool) == 2


def test_integers_of_python_are_exact_however_large_they_grow():
    def f(n):
        return n * n, n + 1, n**3, n**2, -n, n << 3, n // 7, n % 1000, n > 2**80, (n > 0) + (n > 1)

    for n in (3, 2**40, 2**70, -(2**65)):
        assert_as_eager(f, (n,), (n + 1,), (n,))


def test_integers_divided_by_zero_raise_as_in_python():
    jitted = fdbr.jit(lambda n: 7 // n)
    assert (jitted(2), jitted(3)) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        jitted(0)


def test_weak_numbers_do_not_make_single_precision_double():
    x = np.ones(3, np.float32)
    jitted = fdbr.jit(lambda x, rate, n: x * (1 - rate ** (n + 1)) * (n // 2))
    for n in range(3):
        assert jitted(x, 0.5, n).dtype == np.float32


def test_dtypes_and_kinds_of_numbers_have_traces_of_their_own():
    jitted = assert_as_eager(lambda x: x * 2 + 1, *[(x,) for x in (*SCALARS, X, X.astype("f4"))])
    assert count(jitted) == len(SCALARS) + 2


def test_empty_arrays_and_no_arguments_at_all():
    assert_as_eager(lambda x: (x + 1, x.sum(), x @ x), (np.zeros(0),), (np.zeros(0),))
    assert_as_eager(lambda: (np.arange(3.0), 5, "text"), (), ())
    assert_as_eager(lambda: None, (), ())


@pytest.mark.parametrize("make", [
    lambda x: x.T,
    lambda x: x[::-1, ::2],
    lambda x: np.asfortranarray(x),
    lambda x: np.broadcast_to(x[0], x.shape),
    lambda x: x.astype(x.dtype.newbyteorder()),
    lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
], ids="transposed strided fortran broadcast swapped read-only unaligned".split())  # fmt: skip
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_any_memory_layout_will_do(make, dtype):
    def f(x):
        return ops.tanh(x * 2 + 1).sum(axis=0), x @ x.T, ops.exp(x) / (1 + x**2), x.reshape(-1)

    x, y = np.linspace(-1, 1, 48, dtype=dtype).reshape(2, 6, 4)
    assert_as_eager(f, (make(x),), (make(y),))
    assert_as_eager(f, (x,), (make(x),), (y,)) if make(x).shape == x.shape else None


def test_large_arrays_in_any_layout():
    def f(x, y):
        return ops.tanh(x * 2 + y).sum(axis=1), (x / (1 + y**2)).mean(), ops.maximum(x, y)

    x, y = np.linspace(-1, 1, 20000).reshape(2, 100, 100)
    for dtype in ("f4", "f8"):
        a, b = x.astype(dtype), y.astype(dtype)
        assert_as_eager(f, (a, b), (b, a), (a.T, b), (a, b[::-1]), (a[:, ::-1], b.T), (a, b))


def test_a_chain_of_functions_of_one_number_compiles_in_no_time():
    g = fdbr.grad(lambda x: ops.mish(x) + 0.5 * ops.mish(x) ** 2)
    assert_as_eager(g, (0.5,), (-0.25,))
    assert_as_eager(g, (np.asarray(0.5),), (np.asarray(-0.25),))


COMPOUND = {
    name: getattr(ops, name)
    for name in "softmax log_softmax logsumexp layer_norm gelu silu softplus".split()
} | {
    "gelu by tanh": lambda x: ops.gelu(x, approximate=True),
    "cross entropy": lambda x: ops.softmax_cross_entropy(x, x.astype("int64")[:, 0] * 0),
}


@pytest.mark.parametrize("size", [(2, 3), (70, 60)], ids=["small", "large"])
@pytest.mark.parametrize("f", COMPOUND.values(), ids=COMPOUND)
def test_what_is_made_of_parts_stays_with_arrays_of_other_modules(f, size):
    array = np.linspace(-1, 1, size[0] * size[1]).reshape(size)
    for g in (f, fdbr.grad(lambda x: (f(x) ** 2).sum())):
        jitted = fdbr.jit(g)
        for x in (array, 2 * array, array):
            found = jitted(shadow.module.asarray(x))
            assert type(found) is shadow.Array
            assert np.allclose(shadow.to_numpy(found), g(x))
        (program,) = jitted.programs()
        assert not any(isinstance(step, Fused | Small) for step in program.steps)


def test_arrays_of_other_modules():
    x, y = shadow.module.asarray(X), shadow.module.asarray(2 * X)
    jitted = fdbr.jit(lambda x: ops.tanh(x) * 2)
    for z, plain in ((x, X), (y, 2 * X), (x, X)):
        out = jitted(z)
        assert type(out) is type(z)
        assert np.array_equal(np.tanh(plain) * 2, np.asarray(shadow.to_numpy(out)))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("make", [np.matrix, np.ma.masked_array], ids=["matrix", "masked"])
def test_arrays_whose_operators_mean_something_else_run_the_function_itself(make):
    x = make(np.eye(2) * 3)
    jitted = fdbr.jit(lambda x: x * x)
    for _ in range(3):
        assert np.array_equal(jitted(x), x * x)
        assert type(jitted(x)) is type(x)
    assert "operators of its own" in str(jitted.report())


# --- trees --------------------------------------------------------------------------


@fdbr.frozen
class Layer:
    w: Any
    count: Any = fdbr.buffer(default=None)
    name: str = fdbr.static(default="layer")

    def __call__(self, x):
        return x * self.w if self.name == "layer" else x + self.w


class Pair(NamedTuple):
    first: Any
    second: Any


def test_trees_go_in_and_come_out():
    def f(layer, pair, many):
        return {
            "layer": fdbr.tree.replace(layer, w=layer.w * 2, count=layer.count + 1),
            "pair": Pair(pair.second, pair.first),
            "many": [layer(x) for x in many],
            "none": None,
        }

    layers = Layer(X, 3), Layer(-X, 4), Layer(X, 4, name="other")
    pairs = Pair(1.0, X), Pair(2.0, -X), Pair(0.5, X)
    jitted = assert_as_eager(f, *[(a, b, (X, 2.0)) for a, b in zip(layers, pairs, strict=True)])
    assert count(jitted) == 2  # a static field is structure


def test_a_leaf_that_is_none_is_structure():
    jitted = assert_as_eager(lambda x, y: x if y is None else x * y, (X, None), (X, 2.0), (X, None))
    assert count(jitted) == 2


def test_keywords_and_defaults():
    def f(x, y=2.0, *rest, scale=1.0, **more):
        return (x * y * scale + sum(rest), more)

    jitted = fdbr.jit(f)
    for args, kwargs in (
        ((X,), {}),
        ((X, 3.0), {}),
        ((X,), {"y": 3.0}),
        ((X, 1.0, 2.0, 3.0), {"scale": 4.0}),
        ((), {"x": X, "a": 1, "b": X}),
        ((), {"b": -X, "x": X, "a": 2}),
    ):
        for _ in range(2):
            assert_same(jitted(*args, **kwargs), f(*args, **kwargs))
            assert list(jitted(*args, **kwargs)[1]) == list(f(*args, **kwargs)[1])
    assert count(jitted) == 6  # `more` has its keywords in the order in which they were given


class Mode(Enum):
    FAST = 1
    SLOW = 2


@pytest.mark.parametrize("values", [
    (True, False), ("sum", "mean"), (Mode.FAST, Mode.SLOW), (np.float32, np.float64),
    (np.dtype("f4"), np.dtype("i8")), (slice(0, 2), slice(1, None)), (..., None), (b"a", b"b"),
    (np.sin, np.cos), (len, sum), (range(2), range(3)),
], ids=repr)  # fmt: skip
def test_other_leaves_are_static_and_count_by_type_and_value(values):
    def f(x, value):
        return x * len(repr(value)), value

    jitted = assert_as_eager(f, *[(X, value) for value in (*values, *values)])
    assert count(jitted) == 2
    assert all(kept.runs == 1 for kept in jitted.report().traces)


def test_a_dtype_and_a_slice_do_as_arguments_what_they_are_for():
    jitted = fdbr.jit(lambda x, dtype, key, axis=None: x.astype(dtype)[key].sum(axis=axis))
    assert jitted(X, dtype=np.float32, key=slice(0, 2)).dtype == np.float32
    assert jitted(X, dtype=np.int64, key=slice(0, 2), axis=0) == -1
    assert jitted(X + 1, dtype=np.int64, key=slice(0, 2), axis=0) == 1


def test_static_leaves_that_cannot_be_hashed_are_named():
    class Unhashable:
        __hash__ = None

    with pytest.raises(TypeError, match=r"the leaf at \[0\]\[1\] is a Unhashable.*hashable"):
        fdbr.jit(lambda x, y: x)(X, Unhashable())
    with pytest.raises(TypeError, match="static field in its arguments cannot be hashed"):
        fdbr.jit(lambda layer: layer.w)(Layer(X, name=["a"]))


def test_what_is_used_up_as_it_is_read_is_no_argument():
    with pytest.raises(TypeError, match=r"at \[0\]\[1\] is a list_iterator.*pass a list"):
        fdbr.jit(lambda x, parts: x * sum(parts))(X, iter([1.0, 2.0]))


def test_one_array_may_be_given_twice():
    def f(x, y):
        return x + y, x, y

    assert_as_eager(f, (X, X), (X, -X), (-X, -X))


def test_only_functions_are_jitted_and_bounds_are_positive():
    with pytest.raises(TypeError, match="f must be a function, not int"):
        fdbr.jit(3)
    with pytest.raises(ValueError, match="max_traces must be at least 1, got 0"):
        fdbr.jit(abs, max_traces=0)
    with pytest.raises(TypeError, match="max_traces must be an integer"):
        fdbr.jit(abs, max_traces=1.5)


# --- results ------------------------------------------------------------------------


def writable(array):
    while array is not None:
        if array.flags.writeable:
            return True
        array = array.base
    return False


FRESH = np.array([7.0, 8.0])
LOCKED = np.array([7.0, 8.0])
LOCKED.flags.writeable = False

VIEWS = {
    "an input": lambda x: x,
    "a view of an input": lambda x: x[1:],
    "a transposed input": lambda x: x.T,
    "a reshaped input": lambda x: x.reshape(3, 1),
    "a broadcast input": lambda x: ops.broadcast_to(x, (2, 3)),
    "the real part of an input": lambda x: x.real,
    "a stopped input": fdbr.stop_gradient,
    "a view of a result": lambda x: (x + 1)[1:],
    "a result and a view of it": lambda x: (lambda y: (y, y[1:], y.T))(x * 2),
    "one result twice": lambda x: (lambda y: (y, y))(x * 2),
    "an array from around it": lambda x: (FRESH, x + 1),
    "a view of an array from around it": lambda x: (FRESH[1:], LOCKED[1:], x + 1),
    "an array of its own": lambda x: (np.zeros(3), np.arange(6.0).reshape(2, 3)[1:], x + 1),
}


@pytest.mark.parametrize("f", VIEWS.values(), ids=VIEWS.keys())
def test_results_are_read_only_and_never_share_memory_with_what_others_can_write_to(f):
    jitted = fdbr.jit(f)
    for _ in range(3):
        x = X.copy()
        out = jitted(x)
        assert_same(out, f(x.copy()))
        for leaf in fdbr.tree.leaves(out):
            assert not writable(leaf)
            assert not np.shares_memory(leaf, x)
            assert not np.shares_memory(leaf, FRESH)
        x[:] = 0
        assert_same(out, f(X))
    assert x.flags.writeable
    assert FRESH.flags.writeable


def test_results_may_share_memory_with_arguments_that_nobody_can_write_to():
    x = fdbr.device_get(X)
    jitted = fdbr.jit(lambda x: (x, x[1:]))
    for _ in range(2):
        same, view = jitted(x)
        assert same is x
        assert np.shares_memory(view, x)


def test_arguments_are_never_written_to_or_locked():
    x, y = X.copy(), X[::-1]
    jitted = fdbr.jit(lambda x, y: (x + y, x * 2, y.T))
    for _ in range(3):
        jitted(x, y)
        assert x.tolist() == X.tolist()
        assert x.flags.writeable
        assert y.flags.writeable


def test_a_result_that_was_kept_is_not_changed_by_later_calls():
    jitted = fdbr.jit(lambda x: ops.tanh(x * 2) + 1)
    xs = [np.full((100, 100), float(i)) for i in range(4)]
    kept = [jitted(x) for x in xs]
    for out, x in zip(kept, xs, strict=True):
        assert_same(out, np.tanh(x * 2) + 1)


def test_a_generator_is_no_result():
    def f(x):
        yield x

    async def g(x):
        return x

    for _ in range(2):
        with pytest.raises(TypeError, match="returned a generator, which continues after the call"):
            fdbr.jit(f)(X)
    with pytest.raises(TypeError, match="returned a coroutine"):
        fdbr.jit(g)(X)


def test_a_function_as_a_result_is_a_constant():
    assert_as_eager(lambda x: (x + 1, np.sin, len), (X,), (X,))
