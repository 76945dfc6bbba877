"""Checks of derivatives, for fdbr's own tests and for anybody's.

Derivatives are compared with differences of values, which know nothing of how derivatives are
made.  All arithmetic of these differences is in float64, whatever the dtype of the arguments.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.backend import array_module, is_array, to_numpy
from fdbr.core import describe, name_of
from fdbr.transforms import vjp

__all__ = ["assert_allclose", "check_grads", "numerical_grad"]

Function = Callable[..., Any]

_STEP = 1e-3
_MODES = ("vjp",)

# What differs by no more than this, relatively or absolutely, counts as equal: some hundred
# roundings of values, and of derivatives what differences of values can tell.
_VALUE_TOLERANCES = {2: 1e-2, 4: 1e-5, 8: 1e-11}
_GRADIENT_TOLERANCES = {2: 5e-2, 4: 2e-4, 8: 1e-7}


# --- comparison ---------------------------------------------------------------------


def assert_allclose(
    actual: Any, desired: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Check that two arrays, or two trees of arrays, are equal up to rounding.

    Parameters
    ----------
    actual, desired
        Arrays or numbers of one shape, or trees of one structure.  They may lie on different
        devices.  NaN equals NaN, and an infinity itself.
    rtol, atol
        An element passes if ``abs(actual - desired) <= atol + rtol * abs(desired)``.  Both are
        by default what the less precise of the two dtypes lets one expect: 1e-11 for float64,
        1e-5 for float32, 1e-2 for float16, and 0 where neither is floating.

    Raises
    ------
    AssertionError
        If structures, shapes or elements differ; the message names the worst element.

    >>> import numpy as np
    >>> assert_allclose(np.float32(0.1), 0.1)
    >>> assert_allclose(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 3.1]))
    Traceback (most recent call last):
        ...
    AssertionError: element [1] is 2.0, not 2.5: they differ by 0.5, and 3.5e-11 is allowed (2 of 3
    elements differ)
    """
    if is_array(actual) or is_array(desired):
        _assert_leaf(actual, desired, rtol, atol, "")
        return
    structures = tree.structure(actual), tree.structure(desired)
    if structures[0] != structures[1]:
        raise AssertionError(f"structures differ: {structures[0]}, not {structures[1]}")
    leaves = tree.leaves(actual), tree.leaves(desired), tree.paths(actual)
    for mine, other, path in zip(*leaves, strict=True):
        _assert_leaf(mine, other, rtol, atol, f"at {path}: " if path else "")


def _assert_leaf(
    actual: Any, desired: Any, rtol: float | None, atol: float | None, where: str
) -> None:
    a, b = to_numpy(actual), to_numpy(desired)
    if a.shape != b.shape:
        raise AssertionError(f"{where}shapes differ: {describe(a)}, not {describe(b)}")
    usual = _tolerance(_VALUE_TOLERANCES, a, b)
    problem = _difference(a, b, usual if rtol is None else rtol, usual if atol is None else atol)
    if problem:
        raise AssertionError(where + problem)


def _tolerance(table: dict[int, float], *arrays: Any) -> float:
    """What the least precise of the arrays allows; 0 if all are exact."""
    inexact = [a.dtype for a in arrays if a.dtype.kind in "fc"]
    sizes = [dtype.itemsize // (2 if dtype.kind == "c" else 1) for dtype in inexact]
    return table[min(*sizes, 8)] if sizes else 0.0


def _difference(a: Any, b: Any, rtol: float, atol: float, said: str = "is {}, not {}") -> str:
    """What is wrong with the worst element of an array, or nothing."""
    kind = complex if "c" in (a.dtype.kind, b.dtype.kind) else float
    a, b = a.astype(kind), b.astype(kind)
    with np.errstate(all="ignore"):
        away = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        allowed = np.where(np.isfinite(b), atol + rtol * np.abs(b), 0.0)
        excess = np.where(np.isnan(away), np.inf, away - allowed)
    wrong = int((excess > 0).sum())
    if not wrong:
        return ""
    worst = np.unravel_index(int(excess.argmax()), a.shape)
    place = f"element [{', '.join(map(str, worst))}] " if worst else "it "
    count = f" ({wrong} of {a.size} elements differ)" if a.size > 1 else ""
    return (
        place
        + said.format(a[worst], b[worst])
        + f": they differ by {away[worst]:.3g}, and {allowed[worst]:.3g} is allowed{count}"
    )


# --- numerical derivatives ----------------------------------------------------------


def numerical_grad(f: Function, *args: Any, eps: float | None = None) -> Any:
    """The gradient of a function, from differences of its values.

    Each element of each argument is moved by two steps to both sides, and the two central
    differences are extrapolated to step 0.  For a smooth function whose values are exact to
    float64 the error is near 1e-11 of the function's size.

    Parameters
    ----------
    f
        A function of trees, whose result is one real number (shape ``()``).
    args
        The arguments; floating leaves are handed to ``f`` in float64.
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
        If the result of ``f`` is no real number.

    >>> import numpy as np
    >>> numerical_grad(lambda x: np.sum(x**3), np.array([1.0, 2.0])).round(9)
    array([ 3., 12.])
    """

    def scalar(*args: Any) -> float:
        out = f(*args)
        if getattr(out, "shape", ()) != () or isinstance(out, complex | list | tuple | dict):
            raise TypeError(
                f"fdbr.testing.numerical_grad: {name_of(f)} must return a real number, not "
                f"{describe(out)}"
            )
        return float(out)

    gradient = _numerical(scalar, args, _STEP if eps is None else eps)
    return gradient[0] if len(args) == 1 else gradient


def _numerical(scalar: Callable[..., float], args: tuple[Any, ...], eps: float) -> Any:
    """The gradient by all arguments, as a tuple of trees."""
    leaves, structure = tree.flatten(args)
    wide = [
        _Wide(leaf) if choose else None
        for leaf, choose in zip(leaves, _differentiated(args), strict=True)
    ]
    base = [one.array() if one else leaf for one, leaf in zip(wide, leaves, strict=True)]

    def slope(number: int, one: _Wide) -> Any:
        def value(place: Any, shift: Any) -> float:
            moved = [*base[:number], one.array(place, shift), *base[number + 1 :]]
            return scalar(*tree.unflatten(structure, moved))

        return one.slope(value, eps)

    slopes = [one and slope(number, one) for number, one in enumerate(wide)]
    return tree.unflatten(structure, slopes)


def _differentiated(args: Any) -> list[bool]:
    """Which leaves transformations differentiate."""
    outside = tree.outside_buffers(tree.structure(args))
    return [o and tree.is_inexact(v) for o, v in zip(outside, tree.leaves(args), strict=True)]


class _Wide:
    """A leaf in double precision, whose elements can be moved one at a time."""

    def __init__(self, leaf: Any) -> None:
        host = to_numpy(leaf)
        self.host = host.astype(complex if host.dtype.kind == "c" else float)
        self.xp = array_module(leaf)
        self.is_number = not hasattr(leaf, "shape")

    def array(self, place: Any = None, shift: Any = 0) -> Any:
        """The leaf, on its device, with one element moved."""
        host = self.host.copy()
        if place is not None:
            host[place] += shift
        if self.is_number:
            return host.item()
        return host[()] if self.xp is np else self.xp.asarray(host)

    def slope(self, value: Callable[[Any, Any], float], eps: float) -> Any:
        """The derivative of ``value(place, shift)`` by the shift, for every place."""
        slope = np.empty_like(self.host)
        for place in np.ndindex(slope.shape):
            step = eps * max(1.0, abs(self.host[place]))
            slope[place] = _central(value, place, step)
            if slope.dtype.kind == "c":  # the derivative by x + iy is that by x less i times by y
                slope[place] -= 1j * _central(value, place, step * 1j)
        return slope


def _central(value: Callable[[Any, Any], float], place: Any, step: Any) -> float:
    """Two central differences, extrapolated: the error is of fourth order in the step."""
    wide, narrow = ((value(place, h) - value(place, -h)) / (2 * abs(h)) for h in (step, step / 2))
    return (4 * narrow - wide) / 3


# --- checking fdbr's derivatives ----------------------------------------------------


def check_grads(
    f: Function,
    *args: Any,
    order: int = 2,
    modes: Sequence[str] = ("vjp",),
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check fdbr's derivatives of a function against differences of its values.

    The outputs are contracted with fixed random cotangents, and the gradient of that sum is
    compared element by element; for the next order, the gradient so contracted is the function.
    Every gradient must also have the shape and dtype of its argument.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree with at least one floating leaf.
    args
        The point at which to check, away from kinks and poles.  Leaves that are not floating,
        or lie in a `buffer` field, are held constant.
    order
        How many derivatives of derivatives to check.
    modes
        By which transformations: ``"vjp"``.
    rtol, atol
        How far a derivative may be off: by ``atol + rtol * abs(derivative)``.  ``rtol`` is by
        default 1e-7 for float64, 2e-4 for float32 and 5e-2 for float16, and ``atol`` is
        ``rtol`` times the largest of the derivatives, or of 1.

    Raises
    ------
    AssertionError
        If a derivative is wrong: the message says in which mode and order, by which argument and
        element, and by how much.
    TypeError
        If no argument has a leaf to differentiate, or ``f`` returns nothing floating.

    >>> import fdbr, numpy as np
    >>> check_grads(lambda p: np.tanh(p["w"] @ p["x"]), {"w": np.eye(2), "x": np.ones(2)})
    >>> check_grads(lambda x: x * fdbr.stop_gradient(x), 3.0)
    Traceback (most recent call last):
        ...
    AssertionError: fdbr.testing.check_grads of <lambda>: mode vjp, order 1: the derivative by
    args[0]: it is ..., but ... by differences of values: they differ by ..., and ... is allowed
    """
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown or isinstance(modes, str):
        raise ValueError(f"fdbr.testing.check_grads: modes {modes!r} are not among {_MODES}")
    name = name_of(f)

    def current(*args: Any) -> Any:
        return f(*args)

    for number in range(1, order + 1):
        where = f"fdbr.testing.check_grads of {name}: mode vjp, order {number}"
        _check_vjp(current, args, number, where, rtol, atol)
        current = _gradient_of(current, number)


def _check_vjp(
    f: Function, args: Any, seed: int, where: str, rtol: float | None, atol: float | None
) -> None:
    actual = tree.leaves(_pull(f, args, seed, where))

    def contracted(*args: Any) -> float:
        out = f(*args)
        return float(
            sum(
                (to_numpy(leaf) * to_numpy(weight)).real.sum()
                for leaf, weight in zip(tree.leaves(out), _weights(out, seed), strict=True)
                if weight is not None
            )
        )

    desired = tree.leaves(_numerical(contracted, args, _STEP))
    everywhere = zip(tree.leaves(args), _names(args), _differentiated(args), strict=True)
    known = [(leaf, name) for leaf, name, differentiated in everywhere if differentiated]
    largest = max(float(np.abs(d).max(initial=0.0, where=np.isfinite(d))) for d in desired)
    usual = _tolerance(_GRADIENT_TOLERANCES, *(np.asarray(to_numpy(leaf)) for leaf, _ in known))
    relative = usual if rtol is None else rtol
    absolute = relative * max(1.0, largest) if atol is None else atol
    for (leaf, name), mine, other in zip(known, actual, desired, strict=True):
        _check_kind(leaf, mine, f"{where}: the gradient of {name}")
        problem = _difference(
            to_numpy(mine), other, relative, absolute, "is {}, but {} by differences of values"
        )
        if problem:
            raise AssertionError(f"{where}: the derivative by {name}: {problem}")


def _check_kind(leaf: Any, gradient: Any, where: str) -> None:
    dtype = getattr(leaf, "dtype", None) or np.dtype(type(leaf))
    if gradient.shape != getattr(leaf, "shape", ()) or gradient.dtype != dtype:
        raise AssertionError(f"{where} is {describe(gradient)}, for an argument {describe(leaf)}")
    if array_module(gradient) is not array_module(leaf):
        raise AssertionError(
            f"{where} is {type(gradient).__qualname__}, for an argument {type(leaf).__qualname__}"
        )


def _names(args: Any) -> list[str]:
    return [f"args{path}" for path in tree.paths(args)]


def _pull(f: Function, args: Any, seed: int, where: str = "fdbr.testing.check_grads") -> Any:
    """The gradient by all arguments of the outputs contracted with random cotangents."""
    out, pullback = vjp(lambda args: f(*args), tuple(args))
    cotangents = _weights(out, seed)
    if all(ct is None for ct in cotangents):
        raise TypeError(f"{where}: there is no floating output, but {tree.structure(out)}")
    (gradient,) = pullback(tree.unflatten(tree.structure(out), cotangents))
    return gradient


def _gradient_of(f: Function, seed: int) -> Function:
    return lambda *args: tree.leaves(_pull(f, args, seed))


def _weights(out: Any, seed: int) -> list[Any]:
    """Fixed random cotangents of the floating leaves of an output; `None` for the others."""
    generator = np.random.Generator(np.random.Philox(seed))
    leaves = tree.leaves(out)
    return [_weight(leaf, generator) if tree.is_inexact(leaf) else None for leaf in leaves]


def _weight(leaf: Any, generator: np.random.Generator) -> Any:
    """Numbers of both signs away from 0, which every dtype holds exactly."""
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", None) or np.dtype(type(leaf))
    weight = generator.integers(32, 96, shape) * generator.choice((-1, 1), shape) / 64
    if dtype.kind == "c":
        weight = weight + 1j * generator.integers(32, 96, shape) / 64
    weight = np.asarray(weight, dtype=dtype)
    xp = array_module(leaf)
    return weight[()] if xp is np else xp.asarray(weight)
