"""Examples of any shape in one file, each of which is read alone, without pickle.

The file begins with sixteen bytes of a name and a version.  Each example is a checksum, the length
of a JSON text that says how it is built, that text, and the elements of its arrays.  Behind the
last one are the places of all, and a checksum of these.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import is_array, lock, to_numpy
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.sequences import View

__all__ = ["read_examples", "write_examples"]

_NAME = b"fdbr examples 1\n"
_HEAD = struct.Struct("<IQ")
_END = struct.Struct("<QI4x")
_PLAIN = (bool, int, float, str, type(None))


@public("fdbr.train")
def write_examples(path: str | os.PathLike[str], examples: Iterable[Any]) -> int:
    """Write examples of any shape to one file, whole or not at all.

    Parameters
    ----------
    path
        The file; it is replaced once all examples are written.
    examples
        A dataset that is a sequence, or any iterable, which is read once: trees of dicts with
        strings as keys, lists and tuples, around arrays, numbers, strings and `None`.

    Returns
    -------
    int
        How many there were.

    Raises
    ------
    TypeError
        If an example holds anything else.
    ValueError
        If there is none.
    OSError
        If the file cannot be written.

    >>> import numpy as np, pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "texts")
    ...     _ = train.write_examples(path, ({"ids": np.arange(n), "n": n} for n in (2, 3)))
    ...     train.read_examples(path)[1]
    {'ids': array([0, 1, 2]), 'n': 3}
    """
    places = [len(_NAME)]
    with replacing(Path(path)) as written, open(written, "wb") as file:
        file.write(_NAME)
        for number, example in enumerate(examples):
            arrays: list[Any] = []
            text = json.dumps(_plan(example, arrays, number), separators=(",", ":")).encode()
            content = b"".join([text, *[array.tobytes() for array in arrays]])
            file.write(_HEAD.pack(zlib.crc32(content), len(text)))
            file.write(content)
            places.append(places[-1] + _HEAD.size + len(content))
        if len(places) == 1:
            raise ValueError(f"fdbr.train.write_examples: there is no example for {path}")
        index = np.array(places, "<i8").tobytes()
        file.write(index)
        file.write(_END.pack(len(places), zlib.crc32(index)))
    return len(places) - 1


def _plan(value: Any, arrays: list[Any], number: int) -> Any:
    """The structure of a value, as lists for JSON; its arrays are added to a list."""
    if type(value) in _PLAIN:
        return ["value", value]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_plan(part, arrays, number) for part in value]]
    if type(value) is dict and all(type(key) is str for key in value):
        return ["dict", [[key, _plan(part, arrays, number)] for key, part in value.items()]]
    if is_array(value):
        array = np.asarray(to_numpy(value))
        if array.dtype.kind in "biufcSUmM" and array.dtype.names is None:
            arrays.append(array)
            kind = "scalar" if isinstance(value, np.generic) else "array"
            return [kind, array.dtype.str, list(array.shape)]
    raise TypeError(
        f"fdbr.train.write_examples: example {number} holds {describe(value)}; examples are made "
        "of dicts with strings as keys, lists and tuples, around arrays of numbers or strings, "
        "numbers, strings and None"
    )


@attrs.frozen(eq=False)
class Examples(View):
    """Examples in a file of `write_examples`, read when they are asked for."""

    path: str
    places: Any = attrs.field(repr=False)

    def __len__(self) -> int:
        return len(self.places) - 1

    def example(self, index: int) -> Any:
        begin, end = (int(place) for place in self.places[index : index + 2])
        with open(self.path, "rb") as file:
            file.seek(begin)
            content = file.read(end - begin)
        try:
            checksum, length = _HEAD.unpack_from(content)
            if len(content) != end - begin or zlib.crc32(content[_HEAD.size :]) != checksum:
                raise ValueError("its checksum is wrong")
            plan = json.loads(content[_HEAD.size : _HEAD.size + length])
            return _built(plan, content, [_HEAD.size + length])
        except (struct.error, ValueError, TypeError, IndexError, RecursionError) as error:
            raise ValueError(
                f"fdbr.train.read_examples: example {index} of {self.path} is damaged: {error}"
            ) from error


def _built(plan: Any, content: bytes, place: list[int]) -> Any:
    """The value of a plan; arrays are taken from where ``place`` says, which moves on."""
    kind, what = plan[:2]
    if kind == "value":
        return what
    if kind in ("list", "tuple"):
        parts = [_built(part, content, place) for part in what]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict":
        return {key: _built(part, content, place) for key, part in what}
    dtype, shape = np.dtype(what), plan[2]
    count = math.prod(shape)
    array = np.frombuffer(content, dtype, count, place[0]) if count else np.empty(0, dtype)
    place[0] += array.nbytes
    array = array.reshape(shape).astype(dtype.newbyteorder("="))
    return array[()] if kind == "scalar" else lock(array)


@public("fdbr.train")
def read_examples(path: str | os.PathLike[str]) -> Any:
    """The examples in a file of `write_examples`, as a dataset.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    sequence
        A dataset that reads an example when it is asked for it; arrays are read-only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is another file, or is truncated; when an example is asked for, if that is damaged.
    """
    where = f"fdbr.train.read_examples: {path}"
    with open(path, "rb") as file:
        if file.read(len(_NAME)) != _NAME:
            raise ValueError(f"{where} is no file of fdbr.train.write_examples, version 1")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END.size))
        end = file.read()
        count, checksum = _END.unpack(end) if len(end) == _END.size else (0, 0)
        begin = size - _END.size - 8 * count
        if count < 2 or begin < len(_NAME):
            raise ValueError(f"{where} is truncated, or is damaged at its end")
        file.seek(begin)
        index = file.read(8 * count)
    places = np.frombuffer(index, "<i8")
    steps_back = (np.diff(places) < _HEAD.size).any()
    if zlib.crc32(index) != checksum or places[-1] != begin or steps_back:
        raise ValueError(f"{where} is truncated, or is damaged at its end")
    return Examples(str(path), lock(places.astype(np.int64)))
