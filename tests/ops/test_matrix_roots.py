"""Square roots and logarithms of matrices."""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import shadow
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.ops import linalg
from fdbr.ops.linalg import roots
from fdbr.testing import assert_allclose
from ops.cases import few

LinAlgError = np.linalg.LinAlgError
BOTH = pytest.mark.parametrize("f", [linalg.sqrtm, linalg.logm])
SINGULAR = "ignore:Matrix is (singular|ill-conditioned)"


def matrix(seed, n, *batch, spread=1.0, dtype=complex):
    """Matrices whose eigenvalues keep away from the negative real axis."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (*batch, n, n))
    x = x + 1j * generator.uniform(-1, 1, x.shape) if np.dtype(dtype).kind == "c" else x
    exponents = spread * generator.uniform(-1, 1, (*batch, n))
    basis = np.eye(n) + 0.3 / n * x
    return (basis * np.exp(exponents)[..., None, :] @ np.linalg.inv(basis)).astype(dtype)


# --- values -------------------------------------------------------------------------

SHAPES = st.sampled_from([1, 2, 3, 7]), st.sampled_from([(), (2,), (2, 1)])
KINDS = st.sampled_from([float, complex])


@few()
@given(st.integers(0, 2**32), *SHAPES, st.sampled_from([0.1, 1.0, 6.0]), KINDS)
def test_a_root_times_itself_and_the_exponential_of_a_logarithm_are_the_matrix(
    seed, n, batch, spread, dtype
):
    x = matrix(seed, n, *batch, spread=spread, dtype=dtype)
    root, logarithm = linalg.sqrtm(x), linalg.logm(x)
    assert root.dtype == logarithm.dtype == x.dtype
    size = np.abs(x).max()
    assert_allclose(root @ root, x, rtol=1e-12, atol=1e-13 * size)
    assert_allclose(linalg.expm(logarithm), x, rtol=1e-10, atol=1e-11 * size)
    assert (np.linalg.eigvals(root).real > 0).all()
    assert (np.abs(np.linalg.eigvals(logarithm).imag) < np.pi).all()


@few()
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5]), KINDS)
def test_values_are_those_of_scipy(seed, n, dtype):
    x = matrix(seed, n, dtype=dtype)
    assert_allclose(linalg.sqrtm(x), scipy.linalg.sqrtm(x), rtol=1e-12, atol=1e-13)
    assert_allclose(linalg.logm(x), scipy.linalg.logm(x), rtol=1e-11, atol=1e-12)


@few()
@given(st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 3.0]))
def test_a_logarithm_undoes_the_exponential_of_a_matrix_that_iterations_by_less_than_half(
    seed, size
):
    x = np.random.default_rng(seed).uniform(-size, size, (3, 2, 2)) / 2
    assert_allclose(linalg.logm(linalg.expm(x)), x, rtol=1e-10, atol=1e-12)


def test_integers_are_taken_as_floating_numbers():
    x = np.array([[4, 1], [0, 9]])
    assert_allclose(linalg.sqrtm(x), np.array([[2.0, 0.2], [0.0, 3.0]]), rtol=1e-15)
    assert linalg.logm(x).dtype == np.float64


def test_matrices_that_cannot_be_diagonalised_have_roots_and_logarithms():
    x = np.array([[4.0, 1e6], [0.0, 4.0]])
    assert_allclose(linalg.sqrtm(x), np.array([[2.0, 2.5e5], [0.0, 2.0]]), rtol=1e-14)
    assert_allclose(linalg.logm(x), np.array([[np.log(4), 2.5e5], [0.0, np.log(4)]]), rtol=1e-9)


@pytest.mark.filterwarnings(SINGULAR)
def test_very_large_and_very_small_numbers_have_logarithms():
    x = np.diag([1e-300, 1.0, 1e300])
    assert_allclose(linalg.logm(x), np.diag(np.log(np.diag(x))), rtol=1e-14)


def test_a_real_matrix_that_iterations_by_almost_half_has_a_real_logarithm():
    x = np.array([[-1.0, 1e-9], [-1e-9, -1.0]])
    assert_allclose(linalg.logm(x), np.array([[0, np.pi], [-np.pi, 0]]), rtol=1e-8, atol=1e-8)
    assert_allclose(linalg.sqrtm(x), np.array([[0, 1.0], [-1.0, 0]]), rtol=1e-8, atol=1e-8)


@BOTH
def test_where_an_element_is_no_number_nothing_of_that_matrix_is_one(f):
    x = np.stack([np.eye(2), np.array([[np.nan, 1.0], [0.0, 2.0]]), 4 * np.eye(2)])
    out = f(x)
    assert np.isnan(out[1]).all()
    assert_allclose(out[::2], f(x[::2]))


@BOTH
@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 2), (2, 0, 0)])
def test_empty_matrices_and_stacks_stay_empty(f, shape):
    x = np.zeros(shape, np.float32)
    out, pullback = fdbr.vjp(f, x)
    assert out.shape == pullback(out)[0].shape == shape
    assert out.dtype == np.float32


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays_single(f, dtype):
    x = matrix(0, 3, 2, dtype=dtype)
    out, pullback = fdbr.vjp(f, x)
    assert out.dtype == pullback(out)[0].dtype == dtype
    assert_allclose(out, f(x.astype(complex)), rtol=1e-4, atol=1e-5)


@BOTH
def test_other_array_modules_get_their_own_arrays_back(f):
    x = matrix(0, 3, 2, dtype=float)
    out, pullback = fdbr.vjp(f, shadow.asarray(x))
    desired, numpys = fdbr.vjp(f, x)
    assert type(out) is shadow.Array
    assert_allclose(out.get(), desired)
    assert_allclose(pullback(out)[0].get(), numpys(desired)[0])


def test_a_scipy_that_takes_no_stacks_is_given_the_matrices_one_by_one(monkeypatch):
    x = matrix(0, 3, 2, 2)
    desired = linalg.sqrtm(x), linalg.logm(x)
    calls = []
    root = scipy.linalg.sqrtm
    monkeypatch.setattr(scipy.linalg, "sqrtm", lambda one: calls.append(one.ndim) or root(one))
    monkeypatch.setattr(roots, "_scipy_accepts_stacks", lambda: False)
    assert_allclose((linalg.sqrtm(x), linalg.logm(x)), desired, rtol=1e-14, atol=1e-14)
    assert set(calls) == {2}


# --- negative and vanishing eigenvalues -----------------------------------------------


@BOTH
def test_real_matrices_with_a_negative_eigenvalue_have_complex_results_as_in_scipy(f):
    x = np.diag([-4.0, 9.0])
    desired = {"sqrtm": [2j, 3.0], "logm": [np.log(4) + 1j * np.pi, np.log(9)]}[f.__name__]
    for same in (x, x.astype(complex), x.astype(np.float32)):
        found = f(same)
        assert found.dtype == np.result_type(same, np.complex64)
        assert_allclose(found, np.diag(desired), rtol=1e-6, atol=1e-14)
    assert_allclose(f(np.stack([np.eye(2), x])), np.stack([f(np.eye(2)), f(x)]), atol=1e-14)
    assert_allclose(fdbr.vmap(f)(np.stack([np.eye(2), x]))[1], f(x))
    assert_allclose(fdbr.jit(f)(x), f(x))


def spread(values, seed=0, dtype=float):
    """A matrix with given eigenvalues, and eigenvectors that are not orthogonal."""
    basis = np.eye(len(values)) + 0.2 * matrix(seed, len(values), dtype=float)
    return (basis * np.array(values) @ np.linalg.inv(basis)).astype(dtype)


EIGENVALUES = {
    "positive": [1.0, 4.0, 9.0],
    "negative": [-1.0, -4.0, 9.0],
    "repeated": [4.0, 4.0, 4.0],
    "repeated and negative": [-4.0, -4.0, 9.0],
    "tiny": [1e-10, 1.0, 4.0],
    "negative and tiny": [-1e-10, 1.0, 4.0],
}


@pytest.mark.parametrize("kind", EIGENVALUES)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
def test_derivatives_of_three_orders_are_those_of_the_equation_whatever_the_eigenvalues(
    kind, dtype
):
    if dtype == np.float32 and "tiny" in kind:
        pytest.skip("below the precision of the matrix")
    x, t = spread(EIGENVALUES[kind], dtype=dtype), matrix(1, 3, dtype=dtype)
    exact = 1e-3 if dtype == np.float32 else 1e-5

    def along(f):
        return lambda x: fdbr.jvp(f, (x,), (t,))[1]

    # The first, second and third derivatives of y @ y = x.
    y = [linalg.sqrtm(x)]
    f = linalg.sqrtm
    for _ in range(3):
        f = along(f)
        y.append(f(x))
    for order, right in ((1, t), (2, 0 * t), (3, 0 * t)):
        terms = [math.comb(order, k) * (y[k] @ y[order - k]) for k in range(order + 1)]
        size = max(np.abs(term).max() for term in terms)
        assert_allclose(sum(terms), right + 0 * terms[0], rtol=exact, atol=exact * size)
    # The first and second of expm(z) = x, whatever the order of modes.
    first = along(linalg.logm)
    z, dz = linalg.logm(x), first(x)
    if "tiny" not in kind:
        assert_allclose(
            fdbr.jvp(linalg.expm, (z,), (dz,))[1], t + 0 * z, rtol=exact, atol=10 * exact
        )
        ddz = along(first)(x)
        bend = fdbr.jvp(lambda z: fdbr.jvp(linalg.expm, (z,), (dz,))[1], (z,), (dz,))[1]
        found = fdbr.jvp(linalg.expm, (z,), (ddz,))[1] + bend
        assert_allclose(found, 0 * z, atol=exact * max(1, np.abs(bend).max()) * 10)


@BOTH
@pytest.mark.parametrize("kind", ["positive", "negative", "repeated", "negative and tiny"])
def test_second_derivatives_are_the_same_in_every_order_of_modes(f, kind):
    x = spread(EIGENVALUES[kind], dtype=complex)

    def value(x):
        return ops.sum(ops.real(f(x + 0j) * np.exp(1j * np.arange(9.0).reshape(3, 3))))

    real = x.real
    modes = itertools.product((fdbr.jacfwd, fdbr.jacrev), repeat=2)
    found = [outer(inner(value))(real) for outer, inner in modes]
    size = np.abs(found[0]).max()
    for other in found[1:]:
        assert_allclose(other, found[0], rtol=1e-5, atol=1e-7 * size)
    if "tiny" not in kind:
        fdbr.testing.check_grads(value, real, rtol=1e-5)


@BOTH
def test_large_matrices_are_differentiated_as_small_ones_are(f):
    x, t = matrix(0, 12, 2, dtype=float), matrix(1, 12, 2, dtype=float)
    small = matrix(0, 3, dtype=float)
    whole = np.zeros((12, 12)) + np.eye(12)
    whole[:3, :3] = small
    iteration = np.zeros((12, 12))
    iteration[:3, :3] = t[0, :3, :3]
    found = fdbr.jvp(f, (whole,), (iteration,))[1][:3, :3]
    assert_allclose(found, fdbr.jvp(f, (small,), (iteration[:3, :3],))[1], rtol=1e-9, atol=1e-10)
    back = fdbr.vjp(f, x)[1](t)[0]
    assert_allclose((back * t).sum(), (fdbr.jvp(f, (x,), (t,))[1] * t).sum(), rtol=1e-9)


def test_an_eigenvalue_that_is_negative_by_rounding_counts_as_zero_of_a_root():
    assert_allclose(linalg.sqrtm(np.diag([-1e-17, 4.0])), np.diag([0.0, 2.0]), atol=1e-8)


@pytest.mark.filterwarnings(SINGULAR)
def test_singular_matrices_may_have_roots():
    assert_allclose(linalg.sqrtm(np.diag([0.0, 4.0])), np.diag([0.0, 2.0]))
    assert_allclose(linalg.sqrtm(np.zeros((2, 2))), np.zeros((2, 2)))


@pytest.mark.filterwarnings(SINGULAR)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: linalg.sqrtm(x), "sqrtm: the matrix float64[2,2] is singular and has no square"),
        (lambda x: linalg.logm(x), "logm: the matrix float64[2,2] is singular and has no logarith"),
        (lambda x: linalg.logm(x @ x.T), "logm: the matrix float64[2,2] is singular"),
        (lambda x: linalg.sqrtm(x[:1]), "sqrtm: x must be square, but is float64[1,2]"),
        (lambda x: linalg.logm(x[0]), "logm: x must have at least two dimensions"),
    ],
)
def test_errors_name_the_function_and_its_argument(call, message):
    x = np.array([[0.0, 1.0], [0.0, 0.0]])
    for use in (call, lambda x: fdbr.vjp(call, x), lambda x: fdbr.vmap(call)(x[None])):
        with pytest.raises(LinAlgError) as caught:
            use(x)
        assert message.partition(" the matrix")[0] in str(caught.value)
    with pytest.raises(LinAlgError) as caught:
        call(x)
    assert message in str(caught.value)


@pytest.mark.filterwarnings(SINGULAR)
def test_an_infinite_derivative_is_not_a_number_for_that_matrix_alone():
    x = np.stack([np.diag([0.0, 4.0]), 4 * np.eye(2), np.zeros((2, 2))])
    slope = fdbr.grad(lambda x: ops.sum(linalg.sqrtm(x)))(x)
    assert np.isnan(slope[::2]).all()
    assert_allclose(slope[1], np.full((2, 2), 0.25))


# --- derivatives --------------------------------------------------------------------


@few()
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), KINDS)
def test_derivatives_are_those_of_the_equations_that_define_them(seed, n, dtype):
    x, t = matrix(seed, n, 2, dtype=dtype), matrix(seed + 1, n, 2, dtype=dtype)
    root, iteration = fdbr.jvp(linalg.sqrtm, (x,), (t,))
    assert_allclose(root @ iteration + iteration @ root, t, rtol=1e-10, atol=1e-11)
    logarithm, iteration = fdbr.jvp(linalg.logm, (x,), (t,))
    assert_allclose(fdbr.jvp(linalg.expm, (logarithm,), (iteration,))[1], t, rtol=1e-9, atol=1e-10)


@BOTH
@pytest.mark.parametrize("size", [1e-100, 1.0, 1e100])
def test_the_size_of_a_matrix_or_a_tangent_does_not_spoil_the_derivative(f, size):
    x, t = matrix(0, 3, dtype=float), matrix(1, 3, dtype=float)
    slope = fdbr.jvp(f, (x,), (t,))[1]
    assert_allclose(fdbr.jvp(f, (x,), (t * size,))[1] / size, slope, rtol=1e-12, atol=1e-13)
    power = 0.5 if f is linalg.sqrtm else 1.0
    assert_allclose(fdbr.jvp(f, (x * size,), (t,))[1] * size**power, slope, rtol=1e-10, atol=1e-11)
    assert_allclose(fdbr.jvp(f, (x,), (0 * t,))[1], 0 * t)


def test_a_derivative_at_equal_eigenvalues_is_finite_and_right():
    t = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_allclose(fdbr.jvp(linalg.sqrtm, (4 * np.eye(2),), (t,))[1], t / 4, rtol=1e-14)
    assert_allclose(fdbr.jvp(linalg.logm, (4 * np.eye(2),), (t,))[1], t / 4, rtol=1e-14)


def test_a_trace_of_a_logarithm_is_the_logarithm_of_a_determinant_to_the_third_order():
    x, t = matrix(3, 3, dtype=float), matrix(4, 3, dtype=float)
    f, g = (lambda x: linalg.logm(x).trace()), (lambda x: linalg.slogdet(x)[1])
    for _ in range(3):
        f, g = (lambda x, f=f: fdbr.jvp(f, (x,), (t,))[1] for f in (f, g))
        assert_allclose(f(x), g(x), rtol=1e-9)
        assert_allclose(fdbr.grad(f)(x), fdbr.grad(g)(x), rtol=1e-8, atol=1e-9)


def test_nothing_but_singular_matrices_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 4):
            x = matrix(n, n, 2, dtype=float)
            fdbr.grad(lambda x: ops.sum(linalg.sqrtm(x) + linalg.logm(x)))(x)
