"""A first derivative that is taken as 0 by convention makes no second derivative 0."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops import linalg
from fdbr.testing import assert_allclose

pytestmark = pytest.mark.filterwarnings("ignore")

ZEROS, EQUAL = np.zeros(3), np.ones(3)


def rows(x):
    return ops.reshape(x, (1, 3))


# Functions with a kink at a point, where the first derivative is taken as 0.
FUNCTIONS = {
    "norm": (linalg.norm, ZEROS),
    "vector_norm, 1": (lambda x: linalg.vector_norm(x, ord=1), ZEROS),
    "vector_norm, 1.5": (lambda x: linalg.vector_norm(x, ord=1.5), ZEROS),
    "vector_norm, 3": (lambda x: linalg.vector_norm(x, ord=3), ZEROS),
    "vector_norm, inf": (lambda x: linalg.vector_norm(x, ord=np.inf), ZEROS),
    "vector_norm of rows": (lambda x: linalg.vector_norm(rows(x), axis=-1)[0], ZEROS),
    "complex norm": (lambda x: linalg.norm(x * (1 + 2j)), ZEROS),
    "matrix_norm": (lambda x: linalg.matrix_norm(rows(x)), ZEROS),
    "np.norm": (np.linalg.norm, ZEROS),
    "distance": (lambda x: linalg.norm(x - EQUAL), EQUAL),
    "hypot": (lambda x: ops.hypot(x[0], x[1]), ZEROS),
    "np.hypot": (lambda x: np.hypot(x[0], x[1]), ZEROS),
    "abs": (lambda x: ops.abs(x[0]), ZEROS),
    "complex abs": (lambda x: ops.abs(x[0] + 1j * x[1]), ZEROS),
    "np.abs": (lambda x: np.abs(x[0] + 1j * x[1]), ZEROS),
    "std": (ops.std, EQUAL),
    "std, correction": (lambda x: ops.std(x, correction=1), EQUAL),
    "complex std": (lambda x: ops.std(x * 1j), EQUAL),
    "np.std": (np.std, EQUAL),
    "np.nanstd": (np.nanstd, EQUAL),
    "lp_pool": (lambda x: ops.sum(ops.lp_pool(x[None, None], 2, 3)), ZEROS),
    "nuclear norm": (lambda x: linalg.matrix_norm(rows(x), ord="nuc"), ZEROS),
    "spectral norm": (lambda x: linalg.matrix_norm(rows(x), ord=2), ZEROS),
}
OUTER = {
    "itself": lambda y: y,
    "its square": lambda y: y**2,
    "its product": lambda y: y * y,
    "its fourth power": lambda y: y**4,
    "a function of its square": lambda y: ops.exp(-(y**2)),
    "cosine": ops.cos,
}
WAYS = {
    "forward over reverse": fdbr.hessian,
    "reverse over reverse": lambda f: fdbr.jacrev(fdbr.grad(f)),
    "forward over forward": lambda f: fdbr.jacfwd(fdbr.jacfwd(f)),
    "reverse over forward": lambda f: fdbr.jacrev(fdbr.jacfwd(f)),
    "jit": lambda f: fdbr.jit(fdbr.hessian(f)),
    "of jit": lambda f: fdbr.hessian(fdbr.jit(f)),
    "checkpoint": lambda f: fdbr.hessian(fdbr.checkpoint(f)),
    "vmap": lambda f: lambda x: fdbr.vmap(fdbr.hessian(f))(x[None])[0],
}


def differences(f, x, h=1e-3):
    steps = h * np.eye(x.size)
    return np.array(
        [
            [
                (f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * h * h)
                for b in steps
            ]
            for a in steps
        ]
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_a_second_derivative_at_a_kink_is_right_or_nan(name, way):
    inner, x = FUNCTIONS[name]
    for of, outer in OUTER.items():

        def f(x, outer=outer):
            return outer(inner(x))

        desired, found = differences(f, x), np.asarray(WAYS[way](f)(x))
        known = ~np.isnan(found)
        assert_allclose(found[known], desired[known], rtol=1e-2, atol=1e-2)
        if of == "itself":
            assert np.isnan(found).any()


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"nuclear norm", "spectral norm"}))
def test_the_first_derivative_at_a_kink_is_zero(name):
    f, x = FUNCTIONS[name]
    for gradient in (fdbr.grad(f), fdbr.jit(fdbr.grad(f)), fdbr.jacfwd(f)):
        assert_allclose(gradient(x), np.zeros(3), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_a_row_of_zeros_leaves_the_other_rows(dtype):
    x = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]]).astype(dtype)
    t = np.ones_like(x)

    def value(x):
        return ops.sum(linalg.vector_norm(x, axis=-1) ** 2)

    gradient, change = fdbr.jvp(fdbr.grad(value), (x,), (t,))
    assert gradient.dtype == change.dtype == x.dtype
    assert_allclose(gradient, 2 * x.conj(), rtol=1e-2)
    assert np.isnan(change[1]).all()
    assert_allclose(change[[0, 2]], 2 * t[[0, 2]], rtol=1e-2)


def test_second_derivatives_away_from_kinks_are_those_of_the_formula():
    x = np.array([0.5, -1.0, 2.0])
    for f, other in (
        (linalg.norm, lambda x: ops.sqrt(ops.sum(x * x))),
        (ops.std, lambda x: ops.sqrt(ops.mean((x - ops.mean(x)) ** 2))),
        (lambda x: linalg.vector_norm(x, ord=3), lambda x: ops.sum(ops.abs(x) ** 3) ** (1 / 3)),
        (lambda x: ops.hypot(x[0], x[2]), lambda x: ops.sqrt(x[0] ** 2 + x[2] ** 2)),
        (lambda x: ops.abs(x[0] + 1j * x[1]), lambda x: ops.sqrt(x[0] ** 2 + x[1] ** 2)),
    ):
        for way in WAYS.values():
            assert_allclose(way(f)(x), fdbr.hessian(other)(x), rtol=1e-12, atol=1e-12)


def test_a_huber_loss_has_its_second_derivative_where_the_residual_is_zero():
    x, y = np.array([1.0, 5.0, 0.5]), np.array([1.0, 1.0, 0.5])
    for loss in (ops.huber_loss, ops.smooth_l1_loss):
        second = fdbr.hessian(lambda x, loss=loss: ops.sum(loss(x, y, reduction="none")))(x)
        assert_allclose(second, np.diag([1.0, 0.0, 1.0]))
