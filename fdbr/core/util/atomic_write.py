"""Files that are written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing", "sync_folder"]


@contextlib.contextmanager
def replacing(target: Path, within: Path | None = None) -> Iterator[Path]:
    """A new file to write, which takes the place of another when that is done.

    Until then it lies beside its place, or ``within`` another folder of the same disk.
    """
    written = (within or target.parent) / f".{secrets.token_hex(8)}.tmp"
    try:
        os.close(os.open(written, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        mode = os.stat(written).st_mode
        yield written
        os.chmod(written, mode)  # some writers put a private file in its place
        with open(written, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(written, target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
