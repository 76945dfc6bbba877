"""Flattening of arguments, and their signature: the key that programs are looked up by."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.paths import Scope, details, exact, is_leaf, one_level
from fdbr.core.array_modules import is_array, number_of
from fdbr.core.tracer import Tracer

__all__ = ["contents", "flatten_arguments", "is_moving", "is_special", "is_untouched", "nodes"]
__all__ += ["paths", "sign", "unflatten_arguments"]

Reader = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]
"""A compiled function that reads what a tree structure says beyond `optree`; see `details`."""

_MOST = 1024  # readers; bounds the memory if structures keep changing
_numbers = frozenset({int, float, complex})
_plain = frozenset({int, float, complex, np.ndarray})


def flatten_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], readers: dict[Any, Reader]
) -> tuple[list[Any], Any]:
    """Return the leaves of arguments, and their structure.

    If all are positional, and arrays or numbers, their count is the structure, which is fast to
    find.  Otherwise the structure is optree's, together with details that ``readers`` read; a
    reader is compiled for each new structure.
    """
    if not kwargs:
        for arg in args:
            if type(arg) not in _plain and not issubclass(type(arg), Tracer):
                break
        else:
            return list(args), len(args)
    leaves, structure = tree.flatten((args, kwargs))
    read = readers.get(structure)
    if read is None:
        if len(readers) >= _MOST:
            readers.clear()
        read = readers[structure] = _reader(args, kwargs)
    return leaves, (structure, read(args, kwargs))


def _reader(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reader:
    scope = Scope(__name__=__name__)
    found = [*details(args, "args", scope), *details(kwargs, "kwargs", scope)]
    source = f"def read(args, kwargs): return ({''.join(f'{text}, ' for text in found)})"
    exec(source, scope)
    read: Reader = scope["read"]
    return read


def unflatten_arguments(
    structure: Any, leaves: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a structure with some leaves: the inverse of `flatten_arguments`."""
    return (tuple(leaves), {}) if type(structure) is int else tree.unflatten(structure[0], leaves)


def contents(structure: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the containers in the arguments, to detect later mutation of them."""
    return None if type(structure) is int else tree.flatten((args, kwargs))


def is_untouched(before: Any, after: Any) -> bool:
    """Return whether arguments still have the same containers and leaves."""
    if before is None:
        return True
    return bool(before[1] == after[1]) and all(map(operator.is_, before[0], after[0]))


def paths(structure: Any) -> list[str]:
    """Return the path to each leaf of arguments, for messages."""
    if type(structure) is int:
        return [f"[0][{i}]" for i in range(structure)]
    return tree.paths_of(structure[0])


def nodes(values: Any) -> Iterator[Any]:
    """Yield the nodes of a tree."""
    if not is_leaf(values):
        yield values
        for child in one_level(values)[0]:
            yield from nodes(child)


def sign(structure: Any, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], bool]:
    """Return the signature of arguments, and whether any of them is traced."""
    signature: list[Any] = [structure]
    traced = False
    for leaf in leaves:
        kind = type(leaf)
        if kind is np.ndarray:
            signature += (leaf.shape, leaf.dtype)
        elif kind in _numbers:
            signature.append(kind)
        elif issubclass(kind, Tracer):  # not `isinstance`: a tracer may fake its `__class__`
            traced = True
        elif is_array(leaf):
            signature.append((kind, leaf.shape, leaf.dtype, number_of(leaf)))
        else:
            signature.append((None, exact(leaf)))
    return tuple(signature), traced


def is_special(value: Any) -> bool:
    """Return whether a value is of an ndarray subclass, which may redefine operators."""
    kind = type(value)
    return issubclass(kind, np.ndarray) and kind is not np.ndarray and kind is not np.memmap


def is_moving(leaf: Any) -> bool:
    """Return whether a leaf may differ from call to call, as arrays and numbers may."""
    kind = type(leaf)
    return kind in _numbers or issubclass(kind, Tracer) or is_array(leaf)
