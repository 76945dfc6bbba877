"""The names of a model's arrays in files of other libraries.

An array's name is made of its path: the names of fields, the numbers of members of a tuple or list,
and the keys of a dict.  A class can change names by an attribute (or a method) that gives a dict
from paths within its objects to names: ``torch_names`` for PyTorch's files and ONNX,
``chainer_names`` for Chainer's.  A path is a field's name, or continues from there as in
`tree.paths`; the longest path that an array's path begins with applies.  A name is

- a string, which replaces that part of the path, and may have several parts itself;
- the empty string, which adds nothing to the name (as for a `Sequential`'s ``layers``);
- a tuple of strings: the name, and other names of the same array in files; a name that begins with
  ``~`` is an older one, which is read but not written;
- `None` for an array that is not in files, and is kept as it is in the model.

>>> import fdbr
>>> @fdbr.frozen
... class Net(fdbr.nn.Layer):
...     stem: fdbr.nn.Linear
...     blocks: tuple
...     torch_names = {"stem": "features.stem", "blocks": ""}
"""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import optree

from fdbr.core.array_modules import array_module, is_array, lock, to_numpy
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, differences
from fdbr.pytrees.classes import NAMESPACE, fields_of
from fdbr.pytrees.structure import settle

__all__ = ["Entry", "entries", "filled", "host", "put", "without_prefix"]

Names = Mapping[str, Any]


@attrs.frozen
class Entry:
    """An array of a model, or one of its numbers, and its names in a file.

    Attributes
    ----------
    number
        The index among the leaves.
    names
        The name in a file, and other names of the array there; empty if it is not in files.
    leaf
        The array.
    node
        The object that holds it in a field; or the object at which its name ended.
    rest
        The path from there, where the name ended.
    older
        Names of the array in older files.
    """

    number: int
    names: tuple[str, ...]
    leaf: Any
    node: Any = None
    rest: str = ""
    older: tuple[str, ...] = ()


def entries(
    model: Any,
    names_of: Callable[[Any], Names],
    joint: str,
    ends: Callable[[Any], bool] = lambda node: False,
) -> list[Entry]:
    """Return the arrays and numbers of a model, with their names in files.

    Parameters
    ----------
    model
        A tree.
    names_of
        A function from an object in the tree to its class's names.
    joint
        The separator of the parts of a name.
    ends
        Whether names end at an object: the arrays within then have the name of the object.
    """
    settle()
    accessors, leaves, _ = optree.tree_flatten_with_accessor(model, namespace=NAMESPACE)
    found = []
    for number, (accessor, leaf) in enumerate(zip(accessors, leaves, strict=True)):
        if is_array(leaf) or isinstance(leaf, Tracer) or type(leaf) in (bool, int, float, complex):
            steps, node, rest = _steps(model, accessor, names_of, ends)
            names = _joined(steps, joint)
            now = tuple(name for name in names if "~" not in name)
            older = tuple(name.replace("~", "") for name in names if "~" in name)
            found.append(Entry(number, now, leaf, node, rest, older))
    return found


def _steps(
    model: Any, accessor: Any, names_of: Callable[[Any], Names], ends: Callable[[Any], bool]
) -> tuple[list[Any], Any, str]:
    """Return the names of a path's steps, the last object on it, and the path from there."""
    steps: list[Any] = []
    index, node, inside = 0, model, model
    while index < len(accessor):
        if fields_of(type(inside)) is not None:
            node = inside
        if ends(inside):
            return steps, inside, accessor[index:].codify("").removeprefix(".")
        name, end = getattr(accessor[index], "field", accessor[index].entry), index + 1
        known = names_of(inside)
        for stop in range(len(accessor), index, -1) if known else ():
            path = accessor[index:stop].codify("").removeprefix(".")
            if path in known:
                name, end = known[path], stop
                break
        steps.append(name if name is None or isinstance(name, tuple) else str(name))
        for step in accessor[index:end]:
            inside = step(inside)
        index = end
    return steps, node, ""


def _joined(steps: Sequence[Any], joint: str) -> tuple[str, ...]:
    names = [""]
    for step in steps:
        if step is None:
            return ()
        others = (step,) if isinstance(step, str) else step
        names = [
            f"{name}{joint}{other}" if name and other else name + other
            for other in others
            for name in names
        ]
    return tuple(names)


def host(function: str, name: str, leaf: Any) -> Any:
    """Return an array in host memory, in native byte order; a number becomes a 0-d array."""
    if isinstance(leaf, Tracer):
        raise TypeError(
            f"fdbr.nn.{function}: {name} is a traced value, which has no elements of its own; call "
            "it outside of transformations"
        )
    array = np.asarray(to_numpy(leaf))
    return array.astype(array.dtype.newbyteorder("="), copy=False)


# --- filling a model ----------------------------------------------------------------


def filled(
    function: str,
    model: Any,
    wanted: Sequence[Entry],
    given: Mapping[str, Any],
    *,
    ignored: Callable[[str], bool] = lambda name: False,
    optional: Callable[[str], bool] = lambda name: False,
    strict: bool = True,
    depth: int = 4,
) -> Any:
    """Return the model with arrays from a file.

    Parameters
    ----------
    function
        The name of the public function, for messages.
    model, wanted
        A model, and its entries.
    given
        Arrays by name, or objects with a shape, a dtype and a method ``read``.
    ignored
        Whether a name in the file is ignored if the model does not have it.
    optional
        Whether an array of the model may be missing in the file.
    strict
        Whether names that are missing or unexpected are an error, or a warning.
    depth
        How many calls lie between a warning and the caller of the public function.
    """
    chosen: dict[int, str] = {}
    known: set[str] = set()
    lists: dict[str, list[str]] = {"missing": [], "unexpected": [], "misshapen": []}
    for entry in wanted:
        known.update(entry.names, entry.older)
        name = next((name for name in (*entry.names, *entry.older) if name in given), None)
        if name is not None:
            chosen[entry.number] = name
            if text := _misfit(entry.leaf, given[name]):
                lists["misshapen"].append(f"{name} ({text})")
        elif entry.names and not optional(entry.names[0]):
            lists["missing"].append(entry.names[0])
    lists["unexpected"] = [n for n in given if n not in known and not ignored(n)]
    if any(lists.values()):
        text = differences(lists) + _advice(lists["missing"], lists["unexpected"])
        if strict or lists["misshapen"]:
            raise ValueError(f"fdbr.nn.{function}: these are not the weights of this model: {text}")
        loaded = f"{len(chosen)} of {len(chosen) + len(lists['missing'])} arrays were loaded"
        warnings.warn(f"fdbr.nn.{function}: {loaded}: {text}", RuntimeWarning, stacklevel=depth)
    leaves, structure = optree.tree_flatten(model, namespace=NAMESPACE)
    for entry in wanted:
        if entry.number in chosen:
            found = given[chosen[entry.number]]
            array = found.read() if hasattr(found, "read") else found
            leaves[entry.number] = put(array, entry.leaf)
    return optree.tree_unflatten(structure, leaves)


def without_prefix(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, under the rest of their names."""
    if not prefix:
        return dict(given)
    return {n.removeprefix(prefix): array for n, array in given.items() if n.startswith(prefix)}


def _advice(missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """Advise a prefix if the names of the model are in the file after one."""
    wanted = set(missing)
    prefixes: Counter[str] = Counter()
    for name in unexpected:
        for place, letter in enumerate(name, 1):
            if letter in "./" and name[place:] in wanted:
                prefixes[name[:place]] += 1
    if not prefixes:
        return ""
    prefix, count = prefixes.most_common(1)[0]
    if count < min(len(wanted), 2):
        return ""
    return f"; {count} of the missing names are there after {prefix!r}: give prefix={prefix!r}"


def _misfit(leaf: Any, found: Any) -> str:
    """Describe why an array of a file does not fit; empty if it does."""
    shape = tuple(getattr(leaf, "shape", ()))
    if tuple(found.shape) != shape:
        return f"file: {describe(found)}, model: {describe(leaf)}"
    have, want = _kind(found.dtype), _kind(getattr(leaf, "dtype", np.dtype(type(leaf))))
    if _RANKS.get(have, 9) > _RANKS.get(want, -1):
        return f"file: {describe(found)}, model: {describe(leaf)}, which holds no such numbers"
    return ""


_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _kind(dtype: Any) -> str:
    return "f" if "float" in dtype.name else str(dtype.kind)


def put(array: Any, leaf: Any) -> Any:
    """Return the array from a file in the type, dtype and array module of a leaf."""
    if not hasattr(leaf, "dtype"):
        return type(leaf)(array.item())
    made = np.array(array, dtype=leaf.dtype, order="C")
    if isinstance(leaf, np.generic):
        return made[()]
    xp = array_module(leaf)
    return lock(xp.asarray(made))
