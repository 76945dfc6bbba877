"""Trees into files: safetensors with a header in JSON, whole or not at all."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import optree
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fdbr.core.array_modules import protect, to_numpy
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import paths_of, settle
from fdbr.train.snapshots.fields import static_fields
from fdbr.train.snapshots.header import ENTRY, Header, digest
from fdbr.train.snapshots.leaves import Leaf, leaf_of

__all__ = ["Contents", "checksum", "contents", "leaves_of", "restated", "save", "write"]


@public("fdbr.train")
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
        `None`.  Static fields are written down so that `load` can compare them.

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
    if target.exists() and not target.is_file():
        raise OSError(f"fdbr.train.save: {path} is no regular file, and is not replaced by one")
    write("save", target, contents("save", tree, lambda array: array))


@attrs.frozen
class Contents:
    """The contents of a file that is to be written.

    Attributes
    ----------
    header
        Its header.
    arrays
        The arrays that are its tensors, by their paths.
    """

    header: Header
    arrays: dict[str, Any]


def unchanging(array: Any) -> Any:
    """An array with the same elements that nobody can write to, in host memory.

    Read-only arrays, as the library hands them out, are not copied.
    """
    return protect(to_numpy(array))


def contents(function: str, tree: Any, taken: Callable[[Any], Any] = unchanging) -> Contents:
    """The contents of a file for a tree; ``function`` is the one that messages name.

    What is done to its arrays later does not show in them.
    """
    leaves, arrays = [], {}
    for path, leaf in leaves_of(tree):
        found = leaf_of(function, path, leaf)
        leaves.append(found)
        if path in arrays or path == "__metadata__":
            raise _twice(function, path)
        if found.is_tensor:
            arrays[path] = taken(leaf)
    names = [leaf.path for leaf in leaves]
    if len(set(names)) < len(names):
        raise _twice(function, next(path for path in names if names.count(path) > 1))
    return Contents(Header(leaves, static_fields(tree)), arrays)


def leaves_of(tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree with their paths; `None` is one."""
    settle()
    leaves, structure = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    try:
        paths = _paths(structure)
    except TypeError:  # a static field without a hash
        paths = paths_of(structure)
    return zip(paths, leaves, strict=True)


_paths = functools.lru_cache(maxsize=8)(paths_of)
"""Those of the last structures: a run saves one again and again."""


def _twice(function: str, path: str) -> ValueError:
    return ValueError(
        f"fdbr.train.{function}: the path {path!r} stands for two things in the file; rename one "
        "of the keys or fields"
    )


def checksum(content: Contents) -> str:
    """The checksum that a file of these contents has."""
    header = content.header
    tensors = (_encoded(content.arrays[leaf.path], leaf) for leaf in header.tensors)
    return digest(header, tensors)


def write(function: str, target: Path, content: Contents, within: Path | None = None) -> None:
    """Write a file; ``within`` is a folder for it until it is whole, on the same disk."""
    header = content.header
    tensors = {leaf.path: _encoded(content.arrays[leaf.path], leaf) for leaf in header.tensors}
    text = header.text(digest(header, tensors.values()))
    with replacing(target, within) as written:
        try:
            save_file(tensors, written, metadata={ENTRY: text})
        except SafetensorError as error:
            raise restated(error, f"fdbr.train.{function}: {target} cannot be written") from error


def _encoded(leaf: Any, found: Leaf) -> Any:
    """The elements of an array, as they are stored."""
    array = np.asarray(to_numpy(leaf))
    array = np.require(array.astype(array.dtype.newbyteorder("<"), copy=False), None, "C")
    dtype, shape = found.stored
    return array if dtype == found.dtype else array.reshape(-1).view(dtype).reshape(shape)


def restated(error: Exception, what: str) -> OSError:
    """An error of the system with another beginning."""
    known = re.search(r"os error (\d+)", str(error))  # as the writer of safetensors says it
    number = int(known[1]) if known else getattr(error, "errno", None)
    kind = type(OSError(number, "")) if number is not None else OSError
    made = kind(f"{what}: {error}")
    made.errno = number
    return made
