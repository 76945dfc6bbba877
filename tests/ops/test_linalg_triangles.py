"""Functions of Hermitian matrices: what they read is what they are differentiated by."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops import linalg
from fdbr.testing import assert_allclose, check_grads

BOTH = pytest.mark.parametrize("dtype", [float, complex])


def squares(x):
    """What does not depend on the choice of eigenvectors."""
    return (x * ops.conj(x)).real


# Of each function: itself, and the triangle that it reads.
READERS = {
    "cholesky": (linalg.cholesky, "L"),
    "cholesky, upper": (lambda x: linalg.cholesky(x, upper=True), "U"),
    "np.cholesky, upper": (lambda x: np.linalg.cholesky(x, upper=True), "U"),
    "eigh": (lambda x: (linalg.eigh(x)[0], squares(linalg.eigh(x)[1])), "L"),
    "np.eigh": (lambda x: squares(np.linalg.eigh(x)[1]), "L"),
    "np.eigh, upper": (lambda x: squares(np.linalg.eigh(x, "U")[1]), "U"),
    "eigvalsh": (linalg.eigvalsh, "L"),
    "np.eigvalsh, upper": (lambda x: np.linalg.eigvalsh(x, UPLO="U"), "U"),
    "np.svd, hermitian": (lambda x: np.linalg.svd(x, compute_uv=False, hermitian=True), "L"),
    "np.svd, vectors": (lambda x: squares(np.linalg.svd(x, hermitian=True)[2]), "L"),
    "np.pinv, hermitian": (lambda x: np.linalg.pinv(x, hermitian=True), "L"),
}
every_reader = pytest.mark.parametrize("name", READERS)


def uneven(seed, dtype, *batch):
    """Matrices of which each triangle, with the real diagonal, is that of a positive one."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (*batch, 3, 3))
    if dtype is complex:
        x = x + 1j * generator.uniform(-1, 1, x.shape)
    return x + np.diag([4.0, 7.0, 11.0])


def read(x, triangle):
    """The Hermitian matrix that is read of one."""
    half = np.tril(x, -1) if triangle == "L" else np.triu(x, 1)
    return half + half.mT.conj() + np.eye(3) * x.real


@every_reader
@BOTH
def test_value_and_derivative_are_of_one_function_of_any_matrix(name, dtype):
    f, triangle = READERS[name]
    x = uneven(0, dtype)
    value, _ = fdbr.vjp(f, x)
    assert_allclose(value, f(x), rtol=1e-12)
    assert_allclose(value, f(read(x, triangle)), rtol=1e-12)
    check_grads(f, x, rtol=2e-6, atol=1e-7)


@every_reader
@BOTH
def test_the_gradient_lies_on_the_triangle_that_is_read(name, dtype):
    f, triangle = READERS[name]

    def loss(x):
        return sum(ops.sum(ops.real(part) ** 3) for part in fdbr.tree.leaves(f(x)))

    gradient = fdbr.grad(loss)(uneven(1, dtype))
    kept = np.tril(gradient) if triangle == "L" else np.triu(gradient)
    assert (gradient == kept).all()
    assert (np.diagonal(gradient).imag == 0).all()
    stack = uneven(1, dtype, 2)
    both = fdbr.vmap(fdbr.grad(loss))(stack)
    assert_allclose(both, np.stack([fdbr.grad(loss)(x) for x in stack]), rtol=1e-9, atol=1e-12)
    assert_allclose(fdbr.jit(fdbr.grad(loss))(stack[0]), both[0], rtol=1e-9, atol=1e-12)


@BOTH
def test_a_function_of_a_symmetric_part_has_a_symmetric_gradient(dtype):
    x = read(uneven(0, dtype), "L")
    gradient = fdbr.grad(lambda x: linalg.eigvalsh((x + ops.conj(x.mT)) / 2)[0])(x)
    assert_allclose(gradient, gradient.mT.conj())
    half = fdbr.grad(lambda x: np.linalg.eigvalsh(np.tril(x))[0])(x)
    assert_allclose(np.tril(half, -1), 2 * np.tril(gradient, -1))
    assert_allclose(np.diagonal(half), np.diagonal(gradient))


def test_ranks_of_hermitian_matrices_are_of_the_triangle_that_is_read():
    x = np.array([[1.0, 9.0], [1.0, 1.0]])
    _, _, rank = fdbr.vjp(
        lambda x: (x.sum(), np.linalg.matrix_rank(x, hermitian=True)), x, has_aux=True
    )
    assert rank == np.linalg.matrix_rank(x, hermitian=True) == 1
