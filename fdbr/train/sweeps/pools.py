"""The executor that a sweep was given, and the one that replaces it when it is broken."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

__all__ = ["Pool"]


class Pool:
    """An executor that is replaced when it breaks.

    When one worker of a `ProcessPoolExecutor` dies, all its calls fail, and it terminates the other
    workers.

    Parameters
    ----------
    executor
        The first one, which belongs to the caller.
    stack
        At whose end the later ones are shut down.
    """

    def __init__(self, executor: Executor, stack: ExitStack) -> None:
        self.executor = executor
        self._stack = stack
        self._processes: dict[int | None, Any] = {}

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have the executor make a call."""
        future = self.executor.submit(function, *args)
        self.look()
        return future

    def look(self) -> None:
        """Note which processes there are now: their exit codes tell later which of them died."""
        self._processes |= {one.pid: one for one in multiprocessing.active_children()}

    def has_died(self, pid: Any) -> bool:
        """Whether a process has ended by itself, and was not terminated with its executor."""
        process = self._processes.get(pid)
        return process is not None and process.exitcode not in (None, -signal.SIGTERM)

    def end(self) -> None:
        """Wait until all processes of a broken executor have ended."""
        self.executor.shutdown()

    def renew(self) -> bool:
        """Replace the executor by one with the same settings; `False` of kinds that have none."""
        old: Any = self.executor
        if type(old) is not ProcessPoolExecutor:
            return False
        # There is no public way to ask for them; without, the caller has to make the next one.
        names = ("_max_workers", "_mp_context", "_initializer", "_initargs")
        settings: dict[str, Any] = {name[1:]: getattr(old, name, None) for name in names}
        if settings["mp_context"] is None:
            return False
        if (most := getattr(old, "_max_tasks_per_child", None)) is not None:
            settings["max_tasks_per_child"] = most
        self.executor = ProcessPoolExecutor(**settings)
        self._stack.callback(self.executor.shutdown, cancel_futures=True)
        return True
