"""Arithmetic on trees, as if each were one vector.

`None` is nothing there: it counts as zero in sums, and is passed by elsewhere, as the gradient
of a leaf that is not differentiated.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import optree

from fdbr import ops
from fdbr.core.array_modules import is_array, lock
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.structure import flatten, paths_of, rows_of, unflatten

__all__ = [
    "add",
    "axpy",
    "divide",
    "dot",
    "full_like",
    "multiply",
    "norm",
    "ones_like",
    "scale",
    "subtract",
    "zeros_like",
]


@public("fdbr.tree")
def add(x: Any, y: Any, /) -> Any:
    """The sum of two trees, leaf by leaf.

    Parameters
    ----------
    x, y
        Trees of one structure, with leaves of the same shapes.  Where one of them holds `None`,
        the sum is what the other holds.

    Returns
    -------
    tree
        Its arrays are read-only; their dtypes follow from promotion.

    Raises
    ------
    ValueError
        If structures or shapes differ; the message names the path.
    TypeError
        If a leaf is no array or number.

    >>> add({"w": 1.0, "b": 2.0}, {"w": 0.5, "b": None})
    {'w': 1.5, 'b': 2.0}
    """
    return _pairwise("add", lambda a, b: a + b, x, y, lambda a: a, lambda b: b)


@public("fdbr.tree")
def subtract(x: Any, y: Any, /) -> Any:
    """The difference of two trees, leaf by leaf.  Parameters and errors are those of `add`.

    >>> subtract([3.0, None, 1.0], [1.0, 2.0, None])
    [2.0, -2.0, 1.0]
    """
    return _pairwise("subtract", lambda a, b: a - b, x, y, lambda a: a, lambda b: -b)


@public("fdbr.tree")
def multiply(x: Any, y: Any, /) -> Any:
    """The product of two trees, leaf by leaf; `None` where one of them is.

    Parameters and errors are those of `add`.

    >>> multiply([3.0, None], [2.0, 1.0])
    [6.0, None]
    """
    return _pairwise("multiply", lambda a, b: a * b, x, y, _nothing, _nothing)


@public("fdbr.tree")
def divide(x: Any, y: Any, /) -> Any:
    """The quotient of two trees, leaf by leaf; `None` where one of them is.

    Parameters and errors are those of `add`.

    >>> divide([3.0, None], [2.0, 1.0])
    [1.5, None]
    """
    return _pairwise("divide", lambda a, b: a / b, x, y, _nothing, _nothing)


@public("fdbr.tree")
def scale(scalar: Any, tree: Any, /) -> Any:
    """A tree times a number.

    Parameters
    ----------
    scalar
        A number, or an array without dimensions.  It does not decide on dtypes: leaves of
        float32 stay float32 whatever its own is.
    tree
        A tree of arrays and numbers.

    Returns
    -------
    tree
        Its arrays are read-only.

    Raises
    ------
    TypeError
        If ``scalar`` has dimensions, or a leaf is no array or number.

    >>> scale(-0.5, {"w": 4.0, "steps": None})
    {'w': -2.0, 'steps': None}
    """
    _check_scalar("scale", scalar)
    return _leafwise("scale", lambda leaf: _times(scalar, leaf), tree)


@public("fdbr.tree")
def axpy(a: Any, x: Any, y: Any, /) -> Any:
    """``a * x + y``, for a number and two trees: a step from ``y`` along ``x``.

    Parameters
    ----------
    a
        A number, as for `scale`.
    x, y
        Trees, as for `add`.

    >>> axpy(-0.1, {"w": 5.0, "steps": None}, {"w": 1.0, "steps": 3})
    {'w': 0.5, 'steps': 3}
    """
    _check_scalar("axpy", a)
    return _pairwise(
        "axpy", lambda u, v: _times(a, u) + v, x, y, lambda u: _times(a, u), lambda v: v
    )


@public("fdbr.tree")
def dot(x: Any, y: Any, /) -> Any:
    """The inner product of two trees: the sum of all products of their elements.

    Elements of ``x`` are conjugated, as by `numpy.vdot`.

    Parameters
    ----------
    x, y
        Trees, as for `add`; where one holds `None` there is nothing to add.

    Returns
    -------
    array
        Of no dimensions; 0.0 of trees without leaves.

    >>> import numpy as np
    >>> float(dot({"w": np.array([1.0, 2.0]), "b": 3.0}, {"w": np.array([4.0, 5.0]), "b": None}))
    14.0
    """
    terms = []
    pairs, shape = rows_of("dot", x, (y,))
    for path, (a, b) in zip(paths_of(shape), pairs, strict=True):
        if a is not None and b is not None:
            _check_pair("dot", path, a, b)
            terms.append(ops.vecdot(_vector(a), _vector(b)))
    return _total(terms)


@public("fdbr.tree")
def norm(tree: Any, /, ord: float = 2) -> Any:
    """The norm of a tree: that of the vector of all its elements.

    Parameters
    ----------
    tree
        A tree of arrays and numbers.
    ord
        As for `ops.linalg.vector_norm`: 2 for the Euclidean norm, whose derivative at 0 is
        taken as 0; 1, ``inf`` or another order.

    Returns
    -------
    array
        Real, of no dimensions; 0.0 of a tree without elements.

    >>> import numpy as np
    >>> float(norm({"w": np.array([3.0, 0.0]), "b": -4.0}))
    5.0
    >>> float(norm([3.0, np.array([1.0, -4.0])], ord=np.inf))
    4.0
    """
    if not isinstance(ord, int | float) or ord != ord:
        raise TypeError(f"fdbr.tree.norm: ord must be a number, such as 2 or inf, not {ord!r}")
    leaves, shape = flatten(tree)
    _check_leaves("norm", leaves, shape)
    vectors = [_vector(leaf) for leaf in leaves if getattr(leaf, "size", 1)]
    norms = [ops.linalg.vector_norm(vector, ord=ord) for vector in vectors]
    if ord == 0 or len(norms) < 2:
        return _total(norms)
    return ops.linalg.vector_norm(ops.stack(norms), ord=ord)


@public("fdbr.tree")
def zeros_like(tree: Any, /) -> Any:
    """Zeros in the shapes and dtypes of a tree's leaves.

    >>> zeros_like({"w": 1.5, "steps": 3, "mean": None})
    {'w': 0.0, 'steps': 0, 'mean': None}
    """
    return _leafwise("zeros_like", lambda leaf: _full(leaf, 0), tree)


@public("fdbr.tree")
def ones_like(tree: Any, /) -> Any:
    """Ones in the shapes and dtypes of a tree's leaves.

    >>> ones_like([1.5, None])
    [1.0, None]
    """
    return _leafwise("ones_like", lambda leaf: _full(leaf, 1), tree)


@public("fdbr.tree")
def full_like(tree: Any, value: Any, /) -> Any:
    """A number in the shapes and dtypes of a tree's leaves.

    >>> full_like([1.5, None], 7)
    [7.0, None]
    """
    _check_scalar("full_like", value)
    return _leafwise("full_like", lambda leaf: _full(leaf, value), tree)


# --- leaf by leaf -------------------------------------------------------------------


def _nothing(leaf: Any) -> None:
    return None


def _leafwise(name: str, f: Callable[[Any], Any], tree: Any) -> Any:
    leaves, shape = flatten(tree)
    _check_leaves(name, leaves, shape)
    return unflatten(shape, [lock(f(leaf)) for leaf in leaves])


def _pairwise(name: str, f: Any, x: Any, y: Any, left: Any, right: Any) -> Any:
    """A function of two leaves; ``left`` or ``right`` of the one where the other is missing."""
    pairs, shape = rows_of(name, x, (y,))
    found = []
    for path, (a, b) in zip(paths_of(shape), pairs, strict=True):
        if a is None:
            found.append(_leafwise(name, right, b))  # it may be a tree, with `None` in it
        elif b is None:
            _check_leaf(name, path, a)
            found.append(lock(left(a)))
        else:
            _check_pair(name, path, a, b)
            found.append(lock(f(a, b)))
    return optree.tree_unflatten(shape, found)


def _times(scalar: Any, leaf: Any) -> Any:
    """A product in the dtype of the leaf: the scalar is weak, as Python's numbers are."""
    out = scalar * leaf
    dtype = getattr(leaf, "dtype", None)
    if (
        dtype is None
        or out.dtype == dtype
        or dtype_kind(dtype) not in "fc"
        or dtype_kind(out.dtype) > dtype_kind(dtype)
    ):
        return out
    return ops.astype(out, dtype)


def _full(leaf: Any, value: Any) -> Any:
    return ops.full_like(leaf, value) if hasattr(leaf, "dtype") else type(leaf)(value)


def _vector(leaf: Any) -> Any:
    return ops.reshape(ops.asarray(leaf), (-1,))


def _total(terms: list[Any]) -> Any:
    return functools.reduce(operator.add, terms) if terms else 0.0


# --- checks -------------------------------------------------------------------------


def _check_scalar(name: str, value: Any) -> None:
    if not _is_number(value) or getattr(value, "shape", ()) != ():
        raise TypeError(
            f"fdbr.tree.{name}: the factor must be one number, not {describe(value)}; for a factor "
            "of each leaf use fdbr.tree.multiply"
        )


def _check_leaves(name: str, leaves: list[Any], shape: Any) -> None:
    for index, leaf in enumerate(leaves):
        if not _is_number(leaf):
            _check_leaf(name, paths_of(shape)[index], leaf)


def _check_leaf(name: str, path: str, leaf: Any) -> None:
    if not _is_number(leaf):
        raise TypeError(
            f"fdbr.tree.{name}: the leaf {path or 'that is the tree'} is no array or number but "
            f"{describe(leaf)}; make it a static field, or take it out with fdbr.tree.partition"
        )


def _check_pair(name: str, path: str, a: Any, b: Any) -> None:
    _check_leaf(name, path, a)
    _check_leaf(name, path, b)
    if getattr(a, "shape", ()) != getattr(b, "shape", ()):
        raise ValueError(
            f"fdbr.tree.{name}: the leaves {path and 'at ' + path + ' '}differ in shape: "
            f"{describe(a)} and {describe(b)}"
        )


def _is_number(value: Any) -> bool:
    """Whether a value is an array or a number."""
    if isinstance(value, Tracer | int | float | complex):
        return True
    return is_array(value) and getattr(value.dtype, "kind", "V") in "biufcV"
