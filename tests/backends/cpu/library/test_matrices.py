"""Linear algebra of stacks of small matrices by kernels, beside LAPACK's one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing import shared

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.small_linalg import matrices
from fdbr.backends.cpu.tuning import TUNING
from fdbr.testing import check_grads

COUNT = TUNING.stack_kernel + 3  # matrices, of which the last do not fill a vector


def _laid_out(x: Any, layout: str) -> Any:
    """The same elements in another place of memory."""
    if layout == "fortran":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "apart":
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if layout == "backward":
        return np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1]
    if layout == "stacks last":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    x = x.copy()
    x.setflags(write=False)
    return x


LAYOUTS = st.sampled_from(["fortran", "apart", "backward", "stacks last", "read-only"])


@st.composite
def _stacks(draw: Any, most: int = 20) -> Any:
    """Matrices of one dtype and layout with different scales, and a generator."""
    seed = draw(st.integers(0, 1 << 32))
    generator = np.random.default_rng(seed)
    n, dtype = draw(st.integers(1, most)), draw(st.sampled_from([np.float32, np.float64]))
    scales = 10.0 ** generator.integers(-6, 7, (COUNT, 1, 1))
    x = (generator.standard_normal((COUNT, n, n)) * scales).astype(dtype)
    return _laid_out(x, draw(LAYOUTS)), generator


def _norm(x: Any) -> Any:
    return np.sqrt((x.astype(np.longdouble) ** 2).sum(axis=(-2, -1)))


def _eps(x: Any) -> Any:
    return np.finfo(x.dtype).eps * x.shape[-1]


def _exact(x: Any) -> Any:
    return x.astype(np.longdouble)


@given(_stacks(), st.integers(1, 9), LAYOUTS)
def test_solutions_have_the_residuals_of_elimination_with_exchanged_rows(
    drawn: Any, k: int, layout: str
) -> None:
    a, generator = drawn
    b = _laid_out(generator.standard_normal((*a.shape[:-1], k)).astype(a.dtype), layout)
    assert matrices.suits(a, b)
    x = ops.linalg.solve(a, b)
    assert x.dtype == a.dtype
    assert x.flags.c_contiguous
    left = _norm(_exact(a) @ _exact(x) - _exact(b))
    assert (left <= 8 * _eps(a) * _norm(a) * _norm(x)).all()


@given(_stacks())
def test_inverses_have_the_residuals_of_elimination(drawn: Any) -> None:
    a, _ = drawn
    x = ops.linalg.inv(a)
    assert x.dtype == a.dtype
    left = _norm(_exact(a) @ _exact(x) - np.eye(a.shape[-1]))
    assert (left <= 8 * _eps(a) * _norm(a) * _norm(x)).all()


@given(_stacks())
def test_determinants_are_those_of_lapack(drawn: Any) -> None:
    a, _ = drawn
    scales = np.abs(a).max(axis=(-2, -1), keepdims=True)
    a = a / scales
    bound = 8 * _eps(a) * np.prod(np.linalg.norm(a.astype(np.float64), axis=-1), axis=-1)
    expected = np.linalg.det(a.astype(np.float64))
    assert (np.abs(ops.linalg.det(a) - expected) <= bound).all()
    sign, log = ops.linalg.slogdet(a)
    assert (np.abs(sign * np.exp(log.astype(np.float64)) - expected) <= bound).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_determinants_are_in_range_wherever_the_result_is(dtype: Any) -> None:
    limits = np.finfo(dtype)
    large, small, denormal = limits.max / 2, limits.tiny * 2, limits.smallest_subnormal * 4
    rows = [(large, large, small, small), (small, large, denormal, 1), (-large, small, 1, 1)]
    rows += [(1, 1, large, large), (small, small, 1, 1), (denormal, 0.5, 1, 1), (0, large, 1, 1)]
    rows += [(1, 1, 1, np.nan), (1, -1, 1, 1)]
    x = np.zeros((COUNT, 4, 4), dtype)
    x[:] = np.eye(4)
    for i, row in enumerate(rows):
        x[i] = np.diag(np.array(row, dtype))
    found = ops.linalg.det(x)[: len(rows)]
    with np.errstate(over="ignore", under="ignore"):
        exact = np.array(rows, np.longdouble).prod(axis=1).astype(dtype)
    np.testing.assert_allclose(found, exact, rtol=4 * limits.eps)
    sign, log = ops.linalg.slogdet(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        desired = np.linalg.slogdet(x[: len(rows)])
        exact = np.log(np.abs(np.array(rows, np.longdouble).prod(axis=1))).astype(dtype)
    np.testing.assert_array_equal(sign[: len(rows)], desired.sign)
    np.testing.assert_allclose(log[: len(rows)], exact, rtol=4 * limits.eps, atol=limits.eps)


@given(_stacks(), st.booleans())
def test_cholesky_factors_are_triangles_whose_squares_are_the_matrices(
    drawn: Any, upper: bool
) -> None:
    a, _ = drawn
    x = (a @ a.swapaxes(-1, -2) + np.abs(a).max(axis=(-2, -1), keepdims=True) ** 2 * np.eye(
        a.shape[-1]
    )).astype(a.dtype)  # fmt: skip
    junk = np.triu(np.full_like(x, np.nan), 1)
    low = ops.linalg.cholesky(x.swapaxes(-1, -2) + junk.swapaxes(-1, -2), upper=True) if (
        upper
    ) else ops.linalg.cholesky(x + junk)  # fmt: skip
    low = low.swapaxes(-1, -2) if upper else low
    np.testing.assert_array_equal(low, np.tril(low))
    left = _norm(_exact(low) @ _exact(low).swapaxes(-1, -2) - _exact(x))
    assert (left <= 8 * _eps(x) * _norm(x)).all()


@given(_stacks(), st.integers(1, 9), LAYOUTS, st.booleans(), st.booleans())
def test_triangular_solutions_are_those_of_substitution(
    drawn: Any, k: int, layout: str, lower: bool, unit: bool
) -> None:
    a, generator = drawn
    a = a / np.abs(a).max(axis=(-2, -1), keepdims=True) / a.shape[-1]
    a = a + 2 * np.eye(a.shape[-1], dtype=a.dtype)
    b = _laid_out(generator.standard_normal((*a.shape[:-1], k)).astype(a.dtype), layout)
    x = ops.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit)
    read = np.tril(a, -unit) if lower else np.triu(a, unit)
    read = read + np.eye(a.shape[-1], dtype=a.dtype) if unit else read
    left = _norm(_exact(read) @ _exact(x) - _exact(b))
    assert (left <= 4 * _eps(a) * _norm(read) * _norm(x)).all()


@given(_stacks(), st.integers(0, 12), st.sampled_from(["reduced", "complete"]))
def test_orthogonal_factors_have_the_signs_and_the_precision_of_lapack(
    drawn: Any, cut: int, mode: Any
) -> None:
    a, _ = drawn
    a = a[..., : max(1, a.shape[-1] - cut)]
    q, r = ops.linalg.qr(a, mode=mode)
    assert q.shape == np.linalg.qr(a, mode=mode).Q.shape
    np.testing.assert_array_equal(r, np.triu(r))
    unit = np.eye(q.shape[-1])
    assert (_norm(_exact(q).swapaxes(-1, -2) @ _exact(q) - unit) <= 16 * _eps(q)).all()
    assert (_norm(_exact(q) @ _exact(r) - _exact(a)) <= 16 * _eps(q) * _norm(a)).all()
    expected = np.linalg.qr(a.astype(np.float64)).R
    signs = np.sign(np.diagonal(expected, 0, -2, -1))
    np.testing.assert_array_equal(np.sign(np.diagonal(r, 0, -2, -1)), signs)


FUNCTIONS: dict[str, Any] = {
    "solve": lambda x: ops.linalg.solve(x, x[..., :1]),
    "inv": ops.linalg.inv,
    "det": ops.linalg.det,
    "slogdet": lambda x: ops.linalg.slogdet(x)[1],
    "cholesky": ops.linalg.cholesky,
    "solve_triangular": lambda x: ops.linalg.solve_triangular(x, x[..., :1], lower=True),
    "qr": lambda x: ops.linalg.qr(x).R,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("number", [np.nan, np.inf, 0.0])
@given(data=st.data())
def test_a_matrix_without_a_result_leaves_the_others_alone(
    name: str, number: float, data: Any
) -> None:
    function = FUNCTIONS[name]
    n = data.draw(st.integers(1, 5))
    generator = np.random.default_rng(n)
    x = generator.standard_normal((COUNT, n, n)) / n + np.eye(n)
    x = x @ x.swapaxes(-1, -2)
    plain = function(x)
    where = data.draw(st.integers(0, COUNT - 1))
    bad = x.copy()
    bad[where] = number
    others = np.arange(COUNT) != where
    with np.errstate(all="ignore"):
        try:
            expected = function(bad[where])
        except np.linalg.LinAlgError:
            with pytest.raises(np.linalg.LinAlgError, match=f"fdbr.ops.linalg.{name}: "):
                function(bad)
        else:
            found = function(bad)
            np.testing.assert_array_equal(found[others], plain[others])
            assert np.isfinite(found[where]).all() == np.isfinite(expected).all()
        # A batch of examples, of which one has no derivative.
        derivatives = fdbr.vmap(fdbr.grad(lambda x: np.sum(function(x))))
        try:
            found = derivatives(bad)
        except np.linalg.LinAlgError:
            assert name in ("solve", "inv", "cholesky", "solve_triangular")  # as for one matrix
            return
    np.testing.assert_allclose(found[others], derivatives(x)[others], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", shared(list(FUNCTIONS)))
def test_derivatives_of_stacks_are_right(name: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((COUNT, 2, 2)) / 4 + 2 * np.eye(2)
    check_grads(FUNCTIONS[name], x @ x.swapaxes(-1, -2), order=2)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (COUNT, 0, 0), (2, COUNT, 3, 3), (COUNT, 1, 40, 40)])
def test_stacks_of_any_shape_have_the_results_of_their_matrices(name: str, shape: Any) -> None:
    generator = np.random.default_rng(1)
    n = shape[-1]
    x = np.asarray(generator.standard_normal(shape) / 9 + 4 * np.eye(n))
    x = x @ x.swapaxes(-1, -2)
    found = FUNCTIONS[name](x)
    flat = x.reshape(-1, n, n) if x.size else x
    each = [FUNCTIONS[name](one) for one in flat]
    if each:
        np.testing.assert_allclose(found, np.reshape(each, found.shape), rtol=1e-10, atol=1e-12)
    assert found.shape[: len(shape) - 2] == shape[:-2]


@pytest.mark.parametrize("name", ["inv", "eigh", "svdvals", "cholesky"])
def test_large_stacks_are_divided_among_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    x = generator.standard_normal((3, 5, 34, 34)) + 9 * np.eye(34)
    x = x @ x.swapaxes(-1, -2)
    function = getattr(ops.linalg, name)
    monkeypatch.setattr(TUNING, "stack_divided", 1 << 60)
    whole = function(x)
    monkeypatch.setattr(TUNING, "stack_divided", 0)
    for part, same in zip(
        *(y if type(y) is not np.ndarray else (y,) for y in (function(x), whole)), strict=True
    ):
        np.testing.assert_array_equal(part, same)
    if name in ("inv", "cholesky"):
        x[1, 2] = 0
        with pytest.raises(np.linalg.LinAlgError, match=name):
            function(x)


MEDIUM = [(33, 33), (1, 40, 35), (3, 70, 20), (130, 130), (2, 300, 280)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", MEDIUM)
def test_matrices_of_any_size_are_factored_with_the_precision_of_lapack(
    shape: Any, dtype: Any
) -> None:
    generator = np.random.default_rng(3)
    x = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
    x = (x if np.dtype(dtype).kind == "c" else x.real).astype(dtype)
    for mode in ("reduced", "complete"):
        q, r = ops.linalg.qr(x, mode=mode)
        expected = np.linalg.qr(x, mode=mode)
        assert q.dtype == r.dtype == x.dtype
        assert q.shape == expected.Q.shape
        assert r.shape == expected.R.shape
        np.testing.assert_array_equal(r, np.triu(r))
        eps = np.finfo(dtype).eps * shape[-2] * 16
        assert np.abs(q.swapaxes(-1, -2).conj() @ q - np.eye(q.shape[-1])).max() <= eps
        assert np.abs(q @ r - x).max() <= eps * np.abs(x).max()
        signs = np.sign(np.diagonal(expected.R.real, 0, -2, -1))
        np.testing.assert_array_equal(np.sign(np.diagonal(r.real, 0, -2, -1)), signs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n", [1, 2, 17, 33, 100, 129, 200])
@given(
    lower=st.booleans(),
    unit=st.booleans(),
    k=st.sampled_from([1, 3, 40]),
    lead=st.sampled_from([(), (2,), (2, 1)]),
    layout=LAYOUTS,
)
@settings(max_examples=8)
def test_triangles_of_any_size_are_solved(
    n: int, dtype: Any, lower: bool, unit: bool, k: int, lead: Any, layout: str
) -> None:
    generator = np.random.default_rng(n)
    a, b = (
        (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)) / n
        for shape in ((*lead, n, n), (*lead, n, k))
    )
    a = a + 2 * np.eye(n)
    a, b = ((y if np.dtype(dtype).kind == "c" else y.real).astype(dtype) for y in (a, b))
    a, b = _laid_out(a, layout) if lead else a, _laid_out(b, layout) if lead else b
    x = ops.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit)
    read = np.tril(a, -unit) if lower else np.triu(a, unit)
    read = read + np.eye(n, dtype=dtype) if unit else read
    assert x.dtype == dtype
    assert np.abs(read @ x - b).max() <= 16 * n * np.finfo(dtype).eps * np.abs(x).max() * 3
    if not unit:
        a = a.copy()
        a[..., n // 2, n // 2] = 0
        with pytest.raises(np.linalg.LinAlgError, match=r"linalg.solve_triangular: .* zero on"):
            ops.linalg.solve_triangular(a, b, lower=lower)
