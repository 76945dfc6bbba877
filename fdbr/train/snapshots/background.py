"""One piece of work at a time in the background."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["Background"]


class Background:
    """A thread that does one piece of work at a time; errors come out where it is asked.

    Attributes
    ----------
    failed
        Whether a piece of work has raised an error.
    """

    __slots__ = ("_pending", "_threads", "failed")

    def __init__(self, used: bool = True) -> None:
        self._threads = ThreadPoolExecutor(1, "fdbr-snapshot") if used else None
        self._pending: Future[None] | None = None
        self.failed = False

    def start(self, work: Callable[[], None]) -> None:
        """Begin with some work when that before is done; in the foreground if not ``used``."""
        self.wait()
        if self._threads is None:
            self.do(work)
        else:
            self._pending = self._threads.submit(work)

    def do(self, work: Callable[[], None]) -> None:
        """Do some work here, when that before is done."""
        self.wait()
        try:
            work()
        except BaseException:
            self.failed = True
            raise

    def is_idle(self) -> bool:
        """Whether all work is done, or has failed."""
        return self._pending is None or self._pending.done()

    def check(self) -> None:
        """Raise the error of work that has ended with one."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the work is done, and raise its error."""
        pending = self._pending
        if pending is None:
            return
        try:
            error = pending.exception()  # an interrupt while waiting leaves it pending
            self._pending = None
            if error is not None:
                self.failed = True
                raise error
        finally:
            del pending

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._threads is not None:
            self._threads.shutdown()
