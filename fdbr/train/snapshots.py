"""Trees in files: safetensors, with a header in JSON, and nothing that is unpickled.

A file is a safetensors file.  Each array is a tensor of it, under the leaf's path as `tree.paths`
writes it; what safetensors cannot hold is stored as something that it can, bit by bit:

=====================  ===============================================================
a complex array        floating numbers with a last axis of two: real and imaginary
a bfloat16 array       the 16 bits of each number as uint16
other short floats     the 8 bits of each number as uint8
=====================  ===============================================================

The metadata has one entry, ``"fdbr"``, a text of JSON without spaces::

    {"version":1,"checksum":"…","leaves":[["['w']","array","float32",[3,2]],["['n']","int","7"]]}

``leaves`` has an entry for each leaf in order, `None` being one: its path, its kind, and its dtype
and shape (of an ``array``, or a NumPy ``scalar``) or its value as a text (of ``int``, ``float``,
``complex``, ``bool``, ``str``; of ``none`` there is none).  Floating numbers are written
in hexadecimal.  ``checksum`` is the SHA-256 of that text with an empty checksum, followed by the
bytes of the tensors in the order of the leaves.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fdbr.backend import array_module, is_array, lock, to_numpy
from fdbr.classes import NAMESPACE
from fdbr.core import Tracer
from fdbr.messages import describe, differences
from fdbr.pytrees import paths_of, settle
from fdbr.replacing import replacing
from fdbr.train.leaves import (
    PAIRS,
    PLAIN,
    VERSION,
    Leaf,
    dtype_called,
    leaf_of,
    of_entry,
    plain,
    text_of,
)

__all__ = ["load", "save"]

_ENTRY = "fdbr"
_LONGEST = 100_000_000  # bytes of a header; safetensors itself takes no longer one


# --- writing ------------------------------------------------------------------------


def save(path: str | Path, tree: Any) -> None:
    """Write a tree to a file, whole or not at all.

    The file is written beside its place under another name, synced, and renamed: who reads the
    path finds the file that was there before, or the new one.

    Parameters
    ----------
    path
        The file, in a folder that exists.  Its end is up to you; ``.safetensors`` tells others
        that they can read it.
    tree
        A tree whose leaves are arrays, NumPy scalars, Python's numbers, truth values, strings, or
        `None`.  Static fields are structure, and are not written.

    Raises
    ------
    OSError
        If the file cannot be written.
    TypeError
        If a leaf is something else, or a traced value; the message names its path.
    ValueError
        If two leaves have one path, as under keys of a dict that are written alike.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from fdbr import train
    >>> state = {"w": np.ones((2, 3), "float32"), "step": 7}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "state.safetensors")
    ...     train.save(path, state)
    ...     train.load(path, like=state)["step"]
    7
    """
    target = Path(os.path.realpath(Path(path)))
    if target.is_dir():
        raise IsADirectoryError(f"fdbr.train.save: {path} is a folder; give the path of a file")
    leaves, tensors = [], {}
    for name, leaf in _leaves_of(tree):
        found = leaf_of("save", name, leaf)
        leaves.append(found)
        if found.is_tensor:
            tensors[name] = _encoded(leaf, found)
    _refuse_paths(leaves)
    text = text_of(leaves)
    digest = _digest(text, (tensors[leaf.path] for leaf in leaves if leaf.is_tensor))
    with replacing(target) as written:
        try:
            save_file(tensors, written, metadata={_ENTRY: text_of(leaves, digest)})
        except SafetensorError as error:
            raise OSError(f"fdbr.train.save: {path} cannot be written: {error}") from error


def _leaves_of(tree: Any) -> Iterator[tuple[str, Any]]:
    settle()
    leaves, structure = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    return zip(paths_of(structure), leaves, strict=True)


def _encoded(leaf: Any, found: Leaf) -> Any:
    """The elements of an array, as they are stored."""
    array = np.asarray(to_numpy(leaf))
    array = np.require(array.astype(array.dtype.newbyteorder("<"), copy=False), None, "C")
    dtype, shape = found.stored
    return array if dtype == found.dtype else array.reshape(-1).view(dtype).reshape(shape)


def _refuse_paths(leaves: list[Leaf]) -> None:
    met = set()
    for leaf in leaves:
        if leaf.path in met or leaf.path == "__metadata__":
            raise ValueError(
                f"fdbr.train.save: the path {leaf.path!r} stands for two things in the file; "
                "rename one of the keys or fields"
            )
        met.add(leaf.path)


def _digest(text: str, arrays: Iterator[Any]) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# --- reading ------------------------------------------------------------------------


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
        unless any will do.

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
        unexpected, and those whose kind, shape or dtype is another.
    """
    expected = [(_expected(name, leaf), leaf) for name, leaf in _leaves_of(like)]
    settled = optree.tree_structure(like, none_is_leaf=True, namespace=NAMESPACE)
    _check_size(Path(path))
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            leaves, checksum = _header(path, file)
            _compare(path, [leaf for leaf, _ in expected], leaves)
            found = {leaf.path: leaf for leaf in leaves}
            stored = {leaf.path: _tensor(path, file, leaf) for leaf in leaves if leaf.is_tensor}
    except SafetensorError as error:
        raise _damaged(path, f"{error}") from error
    digest = _digest(text_of(leaves), iter(stored.values()))
    if digest != checksum:
        raise _damaged(path, "its checksum is another than that of its content")
    values = []
    for leaf, given in expected:
        own = found[leaf.path]
        values.append(_decoded(stored.pop(leaf.path), own, given) if own.is_tensor else plain(own))
    return optree.tree_unflatten(settled, values)


def _expected(path: str, leaf: Any) -> Leaf:
    shape = getattr(leaf, "shape", None)
    if isinstance(shape, tuple | list) and not is_array(leaf) and not isinstance(leaf, Tracer):
        dtype = getattr(leaf, "dtype", None)
        name = None if dtype is None else np.dtype(dtype).name
        return Leaf(path, "array", name, tuple(map(int, shape)))
    return leaf_of("load", path, leaf)


def _damaged(path: Any, what: str) -> ValueError:
    return ValueError(
        f"fdbr.train.load: {path} is damaged, truncated, or no file of train.save: {what}"
    )


def _check_size(path: Path) -> None:
    """Refuse a header that is longer than its file before anything reads it."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(size - 8, _LONGEST):
        raise _damaged(path, f"it has {size} bytes, and no safetensors header")


def _header(path: Any, file: Any) -> tuple[list[Leaf], str]:
    """The leaves that a file says it has, and its checksum."""
    text = (file.metadata() or {}).get(_ENTRY)
    if text is None:
        raise ValueError(
            f"fdbr.train.load: {path} is a safetensors file, but none of train.save: its metadata "
            f"has no {_ENTRY!r}; read weights of other programs with nn.load_torch_state"
        )
    try:
        header = json.loads(text)
        version, checksum = header["version"], header["checksum"]
        if version != VERSION:
            raise ValueError(
                f"fdbr.train.load: {path} is of version {version!r} of the format, this fdbr reads "
                f"version {VERSION}; load it with the fdbr that wrote it"
            )
        leaves = [of_entry(*entry) for entry in header["leaves"]]
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise _damaged(path, "its header is not as save writes it") from error
    if text != text_of(leaves, checksum):
        raise _damaged(path, "its header is not as save writes it")
    tensors = [leaf.path for leaf in leaves if leaf.is_tensor]
    if sorted(tensors) != sorted(file.keys()) or len({leaf.path for leaf in leaves}) < len(leaves):
        raise _damaged(path, "its header lists other tensors than it has")
    return leaves, checksum


def _tensor(path: Any, file: Any, leaf: Leaf) -> Any:
    array = file.get_tensor(leaf.path)
    dtype, shape = leaf.stored
    if array.dtype.name != dtype or array.shape != shape:
        raise _damaged(path, f"{leaf.path or 'its tensor'} is {describe(array)}, not {leaf}")
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
    return lock(array if xp is np else xp.asarray(array))


def _compare(path: Any, expected: list[Leaf], leaves: list[Leaf]) -> None:
    """Refuse a file that holds another tree than the one that is expected."""
    found = {leaf.path: leaf for leaf in leaves}
    wanted = {leaf.path: leaf for leaf in expected}
    lists = {
        "missing": [leaf.path for leaf in expected if leaf.path not in found],
        "unexpected": [leaf.path for leaf in leaves if leaf.path not in wanted],
        "misshapen": [
            f"{leaf.path or 'the leaf'} (file: {found[leaf.path]}, like: {leaf})"
            for leaf in expected
            if leaf.path in found and not leaf.fits(found[leaf.path])
        ],
    }
    if any(lists.values()):
        raise ValueError(
            f"fdbr.train.load: {path} holds another tree than like: {differences(lists)}; build "
            "like as the tree was built that was saved"
        )
