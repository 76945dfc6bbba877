"""Derivatives from differences of values, which know nothing of how fdbr makes derivatives.

All arithmetic of these differences is in float64, whatever the dtype of the arguments.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module, to_numpy
from fdbr.core.devices import is_host
from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public

__all__ = ["Direction", "columns", "differentiated", "numerical_grad"]

STEP = 1e-3

Direction = tuple[int, tuple[int, ...], Any]
"""``(leaf, place, unit)``: one element of one leaf, moved by 1 or by the imaginary unit."""


@public("fdbr.testing")
def numerical_grad(
    f: Callable[..., Any], *args: Any, cotangent: Any = None, eps: float | None = None
) -> Any:
    """The gradient of a function, from differences of its values.

    Each element of each argument is moved by two steps to both sides, and the two central
    differences are extrapolated to step 0 (Richardson).  For a smooth function whose values are
    exact to float64 the error is near 1e-11 of the function's size.

    Parameters
    ----------
    f
        A function of trees, whose result is one real number (shape ``()``); with a cotangent, any
        tree.
    args
        The arguments; floating leaves are handed to ``f`` in float64, each on its own device.
    cotangent
        A tree of the result's structure and shapes, with `None` for zero: the gradient is then
        that of the real part of the sum of the products of cotangents and results, which is what
        the pullback of `vjp` gives.
    eps
        The larger step, as a multiple of ``max(1, abs(element))``; 1e-3 by default.  ``f``
        must be smooth that far around.

    Returns
    -------
    tree
        The gradient: a tree like the argument, with a float64 NumPy array for each leaf that is
        differentiated (complex128 for a complex one) and `None` for each other.  A tuple of
        them if there are several arguments.

    Raises
    ------
    TypeError
        If the result of ``f`` is no real number, and there is no cotangent.
    ValueError
        If the cotangent does not have the structure and shapes of the result.

    >>> import numpy as np
    >>> numerical_grad(lambda x: np.sum(x**3), np.array([1.0, 2.0])).round(9)
    array([ 3., 12.])
    >>> numerical_grad(lambda x: x**3, np.ones(2), cotangent=np.array([1.0, 10.0])).round(9)
    array([ 3., 30.])
    """

    def scalar(*args: Any) -> list[Any]:
        out = f(*args)
        if cotangent is not None:
            return [_paired(out, cotangent, name_of(f))]
        if getattr(out, "shape", ()) != () or isinstance(out, complex | list | tuple | dict):
            raise TypeError(
                f"fdbr.testing.numerical_grad: {name_of(f)} must return a real number, not "
                f"{describe(out)}"
            )
        return [float(out)]

    derivatives = slots(args)
    for (leaf, place, unit), (slope,) in columns(scalar, args, STEP if eps is None else eps):
        derivatives[leaf][place] += slope * unit.conjugate()
    gradient = tree.unflatten(tree.structure(args), derivatives)
    return gradient[0] if len(args) == 1 else gradient


def _paired(out: Any, cotangent: Any, name: str) -> float:
    """The real part of the sum of the products of cotangents and results."""
    leaves, structure = tree.flatten(out)
    where = f"fdbr.testing.numerical_grad: the cotangent of {name}"
    try:
        given = tree.flatten_up_to(structure, cotangent)
    except ValueError as error:
        raise ValueError(
            f"{where} must have the structure of its result, {structure}, not "
            f"{tree.structure(cotangent)}"
        ) from error
    total = 0.0
    for leaf, ct, path in zip(leaves, given, tree.paths_of(structure), strict=True):
        if ct is None:
            continue
        if getattr(ct, "shape", ()) != getattr(leaf, "shape", ()):
            raise ValueError(
                f"{where}{path and ' at ' + path} must have the shape of {describe(leaf)}, not "
                f"{describe(ct)}"
            )
        total += float(np.sum(to_numpy(ct) * to_numpy(leaf)).real)
    return total


def slots(args: Any) -> list[Any]:
    """Zeros in double precision for each leaf that is differentiated, `None` for the others."""
    return [
        np.zeros(getattr(leaf, "shape", ()), _wide(leaf)) if choose else None
        for leaf, choose in zip(tree.leaves(args), differentiated(args), strict=True)
    ]


def differentiated(args: Any) -> list[bool]:
    """Which leaves transformations differentiate."""
    outside = tree.outside_buffers(tree.structure(args))
    return [o and tree.is_inexact(v) for o, v in zip(outside, tree.leaves(args), strict=True)]


def columns(
    f: Callable[..., list[Any]], args: tuple[Any, ...], eps: float = STEP
) -> Iterator[tuple[Direction, list[Any]]]:
    """The derivative of each of a function's results in each direction, one after the other.

    The derivative of a real function by a complex number ``x + iy`` is that by ``x`` less ``i``
    times that by ``y``: the sum over both directions of derivative times conjugate unit.
    """
    leaves, structure = tree.flatten(args)
    base = [
        _widened(leaf) if choose else leaf
        for leaf, choose in zip(leaves, differentiated(args), strict=True)
    ]

    def value(number: int, place: Any, step: Any) -> list[Any]:
        moved = list(base)
        moved[number] = _widened(leaves[number], place, step)
        return f(*tree.unflatten(structure, moved))

    for number, slot in enumerate(slots(args)):
        if slot is None:
            continue
        host = to_numpy(base[number])
        for place in np.ndindex(slot.shape):
            step = eps * max(1.0, abs(host[place]))
            for unit in (1.0, 1j) if slot.dtype.kind == "c" else (1.0,):
                derivatives = _central(functools.partial(value, number, place), step, unit)
                yield (number, place, unit), derivatives


def _central(value: Callable[[Any], list[Any]], step: float, unit: Any) -> list[Any]:
    """Two central differences, extrapolated: the error is of fourth order in the step."""
    wide, narrow = (
        [
            (to_numpy(after) - to_numpy(before)) / (2 * h)
            for after, before in zip(value(h * unit), value(-h * unit), strict=True)
        ]
        for h in (step, step / 2)
    )
    return [(4 * n - w) / 3 for n, w in zip(narrow, wide, strict=True)]


def _wide(leaf: Any) -> type:
    return complex if to_numpy(leaf).dtype.kind == "c" else float


def _widened(leaf: Any, place: Any = None, step: Any = 0) -> Any:
    """A leaf in double precision, on its device, with one element moved."""
    host = to_numpy(leaf).astype(_wide(leaf))
    if place is not None:
        host[place] += step
    if not hasattr(leaf, "shape"):
        return host.item()
    xp = array_module(leaf)
    return host[()] if is_host(xp) else xp.asarray(host)
