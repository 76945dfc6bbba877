"""Linear algebra under every transformation, and at its edges."""

import gc
import inspect
import itertools
import sys

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.library.small_linalg import matrices as kernels
from fdbr.ops import linalg
from fdbr.ops.linalg import solving
from fdbr.testing import assert_allclose, check_grads
from ops.cases import CASES, few

LinAlgError = np.linalg.LinAlgError


def matrix(*shape, seed=0, dtype=complex):
    """Random elements, real or complex, with a heavier diagonal."""
    generator = np.random.default_rng((seed, *shape))
    x = generator.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * generator.uniform(-1, 1, shape)
    if len(shape) > 1:
        x = x + np.eye(*shape[-2:]) * np.arange(2, 2 + shape[-1])
    return x.astype(dtype)


def adjoint(x):
    return ops.conj(ops.matrix_transpose(x))


# Every function, and the shapes of one example's arguments.
FUNCTIONS = {
    "cholesky": (lambda x: linalg.cholesky(x @ adjoint(x)), (3, 3)),
    "cholesky, upper": (lambda x: linalg.cholesky(x @ adjoint(x), upper=True), (3, 3)),
    "cross": (linalg.cross, (2, 3), (3,)),
    "det": (linalg.det, (3, 3)),
    "diagonal": (lambda x: linalg.diagonal(x, offset=1), (2, 3, 3)),
    "eig": (linalg.eig, (3, 3)),
    "eigh": (lambda x: linalg.eigh(x + adjoint(x)), (3, 3)),
    "eigvals": (linalg.eigvals, (3, 3)),
    "eigvalsh": (lambda x: linalg.eigvalsh(x + adjoint(x)), (3, 3)),
    "expm": (linalg.expm, (3, 3)),
    "inv": (linalg.inv, (3, 3)),
    "kron": (linalg.kron, (2, 2), (1, 3)),
    "logm": (linalg.logm, (3, 3)),
    "lstsq": (lambda a, b: linalg.lstsq(a, b)[:2], (4, 3), (4, 2)),
    "lstsq, vector": (lambda a, b: linalg.lstsq(a, b)[:2], (4, 3), (4,)),
    "matmul": (linalg.matmul, (2, 3), (3, 2)),
    "matrix_norm": (linalg.matrix_norm, (2, 3, 3)),
    "matrix_norm, nuc": (lambda x: linalg.matrix_norm(x, ord="nuc", keepdims=True), (3, 2)),
    "matrix_power": (lambda x: linalg.matrix_power(x, -2), (3, 3)),
    "multi_dot": (lambda *xs: linalg.multi_dot(xs), (3,), (3, 2), (2, 2)),
    "norm": (lambda x: linalg.norm(x, ord=1, axis=(0, 1), keepdims=True), (3, 2)),
    "outer": (linalg.outer, (2,), (3,)),
    "pinv": (linalg.pinv, (4, 3)),
    "pinv, wide": (linalg.pinv, (2, 3)),
    "qr": (linalg.qr, (4, 3)),
    "qr, wide": (linalg.qr, (2, 3)),
    "qr, complete": (lambda x: linalg.qr(x, mode="complete"), (4, 2)),
    "slogdet": (linalg.slogdet, (3, 3)),
    "solve": (linalg.solve, (3, 3), (3, 2)),
    "solve, vector": (linalg.solve, (3, 3), (3,)),
    "solve, stack": (linalg.solve, (2, 3, 3), (3, 1)),
    "solve_triangular": (linalg.solve_triangular, (3, 3), (3, 2)),
    "solve_triangular, lower": (
        lambda a, b: linalg.solve_triangular(a, b, lower=True, trans="C", unit_diagonal=True),
        (2, 3, 3),
        (3, 1),
    ),
    "sqrtm": (linalg.sqrtm, (3, 3)),
    "svd": (lambda x: linalg.svd(x, full_matrices=False), (4, 3)),
    "svd, full": (linalg.svd, (2, 3)),
    "svdvals": (linalg.svdvals, (3, 2)),
    "trace": (linalg.trace, (2, 3, 3)),
    "vecdot": (linalg.vecdot, (2, 3), (3,)),
    "vector_norm": (lambda x: linalg.vector_norm(x, axis=0), (3, 2)),
    "vector_norm, 3": (lambda x: linalg.vector_norm(x, axis=-1, ord=3), (3, 2)),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)
both_kinds = pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=["real", "complex"])


def arguments(name, dtype, batch=()):
    f, *shapes = FUNCTIONS[name]
    return f, [matrix(*batch, *shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def fixed(out):
    """Cotangents for a tree of results."""
    return tree.map(lambda leaf: matrix(*leaf.shape, seed=7, dtype=leaf.dtype), out)


def paired(cotangents, tangents):
    """The pairing of cotangents and tangents: the real part of the sum of their products."""
    pairs = zip(tree.leaves(cotangents), tree.leaves(tangents), strict=True)
    return sum(float((ct * t).sum().real) for ct, t in pairs)


# --- every transformation -----------------------------------------------------------


@every_function
@both_kinds
def test_reverse_and_forward_mode_are_transposes_of_each_other(name, dtype):
    f, args = arguments(name, dtype)
    tangents = [matrix(*x.shape, seed=5, dtype=dtype) for x in args]
    out, change = fdbr.jvp(lambda *args: tuple(tree.leaves(f(*args))), args, tangents)
    _, pullback = fdbr.vjp(lambda *args: tuple(tree.leaves(f(*args))), *args)
    cotangents = fixed(out)
    assert_allclose(paired(cotangents, change), paired(pullback(cotangents), tangents), rtol=1e-10)


def subsets(count):
    flags = itertools.product([True, False], repeat=count)
    return [tuple(0 if flag else None for flag in some) for some in flags if any(some)]


def example(args, axes, i):
    return [x if axis is None else x[i] for x, axis in zip(args, axes, strict=True)]


def smooth(f):
    """A real function of everything that a function of matrices returns."""

    def value(*args):
        weighted = [
            ops.sum(ops.real(part * np.cos(np.arange(part.size)).reshape(part.shape)))
            for part in tree.leaves(f(*args))
        ]
        return sum(weighted[1:], weighted[0])

    return value


@every_function
@both_kinds
def test_vmap_of_values_gradients_and_second_derivatives_is_the_loop(name, dtype):
    f, single = arguments(name, dtype)
    _, stacked = arguments(name, dtype, (2,))
    gradient = fdbr.grad(smooth(f), argnums=tuple(range(len(single))))

    def second(*args):
        return fdbr.jvp(gradient, args, [x * 0.5 for x in args])[1]

    for axes in subsets(len(single)):
        args = [s if axis == 0 else x for s, x, axis in zip(stacked, single, axes, strict=True)]
        for function in (lambda *args: tree.leaves(f(*args)), gradient, second):
            found = fdbr.vmap(function, in_axes=axes)(*args)
            each = [function(*example(args, axes, i)) for i in range(2)]
            desired = tree.map(lambda *leaves: np.stack(leaves), *each)
            assert_allclose(tuple(found), tuple(desired), rtol=1e-9, atol=1e-9)


@every_function
def test_the_gradient_of_a_vmapped_function_is_that_of_the_loop(name):
    f, single = arguments(name, np.float64)
    _, stacked = arguments(name, np.float64, (2,))
    value = smooth(f)
    positions = tuple(range(len(single)))
    for axes in subsets(len(single)):
        args = [s if axis == 0 else x for s, x, axis in zip(stacked, single, axes, strict=True)]
        vectorised = fdbr.vmap(value, in_axes=axes)
        found = fdbr.grad(lambda *args, v=vectorised: ops.sum(v(*args)), argnums=positions)(*args)
        desired = fdbr.grad(
            lambda *args, axes=axes: (
                value(*example(args, axes, 0)) + value(*example(args, axes, 1))
            ),
            argnums=positions,
        )(*args)
        assert_allclose(found, desired, rtol=1e-9, atol=1e-9)


def calls(function, *args):
    """How many functions Python calls."""
    count = 0

    def notice(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    function(*args)
    gc.disable()  # whose callbacks are calls too
    sys.setprofile(notice)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@every_function
def test_a_larger_batch_takes_no_more_steps_in_python(name):
    f, args = arguments(name, np.float64)
    gradient = fdbr.vmap(fdbr.grad(smooth(f)))
    few, many = ([np.stack([x] * n) for x in args] for n in (2, 9))
    # Other implementations may serve other sizes, but no step is taken for each example.
    assert calls(gradient, *many) - calls(gradient, *few) < 3


@every_function
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays_single(name, dtype):
    f, args = arguments(name, dtype)
    wide = [x.astype(np.result_type(x, np.float64)) for x in args]
    for function in (f, fdbr.grad(smooth(f)), lambda *args: fdbr.jvp(f, args, args)[1]):
        found, desired = tree.leaves(function(*args)), tree.leaves(function(*wide))
        for mine, other in zip(found, desired, strict=True):
            assert mine.dtype.itemsize * 2 == other.dtype.itemsize
            assert mine.dtype.kind == other.dtype.kind
            assert_allclose(mine, other, rtol=1e-3, atol=1e-3 * max(1, np.abs(other).max()))


def test_every_public_function_has_a_case():
    covered = {case.op.removeprefix("linalg.") for case in CASES if "linalg." in case.op}
    elsewhere = {"diagonal", "matmul", "matrix_transpose", "tensordot", "vecdot"}
    assert all(getattr(linalg, name) is getattr(ops, name) for name in elsewhere)
    # The values of a rank are counts, and solvers have tests of their own.
    assert set(linalg.__all__) - covered - elsewhere == {"matrix_rank", "cg"}


# --- values -------------------------------------------------------------------------


def test_results_have_the_names_of_the_array_api_standard():
    x = matrix(3, 3, dtype=float)
    assert linalg.eigh(x)._fields == linalg.eig(x)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.qr(x)._fields == ("Q", "R")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.svd(np.ones((4, 2))).U.shape == (4, 4)


@pytest.mark.parametrize(
    "name",
    "cross diagonal matrix_norm outer svdvals tensordot trace vecdot vector_norm".split(),
)
def test_arguments_are_those_of_the_standard_where_numpy_follows_it(name):
    mine, numpys = (inspect.signature(getattr(m, name)).parameters for m in (linalg, np.linalg))
    keywords = {p.name: p.default for p in numpys.values() if p.kind is p.KEYWORD_ONLY}
    assert {p.name: p.default for p in mine.values() if p.kind is p.KEYWORD_ONLY} == keywords


@few()
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5, 31, 32, 33, 70, 100]), st.booleans())
def test_triangular_equations_of_any_size_are_solved_one_by_one_and_stacked(seed, n, lower):
    a, b = matrix(3, n, n, seed=seed, dtype=float), matrix(n, 2, seed=seed, dtype=float)
    a = a + 3 * n * np.eye(n)
    found = linalg.solve_triangular(a, b, lower=lower)
    for one, x in zip(a, found, strict=True):
        triangle = np.tril(one) if lower else np.triu(one)
        assert_allclose(triangle @ x, b, rtol=1e-10, atol=1e-10)
        assert_allclose(linalg.solve_triangular(one, b, lower=lower), x, rtol=1e-10, atol=1e-12)


@few()
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-9, 0.01, 0.2, 0.9, 2.0, 5.0, 30.0]))
def test_exponentials_of_any_size_are_those_of_scipy(seed, scale):
    sizes = np.array([1.0, 0.1])[:, None, None]
    x = scale * sizes * np.random.default_rng(seed).uniform(-1, 1, (2, 4, 4))
    x = x - scale * np.eye(4)
    assert_allclose(linalg.expm(x), scipy.linalg.expm(x), rtol=1e-9, atol=1e-12)


def test_large_tangents_do_not_spoil_the_derivative_of_an_exponential():
    x, t = matrix(3, 3, dtype=float) / 4, matrix(3, 3, seed=1, dtype=float)
    small, large = (fdbr.jvp(linalg.expm, (x,), (t * c,))[1] for c in (1e-12, 1e12))
    assert_allclose(large * 1e-24, small, rtol=1e-12)
    assert_allclose(small, scipy.linalg.expm_frechet(x, t * 1e-12)[1], rtol=1e-12)
    assert_allclose(fdbr.jvp(linalg.expm, (x,), (0 * t,))[1], 0 * t)


def test_one_dimensional_right_sides_are_vectors_and_all_others_matrices():
    a, b = matrix(3, 2, 2, dtype=float), matrix(2, dtype=float)
    assert linalg.solve(a, b).shape == (3, 2)
    assert linalg.solve(a[0], np.ones((4, 2, 3))).shape == (4, 2, 3)
    assert linalg.lstsq(a, b).solution.shape == (3, 2)
    assert linalg.lstsq(a, b).residuals.shape == (3,)
    with pytest.raises(LinAlgError, match=r"linalg.solve: a float64\[3,2,2\] and b float64\[3,1\]"):
        linalg.solve(a, np.ones((3, 1)))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (linalg.cholesky, (0, 0)),
        (linalg.det, (0, 0)),
        (linalg.eig, (0, 0)),
        (linalg.eigh, (0, 0)),
        (linalg.eigvalsh, (0, 2, 2)),
        (linalg.expm, (0, 0)),
        (linalg.inv, (0, 0)),
        (linalg.matrix_norm, (0, 3)),
        (linalg.pinv, (0, 3)),
        (linalg.qr, (0, 3)),
        (linalg.slogdet, (0, 0)),
        (linalg.svd, (0, 3)),
        (linalg.svdvals, (3, 0)),
        (linalg.vector_norm, (0,)),
        (lambda x: linalg.solve(x, x), (0, 0)),
        (lambda x: linalg.solve(x, x), (0, 2, 2)),
        (lambda x: linalg.solve_triangular(x, x), (0, 0)),
        (lambda x: linalg.solve_triangular(x, x, lower=True), (0, 2, 2)),
        (lambda x: linalg.lstsq(x, x)[:2], (3, 0)),
        (lambda x: linalg.matrix_power(x, 2), (0, 0)),
        (lambda x: linalg.kron(x, x), (0, 2)),
    ],
)
def test_matrices_without_elements_have_results_and_gradients(f, shape):
    x = np.ones(shape)
    for leaf in tree.leaves(fdbr.jvp(f, (x,), (x,))):
        assert np.isfinite(leaf).all()
    assert fdbr.grad(smooth(f))(x).shape == shape
    assert linalg.matrix_rank(np.ones((0, 2, 2))).shape == (0,)


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@both_kinds
def test_matrix_norms_of_every_order_are_numpys_and_differentiate(order, dtype):
    x = matrix(3, 2, dtype=dtype)
    assert_allclose(linalg.matrix_norm(x, ord=order), np.linalg.matrix_norm(x, ord=order))
    check_grads(lambda x: linalg.matrix_norm(x, ord=order), x, order=1)
    assert_allclose(
        linalg.norm(ops.stack([x, x], axis=1), ord=order, axis=(-1, 0)),
        np.linalg.norm(np.stack([x, x], axis=1), ord=order, axis=(-1, 0)),
    )


@pytest.mark.parametrize("order", [2, 1, 3, 4, 0.5, -1, -2.5, 0, np.inf, -np.inf])
@both_kinds
def test_vector_norms_of_every_order_are_numpys_and_differentiate(order, dtype):
    x = matrix(3, 2, dtype=dtype)
    for axis in (None, 0, (1, 0)):
        settings = {"ord": order, "axis": axis, "keepdims": True}
        assert_allclose(linalg.vector_norm(x, **settings), np.linalg.vector_norm(x, **settings))
    check_grads(lambda x: linalg.vector_norm(x, ord=order, axis=1), x, order=1)


def test_the_zeroth_power_of_a_matrix_is_the_identity():
    x = matrix(2, 3, 3, dtype=np.float32)
    assert_allclose(linalg.matrix_power(x, 0), np.linalg.matrix_power(x, 0))
    assert linalg.matrix_power(x, 0).dtype == np.float32


# --- where it is delicate -----------------------------------------------------------


@pytest.mark.parametrize("x", [np.eye(3), np.diag([1.0, 1.0, 2.0]), np.zeros((3, 3))])
def test_a_function_of_equal_eigenvalues_has_its_gradient(x):
    iteration = np.linalg.qr(matrix(3, 3, dtype=float))[0]
    x = iteration @ x @ iteration.T
    slope = fdbr.grad(lambda x: ops.sum(linalg.eigvalsh(x) ** 2))(x)
    assert_allclose(slope, 2 * (np.tril(x) + np.tril(x, -1)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [float, complex])
def test_determinants_of_singular_matrices_have_right_derivatives_of_two_orders(rank, dtype):
    x = matrix(4, rank, dtype=dtype) @ matrix(rank, 4, seed=1, dtype=dtype)
    check_grads(linalg.det, x)
    check_grads(linalg.det, np.stack([x, matrix(4, 4, dtype=dtype)]))


def test_a_matrix_of_tiny_elements_has_cofactors_though_its_determinant_vanishes():
    x = np.diag([1e-170, 2e-170, 3.0])
    assert_allclose(np.diag(fdbr.grad(linalg.det)(x)), [6e-170, 3e-170, 0.0], rtol=1e-12, atol=0)


def test_determinants_of_regular_matrices_have_derivatives_of_three_orders():
    check_grads(linalg.det, matrix(3, 3, dtype=float), order=3)
    third = fdbr.grad(lambda x: ops.sum(fdbr.hessian(linalg.det)(x)))
    assert np.isnan(third(np.zeros((3, 3)))).all()


def test_a_singular_matrix_has_a_logarithm_of_minus_infinity_and_no_derivative():
    x = np.ones((2, 2))
    assert linalg.slogdet(x) == (0.0, -np.inf)
    assert np.isnan(fdbr.grad(lambda x: linalg.slogdet(x).logabsdet)(x)).all()


def test_pseudoinverses_of_deficient_matrices_follow_matrices_of_their_rank():
    def deficient(x, y):
        return linalg.pinv(x @ y)

    check_grads(deficient, matrix(4, 2, dtype=float), matrix(2, 3, dtype=float))
    x = np.diag([1.0, 1e-3])
    assert_allclose(linalg.pinv(x, rtol=1e-2), np.diag([1.0, 0.0]))
    both = linalg.pinv(np.stack([x, x]), rtol=np.array([1e-2, 1e-4]))
    assert_allclose(both[1], np.diag([1.0, 1e3]))
    assert linalg.matrix_rank(np.stack([x, x]), rtol=np.array([1e-2, 1e-4])).tolist() == [1, 2]
    ranks = fdbr.vmap(lambda tol: linalg.matrix_rank(x, rtol=tol))(np.array([1e-2, 1e-4]))
    assert ranks.tolist() == [1, 2]
    found = fdbr.vmap(lambda tol: linalg.pinv(x, rtol=tol))(np.array([1e-2, 1e-4]))
    assert_allclose(found, both)


def test_the_rank_is_not_differentiated():
    def f(x):
        return ops.sum(x) * linalg.matrix_rank(x)

    assert_allclose(fdbr.grad(f)(np.ones((2, 2))), np.ones((2, 2)))


def test_norms_have_the_first_derivative_zero_at_zero_and_no_second_one():
    x = np.zeros((2, 2))
    for f in (
        linalg.matrix_norm,
        linalg.vector_norm,
        lambda x: linalg.vector_norm(x, ord=3),
        lambda x: linalg.vector_norm(x, ord=1),
        linalg.norm,
    ):
        assert_allclose(fdbr.grad(f)(x), x)
        second = fdbr.hessian(f)(x).reshape(4, 4)
        assert np.isnan(np.diag(second)).all()
        assert_allclose(fdbr.jvp(f, (x,), (x + 1,))[1], 0.0)


def test_equal_largest_singular_values_share_the_derivative_of_the_spectral_norm():
    assert_allclose(fdbr.grad(lambda x: linalg.matrix_norm(x, ord=2))(np.eye(2)), np.eye(2) / 2)


def test_only_the_triangle_that_is_read_has_a_derivative():
    a, b = matrix(3, 3, dtype=float), matrix(3, 1, dtype=float)
    for lower, unit in itertools.product([True, False], repeat=2):

        def f(a, lower=lower, unit=unit):
            return ops.sum(linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit) ** 2)

        check_grads(f, a)
        off = 1 if unit else 0
        read = np.tril(np.ones((3, 3)), -off) if lower else np.triu(np.ones((3, 3)), off)
        assert (fdbr.grad(f)(a)[read == 0] == 0).all()


def test_qr_of_dependent_columns_has_no_derivative():
    assert np.isnan(fdbr.grad(smooth(linalg.qr))(np.zeros((3, 2)))).all()


# --- errors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: linalg.cholesky(-x), r"linalg.cholesky: the matrix float64\[2,2\] is not posit"),
        (lambda x: linalg.cholesky(ops.stack([-x, x])), r"a matrix in float64\[2,2,2\]"),
        (lambda x: linalg.inv(x * 0), r"linalg.inv: the matrix float64\[2,2\] is singular"),
        (lambda x: linalg.solve(x * 0, x), r"linalg.solve: the matrix float64\[2,2\] is singular"),
        (lambda x: linalg.solve_triangular(x * 0, x), r"linalg.solve_triangular: .* zero on its"),
        (lambda x: linalg.det(x[:, :1]), r"linalg.det: x must be square, but is float64\[2,1\]"),
        (lambda x: linalg.solve(x[:1], x), r"linalg.solve: x1 must be square"),
        (lambda x: linalg.eigh(x[0]), r"linalg.eigh: x must have at least two dimensions"),
        (lambda x: linalg.svd(x[0, 0]), r"linalg.svd: x must have at least two dimensions"),
        (lambda x: linalg.solve(x, x[:1]), r"linalg.solve: a float64\[2,2\] and b float64\[1,2\]"),
        (lambda x: linalg.lstsq(x, x[0, :1]), r"linalg.lstsq: .* b must have as many elements"),
        (lambda x: linalg.qr(x, mode="r"), r"linalg.qr: mode must be 'reduced' or 'complete'"),
        (lambda x: linalg.solve_triangular(x, x, trans=3), r"trans must be 0, 1, 2"),
        (lambda x: linalg.matrix_norm(x, ord=3), r"linalg.matrix_norm: ord must be 'fro'"),
        (lambda x: linalg.norm(ops.stack([x, x]), ord=1), r"linalg.norm: ord 1 of 3 axes"),
        (lambda x: linalg.norm(x[0], ord="fro"), r"linalg.norm: ord 'fro' is a norm of matrices"),
        (lambda x: linalg.cross(x, x), r"linalg.cross: x1 float64\[2,2\] .* must be 3 long"),
        (lambda x: linalg.outer(x, x), r"linalg.outer: .* must be vectors"),
        (lambda x: linalg.multi_dot([x]), r"linalg.multi_dot: needs at least two arrays"),
        (lambda x: linalg.multi_dot([x, x[:1], x]), r"linalg.multi_dot: arrays .* do not fit"),
        (lambda x: linalg.solve(ops.stack([x] * 2), ops.stack([x] * 3)), r"do not broadcast"),
        (lambda x: linalg.trace(x[0]), r"needs two dimensions"),
    ],
)
def test_errors_name_the_function_its_arguments_and_what_to_do(call, message):
    x = np.array([[2.0, 1.0], [1.0, 3.0]])
    with pytest.raises(ValueError, match=message):
        call(x)
    with pytest.raises(ValueError, match=message):
        fdbr.vjp(call, x)


def test_a_power_must_be_an_integer():
    with pytest.raises(TypeError):
        linalg.matrix_power(np.eye(2), 0.5)


# --- array modules ------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize(
    ("of_a", "of_b"), [("float32", "float64"), ("float32", "complex64"), ("float64", "complex64")]
)
def test_both_sides_of_an_equation_are_promoted_before_it_is_solved(xp, to_numpy, n, of_a, of_b):
    a = (np.eye(n) * n + np.arange(n * n).reshape(n, n) / n**2).astype(of_a)
    b = matrix(n, 2, dtype=of_b)
    for solve, whole in ((linalg.solve, a), (linalg.solve_triangular, np.triu(a))):
        found, pullback = fdbr.vjp(solve, xp.asarray(whole), xp.asarray(b))
        assert found.dtype == np.result_type(a, b)
        rough = 1e-4 if of_a == "float32" and of_b == "complex64" else 1e-6
        assert_allclose(whole @ to_numpy(found), b + 0 * to_numpy(found), rtol=rough, atol=rough)
        derivatives = pullback(found)
        assert [slope.dtype for slope in derivatives] == [a.dtype, b.dtype]


@pytest.mark.parametrize("n", [2, 40])
def test_what_has_no_result_is_an_error_on_every_array_module(xp, n):
    zero = xp.zeros((n, n))
    for call in (
        linalg.inv,
        linalg.cholesky,
        lambda x: linalg.solve(x, x),
        lambda x: linalg.solve_triangular(x, x),
        lambda x: linalg.matrix_power(x, -1),
    ):
        with pytest.raises(LinAlgError, match=r"fdbr.ops.linalg"):
            call(zero)


@pytest.mark.parametrize(
    ("solver", "module", "counted"),
    [("solve", solving, "lapack"), ("solve_triangular", kernels, "substituted")],
)
def test_gradients_by_both_sides_of_an_equation_share_one_solution(
    solver, module, counted, monkeypatch
):
    calls, inner = [], getattr(module, counted)
    monkeypatch.setattr(module, counted, lambda *a, **k: calls.append(1) or inner(*a, **k))
    x, y = np.triu(matrix(3, 3, dtype=float)) + 4 * np.eye(3), matrix(3, 2, dtype=float)
    f = lambda x, y: ops.sum(getattr(linalg, solver)(x, y) ** 2)
    both = fdbr.grad(f, argnums=(0, 1))(x, y)
    assert len(calls) == 2  # one forward, one backward
    for number in (0, 1):
        assert_allclose(both[number], fdbr.grad(f, argnums=number)(x, y))
    assert len(calls) == 6
    _, pullback = fdbr.vjp(f, x, y)
    assert_allclose(pullback(2.0), tuple(2 * slope for slope in both))
    assert_allclose(pullback(1.0), both)


# --- least squares -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    lost=st.integers(0, 2),
    vector=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_least_squares_are_numpys_whatever_the_rank(dtype, rows, columns, lost, vector, seed):
    generator = np.random.default_rng(seed)
    kept = max(1, min(rows, columns) - lost)
    draw = lambda *shape: (
        generator.normal(size=shape) + 1j * generator.normal(size=shape)
        if np.dtype(dtype).kind == "c"
        else generator.normal(size=shape)
    )
    a = (draw(rows, kept) @ draw(kept, columns)).astype(dtype)
    b = draw(rows, *([] if vector else [2])).astype(dtype)
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    s = np.linalg.svd(a, compute_uv=False)
    if s[-1] > 0 and not (s[-1] < rtol * s[0] / 50 or s[-1] > rtol * s[0] * 50):
        return  # the rank is not clear
    found = linalg.lstsq(a, b, rtol=rtol)
    solution, residuals, rank, values = np.linalg.lstsq(a, b, rcond=rtol)
    condition = s[0] / s[kept - 1]
    tolerance = 200 * np.finfo(dtype).eps * condition**2
    if tolerance > 0.1:
        return
    assert found.solution.dtype == dtype
    scale = np.abs(solution).max() + np.abs(b).max()
    assert_allclose(found.solution, solution, rtol=tolerance, atol=tolerance * scale)
    assert found.rank == rank
    assert_allclose(found.singular_values, values, rtol=1e-3, atol=rtol * s[0])
    if residuals.size:
        left = np.abs(b - a @ solution) ** 2
        assert_allclose(found.residuals, left.sum(axis=0), rtol=tolerance, atol=tolerance * scale)
    assert [part is other for part, other in zip(found, found, strict=True)] == [True] * 4


def test_what_else_is_known_of_least_squares_belongs_to_the_arrays_as_they_were():
    a, b = matrix(4, 3, dtype=float), matrix(4, 2, dtype=float)
    desired = list(linalg.lstsq(a.copy(), b.copy()))
    found = linalg.lstsq(a, b)
    a[:], b[:] = 0, 0
    for part, expected in zip(found, desired, strict=True):
        assert_allclose(part, expected)


@pytest.mark.parametrize("transformed", [fdbr.jit, lambda f: lambda *x: fdbr.vjp(f, *x)[0]])
def test_functions_that_are_transformed_return_all_of_least_squares(transformed):
    a, b = matrix(4, 3, dtype=float), matrix(4, 2, dtype=float)
    found = transformed(linalg.lstsq)(a, b)
    assert repr(found).startswith("LstsqResult(solution=")
    for part, expected in zip(found, linalg.lstsq(a, b), strict=True):
        assert_allclose(part, expected, rtol=1e-12)
    assert [part.shape for part in found[1:3]] == [(2,), ()]
    solution, *_ = fdbr.vmap(linalg.lstsq)(a[None], b[None])
    assert_allclose(solution[0], found.solution, rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_least_squares_are_differentiated_in_every_rank(rank):
    a = matrix(4, rank, dtype=float) @ matrix(rank, 3, dtype=float, seed=1)
    b, t = matrix(4, 2, dtype=float), 0.1 * matrix(3, 3, dtype=float)
    near = lambda t: a @ (np.eye(3) + t)  # which keeps the rank
    check_grads(lambda t, b: linalg.lstsq(near(t), b).solution, t, b)
    check_grads(lambda t, b: linalg.lstsq(near(t).T, b).solution, t, b[:3])
    check_grads(lambda t, b: linalg.lstsq(near(t), b).residuals, t, b)
