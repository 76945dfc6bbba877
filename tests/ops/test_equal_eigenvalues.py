"""At equal eigenvalues or singular values a derivative is right or NaN, never another number."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.linalg import expm

import fdbr
from fdbr import ops
from fdbr.ops import linalg
from fdbr.testing import assert_allclose, check_grads

pytestmark = pytest.mark.filterwarnings("ignore")

FUNCTIONS = {
    "x": (lambda x: x, lambda x: 1 + 0 * x),
    "x**2": (lambda x: x * x, lambda x: 2 * x),
    "x**3": (lambda x: x**3, lambda x: 3 * x**2),
    "exp": (ops.exp, np.exp),
    "sin": (ops.sin, np.cos),
}


def adjoint(x):
    return ops.conj(ops.matrix_transpose(x))


def hermitian(x):
    return (x + adjoint(x)) / 2


def quotients(f, slope, x):
    """Divided differences of a function."""
    values, difference = np.asarray(f(x)), x[:, None] - x
    equal = abs(difference) < 1e-6
    means = slope((x[:, None] + x) / 2)
    return np.where(equal, means, (values[:, None] - values) / np.where(equal, 1, difference))


def is_right_or_nan(found, desired, scale, dtype):
    rtol = 1e-2 if np.finfo(dtype).eps > 1e-10 else 1e-5
    known = ~np.isnan(found)
    return (abs(found - desired)[known] <= rtol * scale).all()


@st.composite
def cases(draw, positive=False):
    """Draw values of a few multiplicities, a basis, a cotangent, and a function."""
    n = draw(st.integers(1, 5))
    some = [0.0, 1.0, 2.0, 0.3] if positive else [0.0, 1.0, 2.0, -1.5, 0.3]
    values = np.array(draw(st.lists(st.sampled_from(some), min_size=n, max_size=n)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(["float64", "float64", "complex128", "float32"]))
    is_complex = dtype == "complex128"

    def normal(m, n):
        real = generator.normal(size=(m, n))
        return real + 1j * generator.normal(size=(m, n)) if is_complex else real

    def basis(n):
        if draw(st.integers(0, 2)):
            return np.linalg.qr(normal(n, n))[0]
        return np.eye(n)[generator.permutation(n)].astype(dtype)

    name = draw(st.sampled_from(list(FUNCTIONS)))
    return n, values, dtype, normal, basis, *FUNCTIONS[name]


def cotangent(normal, n, aligned):
    if not aligned:
        return normal(n, n)
    out = np.zeros((n, n))
    out[0, -1] = 1  # the row of a Jacobian
    return out


@given(cases(), st.booleans())
def test_a_function_of_a_hermitian_matrix_by_eigh_is_right_or_nan(case, aligned):
    n, values, dtype, normal, basis, f, slope = case
    q = basis(n)
    exact = (q * values) @ q.conj().T
    x, c = exact.astype(dtype), cotangent(normal, n, aligned).astype(dtype)

    def value(x):
        w, v = linalg.eigh(hermitian(x))
        return ops.sum(ops.real(c * ((v * f(w)) @ adjoint(v))))

    w, v = np.linalg.eigh(hermitian(exact))
    inner = quotients(f, slope, w) * (v.conj().T @ c.conj() @ v)
    gradient = hermitian(v @ inner @ v.conj().T).conj()
    scale = abs(gradient).max() + abs(c).max()
    assert is_right_or_nan(fdbr.grad(value)(x), gradient, scale, dtype)
    t = normal(n, n).astype(dtype)
    _, change = fdbr.jvp(value, (x,), (t,))
    assert is_right_or_nan(change, np.sum(gradient * t).real, 10 * scale, dtype)


@given(cases(positive=True), st.booleans(), st.integers(0, 2), st.booleans())
def test_an_odd_function_of_singular_values_is_right_or_nan(case, aligned, more, wide):
    n, values, dtype, normal, basis, f, slope = case
    u, v = basis(n + more)[:, :n], basis(n)
    exact = (u * values) @ v.conj().T
    exact = exact.T if wide else exact
    c = (normal(*exact.shape) if not aligned else np.eye(*exact.shape, 1)).astype(dtype)

    def odd(s):
        return s * f(s * s)

    def value(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return ops.sum(ops.real(c * ((u * odd(s)) @ vh)))

    # It is a block of the odd function of the Hermitian matrix [[0, x], [x^H, 0]].
    size = sum(exact.shape)
    whole = np.zeros((size, size), complex)
    rows = exact.shape[0]
    whole[:rows, rows:] = exact
    whole += whole.conj().T
    of_whole = np.zeros((size, size), complex)
    of_whole[:rows, rows:] = c.conj()
    of_whole = hermitian(of_whole)
    w, q = np.linalg.eigh(whole)
    change = quotients(odd, lambda s: f(s * s) + 2 * s * s * slope(s * s), w)
    gradient = 2 * (q @ (change * (q.conj().T @ of_whole @ q)) @ q.conj().T)[:rows, rows:].conj()
    gradient = gradient if dtype == "complex128" else gradient.real
    scale = abs(gradient).max() + abs(c).max()
    x = exact.astype(dtype)
    assert is_right_or_nan(fdbr.grad(value)(x), gradient, scale, dtype)
    t = normal(*exact.shape).astype(dtype)
    _, found = fdbr.jvp(value, (x,), (t,))
    assert is_right_or_nan(found, np.sum(gradient * t).real, 10 * scale, dtype)


@given(cases(), st.booleans())
def test_a_function_of_a_general_matrix_by_eig_is_right_or_nan(case, aligned):
    n, values, dtype, normal, _, f, slope = case
    s = np.eye(n) if aligned else normal(n, n) + 3 * np.eye(n)
    exact = (s * values) @ np.linalg.inv(s)
    x, c = exact.astype(dtype), cotangent(normal, n, aligned).astype(dtype)

    def value(x):
        w, v = linalg.eig(x)
        return ops.sum(ops.real(c * ((v * f(w)) @ linalg.inv(v))))

    try:
        value(x)
    except np.linalg.LinAlgError:
        return  # rounding errors of eigenvectors of equal eigenvalues made them dependent
    inner = quotients(f, slope, values) * (s.T @ c @ np.linalg.inv(s).T)
    gradient = np.linalg.inv(s).T @ inner @ s.T
    scale = abs(gradient).max() + abs(c).max()
    assert is_right_or_nan(fdbr.grad(value)(x), gradient, 10 * scale, dtype)
    t = normal(n, n).astype(dtype)
    _, change = fdbr.jvp(value, (x,), (t,))
    assert is_right_or_nan(change, np.sum(gradient * t).real, 100 * scale, dtype)


def test_the_examples_are_unknown_only_where_equal_eigenvalues_mix():
    def total(f):
        def value(x):
            w, v = linalg.eigh(hermitian(x))
            return ops.sum((v * f(w)) @ adjoint(v))

        return fdbr.grad(value)

    nan = np.nan
    assert_allclose(total(lambda w: w)(np.eye(2)), np.array([[1, nan], [nan, 1]]))
    found = total(ops.exp)(np.diag([1.0, 1.0, 2.0]))
    slope = np.e**2 - np.e
    desired = [[np.e, nan, slope], [nan, np.e, slope], [slope, slope, np.e**2]]
    assert_allclose(found, np.array(desired))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_a_projector_on_a_whole_eigenspace_has_its_derivative(dtype):
    generator = np.random.default_rng(0)
    q = np.linalg.qr(generator.normal(size=(4, 4)))[0]
    c = generator.normal(size=(4, 4))

    def value(x):
        w, v = linalg.eigh(hermitian(x))
        return ops.sum(ops.real(c * ((v * (w < 1.5)) @ adjoint(v))))

    for values in ([1, 1, 2, 3], [1, 1, 2, 2]):
        x = ((q * values) @ q.T).astype(dtype)
        share = np.array(values) < 1.5
        apart = share[:, None] != share
        change = (share[:, None] * 1.0 - share) / np.where(
            apart, np.subtract.outer(values, values), 1
        )
        desired = hermitian(q @ (change * (q.T @ c @ q)) @ q.T).astype(dtype)
        tolerance = 1e-4 if dtype == "float32" else 1e-10
        for gradient in (fdbr.grad(value), fdbr.jit(fdbr.grad(value)), fdbr.grad(fdbr.jit(value))):
            assert_allclose(gradient(x), desired, rtol=tolerance, atol=tolerance)


def test_a_function_of_the_leading_vectors_ignores_equal_eigenvalues_elsewhere():
    generator = np.random.default_rng(1)
    a = generator.normal(size=(5, 2))
    leading = {
        "eigh": lambda x: (lambda w, v: (v[:, -2:] * w[-2:] ** 2) @ v[:, -2:].T)(
            *linalg.eigh(hermitian(x))
        ),
        "svd": lambda x: (lambda u, s, vh: (u[:, :2] * s[:2] ** 2) @ vh[:2])(*linalg.svd(x)),
    }
    for f in leading.values():
        gram = a @ a.T
        direction = hermitian(generator.normal(size=(5, 5)))
        change = fdbr.jvp(f, (gram,), (direction,))[1]
        h = 1e-5
        numeric = (f(gram + h * direction) - f(gram - h * direction)) / (2 * h)
        assert_allclose(change, numeric, rtol=1e-6, atol=1e-6)
        gradient = fdbr.grad(lambda x, f=f: ops.sum(f(x)[0]))(gram)
        assert_allclose(np.sum(gradient * direction), np.sum(numeric[0]), rtol=1e-6, atol=1e-6)


def test_a_function_that_depends_on_the_choice_of_vectors_has_no_derivative():
    generator = np.random.default_rng(2)
    q = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    x, t = (q * [1, 1, 2]) @ q.T, generator.normal(size=(3, 3))
    for f in (
        lambda x: linalg.eigh(hermitian(x)).eigenvectors[0, 0],
        lambda x: ops.sum(ops.real(linalg.eig(x).eigenvectors[0])),
        lambda x: linalg.svd(x).U[0, 2],
    ):
        assert np.isnan(fdbr.grad(f)(x)).any()
        assert np.isnan(fdbr.jvp(f, (x,), (t,))[1])


def test_one_matrix_with_equal_eigenvalues_leaves_the_others_of_its_stack():
    x = np.stack([np.diag([1.0, 2.0]), np.eye(2), np.diag([3.0, 5.0])])

    def value(x):
        w, v = linalg.eigh(hermitian(x))
        return ops.sum((v * ops.exp(w)[..., None, :]) @ adjoint(v))

    found = fdbr.grad(value)(x)
    assert np.isnan(found[1]).any()
    for i in (0, 2):
        assert_allclose(found[i], fdbr.grad(value)(x[i]))
    assert_allclose(fdbr.vmap(fdbr.grad(value))(x), found)
    assert_allclose(fdbr.jit(fdbr.grad(value))(x), found)


@pytest.mark.parametrize("gap", [1e-15, 1e-14, 1e-13, 1e-12, 1e-10, 1e-6])
def test_a_difference_of_rounding_errors_does_not_make_a_wrong_number(gap):
    generator = np.random.default_rng(3)
    q, c = np.linalg.qr(generator.normal(size=(3, 3)))[0], generator.normal(size=(3, 3))
    x = hermitian((q * [1, 1 + gap, 2]) @ q.T)

    def value(x):
        w, v = linalg.eigh(hermitian(x))
        return ops.sum(c * ((v * ops.exp(w)) @ v.T))

    found = fdbr.grad(value)(x)
    desired = fdbr.grad(lambda x: ops.sum(c * linalg.expm(hermitian(x))))(x)
    # Rounding errors of eigenvalues are divided by the gap; which ones depends on the processor.
    known = ~np.isnan(found)
    assert_allclose(
        found[known], desired[known], rtol=0, atol=1e-9 + 50 * np.finfo(float).eps / gap
    )
    assert np.isnan(found).all() == (gap < 2e-14)


@given(cases())
def test_a_sum_over_eigenvalues_has_its_gradient_and_a_second_derivative_or_nan(case):
    n, values, dtype, normal, basis, *_ = case
    q = basis(n)
    x = hermitian((q * values) @ q.conj().T).astype(dtype)
    t, e = (hermitian(normal(n, n)).astype(dtype) for _ in range(2))
    for f in (linalg.eigvalsh, lambda x: ops.real(linalg.eigvals(x))):

        def value(x, f=f):
            return ops.sum(ops.exp(f(hermitian(x))))

        gradient = fdbr.grad(value)
        tolerance = 1e-3 if dtype == "float32" else 1e-7
        found = gradient(x)
        if f is linalg.eigvalsh or not np.isnan(found).all():  # vectors of `eig` may be dependent
            assert_allclose(found, expm(x).conj(), rtol=tolerance, atol=tolerance)
        # The second derivative of tr(expm(x)) is that of the exponential.
        w, v = np.linalg.eigh(x)
        inner = quotients(np.exp, np.exp, w) * (v.conj().T @ t @ v)
        second = np.real(np.sum((v @ inner @ v.conj().T).conj() * e))
        scale = 10 * np.exp(2) * n
        forward = fdbr.jvp(gradient, (x,), (t,))[1]
        reverse = fdbr.grad(lambda x, g=gradient: ops.sum(ops.real(g(x) * t)))(x)
        for found in (np.real(np.sum(forward * e)), np.real(np.sum(reverse * e))):
            assert is_right_or_nan(np.asarray(found), second, scale, dtype)


def test_a_matrix_without_a_basis_of_eigenvectors_has_no_derivative():
    for x in (np.eye(2, k=1), np.eye(3) + np.eye(3, k=1), np.array([[3.0, 1.0], [-1.0, 1.0]])):
        for f in (
            lambda x: ops.sum(ops.real(ops.exp(linalg.eigvals(x)))),
            lambda x: ops.sum(ops.real(linalg.eig(x).eigenvectors)),
        ):
            found = fdbr.grad(f)(x)
            assert np.isnan(found).all() or np.allclose(found, expm(x).T, atol=1e-6)


def test_functions_of_matrices_have_their_derivatives_at_equal_eigenvalues():
    generator = np.random.default_rng(4)
    q = np.linalg.qr(generator.normal(size=(3, 3)))[0]

    def polar(x):
        return x @ linalg.inv(linalg.sqrtm(x.T @ x))

    for values in ([1, 1, 1], [1, 1, 2]):
        x = (q * values) @ q.T
        for f in (
            linalg.expm,
            linalg.logm,
            linalg.sqrtm,
            linalg.inv,
            polar,
            lambda x: linalg.matrix_power(x, 3),
            lambda x: linalg.pinv(x),
            linalg.det,
        ):
            check_grads(f, x, modes=("vjp", "jvp"), rtol=1e-6)
    rank_one = np.outer(q[0], q[1])
    # The rank of the matrices is constant, so the pseudoinverse has a derivative.
    check_grads(lambda a, b: linalg.pinv(ops.outer(a, b)), q[0], 2 * q[1], modes=("vjp", "jvp"))
    assert np.isfinite(fdbr.grad(lambda x: ops.sum(linalg.pinv(x)))(rank_one)).all()


def test_the_polar_factor_by_svd_has_its_gradient_where_singular_values_are_equal():
    generator = np.random.default_rng(5)

    def polar(x):
        u, _, vh = linalg.svd(x, full_matrices=False)
        return u @ vh

    for m, dtype in ((3, float), (5, float), (4, complex)):
        x = generator.normal(size=(m, 3)).astype(dtype)
        x = np.linalg.qr(x + 1j * generator.normal(size=(m, 3)) if dtype is complex else x)[0]
        check_grads(polar, x, order=1, modes=("vjp",))
        t = generator.normal(size=x.shape).astype(dtype)
        assert np.isnan(fdbr.jvp(polar, (x,), (t,))[1]).all()


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 3), (1, 4)])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("full", [True, False])
def test_functions_of_all_singular_vectors_have_derivatives_for_every_shape(shape, dtype, full):
    generator = np.random.default_rng(6)
    x = generator.normal(size=shape).astype(dtype)
    x = x + 1j * generator.normal(size=shape) if dtype is complex else x
    k = min(shape)

    def invariant(x):
        u, s, vh = linalg.svd(x, full_matrices=full)
        rest = u[:, k:] @ adjoint(u[:, k:]), adjoint(vh[k:]) @ vh[k:]
        return (u[:, :k] * s) @ vh[:k], u[:, :1] @ adjoint(u[:, :1]), *rest

    check_grads(invariant, x, modes=("vjp", "jvp"))
    if full and max(shape) > k + 1:

        def chosen(x):
            u, _, vh = linalg.svd(x)
            return ops.real(vh[-1, 0] if shape[1] > k else u[0, -1])

        assert np.isnan(fdbr.grad(chosen)(x)).all()
