"""The header of a file: a text of JSON that lists what is in it.

A file is a safetensors file.  Each array is a tensor of it, under the leaf's path as `tree.paths`
writes it; what safetensors cannot hold is stored as something that it can, bit by bit:

=====================  ===============================================================
a complex array        floating numbers with a last axis of two: real and imaginary
a bfloat16 array       the 16 bits of each number as uint16
other short floats     the 8 bits of each number as uint8
=====================  ===============================================================

The metadata has one entry, ``"fdbr"``, a text of JSON without spaces::

    {"version":1,"checksum":"…","leaves":[["['w']","array","float32",[3,2]],["['n']","int","7"]],
     "static":[["layer.axis","-1"]]}

``leaves`` has an entry for each leaf in order, `None` being one: its path, its kind, and its dtype
and shape (of an ``array``, or a NumPy ``scalar``) or its value as a text (of ``int``, ``float``,
``complex``, ``bool``, ``str``; of ``none`` there is none).  Floating numbers are written in
hexadecimal.  ``static`` has the path and the text of each static field.  ``checksum`` is the
SHA-256 of that text with an empty checksum, followed by the bytes of the tensors in the order of
the leaves.
"""

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from fdbr.train.snapshots.leaves import Leaf, leaf_of, of_entry, plain

__all__ = ["ENTRY", "VERSION", "DamagedError", "Header", "OtherVersionError", "digest"]

VERSION = 1
"""Of the format."""

ENTRY = "fdbr"
"""The name of the text among the metadata."""


class DamagedError(ValueError):
    """Raised where a file is not as `save` wrote it."""


class OtherVersionError(DamagedError):
    """Raised where a file is of another version of the format."""


@attrs.frozen
class Header:
    """The contents of a file, as its header lists them.

    Attributes
    ----------
    leaves
        The leaves, in order.
    static
        The texts of static fields, by their paths.
    """

    leaves: list[Leaf]
    static: Mapping[str, str]

    @property
    def tensors(self) -> list[Leaf]:
        """The leaves that are stored as tensors."""
        return [leaf for leaf in self.leaves if leaf.is_tensor]

    def pieces(self, checksum: str = "") -> Iterator[str]:
        """The text in the file, in pieces: as a whole its lists would take many times its size."""
        yield f'{{"version":{VERSION},"checksum":{json.dumps(checksum)},"leaves":['
        yield from _listed(leaf.entry() for leaf in self.leaves)
        yield '],"static":['
        yield from _listed(list(pair) for pair in self.static.items())
        yield "]}"

    def text(self, checksum: str = "") -> str:
        """The text in the file."""
        return "".join(self.pieces(checksum))

    @classmethod
    def parse(cls, text: str) -> "tuple[Header, str]":
        """The header that a text says, and the checksum.

        The text is read entry by entry: it takes little more memory than the leaves, whatever it
        says.

        Raises
        ------
        OtherVersionError
            If it is that of another version.
        DamagedError
            If it is no text that `text` makes.
        """
        begin = _BEGIN.match(text)
        if begin is None:
            other = _VERSION.match(text)
            if other is not None and other[1] != str(VERSION):
                raise OtherVersionError(
                    f"it is of version {other[1]} of the format, and this fdbr reads version "
                    f"{VERSION}; load it with the fdbr that wrote it"
                )
            raise _not_ours()
        try:
            leaves: list[Leaf] = []
            end = begin.end()
            for match in _entries(_LEAF, text, end):
                leaves.append(_leaf(*match.groups()))
                end = match.end()
            between = _BETWEEN.match(text, end)
            if between is None:
                raise _not_ours()
            static: dict[str, str] = {}
            count, end = 0, between.end()
            for match in _entries(_PAIR, text, end):
                static[_string(match[1])] = _string(match[2])
                count, end = count + 1, match.end()
        except (KeyError, ValueError, OverflowError) as error:
            raise _not_ours() from error
        unique = len({leaf.path for leaf in leaves}) == len(leaves) and len(static) == count
        if text[end:] != "]}" or not unique:
            raise _not_ours()
        return cls(leaves, static), begin[1]


def _listed(entries: Iterable[Any]) -> Iterator[str]:
    """The texts of the entries of a list, and the commas between them."""
    rest = iter(entries)
    comma = ""
    while some := list(itertools.islice(rest, 1000)):
        yield comma + json.dumps(some, separators=(",", ":"))[1:-1]
        comma = ","


_STRING = r'"((?:[ !#-\[\]-~]++|\\.)*+)"'  # as json.dumps writes it, in ASCII
_SHAPE = r"\[((?:(?:0|[1-9]\d{0,18})(?:,(?=\d)|(?=\]))){0,64})\]"
_VERSION = re.compile(r'\{\s*"version"\s*:\s*("[^"]{0,20}"|[\w.+-]{1,20})')
_BEGIN = re.compile(rf'\{{"version":{VERSION},"checksum":"([0-9a-f]*)","leaves":\[')
_LEAF = re.compile(rf'\[{_STRING},"([a-z]+)"(?:,{_STRING}(?:,{_SHAPE})?)?\]')
_BETWEEN = re.compile(r'\],"static":\[')
_PAIR = re.compile(rf"\[{_STRING},{_STRING}\]")


def _entries(form: re.Pattern[str], text: str, begin: int) -> Iterator[re.Match[str]]:
    """The entries of a list from where it begins, as far as they are of a form."""
    match = form.match(text, begin)
    while match is not None:
        yield match
        end = match.end()
        match = form.match(text, end + 1) if text[end : end + 1] == "," else None


def _leaf(path: str, kind: str, what: str | None, shape: str | None) -> Leaf:
    """The leaf of an entry; an error if it is not the one that is written for the leaf."""
    sizes = () if not shape else tuple(map(int, shape.split(",")))
    given = () if what is None else (_string(what),) if shape is None else (_string(what), sizes)
    leaf = of_entry(_string(path), sys.intern(kind), *given)
    if len(leaf.entry()) != 2 + len(given) or not _is_own(leaf):
        raise ValueError(path)
    return leaf


def _string(text: str) -> str:
    """A string, of what stands between its quotation marks."""
    if "\\" not in text:
        return text
    found: str = json.loads(f'"{text}"')
    if json.dumps(found) != f'"{text}"':
        raise ValueError(text)
    return found


def _not_ours() -> DamagedError:
    return DamagedError("its header is not as save writes it")


def _is_own(leaf: Leaf) -> bool:
    """Whether the text of a value is the one that is written for it."""
    return leaf.is_tensor or leaf_of("load", leaf.path, plain(leaf)) == leaf


def digest(header: Header, arrays: Iterable[Any]) -> str:
    """The checksum of a header and of the tensors in the order of its leaves."""
    found = hashlib.sha256()
    for piece in header.pieces():
        found.update(piece.encode())
    for array in arrays:
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
