"""Files that are written atomically: after a crash either the old or the new file is there."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["replacing", "sync_folder"]


@contextlib.contextmanager
def replacing(target: Path, within: Path | None = None) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces ``target`` when the block ends.

    The temporary file lies beside ``target``, or in the folder ``within`` on the same disk.  If the
    block raises an error, the temporary file is deleted and ``target`` stays as it was.
    """
    written = (within or target.parent) / f".{secrets.token_hex(8)}.tmp"
    try:
        os.close(os.open(written, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        mode = os.stat(written).st_mode
        yield written
        os.chmod(written, mode)  # some writers replace it by a file with mode 0600
        with open(written, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(written, target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk; does nothing where folders cannot be opened."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
