"""A process for each run: one that dies takes no other with it."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from fdbr.train.loop.interrupts import TERMINATED

__all__ = ["ProcessDiedError", "RunProcesses"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FDBR_NUM_THREADS")


class ProcessDiedError(RuntimeError):
    """The process of a run ended before the run did."""


class RunProcesses(Executor):
    """An executor that starts a process for each call, at once.

    Parameters
    ----------
    threads
        How many threads NumPy and fdbr have in each process, unless the environment says so.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Any, Future[None]] = {}
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a process; the future ends with it, and has no value."""
        future: Future[Any] = Future()
        process = self._context.Process(target=fn, args=args, kwargs=kwargs)
        with _threads_in_environment(self._threads):
            process.start()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._running[process] = future
        threading.Thread(target=self._await, args=(process, future), daemon=True).start()
        return future

    def _await(self, process: Any, future: Future[Any]) -> None:
        process.join()
        with self._lock:
            self._running.pop(process, None)
        code = process.exitcode
        if code:
            future.set_exception(ProcessDiedError(f"its process {_cause(code)}"))
        else:
            future.set_result(None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the processes, or end them."""
        with self._lock:
            running = list(self._running)
        for process in running:
            if cancel_futures:
                process.terminate()
        for process in running:
            process.join(None if wait and not cancel_futures else 5)
            if process.is_alive():
                process.kill()


def _cause(code: int) -> str:
    code = -signal.SIGTERM if code == TERMINATED else code
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return (
        f"ended with code {code} (a script that sweeps must do so under "
        'if __name__ == "__main__", for its processes import it)'
    )


@contextlib.contextmanager
def _threads_in_environment(count: int) -> Iterator[None]:
    """Say how many threads processes have that are started meanwhile."""
    missing = [name for name in _THREADS if name not in os.environ]
    for name in missing:
        os.environ[name] = str(count)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
