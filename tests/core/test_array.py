"""How traced values behave as arrays."""

import math
import operator

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.core.tape import ReverseTrace, ReverseTracer
from fdbr.core.tracer import Tracer
from fdbr.transforms.jvp import ForwardTracer
from fdbr.transforms.vmap import BatchTracer

X = np.array([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])
Y = np.array([[1.5, 0.5, -2.0], [0.75, -1.25, 3.0]])


def traced(value):
    """A traced value whose transformation is still under way."""
    return ReverseTrace("grad", traced).input(value)


def plain(value):
    return fdbr.tree.map(fdbr.stop_gradient, value)


def agree(f, *args):
    """Asserts that a function gives the same for traced values as for arrays."""
    expected = f(*args)
    for leaf, other in zip(
        fdbr.tree.leaves(plain(f(*map(traced, args)))), fdbr.tree.leaves(expected), strict=True
    ):
        assert np.shape(leaf) == np.shape(other)
        assert np.asarray(leaf).dtype == np.asarray(other).dtype
        assert np.allclose(leaf, other)


def derivative_agrees(f, x=X):
    """Asserts that the gradient of the sum of a function is what differences give."""
    found = fdbr.grad(lambda x: ops.sum(f(x)))(x)
    step = 1e-6
    for place in np.ndindex(x.shape):
        h = np.zeros(x.shape)
        h[place] = step
        numerical = (np.sum(f(x + h)) - np.sum(f(x - h))) / (2 * step)
        assert np.isclose(found[place], numerical, atol=1e-6)


# --- attributes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [X, X.astype(np.float32), np.array(2.0), np.zeros((0, 2)), 1j * X]
)
@pytest.mark.parametrize("name", ["shape", "dtype", "ndim", "size", "itemsize", "nbytes"])
def test_attributes_are_those_of_the_array(value, name):
    assert getattr(traced(value), name) == getattr(value, name)


def test_a_traced_python_number_has_the_attributes_of_a_0d_array():
    x = traced(1.5)
    assert (x.shape, x.ndim, x.size, x.dtype) == ((), 0, 1, np.float64)


def test_length_and_iteration_go_along_the_first_axis():
    assert len(traced(X)) == 2
    rows = list(traced(X))
    assert [row.shape for row in rows] == [(3,), (3,)]
    a, b = traced(X)
    assert np.allclose(plain(a + b), X[0] + X[1])
    assert [plain(v) for v in traced(X).flat] == list(X.flat)


@pytest.mark.parametrize("use", [len, iter, list])
def test_a_scalar_has_no_length(use):
    with pytest.raises(TypeError, match="without dimensions"):
        use(traced(1.0))


def test_traced_values_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        hash(traced(X))


def test_membership_compares():
    assert 0.5 in traced(X)[0]
    assert 7.0 not in traced(X)[0]


# --- operators ----------------------------------------------------------------------

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    divmod,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("other", [Y, 2.0, 3, np.float64(1.5), np.array(0.5), Y[:1]])
def test_operators_from_both_sides(op, other):
    agree(lambda x: op(x, other), X)
    agree(lambda x: op(other, x), X)
    agree(op, X, np.asarray(other, dtype=float))


def test_powers():
    agree(lambda x: x**3, X)
    agree(lambda x: x**Y, np.abs(X))
    agree(lambda x: 2.0**x, X)
    agree(lambda x: Y**x, np.array([[1.0, 2.0, 3.0]]) * 0 + 2)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, abs, round])
def test_unary_operators(op):
    agree(op, X) if op is not round else agree(lambda x: x.round(), X)


def test_matrix_products_from_both_sides():
    agree(lambda x: x @ Y.T, X)
    agree(lambda x: Y.T @ x, X)
    agree(lambda x: x @ Y[0], X)
    agree(lambda x: Y[:, 0] @ x, X)


def test_numpy_arrays_on_the_left_leave_the_operation_to_the_traced_value():
    out = X * traced(Y)
    assert out.shape == X.shape
    assert type(out).__name__ == "ReverseTracer"
    assert (np.float64(2.0) * traced(Y)).shape == Y.shape


@pytest.mark.parametrize("other", ["text", None, {}, object()])
def test_operators_refuse_what_is_no_array(other):
    with pytest.raises(TypeError, match="unsupported operand"):
        traced(X) + other
    with pytest.raises(TypeError, match="unsupported operand"):
        other - traced(X)


def test_other_classes_may_take_over():
    class Unit:
        __array_ufunc__ = None

        def __rmul__(self, other):
            return "taken"

    assert traced(X) * Unit() == "taken"


# --- methods ------------------------------------------------------------------------

METHODS = {
    "sum": lambda x: x.sum(),
    "sum over an axis": lambda x: x.sum(axis=0),
    "sum, kept": lambda x: x.sum(axis=1, keepdims=True),
    "sum by position": lambda x: x.sum(1),
    "mean": lambda x: x.mean(axis=1),
    "prod": lambda x: x.prod(axis=0),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(axis=1),
    "var": lambda x: x.var(axis=1, ddof=1),
    "std": lambda x: x.std(),
    "cumsum": lambda x: x.cumsum(axis=1),
    "flat cumsum": lambda x: x.cumsum(),
    "cumprod": lambda x: x.cumprod(axis=1),
    "reshape": lambda x: x.reshape(3, 2),
    "reshape to a tuple": lambda x: x.reshape((3, -1)),
    "transpose": lambda x: x.transpose(),
    "transpose by axes": lambda x: x.transpose(1, 0),
    "transpose by a tuple": lambda x: x.transpose((1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "ravel": lambda x: x.ravel(),
    "flatten": lambda x: x.flatten(),
    "squeeze": lambda x: x[:, None].squeeze(1),
    "copy": lambda x: x.copy(),
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real,
    "dot": lambda x: x.dot(Y.T),
    "take": lambda x: x.take(np.array([0, 2]), axis=1),
    "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace() + x.trace(1),
    "trace along two of three axes": lambda x: np.stack([x, Y, x * Y]).trace(-1, 2, 0),
    "clip": lambda x: x.clip(-1.1, 0.9),
    "astype": lambda x: x.astype("float64"),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_do_what_numpys_do_and_differentiate(name):
    agree(METHODS[name], X)
    derivative_agrees(METHODS[name])


@pytest.mark.parametrize("kind", [Tracer, ReverseTracer, ForwardTracer, BatchTracer])
def test_what_a_traced_value_knows_of_its_trace_hides_no_attribute_of_arrays(kind):
    assert not set(kind.__slots__) & set(dir(np.ndarray))


CONSTANT_METHODS = {
    "argmax": lambda x: x.argmax(axis=1),
    "argmin": lambda x: x.argmin(),
    "all": lambda x: x.all(axis=0),
    "any": lambda x: x.any(),
    "astype an integer": lambda x: x.astype(int),
}


@pytest.mark.parametrize("name", CONSTANT_METHODS)
def test_methods_without_derivative_give_plain_read_only_arrays(name):
    agree(CONSTANT_METHODS[name], X)
    out = CONSTANT_METHODS[name](traced(X))
    assert isinstance(out, np.ndarray | np.generic)
    assert not out.flags.writeable


# --- indexing -----------------------------------------------------------------------

KEYS = [
    0,
    -1,
    (1, 2),
    slice(1, None),
    (slice(None), slice(None, None, -1)),
    None,
    ...,
    (..., 0),
    (None, 0, slice(None, None, 2), None),
    [0, 1, 1],
    (slice(None), [2, 0, 2, 2]),
    ([0, 1], [2, 2]),
    np.array([1, 0, 1]),
    np.array([[0, 1], [1, 1]]),
    np.array([True, False]),
    np.array([[True, False, True], [False, False, True]]),
    np.int64(1),
    (np.array([0, 1]), slice(0, 2)),
    (np.array([0, 1]), None, np.array([0, 0])),
    (),
    [],
    slice(0, 0),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indexing_is_numpys_and_repeated_indices_accumulate(key):
    agree(lambda x: x[key], X)
    derivative_agrees(lambda x: x[key] * x[key])


@pytest.mark.parametrize("key", [5, (0, 7), np.array([3]), [-4]])
def test_an_index_out_of_bounds_is_an_error_that_names_the_shape(key):
    with pytest.raises(IndexError, match=r"out of bounds.*float64\[2,3\]"):
        traced(X)[key]


@pytest.mark.parametrize("key", [1.5, "a", np.array([0.5])])
def test_what_is_no_index_is_refused(key):
    with pytest.raises((TypeError, IndexError)):
        traced(X)[key]


def test_a_traced_integer_is_an_index_and_a_traced_float_is_not():
    assert fdbr.grad(lambda x: x[ops.argmax(x)])(np.array([1.0, 3.0, 2.0])).tolist() == [0, 1, 0]
    with pytest.raises(TypeError, match=r"traced float64\[\] is no index; convert it with int\(\)"):
        [1, 2, 3][traced(1.0)]
    with pytest.raises(TypeError, match="is no index"):
        range(traced(2.0))


# --- conversions --------------------------------------------------------------------


def test_truth_and_integers_may_be_had():
    assert bool(traced(1.0))
    assert not traced(np.zeros((1, 1)))
    assert int(traced(2.7)) == 2
    assert fdbr.grad(lambda x: x**2 if x > 1 else x)(3.0) == 6.0


def test_truth_and_integer_of_several_elements_are_refused():
    with pytest.raises(ValueError, match=r"truth value of a traced float64\[2,3\].*ops\.any"):
        bool(traced(X))
    with pytest.raises(TypeError, match=r"int\(\) needs one element, not float64\[2,3\]"):
        int(traced(X))


CONVERSIONS = {
    "float": (float, r"float\(\) of <traced float64\[\] of grad\(traced\)>"),
    "complex": (complex, r"complex\(\) of <traced"),
    "math.sin": (math.sin, r"float\(\) of .* math\.sin and the like: use ops\.sin"),
    "np.asarray": (np.asarray, r"conversion of <traced float64\[\] .* to a NumPy array"),
    "np.array": (lambda x: np.array([x, 1.0]), r"conversion of .* ops\.stack or ops\.concat"),
    "item": (lambda x: x.item(), r"item\(\) of <traced"),
    "tolist": (lambda x: x.tolist(), r"tolist\(\) of <traced"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_that_would_lose_the_derivative_are_refused_with_advice(name):
    convert, words = CONVERSIONS[name]
    with pytest.raises(TypeError, match=words) as caught:
        convert(traced(np.array(2.0)))
    assert "fdbr.stop_gradient(x)" in str(caught.value)


def test_assigning_to_one_element_of_an_array_says_what_to_write_instead():
    """NumPy puts an error of its own on top of the one that float() raises."""
    with pytest.raises(ValueError, match="setting an array element") as caught:
        operator.setitem(np.zeros(3), 0, traced(2.0))
    assert "B = ops.at(B)[key].set(x)" in str(caught.value.__cause__)


# --- NumPy's protocols --------------------------------------------------------------

FUNCTIONS = {
    "sin": np.sin,
    "exp": np.exp,
    "arctan": np.arctan,
    "absolute": np.absolute,
    "square": np.square,
    "deg2rad": np.deg2rad,
    "add": lambda x: np.add(x, Y),
    "true_divide": lambda x: np.true_divide(Y, x),
    "maximum": lambda x: np.maximum(x, Y),
    "sum": lambda x: np.sum(x, axis=0),
    "add.reduce": lambda x: np.add.reduce(x),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
    "multiply.outer": lambda x: np.multiply.outer(x, Y[0]),
    "mean": lambda x: np.mean(x, axis=1, keepdims=True),
    "var": lambda x: np.var(x, axis=0),
    "prod": np.prod,
    "max": lambda x: np.max(x, axis=1),
    "cumsum": lambda x: np.cumsum(x, axis=0),
    "dot": lambda x: np.dot(x, Y.T),
    "matmul": lambda x: np.matmul(x, Y.T),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x: np.tensordot(x, Y, axes=([1], [1])),
    "outer": lambda x: np.outer(x, Y),
    "inner": lambda x: np.inner(x, Y),
    "reshape": lambda x: np.reshape(x, (3, 2)),
    "transpose": np.transpose,
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "squeeze": lambda x: np.squeeze(x[None]),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 2, 3)),
    "flip": np.flip,
    "roll": lambda x: np.roll(x, 1, axis=1),
    "tile": lambda x: np.tile(x, (2, 1)),
    "concatenate": lambda x: np.concatenate([x, Y, x], axis=1),
    "stack": lambda x: np.stack([x, Y]),
    "vstack": lambda x: np.vstack([x, Y]),
    "hstack": lambda x: np.hstack([x, Y]),
    "split": lambda x: np.split(x, 3, axis=1)[1],
    "atleast_2d": lambda x: np.atleast_2d(x[0]),
    "where": lambda x: np.where(Y > 0, x, x * x),
    "clip": lambda x: np.clip(x, -1.1, 0.9),
    "take": lambda x: np.take(x, [0, 0], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[2], [0]]), axis=1),
    "diagonal": np.diagonal,
    "trace": np.trace,
    "diff": lambda x: np.diff(x, axis=1),
    "real": np.real,
    "copy": np.copy,
    "ones_like": lambda x: np.ones_like(x) * x,
    "linalg-free norm": lambda x: np.sqrt(np.sum(x**2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpys_own_functions_differentiate(name):
    agree(FUNCTIONS[name], X)
    derivative_agrees(FUNCTIONS[name])


@pytest.mark.parametrize("f", [np.shape, np.ndim, np.size, np.iscomplexobj, np.result_type])
def test_questions_about_a_traced_value_are_answered(f):
    assert f(traced(X)) == f(X)


REFUSED = {
    "out of a ufunc": (lambda x: np.add(x, x, out=np.zeros(X.shape)), r"np\.add\(…, out=…\)"),
    "out of a function": (lambda x: np.sum(x, out=np.zeros(())), r"np\.\w*sum\(…, out=…\)|out"),
    "where of a ufunc": (lambda x: np.add(x, x, where=X > 0), r"where=….*ops\.where"),
    "a ufunc without a rule": (np.isnat, r"np\.isnat of a traced value has no de"),
    "a method without a rule": (np.less.reduce, r"np\.less\.reduce of a traced"),
    "a function without a rule": (
        np.strings.upper,
        r"upper of a traced value is not known to fdbr",
    ),
    "another order": (lambda x: np.ravel(x, order="K"), "order=….*'K'"),
    "an unknown argument": (lambda x: np.sort(x, order="a"), r"np\.sort\(…, order=…\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_by_name(name):
    use, words = REFUSED[name]
    with pytest.raises(TypeError, match=words):
        use(traced(X))


def test_libraries_that_ask_for_the_namespace_get_the_ops():
    x = traced(X)
    namespace = x.__array_namespace__(api_version="2024.12")
    assert namespace is ops
    assert np.allclose(plain(namespace.sum(namespace.sin(x))), np.sin(X).sum())


def test_a_ufunc_takes_a_dtype():
    out = np.sin(traced(X.astype(np.float32)), dtype=np.float64)
    assert out.dtype == np.float64
    assert fdbr.grad(lambda x: np.sum(np.sin(x, dtype=np.float64)))(np.ones(2, "f4")).dtype == "f4"


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,), (0,)])
@pytest.mark.parametrize("transform", [fdbr.vmap, lambda f: fdbr.jit(fdbr.vmap(f))])
def test_a_traced_array_of_places_keeps_its_axes_in_a_plain_array(transform, shape):
    x = np.arange(12.0).reshape(4, 3)
    places = np.arange(4 * math.prod(shape)).reshape(4, *shape) % 3
    for f in (
        lambda k: x[k],
        lambda k: x[k, 0],
        lambda k: x[0, k],
        lambda k: x[k, :, None],
        lambda k: x[1:, k],
        lambda k: np.take(x, k, axis=0),
    ):
        assert np.array_equal(transform(f)(places), np.stack([f(k) for k in places]))


def test_a_traced_array_of_one_element_is_no_index():
    with pytest.raises(TypeError, match=r"int64\[1\] is an array, and no single index"):
        fdbr.vmap(lambda k: operator.index(k))(np.array([[1], [2]]))
