"""Folders that one run at a time writes to."""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked"]

# The system keeps the locks of one process from each other's, but not those of one process apart.
_held: set[str] = set()
_looking = threading.Lock()


def _renew() -> None:
    global _looking
    _looking = threading.Lock()  # in a process that was forked nobody would give it back


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

_TAKEN = {errno.EACCES, errno.EAGAIN}


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[bool]:
    """Hold a lock for the time of a run; whether the file system has locks.

    The lock goes with the process, however that ends.  The file is removed at the end.

    Parameters
    ----------
    path
        The file that is locked; folders that it lies in are made.
    what
        The beginning of the error's message.

    Raises
    ------
    BlockingIOError
        If another run holds it.
    """
    name, owner = os.path.realpath(path), os.getpid()
    with _looking:
        if name in _held:
            raise BlockingIOError(
                f"{what}: another run of this process writes there; close its reports, "
                "reports.close(), or give another folder"
            )
        _held.add(name)
    try:
        file, works = _opened(path, what)
        try:
            yield works
        finally:
            if os.getpid() == owner:  # it is not the lock of a process that was forked meanwhile
                with contextlib.suppress(OSError):  # the folder may be gone
                    os.unlink(path)
            os.close(file)
    finally:
        with _looking:
            _held.discard(name)


def _opened(path: Path, what: str) -> tuple[int, bool]:
    """The descriptor of the locked file, and whether it is locked indeed."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # whoever held it has just removed the folder
            continue
        try:
            if fcntl is None:
                return file, False
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):  # and not removed between the two lines above
                os.truncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
                return file, True
        except OSError as error:
            if error.errno not in _TAKEN:
                return file, False  # a file system without locks
            owner = os.read(file, 20).decode(errors="replace").strip()
            os.close(file)
            raise BlockingIOError(
                f"{what}: another run writes there (process {owner or 'unknown'}); end that one, "
                "or give another folder"
            ) from None
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
