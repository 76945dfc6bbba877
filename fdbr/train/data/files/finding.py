"""Files of data sets: where they are in a folder, and what is in them."""

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["content_of", "find", "folder_of", "from_archive"]

_GZIP = b"\x1f\x8b"


def folder_of(function: str, directory: str | os.PathLike[str]) -> Path:
    """A folder that a user has named, which must exist."""
    path = Path(directory)
    if not path.is_dir():
        state = "is no folder" if path.exists() else "does not exist"
        raise FileNotFoundError(
            f"fdbr.train.{function}: {path} {state}; give the folder with the files of the data "
            "set, which fdbr does not download"
        )
    return path


def find(function: str, directory: Path, names: Iterable[str]) -> Path:
    """The first file of some names that is in a folder."""
    names = list(names)
    for name in names:
        if (directory / name).is_file():
            return directory / name
    raise FileNotFoundError(
        f"fdbr.train.{function}: {directory} has none of {', '.join(names)}; fdbr does not "
        "download them"
    )


def content_of(function: str, path: Path) -> bytes:
    """The bytes of a file, decompressed if it is one of gzip, whatever its name is."""
    content = path.read_bytes()
    if content[:2] != _GZIP:
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"fdbr.train.{function}: {path} ({len(content)} bytes) is a damaged gzip file: {error}"
            "; fetch it again"
        ) from error


def from_archive(function: str, path: Path, names: list[str]) -> list[bytes]:
    """The contents of some members of a tar archive, known by the last part of their names."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and member.isfile() and (file := archive.extractfile(member)):
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"fdbr.train.{function}: {path} is no whole tar archive: {error}; fetch it again"
        ) from error
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"fdbr.train.{function}: {path} has no {', '.join(missing)}")
    return [found[name] for name in names]
