"""Sparse matrices of SciPy: constants, leaves, and what comes out of transformations."""

import numpy as np
import pytest
import scipy.sparse as ss
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, train, tree
from fdbr.ops import sparse
from fdbr.testing import assert_allclose, check_grads

KINDS = [
    f"{form}_{end}" for form in ("csr", "csc", "bsr", "coo", "dia") for end in ("array", "matrix")
]
every_kind = pytest.mark.parametrize("kind", KINDS)


def dense(seed=0, shape=(4, 6), dtype=float):
    draw = np.random.Generator(np.random.Philox(seed))
    return (draw.normal(size=shape) * (draw.random(shape) < 0.4)).astype(dtype)


def made(kind, *args, **kwargs):
    return getattr(ss, kind)(dense(*args, **kwargs))


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("columns", [(), (2,)])
def test_products_are_differentiated_in_both_operands_in_two_orders(kind, columns):
    S = made(kind, shape=(3, 4))
    x, y = np.ones((4, *columns)) + 0.25, np.ones((*columns, 3)) - 0.5
    data = S.data.copy()

    def by_all(data, x, y):
        M = sparse.SparseArray(data, sparse.sparse_array(S).pattern)
        return ops.sum(ops.sin(M @ x)) + ops.sum(ops.sin(y @ M)) + ops.sum(ops.sin(M.T @ y.T))

    desired = np.sin(S @ x).sum() + np.sin(y @ S).sum() + np.sin(S.T @ y.T).sum()
    assert_allclose(by_all(data, x, y), desired)
    check_grads(by_all, data, x, y)


@every_kind
def test_the_gradient_by_a_matrix_is_of_its_format_and_on_its_pattern(kind):
    S, x = made(kind), np.arange(6.0)
    found = fdbr.grad(lambda S: ops.sum((S @ x) ** 2))(S)
    assert type(found) is type(S)
    assert found.data.shape == S.data.shape
    full = 2 * np.outer(S @ x, x)
    places = type(S)(S, copy=True)
    places.data = np.ones_like(S.data)
    assert_allclose(found.toarray(), full * (places.toarray() != 0))


@every_kind
def test_scipys_own_products_with_traced_values_are_differentiated(kind):
    S, D, x = made(kind), dense(), np.arange(6.0)
    expected = 2 * D.T @ (D @ x)
    for f in (
        lambda x: S @ x,
        lambda x: x @ S.T,
        lambda x: S.dot(x),
        lambda x: sparse.matmul(S, x),
    ):
        assert_allclose(fdbr.grad(lambda x, f=f: ops.sum(f(x) ** 2))(x), expected)
        assert_allclose(fdbr.jit(fdbr.grad(lambda x, f=f: ops.sum(f(x) ** 2)))(x), expected)
    X = np.stack([x, x + 1])
    assert_allclose(fdbr.vmap(lambda x: S @ x)(X), X @ D.T)
    assert_allclose(fdbr.vmap(fdbr.grad(lambda x: ops.sum((S @ x) ** 2)))(X), X @ D.T @ D * 2)
    assert_allclose(fdbr.jvp(lambda x: x @ S.T, (X,), (X,))[1], X @ D.T)
    if kind.endswith("matrix"):
        assert_allclose(fdbr.grad(lambda x: ops.sum(S * x))(x), D.sum(0))


@given(
    st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["f4", "f8", "c16"])
)
def test_gradients_agree_with_those_of_the_dense_matrix(seed, height, width, dtype):
    D = dense(seed, (height, width), dtype)
    S, x = ss.csr_array(D), np.ones(width, dtype)

    def f(A, x):
        return ops.sum(ops.real((A @ x) * (A @ x)))

    by_S, by_x = fdbr.grad(f, (0, 1))(S, x)
    by_D, by_x_too = fdbr.grad(f, (0, 1))(D, x)
    assert by_S.dtype == D.dtype == by_x.dtype
    assert_allclose(by_S.toarray(), by_D * (D != 0), rtol=1e-5, atol=1e-5)
    assert_allclose(by_x, by_x_too, rtol=1e-5, atol=1e-5)


def test_a_large_sparse_matrix_has_a_sparse_gradient():
    S = ss.random_array((6000, 6000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    x = np.ones(6000)
    for f in (fdbr.grad, lambda f: fdbr.jit(fdbr.grad(f))):
        assert f(lambda S: ops.sum((S @ x) ** 2))(S).data.shape == (3600,)


def test_arithmetic_of_one_pattern_sums_and_transposes():
    S = made("csr_array")
    D = S.toarray()

    def f(S):
        total = (2 * S + S / 4 - S * 3).T
        return ops.sum(total.toarray() ** 2) + S.sum() + ops.sum(S.sum(axis=0) ** 2 + (-S).sum(0))

    out, slope = fdbr.value_and_grad(f)(S)
    assert_allclose(out, (0.75**2 * D**2).sum() + (D.sum(0) ** 2).sum())
    assert_allclose(slope.toarray(), (2 * 0.75**2 * D + 2 * D.sum(0)) * (D != 0))
    assert fdbr.vmap(lambda c: (S @ np.ones(6)) * c)(np.arange(3.0)).shape == (3, 4)


def test_batches_of_elements_are_batches_of_matrices():
    S, x = made("csr_array"), np.arange(6.0)
    pattern = sparse.sparse_array(S).pattern
    batch = np.stack([S.data, 2 * S.data])
    f = lambda data: sparse.SparseArray(data, pattern) @ x
    assert_allclose(fdbr.vmap(f)(batch), np.stack([S @ x, 2 * (S @ x)]))
    slope = fdbr.grad(lambda data: ops.sum(f(data) ** 2))
    assert_allclose(fdbr.vmap(slope)(batch), np.stack([slope(d) for d in batch]))


def test_optimizers_update_on_the_pattern():
    S, x = made("csr_array"), np.arange(6.0)
    params, loss = {"S": S, "b": np.ones(4)}, lambda p: ops.sum((p["S"] @ x + p["b"]) ** 2)
    optimizer = train.optim.adam(1e-2)

    def step(params, state):
        updates, state = optimizer.update(fdbr.grad(loss)(params), state, params)
        return train.optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    for run in (step, fdbr.jit(step)):
        new, _ = run(params, state)
        assert type(new["S"]) is ss.csr_array
        assert np.array_equal(new["S"].indices, S.indices)
        assert loss(new) < loss(params)
    assert tree.map(lambda x: 2 * x, S).sum() == pytest.approx(2 * S.sum())


@pytest.mark.slow
@every_kind
def test_products_of_two_sparse_matrices_are_differentiated_in_both(kind):
    S, other = made(kind), made("csc_array" if "array" in kind else "coo_matrix", seed=3).T

    def product(data, S=S, turned=False):
        M = sparse.SparseArray(data, sparse.sparse_array(S).pattern)
        return (other @ M if turned else M @ other).toarray()

    assert_allclose(product(S.data), (S @ other).toarray())
    assert_allclose(product(S.data, turned=True), (other @ S).toarray())
    check_grads(lambda data: (product(data), product(data, turned=True)), S.data)
    square = lambda data: (
        lambda M: ops.sum((M @ M.T).toarray() ** 2) + ops.sum((M.T @ M @ other).toarray())
    )(sparse.SparseArray(data, sparse.sparse_array(S).pattern))
    check_grads(square, S.data)
    assert_allclose(fdbr.jit(square)(S.data), square(S.data))
    by_S = fdbr.grad(lambda S: ops.sum((S @ other).toarray() ** 2))(S)
    assert type(by_S) is type(S)


@every_kind
def test_a_sparse_constant_is_scaled_by_traced_numbers_and_arrays(kind):
    S, x = made(kind), np.arange(1.0, 7.0)
    D = S.toarray()
    for f, desired in (
        (lambda c: (S * c) @ x, D @ x),
        (lambda c: (c * S) @ x, D @ x),
        (lambda c: (S / (1 / c)) @ x, D @ x),
        (lambda c: S.multiply(c) @ x, D @ x),
        (lambda c: S.multiply(x * c).toarray(), D * x),
        (lambda c: (S * c + S).toarray(), D),
        (lambda c: (S - c * S).toarray(), -D),
    ):
        assert_allclose(fdbr.jvp(f, (2.0,), (1.0,))[1], desired)
        assert_allclose(fdbr.vmap(f)(np.array([2.0, 3.0]))[1], fdbr.jvp(f, (3.0,), (1.0,))[0])
    if "array" in kind:
        assert_allclose(
            fdbr.grad(lambda x: ops.sum((S * x).toarray() ** 2))(x), 2 * (D**2).sum(0) * x
        )


def test_what_sparse_matrices_cannot_do_is_refused_by_name():
    S, x = made("csr_array"), np.ones(6)
    for f, message in (
        (lambda x: x[0] / S, "SparseArray|csr"),
        (lambda x: S / x, "is divided by numbers alone"),
        (lambda x: sparse.matmul(x, x), "one operand must be sparse"),
        (lambda x: sparse.matmul(S, S * x[0]), r"shapes do not fit: sparse \(4, 6\) @ sparse"),
        (lambda x: sparse.matmul(S, x[:2]), r"shapes do not fit: sparse \(4, 6\) @ float64\[2\]"),
        (lambda x: (sparse.sparse_array(S) * x[0]).tocoo(), "has no 'tocoo'"),
        (lambda x: (sparse.sparse_array(S) * x[0]) + 1, "need the same pattern"),
        (lambda x: np.sin(sparse.sparse_array(S) * x[0]), "SparseArray"),
        (lambda x: sparse.sparse_array(ss.lil_array(S)), "convert it with tocsr"),
    ):
        with pytest.raises((TypeError, ValueError, AttributeError), match=message):
            fdbr.grad(lambda x, f=f: ops.sum(f(x)))(x)
    with pytest.raises(ValueError, match="does not fit"):
        tree.map(lambda a, b: a + b, S, made("csr_array", seed=5))
