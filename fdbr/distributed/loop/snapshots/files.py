"""The files in which ranks write their parts of a snapshot.

A snapshot whose state is the same on all ranks is one file, as `fdbr.train.snapshot` writes it.
Where states differ, each rank writes its own to a file of its own::

    snapshot-0000000120.5f2a9c01.rank-0-of-2.safetensors
    snapshot-0000000120.5f2a9c01.rank-1-of-2.safetensors
    snapshot-0000000120.safetensors

The last one, without a state, is written by the root when all others are whole and on the disk: it
names them by a token that no other snapshot has.  A part that no such file names is none.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import attrs

__all__ = ["Part", "parts_in", "remove"]

_NAME = re.compile(r"snapshot-(\d+)\.([0-9a-f]+)\.rank-(\d+)-of-(\d+)\.safetensors")


@attrs.frozen
class Part:
    """The part of a snapshot that one rank has written.

    Attributes
    ----------
    iteration, token
        Those of the snapshot.
    rank, size
        The rank, and how many there were.
    """

    iteration: int
    token: str
    rank: int
    size: int

    def path(self, folder: Path) -> Path:
        """Its file."""
        name = f"snapshot-{self.iteration:010d}.{self.token}.rank-{self.rank}-of-{self.size}"
        return folder / f"{name}.safetensors"


def parts_in(folder: Path) -> list[Part]:
    """The parts in a folder, of which some may belong to no snapshot."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    matches = (_NAME.fullmatch(name) for name in names)
    return [Part(int(m[1]), m[2], int(m[3]), int(m[4])) for m in matches if m]


def remove(folder: Path, parts: Iterable[Part]) -> None:
    """Delete the files of some parts, which others may do at the same time."""
    for part in parts:
        part.path(folder).unlink(missing_ok=True)
