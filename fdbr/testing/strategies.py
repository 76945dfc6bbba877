"""Hypothesis strategies: arrays, trees of them, and random keys.

The elements of arrays come from a grid of binary fractions, so that every dtype holds them
exactly, failures are easy to read, and elements can keep their distance from places where a
function is not smooth.  Hypothesis is imported when a strategy is made.
"""

import functools
import importlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdbr import random
from fdbr.errors.checks import describe, integer, integers
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["arrays", "broadcastable", "keys", "trees"]

Strategy = Any  # hypothesis.strategies.SearchStrategy, which may not be installed
Shape = tuple[int, ...]

_LONGEST = 1 << 20  # of axes, which hypothesis fills element by element
_POINTS = 1024  # at the most, from which elements are drawn
_MOST = 32  # arrays that are broadcast together, which is what NumPy can do
_COMPLEX_POINTS = 32  # along each axis of the plane


def hypothesis_module(name: str, who: str) -> Any:
    """A module of hypothesis, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "hypothesis":  # it is installed, and broken
            raise
        raise ModuleNotFoundError(
            f"fdbr.testing.{who}: it needs hypothesis; install it with: pip install hypothesis",
            name="hypothesis",
        ) from error


@public("fdbr.testing")
def arrays(
    dtype: Any = np.float64,
    shape: Any = None,
    *,
    min_dims: int = 0,
    max_dims: int = 3,
    min_side: int = 1,
    max_side: int = 3,
    min_value: float = -3,
    max_value: float = 3,
    away_from: float | Sequence[float] = (),
    gap: float = 0.125,
    distinct: bool = False,
    xp: Any = np,
) -> Strategy:
    """A hypothesis strategy of arrays on which derivatives can be checked.

    Parameters
    ----------
    dtype
        A dtype, or a strategy of dtypes: floating, complex, integer or boolean.
    shape
        A shape, a length, or a strategy of shapes; by default any with ``min_dims`` to
        ``max_dims`` axes of lengths ``min_side`` to ``max_side``.
    min_value, max_value
        The bounds of the elements; of complex ones, of their real and imaginary parts.
    away_from
        One or several numbers, from which all elements keep the distance ``gap``: the kinks and
        poles of the function to be tested.
    gap
        That distance.  Numerical derivatives move each element by 0.001 of its size, and by
        0.001 at least.
    distinct
        Whether the elements of an array keep that distance from each other too: for `max`,
        `sort` and all that is not smooth where elements are equal.
    xp
        The array module.

    Returns
    -------
    strategy
        Of arrays; they shrink towards few elements and small numbers.

    Raises
    ------
    ModuleNotFoundError
        If hypothesis is not installed.
    ValueError
        If no number is left to draw, or too few for distinct elements.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(arrays(shape=(2, 3), min_value=-1, max_value=1, away_from=0))
    ... def test(x):
    ...     assert x.shape == (2, 3) and (abs(x) >= 0.125).all()
    >>> test()
    """
    st = hypothesis_module("hypothesis.strategies", "arrays")
    extra = hypothesis_module("hypothesis.extra.numpy", "arrays")
    if shape is None:
        shape = extra.array_shapes(
            min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=max_side
        )
    elif not isinstance(shape, st.SearchStrategy):
        sizes = integers("fdbr.testing.arrays", "shape", shape)
        sizes = (sizes,) if isinstance(sizes, int) else sizes
        if not all(0 <= size <= _LONGEST for size in sizes):
            raise ValueError(
                f"fdbr.testing.arrays: lengths must be from 0 to {_LONGEST}, got {sizes}"
            )
        shape = st.just(sizes)
    dtypes = dtype if isinstance(dtype, st.SearchStrategy) else st.just(np.dtype(dtype))
    options = (min_value, max_value, _numbers(away_from), gap, distinct)
    if dtypes is not dtype:
        _points(np.dtype(dtype), *options)  # what cannot be is told at once

    def filled(found: tuple[Any, Shape]) -> Strategy:
        points = _points(np.dtype(found[0]), *options)
        return _filled(np.dtype(found[0]), found[1], points, distinct, xp)

    return st.tuples(dtypes, shape).flatmap(filled)


@public("fdbr.testing")
def broadcastable(
    n: int | Sequence[Mapping[str, Any]],
    *,
    shapes: bool = False,
    min_dims: int = 0,
    max_dims: int = 3,
    min_side: int = 1,
    max_side: int = 3,
    distinct: bool = False,
    gap: float = 0.125,
    **options: Any,
) -> Strategy:
    """A hypothesis strategy of several arrays whose shapes broadcast together.

    Parameters
    ----------
    n
        How many; or a sequence of options of `arrays`, one entry an array.
    shapes
        Whether to draw shapes alone.
    min_dims, max_dims, min_side, max_side
        As for `arrays`; broadcast together, the arrays have no longer sides either.
    distinct
        Whether all elements of all the arrays keep the distance ``gap`` from each other, so that
        ``maximum(x, y)`` is smooth.
    gap, options
        As for `arrays`, for each of the arrays.

    Returns
    -------
    strategy
        Of tuples.

    Raises
    ------
    ModuleNotFoundError, ValueError
        As for `arrays`.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(broadcastable([{}, {"away_from": 0}], min_side=0))
    ... def test(pair):
    ...     x, y = pair
    ...     assert np.all(np.isfinite(x / y))
    >>> test()
    """
    st = hypothesis_module("hypothesis.strategies", "broadcastable")
    extra = hypothesis_module("hypothesis.extra.numpy", "broadcastable")
    if isinstance(n, int) and not 0 < n <= _MOST:
        raise ValueError(f"fdbr.testing.broadcastable: n must be from 1 to {_MOST}, got {n}")
    each = (
        [dict(options) for _ in range(n)] if isinstance(n, int) else [options | dict(o) for o in n]
    )
    found = extra.mutually_broadcastable_shapes(
        num_shapes=len(each),
        min_dims=min_dims,
        max_dims=max_dims,
        min_side=min_side,
        max_side=max_side,
    ).map(lambda found: found.input_shapes)
    if shapes:
        return found
    if not distinct:
        return found.flatmap(
            lambda shapes: st.tuples(
                *(arrays(shape=s, gap=gap, **o) for s, o in zip(shapes, each, strict=True))
            )
        )
    if not isinstance(n, int):
        raise ValueError(
            "fdbr.testing.broadcastable: distinct arrays have their options in common; give n as "
            f"an integer, not {n!r}"
        )
    return found.flatmap(functools.partial(_apart, options | {"gap": gap}))


def _apart(options: dict[str, Any], shapes: Sequence[Shape]) -> Strategy:
    """Arrays of some shapes that have no element in common: parts of one array."""
    stops = list(itertools.accumulate(map(math.prod, shapes)))
    whole = arrays(shape=stops[-1], distinct=True, **options)
    return whole.map(
        lambda flat: tuple(
            flat[stop - math.prod(shape) : stop].reshape(shape)
            for stop, shape in zip(stops, shapes, strict=True)
        )
    )


@public("fdbr.testing")
def trees(leaves: Strategy = None, *, max_leaves: int = 5) -> Strategy:
    """A hypothesis strategy of trees: lists, tuples and dictionaries, and a bare leaf too.

    Parameters
    ----------
    leaves
        A strategy of leaves; by default `arrays`.
    max_leaves
        How many leaves a tree has at the most; it has one at least.

    >>> from hypothesis import given, settings
    >>> import fdbr
    >>> @settings(max_examples=10)
    ... @given(trees(keys()))
    ... def test(tree):
    ...     assert 1 <= len(fdbr.tree.leaves(tree)) <= 5
    >>> test()
    """
    st = hypothesis_module("hypothesis.strategies", "trees")
    max_leaves = integer("fdbr.testing.trees", "max_leaves", max_leaves, least=1)
    if leaves is not None and not isinstance(leaves, st.SearchStrategy):
        raise TypeError(f"fdbr.testing.trees: leaves must be a strategy, not {describe(leaves)}")

    def nodes(children: Strategy) -> Strategy:
        lists = st.lists(children, min_size=1, max_size=3)
        return (
            lists | lists.map(tuple) | st.dictionaries(st.sampled_from("abc"), children, min_size=1)
        )

    return st.recursive(arrays() if leaves is None else leaves, nodes, max_leaves=max_leaves)


@public("fdbr.testing")
def keys() -> Strategy:
    """A hypothesis strategy of random keys, as `fdbr.random.key` makes them.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(keys())
    ... def test(key):
    ...     assert 0 <= random.uniform(key) < 1
    >>> test()
    """
    st = hypothesis_module("hypothesis.strategies", "keys")
    return st.integers(0, 2**128 - 1).map(random.key)


# --- elements -----------------------------------------------------------------------


def _numbers(away_from: Any) -> tuple[complex, ...]:
    return tuple(np.atleast_1d(np.asarray(away_from, dtype=complex)).tolist())


@functools.lru_cache(maxsize=256)
def _points(
    dtype: np.dtype[Any],
    low: float,
    high: float,
    away_from: tuple[complex, ...],
    gap: float,
    distinct: bool,
) -> tuple[Any, ...]:
    """The numbers that elements are drawn from, the simplest first."""
    if dtype_kind(dtype) not in "biufc":
        raise ValueError(f"fdbr.testing.arrays: the dtype must be one of numbers, not {dtype}")
    if dtype.kind == "b":
        return (False, True)
    line = _line(dtype, low, high, gap if distinct else 0.0)
    points = (line[:, None] + 1j * line).ravel() if dtype.kind == "c" else line
    for place in away_from:
        points = points[np.abs(points - place) >= gap]
    if not points.size:
        raise ValueError(
            f"fdbr.testing.arrays: between {low} and {high} there is no {dtype} at a distance of "
            f"{gap} from all of {away_from}"
        )
    order = np.lexsort((points.imag < 0, points.real < 0, np.abs(points)))
    return tuple(points.astype(dtype)[order].tolist())


def _line(dtype: np.dtype[Any], low: float, high: float, gap: float) -> Any:
    """Multiples of a binary fraction between two bounds, which the dtype holds exactly."""
    if not low <= high:
        raise ValueError(f"fdbr.testing.arrays: min_value={low} must not exceed max_value={high}")
    count = _COMPLEX_POINTS if dtype.kind == "c" else _POINTS
    step = 2.0 ** math.ceil(math.log2((high - low) / count)) if high > low else 1.0
    step = max(step, 1.0) if dtype.kind in "iu" else min(step, 0.125)
    step *= max(1, math.ceil(gap / step))
    line = step * np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    if dtype_kind(dtype) in "fc":
        part = np.zeros((), dtype).real.dtype
        return line[line.astype(part) == line]
    return line if dtype.kind == "i" else line[line >= 0]


def _filled(
    dtype: np.dtype[Any], shape: Shape, points: tuple[Any, ...], distinct: bool, xp: Any
) -> Strategy:
    st = hypothesis_module("hypothesis.strategies", "arrays")
    size = math.prod(shape)
    if distinct and size > len(points):
        raise ValueError(
            f"fdbr.testing.arrays: {size} distinct elements of shape {shape} are more than the "
            f"{len(points)} numbers to draw from; widen the bounds, or narrow the gap"
        )
    choice = st.integers(0, len(points) - 1)
    chosen = st.lists(choice, min_size=size, max_size=size, unique=distinct)
    table = np.array(points, dtype=dtype)

    def array(indices: list[int]) -> Any:
        found = table[np.array(indices, dtype=int)].reshape(shape)
        return xp.asarray(found)

    return chosen.map(array)
