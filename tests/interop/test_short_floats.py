"""NumPy's functions on many numbers of 16 bits: nothing is added up in them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ops.short import eps, every_short_dtype, wide

import fdbr
from fdbr import tree
from fdbr.core.tracer_methods import functions

MANY = 70_000  # more than float16 can count
FEW = 8
PLACES = np.arange(4) / 4 + 0.1

ARGUMENTS: dict[str, list[Callable[[Any], Any]]] = {
    # What is called with more than one array, or with some that the walk does not think of.
    "average": [
        lambda x: np.average(x, weights=np.ones(x.shape, x.dtype)),
        lambda x: np.average(x, weights=x),
        lambda x: np.average(x, weights=np.arange(x.size) % 3),
    ],
    "cov": [lambda x: np.cov(np.stack([x, x[::-1] ** 2]))],
    "corrcoef": [lambda x: np.corrcoef(np.stack([x, x[::-1] ** 2]))],
    "bincount": [lambda x: np.bincount(np.arange(x.size) % 2, weights=x)],
    "histogram": [lambda x: np.histogram(wide(np.arange(x.size)) % 5, bins=3, weights=x)[0]],
    "interp": [lambda x: np.interp(PLACES, np.linspace(0, 1, x.size), x)],
    "trapezoid": [lambda x: np.trapezoid(x), lambda x: np.trapezoid(x, x)],
    "convolve": [lambda x: np.convolve(x, np.ones(x.size, x.dtype), mode="valid")],
    "correlate": [lambda x: np.correlate(x, np.ones(x.size, x.dtype))],
    "einsum": [
        lambda x: np.einsum("i->", x),
        lambda x: np.einsum("i,j->", x, np.ones(2, x.dtype)),
        lambda x: np.einsum("i,i->", x, x),
    ],
    "tensordot": [lambda x: np.tensordot(x, x, 1)],
    "reduceat": [lambda x: np.add.reduceat(x, [0, x.size // 2])],
    "broadcast_to": [lambda x: np.broadcast_to(x[0], (70_000,))],
    "tile": [lambda x: np.tile(x[:2], 35_000)],
    "repeat": [lambda x: np.repeat(x[:2], 35_000)],
    "take": [lambda x: np.take(x[:2], np.arange(70_000) % 2)],
    "take_along_axis": [lambda x: np.take_along_axis(x[:2], np.arange(70_000) % 2, 0)],
    "choose": [lambda x: np.choose(np.arange(70_000) % 2, [x[0], x[1]])],
    "where": [lambda x: np.where(np.arange(70_000) % 2, x[0], x[1])],
    "pad": [lambda x: np.pad(x[:2], 35_000, mode="edge"), lambda x: np.pad(x, 1, mode="mean")],
    "linspace": [lambda x: np.linspace(x[0], x[1], 70_000)],
    "polyval": [lambda x: np.polyval(x[:3], x)],
    "quantile": [lambda x: np.quantile(x, 0.3)],
    "percentile": [lambda x: np.percentile(x, [30, 70])],
    "nanquantile": [lambda x: np.nanquantile(x, 0.3)],
    "nanpercentile": [lambda x: np.nanpercentile(x, 30)],
    "kron": [lambda x: np.kron(x[:2], np.ones(35_000, x.dtype))],
    "outer": [lambda x: np.outer(x[:2], np.ones(35_000, x.dtype))],
    "norm": [lambda x: np.linalg.norm(x), lambda x: np.linalg.norm(x, 3)],
    "vander": [lambda x: np.vander(x, 2)],
    "insert": [lambda x: np.insert(x, 1, x[0])],
    "sliding_window_view": [
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 8)[:, :3],
    ],
}

SLOW = frozenset(
    {
        # They take a vector for a list of numbers,
        *("block", "column_stack", "concatenate", "dstack", "hstack", "stack", "unstack", "vstack"),
        "poly",  # and this one for as many zeros of a polynomial.
    }
)


def called(name: str) -> Any:
    """Ways to call a function with one long vector."""
    found = next((f for f in functions if getattr(f, "__name__", "") == name), None)
    return ARGUMENTS.get(name) or ([found] if found is not None else [])


def walk() -> list[Any]:
    """The functions that the protocol reaches, and that make floating numbers of a vector."""
    names = sorted(({getattr(f, "__name__", "") for f in functions} | set(ARGUMENTS)) - SLOW)
    chosen = []
    for name in names:
        for number, call in enumerate(called(name)):
            try:
                out, pullback = fdbr.vjp(call, np.linspace(0.5, 1, FEW))
                pullback(tree.map(lambda y: np.ones_like(y)[()], out))
                more = call(np.linspace(0.5, 1, 2 * FEW))
            except Exception:
                continue  # it takes something else, or gives something else
            if tree.leaves(tree.trainable(out)) and tree.size(more) <= 2 * tree.size(out):
                chosen.append(pytest.param(call, id=f"{name}-{number}"))
    return chosen


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_short_dtype
@pytest.mark.parametrize("call", walk())
def test_functions_of_many_numbers_are_as_those_of_float64(call: Any, dtype: str) -> None:
    x = np.linspace(0.5, 1, MANY).astype(dtype)
    rough = 16 * eps(dtype)
    try:
        fdbr.vjp(call, x[:FEW])
    except TypeError:
        return  # NumPy has no common dtype
    (out, pullback), (exact, exact_pullback) = fdbr.vjp(call, x), fdbr.vjp(call, wide(x))
    ones = tree.map(lambda y: np.ones_like(y)[()], out)
    exact_ones = tree.map(lambda y: np.ones_like(y)[()], exact)
    pairs = [*zip(tree.leaves(out), tree.leaves(exact), strict=True)]
    pairs += [(pullback(ones)[0], exact_pullback(exact_ones)[0])]
    assert pairs[-1][0].dtype == x.dtype
    for found, expected in pairs:
        size = np.max(np.abs(expected), initial=0.1)
        expected = np.asarray(expected).astype(found.dtype).astype(expected.dtype)
        np.testing.assert_allclose(wide(found), expected, rough, rough * size)
