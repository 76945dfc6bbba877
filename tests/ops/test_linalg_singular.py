"""Where a derivative does not exist it is NaN for that matrix, and for no other of its stack."""

import numpy as np
import pytest
from sharing import shared

import fdbr
from fdbr import ops, tree
from fdbr.ops import linalg
from fdbr.testing import assert_allclose

LinAlgError = np.linalg.LinAlgError


def adjoint(x):
    return ops.conj(ops.matrix_transpose(x))


# Every function, of one square matrix.
FUNCTIONS = {
    "cholesky": linalg.cholesky,
    "cholesky, made positive": lambda x: linalg.cholesky(x @ adjoint(x)),
    "det": linalg.det,
    "eig": lambda x: linalg.eig(x),
    "eigh": linalg.eigh,
    "eigvals": linalg.eigvals,
    "eigvalsh": linalg.eigvalsh,
    "expm": linalg.expm,
    "inv": linalg.inv,
    "logm": linalg.logm,
    "lstsq": lambda x: linalg.lstsq(x[..., :2], x[..., 2:])[:2],
    "matrix_norm": linalg.matrix_norm,
    "matrix_norm, nuc": lambda x: linalg.matrix_norm(x, ord="nuc"),
    "matrix_norm, 2": lambda x: linalg.matrix_norm(x, ord=2),
    "matrix_norm, -2": lambda x: linalg.matrix_norm(x, ord=-2),
    "matrix_norm, 1": lambda x: linalg.matrix_norm(x, ord=1),
    "matrix_power": lambda x: linalg.matrix_power(x, 3),
    "matrix_power, negative": lambda x: linalg.matrix_power(x, -2),
    "pinv": linalg.pinv,
    "qr": linalg.qr,
    "qr, complete": lambda x: linalg.qr(x[..., :2], mode="complete"),
    "qr, wide": lambda x: linalg.qr(x[..., :2, :]),
    "slogdet": linalg.slogdet,
    "solve": lambda x: linalg.solve(x, x[..., :2] + 1),
    "solve_triangular": lambda x: linalg.solve_triangular(x, x[..., :2] + 1),
    "solve_triangular, lower": lambda x: linalg.solve_triangular(x, x + 1, lower=True, trans=1),
    "sqrtm": linalg.sqrtm,
    "svd": linalg.svd,
    "svd, thin": lambda x: linalg.svd(x[..., :2], full_matrices=False),
    "svdvals": linalg.svdvals,
    "vector_norm": lambda x: linalg.vector_norm(x, axis=-1),
    "np.cond": np.linalg.cond,
    "np.cond, 1": lambda x: np.linalg.cond(x, 1),
    "np.svd, hermitian": lambda x: tuple(np.linalg.svd(x, hermitian=True)),
}
SPOILERS = {
    "zero": np.zeros((3, 3)),
    "rank 1": np.ones((3, 3)),
    "no basis": np.eye(3, k=1),
    "alike": np.eye(3),
    "exactly singular": np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 1.0]]),
    "one NaN": np.array([[np.nan, 1.0, 0.0], [1.0, 5.0, 0.0], [0.0, 0.0, 3.0]]),
    "NaN": np.full((3, 3), np.nan),
    "infinite": np.diag([np.inf, 1.0, 2.0]),
    "huge": np.diag([1e200, 1e200, 1e200]),
    "tiny": np.diag([1e-200, 1e-200, 1e-200]),
}


def good(seed, dtype):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-0.5, 0.5, (3, 3)).astype(dtype)
    x = x + 1j * generator.uniform(-0.5, 0.5, (3, 3)) if dtype is complex else x
    return x + np.diag([2.0, 4.0, 7.0])


def total(f):
    def value(x):
        return sum(ops.sum(ops.real(part) ** 2) for part in tree.leaves(f(x)))

    return value


@pytest.mark.parametrize("name", shared(list(FUNCTIONS)))
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.filterwarnings("ignore")  # NumPy says that there is no number
def test_one_matrix_without_a_derivative_spoils_no_other_of_its_stack(name, dtype):
    f = FUNCTIONS[name]

    def flat(x):
        return tuple(tree.leaves(f(x)))

    gradient = fdbr.grad(total(f))
    iteration = good(9, dtype)
    forward = {
        "jvp": lambda x: fdbr.jvp(flat, (x,), (iteration,))[1],
        "grad": gradient,
        "second": lambda x: fdbr.jvp(gradient, (x,), (iteration,))[1],
        "second in reverse": fdbr.grad(lambda x: ops.sum(ops.real(gradient(x) * iteration))),
    }
    ways = {way: fdbr.vmap(g) for way, g in forward.items()}
    ways["stacked"] = lambda x: fdbr.vjp(lambda x: ops.sum(fdbr.vmap(total(f))(x)), x)[1](1.0)[0]
    first, last = good(0, dtype), good(1, dtype)
    alone = {way: [g(first), g(last)] for way, g in forward.items()}
    alone["stacked"] = alone["grad"]
    for kind, spoiler in SPOILERS.items():
        if kind == "infinite" and name.startswith("np."):
            continue  # of such LAPACK gives anything, or takes for ever
        stack = np.stack([first, spoiler.astype(dtype), last])
        try:
            plain = flat(stack)
        except (LinAlgError, ValueError):
            continue  # as NumPy's value does
        for way, g in ways.items():
            found = g(stack)
            for place, desired in zip((0, 2), alone[way], strict=True):
                mine = tree.map(lambda leaf, place=place: leaf[place], found)
                assert_allclose(mine, desired, rtol=1e-9, atol=1e-9)
        values, _ = fdbr.jvp(flat, (stack,), (stack,))
        assert_allclose(values, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_value_that_exists_is_not_lost_with_its_derivative(name, xp, to_numpy):
    if name.startswith("np.") and xp is not np:
        pytest.skip("NumPy's own functions are for NumPy's arrays")
    f = FUNCTIONS[name]
    for kind, spoiler in SPOILERS.items():
        if kind == "infinite" and (xp is not np or name.startswith("np.")):
            continue  # of such LAPACK gives anything, or takes for ever
        x = xp.asarray(spoiler)
        try:
            plain = tuple(tree.leaves(f(x)))
        except (LinAlgError, ValueError):
            continue
        value, slope = fdbr.jvp(lambda x: tuple(tree.leaves(f(x))), (x,), (x + 1,))
        for mine, other, along in zip(value, plain, slope, strict=True):
            assert_allclose(to_numpy(mine), to_numpy(other), rtol=1e-9, atol=1e-9)
            assert along.shape == mine.shape
        assert fdbr.grad(total(f))(x).shape == x.shape


def test_where_there_is_no_derivative_it_is_not_a_number():
    singular = np.ones((2, 2))
    for f, x in (
        (lambda x: linalg.slogdet(x)[1], singular),
        (lambda x: ops.sum(linalg.qr(x).R), 0 * singular),
    ):
        assert np.isnan(fdbr.grad(f)(x)).all()
        assert np.isnan(fdbr.jvp(f, (x,), (np.eye(2),))[1])
    both = fdbr.vmap(fdbr.grad(linalg.det))(
        np.stack([singular, np.full((2, 2), np.nan), np.eye(2)])
    )
    assert_allclose(both[0], np.array([[1.0, -1.0], [-1.0, 1.0]]), atol=1e-14)
    assert np.isnan(both[1]).all()
    assert_allclose(both[2], np.eye(2))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_stack_of_determinants_of_every_rank_has_right_second_derivatives(rank):
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(4, rank)) @ generator.normal(size=(rank, 4))
    stack = np.stack([x, generator.normal(size=(4, 4)), np.full((4, 4), np.nan)])
    second = fdbr.vmap(fdbr.hessian(linalg.det))
    assert_allclose(second(stack)[0], second(x[None])[0], rtol=1e-12, atol=1e-12)
    fdbr.testing.check_grads(fdbr.vmap(linalg.det), stack[:2])
