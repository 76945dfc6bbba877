"""Kernels that are compiled in another process, while this one goes on without them.

There LLVM keeps its memory and holds up nobody's threads.  The process begins with the first
kernel that is wanted and ends with this one, and works where nobody else wants the processor, until
kernels are urgent.
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
_NICENESS = 5  # of the process: what it compiles has a quarter of a processor that others want
_MOST = 1000  # kernels that one process compiles: LLVM keeps a tenth of a megabyte of each
_PACKAGES = (
    *("fdbr", "fdbr.backends", "fdbr.backends.cpu", "fdbr.backends.cpu.codegen"),
    *("fdbr.backends.cpu.library", "fdbr.backends.cpu.library.matmul", "fdbr.backends.cpu.runtime"),
)
# Packages without all that they import: that takes longer than to compile a dozen kernels.
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
    """A kernel is not there yet."""


class Request:
    """A kernel that is wanted.

    Attributes
    ----------
    address
        That of its machine code; `None` as long as there is none.
    failed
        Why there never will be; empty if it is not so.
    asked
        Whether it is to be compiled in the background.
    urgent
        Whether it is then, although others want the processor.
    """

    __slots__ = ("__weakref__", "address", "asked", "failed", "source", "urgent")

    def __init__(self, source: str) -> None:
        self.source = source
        self.address: int | None = None
        self.failed = ""
        self.asked = self.urgent = False

    def wait(self) -> int:
        """The address; what is not compiled yet is compiled here and now."""
        if self.address is None:
            self.address = compiling.address_of(self.source)
        return self.address


class Awaited:
    """A kernel of a program, which is not compiled yet; what else does the same stands in for it.

    Parameters
    ----------
    request
        What it is compiled by.

    Attributes
    ----------
    seconds
        How long something else has stood in for it.
    """

    __slots__ = ("request", "seconds")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.seconds = 0.0

    @property
    def length(self) -> int:
        """That of its source."""
        return len(self.request.source)

    @property
    def asked(self) -> bool:
        """Whether it is being compiled."""
        return self.request.asked

    def ask(self) -> None:
        """Have it compiled in the background."""
        ask(self.request)

    def hurry(self, urgent: bool) -> None:
        """Have it compiled although others want the processor, or not."""
        self.request.urgent = urgent

    @property
    def is_there(self) -> bool:
        """Whether it is compiled; if so, it has taken its place."""
        if self.request.address is None:
            return False
        self.settle()
        return True

    @property
    def settled(self) -> bool:
        """Whether it has taken its place, or never will."""
        return self.is_there or bool(self.request.failed)

    def settle(self) -> Any:
        """Put it in its place; it is waited for."""
        raise NotImplementedError


class _Service:
    """The process, and a thread that asks it for one kernel after the other."""

    def __init__(self) -> None:
        self.requests: WeakValueDictionary[str, Request] = WeakValueDictionary()
        self.refused: list[Request] = []  # what cannot be compiled is not tried again
        self.waiting: SimpleQueue[Request] = SimpleQueue()
        self.starting = threading.RLock()  # a signal handler may ask for kernels, too
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
        """Start the thread, if nobody has; an interrupt may have come before it could begin."""
        if self.thread is not None and self.thread.ident is not None:
            return
        with self.starting:
            if self.thread is None:
                self.thread = threading.Thread(target=self.serve, name="fdbr-compile", daemon=True)
            if self.thread.ident is None:
                # Where there is no further thread, as when Python ends, nothing is compiled.
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
        """The machine code of a kernel."""
        try:
            if self.served >= _MOST:
                self.process.kill()  # it may not hear that its input ends: forks have that, too
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
        start_new_session=True,  # what interrupts this process is not meant for that one
    )
    atexit.register(process.kill)
    return process


_service = _Service()


def _renew() -> None:
    global _service
    old, _service = _service, _Service()  # the parent's process serves the parent
    _service.requests, _service.refused = old.requests, old.refused
    for wanted in list(old.requests.values()):
        if wanted.asked and wanted.address is None and not wanted.failed:
            _service.waiting.put(wanted)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def wanted(source: str) -> Request:
    """A kernel that is wanted; it may be there at once."""
    return _service.wanted(source)


def ask(request: Request) -> None:
    """Have a kernel compiled in the background."""
    _service.ask(request)


def is_busy() -> bool:
    """Whether something is being compiled in the background."""
    return _service.unanswered > 0


def go_on() -> None:
    """Have what was asked for compiled, in a process that was forked meanwhile, too."""
    _service.start()


def address_of(source: str) -> int:
    """The address of a kernel.

    Raises
    ------
    NotCompiledError
        If it is not there yet, and nobody shall wait for it: see `impatient`.
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
    """Have `address_of` not wait, in what is computed meanwhile."""
    token = _waits.set(False)
    try:
        yield
    finally:
        _waits.reset(token)
