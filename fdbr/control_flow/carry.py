"""Values carried between iterations: trees whose structure, shapes and dtypes do not change."""

from collections.abc import Callable
from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, is_array, protect
from fdbr.core.tracer import Tracer, plain
from fdbr.errors.checks import describe, number_types
from fdbr.pytrees.short_repr import brief

__all__ = ["check_carry", "first_carry", "is_weak", "kept", "settled"]

_ORDER = (bool, int, float, complex)
_MOST = 4  # iterations after which Python numbers in a carry have taken their dtypes, or never will


def is_weak(leaf: Any) -> bool:
    """Return whether a leaf is a Python number, possibly traced."""
    return type(plain(leaf)) in number_types


def first_carry(function: str, name: str, value: Any) -> Any:
    """Return a loop's first carry, read-only; raise if a leaf is neither array nor number."""
    leaves, structure = tree.flatten(value)
    for leaf, path in zip(leaves, tree.paths_of(structure), strict=True):
        if not isinstance(leaf, Tracer) and not is_array(leaf) and type(leaf) not in number_types:
            raise TypeError(
                f"fdbr.{function}: {name}{path and ' at ' + path} is {describe(leaf)}, neither an "
                "array nor a number; let the function capture a value that does not change in the "
                "loop"
            )
    return tree.unflatten(structure, [kept(leaf) for leaf in leaves])


def kept(leaf: Any) -> Any:
    """Return a read-only leaf."""
    return leaf if isinstance(leaf, Tracer) else protect(leaf)


def check_carry(function: str, body: str, old: Any, new: Any) -> None:
    """Raise if a carry does not have the structure, shapes and dtypes of the last one."""
    leaves, structure = tree.flatten(old)
    found, other = tree.flatten(new)
    if other != structure:
        raise TypeError(
            f"fdbr.{function}: {body} must return a carry of the structure of the one that it got, "
            f"{brief(structure)}, not {brief(other)}"
        )
    for i, (leaf, made) in enumerate(zip(leaves, found, strict=True)):
        if _kind(leaf) != _kind(made):
            path = tree.paths_of(structure)[i]
            raise TypeError(
                f"fdbr.{function}: {body} must return a carry of the shapes and dtypes of the one "
                f"that it got, but{path and ' at ' + path} it got {describe(leaf)} and returned "
                f"{describe(made)}; "
                + (
                    "begin with an array of the shape that it has later"
                    if _kind(leaf)[0] != _kind(made)[0]
                    else "begin with the dtype that it has later, or use ops.astype(…)"
                )
            )


def settled(iteration: Callable[[Any], Any], carry: Any, *, runs: bool = True) -> tuple[Any, Any]:
    """Return a first carry with the final dtypes of Python numbers, and its iteration's result.

    A Python number is weak: in ``scan(lambda c, x: (c + x, c), 0.0, xs)`` the carry takes the
    dtype of ``xs``.  ``iteration`` maps a carry to the result of one iteration, whose first item is
    the next carry; it is run again when a number has taken its dtype.  An iteration that ``runs``
    computes the same with a float as with float64, so that it is not run again.
    """
    out = iteration(carry)
    leaves, structure = tree.flatten(carry)
    for _ in range(_MOST if any(map(is_weak, leaves)) else 0):
        made, other = tree.flatten(out[0])
        if other != structure:
            break
        fitted = [
            leaf if runs and _kind(leaf) == _kind(new) else _fitted(leaf, new)
            for leaf, new in zip(leaves, made, strict=True)
        ]
        if all(new is leaf for new, leaf in zip(fitted, leaves, strict=True)):
            break
        leaves = fitted
        carry = tree.unflatten(structure, leaves)
        out = iteration(carry)
    return carry, out


def _fitted(leaf: Any, new: Any) -> Any:
    """Return a Python number in the dtype of what it becomes, if that can hold it."""
    if not is_weak(leaf) or getattr(new, "shape", ()) != () or _is_same(leaf, new):
        return leaf
    number = type(plain(new))
    if number in number_types:
        is_wider = _ORDER.index(type(plain(leaf))) < _ORDER.index(number)
        if not isinstance(leaf, Tracer):
            return number(leaf) if is_wider else leaf
        # A traced number is converted by Python's own rule of promotion.
        return leaf * number(1) if is_wider and number is not complex else leaf
    dtype = getattr(new, "dtype", None)
    if dtype is None or ops.result_type(leaf, dtype) != dtype:
        return leaf
    if isinstance(leaf, Tracer):
        return ops.astype(leaf, dtype)[()]
    return array_module(plain(new)).asarray(leaf, dtype=dtype)[()]


def _kind(leaf: Any) -> Any:
    """Return shape and dtype; for a Python number, its type."""
    shape = getattr(leaf, "shape", ())
    if is_weak(leaf):
        return shape, type(plain(leaf))
    return shape, getattr(leaf, "dtype", type(leaf))


def _is_same(leaf: Any, new: Any) -> bool:
    """Return whether `_kind` is the same; a dtype equals the type of its Python numbers."""
    return is_weak(leaf) == is_weak(new) and _kind(leaf) == _kind(new)
