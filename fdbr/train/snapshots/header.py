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
import json
from collections.abc import Iterable, Mapping
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

    def text(self, checksum: str = "") -> str:
        """The text in the file."""
        content = {
            "version": VERSION,
            "checksum": checksum,
            "leaves": [leaf.entry() for leaf in self.leaves],
            "static": [list(pair) for pair in self.static.items()],
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "tuple[Header, str]":
        """The header that a text says, and the checksum.

        Raises
        ------
        OtherVersionError
            If it is that of another version.
        DamagedError
            If it is no text that `text` makes.
        """
        try:
            content = json.loads(text)
            version, checksum = content["version"], content["checksum"]
            if version != VERSION:
                raise OtherVersionError(
                    f"it is of version {version!r} of the format, and this fdbr reads version "
                    f"{VERSION}; load it with the fdbr that wrote it"
                )
            leaves = [of_entry(*entry) for entry in content["leaves"]]
            header = cls(leaves, dict(content["static"]))
            same = text == header.text(checksum) and all(map(_is_own, leaves))
        except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
            raise DamagedError("its header is not as save writes it") from error
        except OtherVersionError:
            raise
        except (ValueError, OverflowError) as error:  # of entries of other lengths
            raise DamagedError("its header is not as save writes it") from error
        if not same or len({leaf.path for leaf in leaves}) < len(leaves):
            raise DamagedError("its header is not as save writes it")
        return header, checksum


def _is_own(leaf: Leaf) -> bool:
    """Whether the text of a value is the one that is written for it."""
    return leaf.is_tensor or leaf_of("load", leaf.path, plain(leaf)) == leaf


def digest(header: Header, arrays: Iterable[Any]) -> str:
    """The checksum of a header and of the tensors in the order of its leaves."""
    found = hashlib.sha256(header.text().encode())
    for array in arrays:
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
