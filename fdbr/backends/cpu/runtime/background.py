"""Compilation of kernels in a background process, while this one runs without them.

LLVM's memory is in that process, and its locks block no thread of this one.  The process starts
with the first request and ends with this one.  It runs at idle priority until requests are urgent.
"""

import atexit
import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any
from weakref import WeakValueDictionary

from fdbr.backends.cpu.runtime import compiling

__all__ = [
    "Awaited",
    "NotCompiledError",
    "Request",
    "address_of",
    "ask",
    "go_on",
    "impatient",
    "is_busy",
    "wanted",
]

_log = logging.getLogger("fdbr.jit")
_NICENESS = 5  # of the process: an urgent kernel gets about a quarter of a busy processor
_MOST = 1000  # kernels that one process compiles: LLVM retains about 0.1 MB for each
_PACKAGES = (
    *("fdbr", "fdbr.backends", "fdbr.backends.cpu", "fdbr.backends.cpu.codegen"),
    *("fdbr.backends.cpu.library", "fdbr.backends.cpu.library.matmul", "fdbr.backends.cpu.runtime"),
)
# Empty parent packages: importing the real ones takes longer than compiling a dozen kernels.
_PROGRAM = """
import sys, types
for name, path in {packages!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from fdbr.backends.cpu.runtime.serving import serve
serve({niceness})
"""
_waits: ContextVar[bool] = ContextVar("waits", default=True)


class NotCompiledError(Exception):
    """A kernel is not compiled yet."""


class Request:
    """A request for a kernel.

    Attributes
    ----------
    address
        The address of its machine code; `None` until it is compiled.
    failed
        Why it cannot be compiled; empty if it can.
    asked
        Whether its compilation has been requested.
    urgent
        Whether it is compiled even while other processes need the processor.
    """

    __slots__ = ("__weakref__", "address", "asked", "failed", "source", "urgent")

    def __init__(self, source: str) -> None:
        self.source = source
        self.address: int | None = None
        self.failed = ""
        self.asked = self.urgent = False

    def wait(self) -> int:
        """Return the address; compile the kernel in this process if it is not compiled yet."""
        if self.address is None:
            self.address = compiling.address_of(self.source)
        return self.address


class Awaited:
    """A kernel of a program that is not compiled yet; a replacement computes the same.

    Parameters
    ----------
    request
        The request for it.

    Attributes
    ----------
    seconds
        The seconds that its replacement has taken so far.
    """

    __slots__ = ("request", "seconds")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.seconds = 0.0

    @property
    def length(self) -> int:
        """The length of its source."""
        return len(self.request.source)

    @property
    def asked(self) -> bool:
        """Whether its compilation has been requested."""
        return self.request.asked

    def ask(self) -> None:
        """Request its compilation in the background."""
        ask(self.request)

    def hurry(self, urgent: bool) -> None:
        """Set whether it is compiled even while other processes need the processor."""
        self.request.urgent = urgent

    @property
    def is_there(self) -> bool:
        """Whether it is compiled; if so, it has been installed."""
        if self.request.address is None:
            return False
        self.settle()
        return True

    @property
    def settled(self) -> bool:
        """Whether it is installed, or never will be."""
        return self.is_there or bool(self.request.failed)

    def settle(self) -> Any:
        """Install it; wait for its compilation if need be."""
        raise NotImplementedError


class _Service:
    """The background process, and the thread that passes it one request after the other."""

    def __init__(self) -> None:
        self.requests: WeakValueDictionary[str, Request] = WeakValueDictionary()
        self.refused: list[Request] = []  # kernels that failed to compile, and are not tried again
        self.waiting: SimpleQueue[Request] = SimpleQueue()
        self.starting = threading.RLock()  # reentrant: a signal handler may request kernels, too
        self.thread: threading.Thread | None = None
        self.unanswered = self.served = 0
        self.process: Any = None

    def wanted(self, source: str) -> Request:
        found = self.requests.get(source)
        if found is None:
            found = self.requests.setdefault(source, Request(source))
            found.address = compiling.find_address(source)
        return found

    def ask(self, wanted: Request) -> None:
        if not wanted.asked and wanted.address is None:
            wanted.asked = True
            self.unanswered += 1
            self.waiting.put(wanted)
        self.start()

    def start(self) -> None:
        """Start the thread unless it runs; an interrupt may have stopped an earlier attempt."""
        if self.thread is not None and self.thread.ident is not None:
            return
        with self.starting:
            if self.thread is None:
                self.thread = threading.Thread(target=self.serve, name="fdbr-compile", daemon=True)
            if self.thread.ident is None:
                # `start` raises while the interpreter shuts down; then nothing is compiled.
                with contextlib.suppress(RuntimeError):
                    self.thread.start()

    def serve(self) -> None:
        while True:
            wanted = self.waiting.get()
            self.unanswered = self.waiting.qsize() + 1
            if wanted.address is not None:
                continue
            started = time.perf_counter()
            try:
                code = self.compiled(wanted)
                seconds = time.perf_counter() - started
                wanted.address = compiling.load(wanted.source, code, seconds)
                _log.debug("compiled a kernel in %.2f s", seconds)
            except Exception as error:
                wanted.failed = f"{type(error).__name__}: {error}"
                self.refused.append(wanted)
                _log.warning("NumPy computes what cannot be compiled: %s", wanted.failed)
            self.unanswered = self.waiting.qsize()

    def compiled(self, wanted: Request) -> tuple[str, bytes]:
        """Return the machine code of a kernel, compiled by the background process."""
        try:
            if self.served >= _MOST:
                self.process.kill()  # closing its input is not enough: forks hold the pipe open
                self.process.wait()
                self.process, self.served = None, 0
            if self.process is None:
                self.process = _started()
            self.served += 1
            pickle.dump((wanted.source, wanted.urgent), self.process.stdin)
            self.process.stdin.flush()
            code, error = pickle.load(self.process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as gone:
            _log.info("kernels are compiled in this process, for there is no other: %s", gone)
            return compiling.code_of(wanted.source)
        if code is None:
            raise RuntimeError(error)
        found: tuple[str, bytes] = code
        return found


def _started() -> Any:
    if not sys.executable:
        raise OSError("Python does not say where its executable is")
    packages = {name: list(sys.modules[name].__path__) for name in _PACKAGES}
    program = _PROGRAM.format(packages=packages, niceness=_NICENESS)
    process = subprocess.Popen(
        [sys.executable, "-P", "-S", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        start_new_session=True,  # so that Ctrl+C does not interrupt it
    )
    atexit.register(process.kill)
    return process


_service = _Service()


def _renew() -> None:
    global _service
    old, _service = _service, _Service()  # the process belongs to the parent of the fork
    _service.requests, _service.refused = old.requests, old.refused
    for wanted in list(old.requests.values()):
        if wanted.asked and wanted.address is None and not wanted.failed:
            _service.waiting.put(wanted)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def wanted(source: str) -> Request:
    """Return the request for a kernel, which may be compiled already."""
    return _service.wanted(source)


def ask(request: Request) -> None:
    """Request the compilation of a kernel in the background."""
    _service.ask(request)


def is_busy() -> bool:
    """Return whether a kernel is being compiled in the background."""
    return _service.unanswered > 0


def go_on() -> None:
    """Make sure that requests are processed, also in a process that was forked meanwhile."""
    _service.start()


def address_of(source: str) -> int:
    """Return the address of a kernel.

    Raises
    ------
    NotCompiledError
        If it is not compiled yet, and callers must not wait for it: see `impatient`.
    """
    if _waits.get():
        return compiling.address_of(source)
    found = wanted(source)
    if found.address is None:
        ask(found)
        raise NotCompiledError
    return found.address


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Make `address_of` raise instead of waiting, while the block lasts."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)
