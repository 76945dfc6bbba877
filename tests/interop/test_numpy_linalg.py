"""NumPy's own linear algebra on traced values."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

A = np.array([[2.0, 0.5, -1.0], [0.25, 3.0, 0.75], [0.5, -0.25, 4.0]])
B = np.array([[1.0, -0.5], [0.25, 2.0], [-1.0, 0.75]])
NUMPY = {
    "cholesky": lambda x: np.linalg.cholesky(x @ x.T),
    "cholesky, upper": lambda x: np.linalg.cholesky(x @ x.T, upper=True),
    "cond": lambda x: (np.linalg.cond(x), np.linalg.cond(x, -2), np.linalg.cond(x, 1)),
    "cross": lambda x: np.linalg.cross(x, x[::-1]),
    "np.cross": lambda x: np.cross(x, x[0], axisa=0, axisc=0),
    "det": np.linalg.det,
    "diagonal": np.linalg.diagonal,
    "np.diagonal": lambda x: np.diagonal(np.stack([x, 2 * x]), 1, 1, 0),
    "method diagonal": lambda x: np.stack([x, 2 * x]).diagonal(),
    "eig": lambda x: (np.linalg.eig(x).eigenvalues ** 2).sum(),
    "eigvals": lambda x: (np.linalg.eigvals(x) ** 2).sum(),
    "eigh": lambda x: np.linalg.eigh(x + x.T, UPLO="U").eigenvalues,
    "eigvalsh": lambda x: np.linalg.eigvalsh(x + x.T),
    "inv": np.linalg.inv,
    "np.kron": lambda x: np.kron(x, B),
    "lstsq": lambda x: np.linalg.lstsq(x[:, :2], B)[:2],
    "lstsq, vector": lambda x: np.linalg.lstsq(x[:2], B[:2, 0], rcond=-1)[:2],
    "matmul": lambda x: np.linalg.matmul(x, B),
    "matrix_norm": lambda x: np.linalg.matrix_norm(x, ord="nuc"),
    "matrix_power": lambda x: np.linalg.matrix_power(x, -2),
    "matrix_transpose": np.linalg.matrix_transpose,
    "multi_dot": lambda x: np.linalg.multi_dot([x, B, B.T]),
    "norm": lambda x: (np.linalg.norm(x), np.linalg.norm(x, ord=2), np.linalg.norm(x, 1, axis=0)),
    "outer": lambda x: np.linalg.outer(x[0], B[0]),
    "pinv": lambda x: (np.linalg.pinv(x), np.linalg.pinv(x[:2], rtol=None)),
    "qr": lambda x: tuple(np.linalg.qr(x)),
    "qr, r": lambda x: np.linalg.qr(x, mode="r"),
    "slogdet": lambda x: tuple(np.linalg.slogdet(x)),
    "solve": lambda x: np.linalg.solve(x, B),
    "svd": lambda x: np.linalg.svd(x).S,
    "svd, values": lambda x: np.linalg.svd(x, compute_uv=False),
    "svdvals": np.linalg.svdvals,
    "tensordot": lambda x: np.linalg.tensordot(x, B, axes=1),
    "tensorinv": lambda x: np.linalg.tensorinv(x.reshape(3, 1, 3), ind=1),
    "tensorsolve": lambda x: np.linalg.tensorsolve(x.reshape(3, 1, 3), B[:, :1], axes=(2,)),
    "trace": np.linalg.trace,
    "np.trace": lambda x: np.trace(np.stack([x, 2 * x]), 1, 2, 0),
    "vecdot": lambda x: np.linalg.vecdot(x, B[:, 0]),
    "vector_norm": lambda x: np.linalg.vector_norm(x, axis=0, ord=1),
    "np.matvec": lambda x: np.matvec(x, B[:, 0]),
    "np.vecmat": lambda x: np.vecmat(B[:, 0], x),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpys_linear_algebra_differentiates(name):
    if name.startswith("np.") and not hasattr(np, name[3:]):
        pytest.skip("this NumPy does not have it yet")
    f = NUMPY[name]

    def parts(x):
        out = f(x)
        return out if isinstance(out, tuple) else (out,)

    found, _ = fdbr.vjp(parts, A)
    assert_allclose(found, parts(A), rtol=1e-10, atol=1e-12)
    check_grads(lambda x: [ops.real(part) for part in parts(x)], A, order=1, rtol=1e-6)


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvectors_of_either_triangle_have_numpys_signs(triangle):
    real = np.array([[2.0, 0.3, 0.1], [0.5, 1.0, 0.2], [0.4, 0.7, 3.0]])
    for a in (real, real + 1j * np.tri(3, k=-1) - 0.5j * np.tri(3, k=-1).T):
        expected = np.linalg.eigh(a, triangle)
        found, _ = fdbr.vjp(lambda a: tuple(np.linalg.eigh(a, triangle)), a)
        assert_allclose(found[0], expected[0])
        assert_allclose(found[1], expected[1])
        check_grads(lambda a: np.abs(np.linalg.eigh(a, triangle)[1]), a)
        check_grads(lambda a: np.linalg.eigvalsh(a, triangle), a)
    check_grads(lambda a: tuple(np.linalg.eigh(a, triangle)), real)


def test_ranks_are_counted_by_numpys_arguments():
    x = np.diag([1.0, 1e-3])

    def ranks(x):
        return x.sum(), [
            np.linalg.matrix_rank(x),
            np.linalg.matrix_rank(x, tol=1e-2),
            np.linalg.matrix_rank(x, rtol=1e-2),
            np.linalg.matrix_rank(x[0]),
        ]

    _, _, found = fdbr.vjp(ranks, x, has_aux=True)
    assert [int(r) for r in found] == [2, 1, 1, 1] == [int(r) for r in ranks(x)[1]]


def test_every_function_of_numpys_linear_algebra_is_known():
    functions = set(np.linalg.__all__) - {"LinAlgError"}
    unknown = [
        n for n in functions if getattr(np.linalg, n) not in fdbr.core.tracer_methods.functions
    ]
    assert not unknown
