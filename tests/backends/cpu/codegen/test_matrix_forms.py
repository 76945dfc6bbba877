"""Linear algebra of small matrices within kernels of small arrays, beside eager mode."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.compiler.ir.program import Small
from fdbr.testing import assert_allclose

linalg = ops.linalg
FUNCTIONS: dict[str, Any] = {
    "solve": lambda x, b: linalg.solve(x, b),
    "inv": lambda x, b: linalg.inv(x) @ b,
    "det": lambda x, b: linalg.det(x)[..., None, None] * b,
    "cholesky": lambda x, b: linalg.cholesky(x @ ops.matrix_transpose(x)) @ b,
    "cholesky, upper": lambda x, b: linalg.cholesky(x @ ops.matrix_transpose(x), upper=True) @ b,
    "solve_triangular": lambda x, b: linalg.solve_triangular(x, b),
    "solve_triangular, lower": lambda x, b: linalg.solve_triangular(
        x, b, lower=True, trans=1, unit_diagonal=True
    ),
}


def _kernels(jitted: Any) -> set[str]:
    """The primitives that kernels of small arrays do."""
    steps = [step for program in jitted.programs() for step in program.steps]
    return {part.primitive.name for step in steps if isinstance(step, Small) for part in step.steps}


def _with_derivatives(name: str) -> Any:
    function = FUNCTIONS[name]

    def f(x: Any, b: Any) -> Any:
        total = lambda x, b: ops.sum(ops.tanh(function(x, b)))
        return function(x, b), fdbr.value_and_grad(total, argnums=(0, 1))(x, b)

    return f


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    n=st.integers(1, 9),
    k=st.integers(1, 3),
    lead=st.sampled_from([(), (2,), (2, 1)]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=8)
def test_small_matrices_have_in_kernels_what_they_have_in_eager_mode(
    name: str, n: int, k: int, lead: Any, dtype: Any, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.standard_normal((*lead, n, n)) / n).astype(dtype)
    x = x[..., generator.permutation(n), :] + 2 * np.eye(n, dtype=dtype)[generator.permutation(n)]
    if "triangular" in name:
        x = x + 3 * np.eye(n, dtype=dtype)
    b = generator.standard_normal((*lead, n, k)).astype(dtype)
    f = _with_derivatives(name)
    jitted = fdbr.jit(f)
    eps = np.finfo(dtype).eps
    for iteration in range(2):
        args = x[..., ::-1, :] * (1 + iteration) if "triangular" not in name else x, b
        assert_allclose(jitted(*args), f(*args), rtol=4000 * eps, atol=4000 * eps)
    primitive = {"solve_triangular": "substitute"}.get(name.split(",")[0], name.split(",")[0])
    if n <= 8 and not lead:
        assert primitive in _kernels(jitted)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("number", [0.0, np.nan])
def test_matrices_without_a_result_are_what_they_are_in_eager_mode(
    name: str, number: float
) -> None:
    f = _with_derivatives(name)
    jitted = fdbr.jit(f)
    x, b = np.eye(3) + np.arange(9.0).reshape(3, 3) / 9, np.ones((3, 2))
    plain = jitted(x, b)
    bad = x.copy()
    bad[1] = bad[:, 1] = number
    with np.errstate(all="ignore"):
        try:
            expected = f(bad, b)
        except np.linalg.LinAlgError as error:
            for _ in range(2):
                with pytest.raises(np.linalg.LinAlgError, match=re.escape(str(error))):
                    jitted(bad, b)
        else:
            assert_allclose(jitted(bad, b), expected, rtol=1e-12, atol=1e-12)
        # One example of a batch, whose derivatives alone do not exist.
        derivatives = fdbr.jit(fdbr.vmap(lambda x: f(x, b)))
        stack = np.stack([x, bad, 2 * x])
        try:
            expected = fdbr.vmap(lambda x: f(x, b))(stack)
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError):
                derivatives(stack)
        else:
            assert_allclose(derivatives(stack), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(jitted(x, b), plain, rtol=0)


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    lead=st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (3,)), ((1,), (2,)), ((), (3,))]),
    offset=st.integers(-3, 3),
    dtype=st.sampled_from([np.float32, np.float64, np.int32, np.bool_]),
)
@settings(max_examples=12)
def test_parts_and_products_of_small_matrices_are_done_in_kernels(
    rows: int, columns: int, lead: Any, offset: int, dtype: Any
) -> None:
    generator = np.random.default_rng(rows)
    x = (generator.standard_normal((rows, columns)) * 3).astype(dtype)
    y = generator.standard_normal((*lead[0], rows, columns))
    z = generator.standard_normal((*lead[1], columns, 2))

    def parts(x: Any) -> Any:
        x = ops.logical_not(x) if dtype is np.bool_ else x + x
        diagonal = ops.linalg.diagonal(x, offset=offset)
        return ops.tril(x, k=offset), ops.triu(x, k=offset), diagonal, np.diag(x[0], offset)

    def total(y: Any) -> Any:
        kept = ops.sin(ops.tril(y, k=offset)) * y
        return ops.sum(kept) + ops.sum(ops.tanh(ops.linalg.diagonal(y, offset=offset)))

    def f(x: Any, y: Any) -> Any:
        slope = fdbr.grad(lambda y: total(y) + ops.sum(ops.tanh(ops.matmul(y, z))))
        return parts(x), ops.matmul(y + 1, z) * 2, slope(y)

    jitted = fdbr.jit(f)
    for each, expected in zip(tree.leaves(jitted(x, y)), tree.leaves(f(x, y)), strict=True):
        assert_allclose(each, expected, rtol=1e-12, atol=1e-12)
    if rows > 1 and columns > 1:
        assert {"matmul", "triangle"} <= _kernels(jitted)


def test_determinants_out_of_range_on_the_way_are_in_range_at_the_end() -> None:
    jitted = fdbr.jit(lambda x: ops.exp(linalg.det(x)) - 1)
    for row in ([1e200, 1e200, 1e-200, 1e-200], [1.0, 2.0, 0.5, 1.0], [0.0, 1.0, 2.0, 3.0]):
        x = np.diag(row)
        assert_allclose(jitted(x), ops.exp(linalg.det(x)) - 1, rtol=1e-12)
