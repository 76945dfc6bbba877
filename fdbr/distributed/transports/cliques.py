"""Ranks that NCCL connects, and calls of them that end in time."""

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from fdbr.distributed.errors import CollectiveTimeoutError, DistributedError, RankFailedError

__all__ = ["Clique", "in_time", "until"]

_REMOTE = "REMOTE"  # of the name of NCCL's error for one that another rank has had


class Clique:
    """One rank of some that NCCL connects, each of which has a device of its own.

    Calls run on a stream of their own, after what the current stream of the device has to do, and
    a call returns when they are done: so two of them can be under way in two threads.

    Parameters
    ----------
    cuda
        The interface of the devices: `cupy.cuda`.
    device
        The number of this rank's.
    size, rank
        How many ranks there are, and which one this is.
    key
        NCCL's unique id, the same on all of them.
    timeout
        How many seconds to wait for others.
    look
        Raises an error if it is known otherwise that another rank has failed.
    """

    def __init__(
        self,
        cuda: Any,
        device: int,
        size: int,
        rank: int,
        key: Any,
        timeout: float,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._cuda = cuda
        self._device = device
        self._rank = rank
        self._timeout = timeout
        self._look = look
        self._broken: Exception | None = None
        self._since: tuple[float, str] | None = None
        what = f"connecting {size} ranks by NCCL"
        try:
            self._comm, self.stream = in_time(lambda: self._join(size, key), timeout, what)
        except cuda.nccl.NcclError as error:
            raise self._failure(what, error) from error
        self._lock = threading.Lock()
        watch = threading.Thread(
            target=_watch, args=(weakref.ref(self), timeout), name="nccl watch", daemon=True
        )
        watch.start()

    def _join(self, size: int, key: Any) -> Any:
        with self._cuda.Device(self._device):
            comm = self._cuda.nccl.NcclCommunicator(size, key, self._rank)
            return comm, self._cuda.Stream(non_blocking=True)

    def run(self, what: str, issue: Callable[[Any, int], None]) -> None:
        """Have NCCL do something, and wait for it.

        Parameters
        ----------
        what
            The name of the collective, for messages.
        issue
            Given NCCL's communicator and the address of the stream; it makes the calls.
        """
        with self._lock, self._cuda.Device(self._device):
            self.check()
            before = self._cuda.Event(disable_timing=True)
            before.record(self._cuda.get_current_stream())
            self.stream.wait_event(before)
            self._issue(what, issue)
            done = self._cuda.Event(disable_timing=True)
            done.record(self.stream)
            until(before)  # this rank's own work, for which nobody else is to blame
            if not until(done, self._timeout, self._healthy(what)):
                self._late(what)
                self.check()

    def _issue(self, what: str, issue: Callable[[Any, int], None]) -> None:
        """Make calls that wait for other ranks in some cases: then the watch ends them."""
        self._since = time.monotonic(), what
        try:
            issue(self._comm, self.stream.ptr)
        except self._cuda.nccl.NcclError as error:
            self.check()
            self.abort(self._failure(what, error))
            raise self._failure(what, error) from error
        finally:
            self._since = None
        self.check()

    def _healthy(self, what: str) -> Callable[[], None]:
        def look() -> None:
            self.check()
            try:
                self._look()
                self._comm.check_async_error()
            except DistributedError as error:
                self.abort(error)
                raise
            except self._cuda.nccl.NcclError as error:
                self.abort(self._failure(what, error))
                raise self._failure(what, error) from error

        return look

    def check(self) -> None:
        """Raise the error that has ended this clique, if one has."""
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))

    def abort(self, reason: Exception) -> None:
        """Have this rank take part in nothing any more."""
        if self._broken is None:
            self._broken = reason
            with contextlib.suppress(self._cuda.nccl.NcclError):
                self._comm.abort()

    def _late(self, what: str) -> None:
        self.abort(
            CollectiveTimeoutError(
                f"fdbr.distributed.{what}: NCCL waited {self._timeout:g} s on rank {self._rank} "
                f"(device {self._device}): another rank has agreed to the call and does not do it"
            )
        )

    def _failure(self, what: str, error: Exception) -> Exception:
        kind = RankFailedError if _REMOTE in str(error) else DistributedError
        return kind(
            f"fdbr.distributed.{what}: NCCL failed on rank {self._rank} (device {self._device}): "
            f"{error}"
        )


def _watch(clique: "weakref.ref[Clique]", timeout: float) -> None:
    """End a clique whose call does not return."""
    while True:
        time.sleep(min(timeout / 5, 1.0))
        watched = clique()
        if watched is None or watched._broken is not None:
            return
        since = watched._since
        if since is not None and time.monotonic() - since[0] > timeout:
            watched._late(since[1])
        del watched


def in_time(call: Callable[[], Any], timeout: float, what: str) -> Any:
    """The result of a call that may never return; a time-out error if it does not.

    Raises what the call raises.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="nccl call", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not results:
        raise CollectiveTimeoutError(
            f"fdbr.distributed: {what}: waited {timeout:g} s for other ranks"
        )
    return results[0]


def until(
    event: Any, timeout: float = float("inf"), look: Callable[[], None] | None = None
) -> bool:
    """Wait for an event of a device; whether it came in time.

    What comes soon is waited for closely, and the rest at ease.
    """
    start = time.monotonic()
    for pause in _pauses():
        if event.done:
            return True
        if time.monotonic() - start > timeout:
            return False
        if pause and look is not None:
            look()
        time.sleep(pause)
    return False


def _pauses() -> Iterator[float]:
    """Seconds to wait before one looks again."""
    for _ in range(200):
        yield 0.0
    pause = 2e-5
    while True:
        yield pause
        pause = min(pause * 1.5, 1e-3)
