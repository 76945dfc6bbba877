"""linearize, jacfwd, jacrev, hessian and hvp, as a user sees them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose, numerical_grad

A = np.array([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4]])
X = np.array([0.4, -1.3, 0.8])
T = np.array([1.0, 0.5, -2.0])
BOTH = pytest.mark.parametrize("jacobian", [fdbr.jacfwd, fdbr.jacrev])


@fdbr.frozen
class Affine:
    weight: object
    bias: object
    mean: object = fdbr.buffer(default=None)
    power: int = fdbr.static(default=2)

    def __call__(self, x):
        return (self.weight @ x + self.bias) ** self.power


# Functions from trees to trees.
FUNCTIONS = {
    "a vector to a vector": (lambda x: np.tanh(A @ x), X),
    "a vector to a number": (lambda x: np.sum(np.sin(x) * x[::-1]), X),
    "a number to a vector": (lambda x: np.array([1.0, 2.0]) * np.exp(x), 0.3),
    "a number to a number": (np.sin, 0.3),
    "a matrix to a matrix": (lambda a: a @ a.T * a[0, 1], A),
    "a tree to a tree": (
        lambda d: {"y": d["a"] @ d["b"][0], "z": (d["b"][0] * d["b"][1], ops.sum(d["a"]) ** 2)},
        {"a": A, "b": (X, np.array(0.7))},
    ),
    "with what is not differentiated": (
        lambda d: {"y": d["x"] * d["n"], "n": d["n"], "mask": d["x"] > 0, "name": "y"},
        {"x": X, "n": 3, "on": True},
    ),
    "a frozen class": (
        lambda layer: tree.replace(layer, bias=layer(X), weight=layer.weight**2),
        Affine(A, np.zeros(2), np.ones(2), power=3),
    ),
    "a branch": (lambda x: x**2 if x[0] > 0 else x, X),
    "what the argument does not enter": (lambda x: (x * 2, np.ones(2), 3.5), X),
    "no elements": (lambda x: (x[:0] ** 2, x), X),
    "of no elements": (lambda x: np.sin(x) * 2, np.empty((0, 2))),
}


def is_inexact(leaf):
    return tree.is_inexact(leaf)


def numerical_jacobian(f, point):
    """A gradient by differences for each element of each leaf of the result."""
    leaves, structure = tree.flatten(f(point))
    blocks = []
    for number, leaf in enumerate(leaves):
        if not is_inexact(leaf):
            blocks.append(None)
            continue
        rows = [
            numerical_grad(lambda p, n=number, i=i: np.asarray(tree.leaves(f(p))[n])[i], point)
            for i in np.ndindex(np.shape(leaf))
        ]
        zero = tree.map(lambda x: np.zeros((0, *np.shape(x))), tree.trainable(point))
        stacked = tree.map(lambda *parts: np.stack(parts), *rows) if rows else zero
        shape = np.shape(leaf)
        blocks.append(tree.map(lambda b, s=shape: b.reshape(s + b.shape[1:]), stacked))
    return tree.unflatten(structure, blocks)


def same(a, b, rtol=1e-7, atol=1e-8):
    assert tree.structure(a) == tree.structure(b)
    for one, other in zip(tree.leaves(a), tree.leaves(b), strict=True):
        assert_allclose(np.asarray(one), np.asarray(other), rtol, atol)


# --- Jacobians ----------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jacobian_is_what_differences_say(jacobian, name):
    f, point = FUNCTIONS[name]
    same(jacobian(f)(point), numerical_jacobian(f, point))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_and_reverse_agree(name):
    f, point = FUNCTIONS[name]
    same(fdbr.jacfwd(f)(point), fdbr.jacrev(f)(point), 1e-12, 1e-13)


@given(seed=st.integers(0, 999), rows=st.integers(0, 4), columns=st.integers(0, 4))
def test_they_agree_for_every_size(seed, rows, columns):
    rng = np.random.default_rng(seed)
    a, x = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    expected = (1 - np.tanh(a @ x) ** 2)[:, None] * a
    for jacobian in (fdbr.jacfwd, fdbr.jacrev):
        found = jacobian(lambda x: np.tanh(a @ x))(x)
        assert found.shape == (rows, columns)
        assert_allclose(found, expected, 1e-9, 1e-11)


@BOTH
def test_a_jacobian_has_the_form_of_result_and_argument(jacobian):
    f, point = FUNCTIONS["a tree to a tree"]
    found = jacobian(f)(point)
    shapes = tree.map(np.shape, found)
    assert shapes == {
        "y": {"a": (2, 2, 3), "b": ((2, 3), (2,))},
        "z": ({"a": (3, 2, 3), "b": ((3, 3), (3,))}, {"a": (2, 3), "b": ((3,), ())}),
    }
    layer = jacobian(FUNCTIONS["a frozen class"][0])(FUNCTIONS["a frozen class"][1])
    assert isinstance(layer, Affine)
    assert isinstance(layer.bias, Affine)
    assert layer.bias.weight.shape == (2, 2, 3)
    assert layer.bias.mean is None
    assert layer.mean.weight.shape == (2, 2, 3)  # the result's buffer is a result like any other


@BOTH
@pytest.mark.parametrize(
    ("argnums", "shape"),
    [
        (0, (2, 2, 3)),
        (1, (2, 3)),
        (-1, (2, 3)),
        (np.int64(1), (2, 3)),
        ((0,), ((2, 2, 3),)),
        ((1, 0), ((2, 3), (2, 2, 3))),
        ([0, -1], ((2, 2, 3), (2, 3))),
        (range(2), ((2, 2, 3), (2, 3))),
    ],
)
def test_argnums(jacobian, argnums, shape):
    f = lambda a, x: np.sin(a @ x)
    found = jacobian(f, argnums)(A, X)
    assert tree.map(np.shape, found) == shape
    rows = fdbr.jacrev(f, (0, 1))(A, X)
    chosen = [argnums] if isinstance(argnums, int | np.integer) else argnums
    for block, place in zip(tree.leaves(found), chosen, strict=True):
        assert_allclose(block, rows[place], 1e-12, 1e-13)


@BOTH
def test_keyword_arguments_and_further_results(jacobian):
    f = lambda x, *, scale: (x * scale, {"sum": x.sum(), "n": 3, "name": "f"})
    block, aux = jacobian(f, has_aux=True)(X, scale=2.0)
    assert_allclose(block, 2 * np.eye(3))
    assert aux == {"sum": X.sum(), "n": 3, "name": "f"}


def test_further_results_of_a_hessian():
    f = lambda x: ((x**3).sum(), {"norm": (x * x).sum()})
    second, aux = fdbr.hessian(f, has_aux=True)(X)
    assert_allclose(second, np.diag(6 * X))
    assert_allclose(aux["norm"], (X * X).sum())


@BOTH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_stay(jacobian, dtype):
    x = X.astype(dtype)
    assert jacobian(lambda x: np.sin(x) * 2.0)(x).dtype == dtype
    assert fdbr.hessian(lambda x: (x**3).sum())(x).dtype == dtype
    assert fdbr.hvp(lambda x: (x**3).sum(), (x,), (x,)).dtype == dtype
    assert fdbr.linearize(np.sin, x)[1](x).dtype == dtype


@BOTH
def test_complex_functions(jacobian):
    z = np.array([1 + 2j, 0.5 - 1j])
    f = lambda z: z**2 * z[0] + np.exp(z)
    expected = np.diag(2 * z * z[0] + np.exp(z)) + np.outer(z**2, [1, 0])
    assert_allclose(jacobian(f, holomorphic=True)(z), expected)


def test_a_complex_hessian_and_real_arguments_of_complex_results():
    z = np.array([1 + 2j, 0.5 - 1j])
    second = fdbr.hessian(lambda z: (z**3).sum(), holomorphic=True)(z)
    assert_allclose(second, np.diag(6 * z))
    assert_allclose(fdbr.jacfwd(lambda x: np.exp(1j * x))(X), np.diag(1j * np.exp(1j * X)))


@BOTH
def test_functions_of_modules_other_than_numpy(jacobian, xp, to_numpy):
    x, a = xp.asarray(X), xp.asarray(A)
    found = jacobian(lambda x: ops.tanh(a @ x))(x)
    assert type(found) is type(x)
    assert_allclose(to_numpy(found), (1 - np.tanh(A @ X) ** 2)[:, None] * A)
    second = fdbr.hessian(lambda x: ops.sum(x**3))(x)
    assert_allclose(to_numpy(second), np.diag(6 * X))


@BOTH
def test_the_function_runs_once_for_all_rows_or_columns(jacobian):
    runs = []

    def f(x):
        runs.append(1)
        return np.sin(x) * x[::-1]

    jacobian(f)(np.ones(50))
    assert len(runs) == 1
    runs.clear()
    fdbr.hessian(lambda x: f(x).sum())(np.ones(50))
    assert len(runs) == 1


@BOTH
def test_results_are_read_only(jacobian):
    found = jacobian(np.sin)(np.ones(3))
    assert not found.flags.writeable


@BOTH
def test_jacobians_under_other_transformations(jacobian):
    f = lambda x: np.sin(x) * x[::-1]
    rows = np.stack([X, -X, X**2])
    assert_allclose(fdbr.vmap(jacobian(f))(rows), np.stack([jacobian(f)(row) for row in rows]))
    trace = lambda x: np.trace(jacobian(f)(x))
    assert_allclose(fdbr.grad(trace)(X), numerical_grad(lambda x: float(trace(x)), X), 1e-7, 1e-9)
    push = fdbr.jvp(jacobian(f), (X,), (T,))[1]
    step = 1e-5
    assert_allclose(
        push, (jacobian(f)(X + step * T) - jacobian(f)(X - step * T)) / 2e-5, 1e-6, 1e-8
    )
    assert_allclose(jacobian(jacobian(f))(X), fdbr.hessian(f)(X))


# --- Hessians -----------------------------------------------------------------------


@given(seed=st.integers(0, 999), size=st.integers(1, 5))
def test_a_hessian_is_symmetric_and_right(seed, size):
    rng = np.random.default_rng(seed)
    a, x = rng.normal(size=(3, size)), rng.normal(size=size)
    found = fdbr.hessian(lambda x: np.sum(np.sin(a @ x)))(x)
    assert_allclose(found, found.T, 1e-12, 1e-13)
    assert_allclose(found, -(a.T * np.sin(a @ x)) @ a, 1e-9, 1e-11)


def test_hessians_of_trees_have_blocks():
    f = lambda d, s: np.sum(np.sin(d["a"]) * d["b"][0]) * s**2 * d["n"]
    d = {"a": X, "b": (T, 2), "n": 3}
    blocks = fdbr.hessian(f, (0, 1))(d, 0.7)
    row = ({"a": (3, 3), "b": ((3, 3), None), "n": None}, (3,))
    by_s = ({"a": (3,), "b": ((3,), None), "n": None}, ())
    assert tree.map(np.shape, blocks) == ({"a": row, "b": (row, None), "n": None}, by_s)
    assert_allclose(blocks[0]["a"][0]["a"], np.diag(-np.sin(X) * T * 0.49 * 3))
    assert_allclose(blocks[0]["a"][0]["b"][0], np.diag(np.cos(X) * 0.49 * 3))
    assert_allclose(blocks[0]["a"][1], blocks[1][0]["a"])
    assert_allclose(blocks[1][1], 6 * np.sum(np.sin(X) * T))
    same(fdbr.jacrev(fdbr.grad(f, (0, 1)), (0, 1))(d, 0.7), blocks, 1e-10, 1e-12)


def test_a_hessian_of_fifty_variables():
    def rosenbrock(x):
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    x = np.linspace(-1, 1, 50)
    expected = np.zeros((50, 50))
    i = np.arange(49)
    expected[i, i] += 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
    expected[i + 1, i + 1] += 200
    expected[i, i + 1] = expected[i + 1, i] = -400 * x[:-1]
    assert_allclose(fdbr.hessian(rosenbrock)(x), expected, 1e-10, 1e-10)


def test_a_jacobian_of_a_thousand_outputs():
    x = np.linspace(0.1, 1.0, 5)
    f = lambda x: np.sin(np.arange(1, 201)[:, None] * x).ravel()
    expected = np.zeros((200, 5, 5))
    n = np.arange(1, 201)[:, None]
    expected[:, range(5), range(5)] = n * np.cos(n * x)
    assert_allclose(fdbr.jacrev(f)(x), expected.reshape(1000, 5), 1e-9, 1e-9)
    assert_allclose(fdbr.jacfwd(f)(x), expected.reshape(1000, 5), 1e-9, 1e-9)


# --- products with vectors ----------------------------------------------------------


@given(seed=st.integers(0, 999))
def test_a_product_is_that_with_the_hessian(seed):
    rng = np.random.default_rng(seed)
    a, x, v = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=4)
    f = lambda x: np.sum(np.tanh(a @ x) ** 3)
    assert_allclose(fdbr.hvp(f, (x,), (v,)), fdbr.hessian(f)(x) @ v, 1e-9, 1e-11)


def test_products_by_several_arguments():
    f = lambda x, y, d: np.sum(x**2 * y) * d["s"]
    d = {"s": 2.0, "n": 3}
    found = fdbr.hvp(f, (X, T, d), (T, None, {"s": 1.0, "n": None}))
    assert_allclose(found[0], 2 * T * T * 2 + 2 * X * T)
    assert_allclose(found[1], 2 * X * T * 2 + X**2)
    assert_allclose(found[2]["s"], np.sum(2 * X * T * T))
    assert found[2]["n"] is None


def test_an_argument_without_anything_to_differentiate_has_no_product():
    f = lambda w, x, label: ((w * x - label) ** 2).sum()
    found = fdbr.hvp(f, (X, T, np.array([0, 1, 0])), (X, None, None))
    assert_allclose(found[0], 2 * T**2 * X)
    assert found[2] is None


# --- linearize ----------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
@given(seed=st.integers(0, 999))
def test_a_linearization_is_what_jvp_gives(name, seed):
    f, point = FUNCTIONS[name]
    out, linear = fdbr.linearize(f, point)
    assert tree.structure(out) == tree.structure(f(point))
    rng = np.random.default_rng(seed)
    for _ in range(2):
        tangent = tree.map(lambda x: rng.normal(size=np.shape(x))[()], tree.trainable(point))
        slope = fdbr.jvp(f, (point,), (tangent,))[1]
        same(tree.map(np.asarray, linear(tangent)), tree.map(np.asarray, slope), 1e-10, 1e-11)


def test_it_runs_the_function_once():
    runs = []

    def f(x, y):
        runs.append(1)
        return x * np.sin(y)

    _, linear = fdbr.linearize(f, 2.0, 0.5)
    assert np.isclose(linear(1.0, 0.0), np.sin(0.5))
    assert np.isclose(linear(None, 1.0), 2 * np.cos(0.5))
    assert linear(None, None) == 0.0
    assert runs == [1]


def test_a_linearization_stays_when_the_argument_changes():
    x = np.full(5000, 2.0)
    out, linear = fdbr.linearize(lambda x: x**2, x)
    x[:] = 7.0
    assert (out == 4).all()
    assert (linear(np.ones(5000)) == 4).all()


def test_a_linear_function_under_other_transformations():
    _, linear = fdbr.linearize(lambda x: np.tanh(A @ x), X)
    matrix = fdbr.jacfwd(lambda x: np.tanh(A @ x))(X)
    assert_allclose(fdbr.vmap(linear, out_axes=1)(np.eye(3)), matrix)
    assert_allclose(fdbr.grad(lambda t: linear(t).sum())(T), matrix.sum(axis=0))
    assert_allclose(fdbr.jvp(linear, (X,), (T,)), (matrix @ X, matrix @ T))
    assert_allclose(fdbr.jacrev(linear)(X), matrix)


def test_complex_linearizations():
    z, t = np.array([1 + 2j, -0.5j]), np.array([0.5 - 1j, 2.0 + 0j])
    for f in (np.conj, lambda z: z * np.conj(z) * z, lambda z: abs(z) ** 2, np.exp, np.real):
        assert_allclose(fdbr.linearize(f, z)[1](t), fdbr.jvp(f, (z,), (t,))[1])
