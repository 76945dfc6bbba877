"""What the CPU implements gives what the definitions give, for small arrays and for large ones."""

import numpy as np
import pytest

from fdbr.core.primitive import Primitive
from fdbr.ops import fft, philox, products, signal
from fdbr.ops.indexing import positions, searching, segments, sets, sorting, writing
from fdbr.ops.indexing.keys import split
from fdbr.ops.linalg import norms, triangular
from fdbr.ops.linalg import products as vectors
from fdbr.ops.shape import creation, layout, manipulation

R = np.random.default_rng(0)
SIZES = {"small": 12, "large": 512}


def ties(*shape):
    """Numbers many of which are equal."""
    return R.integers(-40, 40, shape).astype(float)


def exact(n):
    """Operations that move or compare elements."""
    x, few = ties(n, n), R.integers(-n, n, 3 * n)
    inside = R.integers(0, n, (n, n))
    key = (slice(None), few)
    return {
        "reshape": (manipulation._reshape, x, {"to": (n * n,)}),
        "permute": (manipulation._permute, x, {"axes": (1, 0)}),
        "broadcast_to": (manipulation._broadcast_to, x[:1], {"to": (3, n, n)}),
        "diagonal": (manipulation._diagonal, x, {"offset": 1}),
        "concat": (manipulation._concat, x, x, {"axis": 1}),
        "stack": (manipulation._stack, x, x, {"axis": 1}),
        "roll": (manipulation._roll, x, {"shift": (3, -1), "axis": (0, 1)}),
        "triangle": (layout._triangle, x, {"k": -2, "upper": True}),
        "full_like": (creation._full_like, x, {"value": 3, "dtype": None}),
        "increase": (writing._increase, x, ties(n, 3 * n), few, {"key": split(key, x)[0]}),
        "read_at": (positions.read_at, np, x, key),
        "sums_at": (positions.sums_at, np, x.shape, key, ties(n, 3 * n)),
        "last_written": (positions.last_written, np, x.shape, key),
        "scatter_extreme": (
            *(segments._scatter_extreme, x, ties(n, n), inside),
            {"axis": 1, "largest": True, "include_self": False},
        ),
        "nonzero": (searching.nonzero_raw, x),
        "searchsorted": (searching._searchsorted, np.sort(x[0]), x, {"side": "right"}),
        "unique": (sets.values_raw, x),
        "unique integers": (sets.values_raw, inside),
        "unique_counts": (sets.counts_raw, inside),
        "unique_inverse": (sets.inverse_raw, inside),
        "isin": (sets.isin_raw, x, x[0]),
        "sort": (sorting.sort_raw, x, 0, True),
        "argsort": (sorting._argsort, x, {"axis": 0, "stable": True}),
        "argsort of singles": (sorting._argsort, x.astype("f"), {"axis": 0, "stable": True}),
        "rank_indices": (sorting._rank_indices, x, {"ranks": (0, 3), "axis": 1}),
        "top_indices": (sorting._top_indices, x, {"k": 3, "axis": 0}),
        "pick": (sorting._pick, x, np.argsort(x, axis=0), {"axis": 0}),
        "put_along": (sorting._put_along, x, np.argsort(x, axis=0), {"length": n, "axis": 0}),
        "random_words": (
            *(philox.random_words, np.arange(6, dtype=np.uint64).reshape(3, 2), 0),
            {"shape": (n, n), "use": 1},
        ),
        "random_words of one key": (
            *(philox.random_words, np.array([1, 2], np.uint64), 0),
            {"shape": (n,), "use": 1},
        ),
    }


def rounded(n):
    """Operations that sum."""
    x, y = R.normal(size=(n, n)), R.normal(size=(n, n))
    lower = np.tril(x) + n * np.eye(n)
    return {
        "matmul": (products._matmul, x, y, {}),
        "matmul of columns": (products._matmul, x[:, :1], y[:1], {}),
        "matmul of vectors": (products._matmul, x[:8, :, None], y[:8, None], {}),
        "kron": (vectors._kron, x[:4, :4], y[:4, :4]),
        "cross": (vectors._cross, x[:, :3], y[:, :3], {}),
        "euclidean": (norms._euclidean, x, {"axes": (1,)}),
        "euclidean of all": (norms._euclidean, x, {"axes": (0, 1)}),
        "substitute": (
            *(triangular._substitute, lower, y),
            {"lower": True, "unit": False, "strict": True},
        ),
        "convolve": (signal._convolve_full, x[0], y[0, :5], {}),
        "convolve, valid": (signal._convolve_valid, x[0], y[0, :5], {}),
        "fft": (fft._fft, x, {"axes": (0, 1), "norm": "ortho"}),
        "ifft": (fft._ifft, x, {"axes": (1,), "norm": "forward"}),
        "rfft": (fft._rfft, x, {"axis": 1, "norm": "backward"}),
        "irfft": (fft._irfft, x + 0j, {"n": 2 * n - 2, "axis": 0, "norm": "backward"}),
    }


def both(case):
    """The results of the CPU's implementation and of the definition."""
    function, *args = case
    params = args.pop() if isinstance(args[-1], dict) else {}
    target = getattr(function, "primitive", function)
    if isinstance(target, Primitive):
        args.insert(0, np)
    definition = target.value if isinstance(target, Primitive) else target.definition
    assert target.host is not definition
    return target.host(*args, **params), definition(*args, **params)


def parts(out):
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", exact(2))
def test_elements_are_moved_and_compared_as_defined(name, size):
    found, expected = both(exact(SIZES[size])[name])
    for one, other in zip(parts(found), parts(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", rounded(6))
def test_sums_are_as_defined_but_for_rounding(name, size):
    found, expected = both(rounded(SIZES[size])[name])
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11 * abs(expected).max())
