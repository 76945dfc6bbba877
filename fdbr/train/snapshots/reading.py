"""Trees out of files: all of a file as it was written, or an error."""

import os
import stat
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import optree
from safetensors import SafetensorError, safe_open

from fdbr.core.array_modules import array_module, is_array, lock
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, differences
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.train.snapshots.fields import static_fields
from fdbr.train.snapshots.header import ENTRY, DamagedError, Header, OtherVersionError, digest
from fdbr.train.snapshots.leaves import PAIRS, PLAIN, Leaf, dtype_called, leaf_of, plain
from fdbr.train.snapshots.writing import leaves_of

__all__ = ["Expected", "check", "header_of", "load", "read", "read_leaves"]

_LONGEST = 100_000_000  # bytes of a header; safetensors itself takes no longer one


@public("fdbr.train")
def load(path: str | Path, like: Any) -> Any:
    """The tree in a file that `save` wrote.

    Nothing in the file is run, and nothing is returned unless all of it is as it was written.

    Parameters
    ----------
    path
        The file.
    like
        A tree of the structure that is expected: its containers and static fields are those of
        the result.  Its leaves tell the kinds of leaves, and the shapes and dtypes of arrays; their
        values do not matter.  For an array it may hold anything with a ``shape``, and a ``dtype``
        unless any will do.  For an array or a scalar of no axes it may hold a number of Python.

    Returns
    -------
    tree
        Its arrays are read-only, and of the array module of the leaf in ``like``: where that is an
        array of a GPU, so is the result.

    Raises
    ------
    OSError
        If the file cannot be read.
    TypeError
        If a leaf of ``like`` is nothing that can be in a file.
    ValueError
        If the file is truncated, damaged, of another version, or none of `save`'s; or if it holds
        another tree than ``like``: the message lists the paths that are missing, those that are
        unexpected, those whose kind, shape or dtype is another, and static fields that differ.
    """
    return read("load", Path(path), Expected.like("load", like))


@attrs.frozen
class Expected:
    """The tree that a file is expected to hold.

    Attributes
    ----------
    tree
        A tree like it.
    leaves
        Its leaves, each with the value in the tree.
    static
        The texts of its static fields, by their paths.
    """

    tree: Any
    leaves: list[tuple[Leaf, Any]]
    static: dict[str, str]

    @classmethod
    def like(cls, function: str, tree: Any) -> "Expected":
        """The expectation that a tree stands for; ``function`` is the one that messages name."""
        leaves = [(_expected(function, path, leaf), leaf) for path, leaf in leaves_of(tree)]
        return cls(tree, leaves, static_fields(tree))

    def filled(self, values: list[Any]) -> Any:
        """The tree with other leaves."""
        structure = optree.tree_structure(self.tree, none_is_leaf=True, namespace=NAMESPACE)
        return optree.tree_unflatten(structure, values)


def _expected(function: str, path: str, leaf: Any) -> Leaf:
    shape = getattr(leaf, "shape", None)
    if isinstance(shape, tuple | list) and not is_array(leaf) and not isinstance(leaf, Tracer):
        dtype = getattr(leaf, "dtype", None)
        name = None if dtype is None else np.dtype(dtype).name
        return Leaf(path, "array", name, tuple(map(int, shape)))
    return leaf_of(function, path, leaf)


def read(function: str, path: Path, expected: Expected) -> Any:
    """The tree in a file; a `DamagedError` if that is not as it was written."""
    header, stored = _content(function, path, expected)
    found = {leaf.path: leaf for leaf in header.leaves}
    values = []
    for leaf, given in expected.leaves:
        own = found[leaf.path]
        values.append(_decoded(stored.pop(leaf.path), own, given) if own.is_tensor else plain(own))
    return expected.filled(values)


def read_leaves(function: str, path: Path) -> tuple[Header, dict[str, Any]]:
    """The header of a file, and its leaves by their paths, whatever they are, in host memory."""
    header, stored = _content(function, path, None)
    values = {
        leaf.path: _decoded(stored[leaf.path], leaf, None) if leaf.is_tensor else plain(leaf)
        for leaf in header.leaves
    }
    return header, values


def check(function: str, path: Path) -> None:
    """Raise a `DamagedError` unless a file is as it was written."""
    _content(function, path, None)


def header_of(function: str, path: Path) -> Header:
    """The header of a file, which is looked at alone."""
    _check_size(function, path)
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            return _header(function, path, file)[0]
    except SafetensorError as error:
        raise _damaged(function, path, f"{error}") from error


def _content(function: str, path: Path, expected: Expected | None) -> tuple[Header, dict[str, Any]]:
    """The header of a file, and its tensors."""
    _check_size(function, path)
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            header, checksum = _header(function, path, file)
            if expected is not None:
                _compare(function, path, expected, header)
            stored = {leaf.path: _tensor(function, path, file, leaf) for leaf in header.tensors}
    except SafetensorError as error:
        raise _damaged(function, path, f"{error}") from error
    if digest(header, stored.values()) != checksum:
        raise _damaged(function, path, "its checksum is another than that of its content")
    return header, stored


def _damaged(function: str, path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"fdbr.train.{function}: {path} is damaged, truncated, or no file of train.save: {what}"
    )


def _check_size(function: str, path: Path) -> None:
    """Refuse a header that is longer than its file before anything reads it."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a pipe, one would wait for ever
        raise _damaged(function, path, "it is no regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(size - 8, _LONGEST):
        raise _damaged(function, path, f"it has {size} bytes, and no safetensors header")


def _header(function: str, path: Path, file: Any) -> tuple[Header, str]:
    """The header of an open file, and its checksum."""
    text = (file.metadata() or {}).get(ENTRY)
    if text is None:
        raise DamagedError(
            f"fdbr.train.{function}: {path} is a safetensors file, but none of train.save: its "
            f"metadata has no {ENTRY!r}; read weights of other programs with nn.load_torch_state"
        )
    try:
        header, checksum = Header.parse(text)
    except OtherVersionError as error:
        raise OtherVersionError(f"fdbr.train.{function}: {path}: {error}") from None
    except DamagedError as error:
        raise _damaged(function, path, f"{error}") from error
    if sorted(leaf.path for leaf in header.tensors) != sorted(file.keys()):
        raise _damaged(function, path, "its header lists other tensors than it has")
    return header, checksum


def _tensor(function: str, path: Path, file: Any, leaf: Leaf) -> Any:
    array = file.get_tensor(leaf.path)
    dtype, shape = leaf.stored
    if array.dtype.name != dtype or array.shape != shape:
        what = f"{leaf.path or 'its tensor'} is {describe(array)}, not {leaf}"
        raise _damaged(function, path, what)
    return array


def _decoded(array: Any, leaf: Leaf, given: Any) -> Any:
    """A leaf from the file, where the one that was expected lies."""
    dtype = getattr(given, "dtype", None)
    if leaf.dtype in PLAIN or leaf.dtype in PAIRS or dtype is None:
        dtype = dtype_called(leaf)
    array = array.reshape(-1).view(dtype).reshape(leaf.shape)
    if leaf.kind == "scalar":
        return array[()]
    xp = array_module(given)
    return lock(xp.asarray(array))


def _compare(function: str, path: Path, expected: Expected, header: Header) -> None:
    """Refuse a file that holds another tree than the one that is expected."""
    found = {leaf.path: leaf for leaf in header.leaves}
    wanted = {leaf.path: leaf for leaf, _ in expected.leaves}
    fields = header.static
    lists = {
        "missing": [path for path in wanted if path not in found],
        "unexpected": [path for path in found if path not in wanted],
        "misshapen": [
            f"{leaf.path or 'the leaf'} (file: {found[leaf.path]}, like: {leaf})"
            for leaf in wanted.values()
            if leaf.path in found and not leaf.fits(found[leaf.path])
        ],
        "static fields that differ": [
            f"{name} (file: {fields[name]}, like: {text})"
            for name, text in expected.static.items()
            if fields.get(name, text) != text
        ],
    }
    if any(lists.values()):
        raise ValueError(
            f"fdbr.train.{function}: {path} holds another tree than like: {differences(lists)}; "
            "build like as the tree was built that was saved"
        )
