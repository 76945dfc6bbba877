"""From LLVM's language to the address of machine code.

Machine code is cached in memory, and on disk under the user's cache directory, by its source, the
version of LLVM, and the processor.
"""

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fdbr.backends.cpu.runtime import scalars
from fdbr.backends.cpu.runtime.workers import BusyError, compute, finish, gate
from fdbr.core.loading import at_exit

try:
    import fcntl
except ImportError:  # only POSIX systems have it
    fcntl = None  # type: ignore[assignment]

__all__ = [
    *("Address", "address_of", "cache_directory", "code", "code_of", "digest", "find"),
    *("optimized_address", "optimized_code", "placed", "processor", "vector_bytes"),
]

_FORMAT = b"fdbr kernel 4\n"
_MOST = 1 << 29  # bytes of the cache on disk
_OFTEN = 256  # kernels that are written between two checks of the cache's size
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_writings = itertools.count()


class Owner:
    """Keeps machine code in memory, and frees the memory when it is deleted.

    It is a separate object from LLVM's engine: while an engine is being closed a weak reference
    still finds it, but its code is gone.

    Attributes
    ----------
    place
        The address, and the size of the object file in bytes.
    seconds
        The compile time.
    """

    __slots__ = ("__weakref__", "engine", "place", "seconds")

    def __init__(self, engine: Any, address: int, size: int) -> None:
        self.engine = engine
        self.place = address, size
        self.seconds = 0.0
        _owners.add(self)


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def _leave() -> None:
    """Detach all engines at exit, so that the operating system frees the code with the process."""
    finish()
    for owner in list(_owners):
        owner.engine.detach()


at_exit.append(_leave)


class Address(int):
    """The address of machine code, which stays in memory as long as this object.

    Attributes
    ----------
    owner
        The object that keeps the code in memory.
    """

    owner: Owner

    def __new__(cls, owner: Owner) -> "Address":
        made = super().__new__(cls, owner.place[0])
        made.owner = owner
        return made


_loaded: dict[str, Address] = {}  # by source; kernels of eager mode are never freed


def cache_directory() -> Path | None:
    """Return the folder of kernels: ``FDBR_CACHE_DIR``, or ``fdbr`` in the user's cache directory.

    Without a home directory it is `None`: a folder that other users can write to is not safe for
    code.
    """
    chosen = os.environ.get("FDBR_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "fdbr" / "kernels"
    except RuntimeError:  # `Path.home` raises it if there is no home directory
        return None


def digest(*parts: str) -> str:
    """Return a name for the result of processing some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _llvm() -> Any:
    """Return LLVM's binding, whose import takes long."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _keep_over_forks(llvm)
    return llvm


def _keep_over_forks(llvm: Any) -> None:
    """Keep the process from forking while a thread is inside LLVM, as `Gate` says."""
    if not hasattr(os, "register_at_fork"):
        return
    lock = getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext())  # acquired by its other calls

    def before() -> None:
        gate.close()
        lock.__enter__()

    def after() -> None:
        lock.__exit__(None, None, None)
        gate.open()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


@functools.cache
def processor() -> str:
    """Return a digest of the environment that machine code depends on besides its source."""
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    return digest(version, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


@functools.cache
def vector_bytes() -> int:
    """Return the bytes of the processor's vector registers."""
    features = _llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def address_of(source: str) -> int:
    """Return the address of the function ``kernel`` of a module in LLVM's language.

    Raises
    ------
    RuntimeError
        If LLVM rejects the source.
    """
    return _loaded.get(source) or _address(source, digest(source, processor()), code)


def optimized_address(source: str) -> int:
    """Return `address_of` for a module that LLVM should optimise before code generation."""
    found = _loaded.get(source)
    return found or _address(source, digest("optimized", source, processor()), optimized_code)


def _address(source: str, name: str, compile: Callable[[str], bytes]) -> Address:
    def work(source: str, pauses: bool) -> Address:
        return placed(*code_of(name, lambda: ("kernel", compile(source)), pauses))

    found = compute(work, [source])[source]
    return _loaded.setdefault(source, found)  # another thread may have been faster


def code_of(
    name: str, compile: Callable[[], tuple[str, bytes]], pauses: bool = False
) -> tuple[str, bytes]:
    """Return the name of a function, and an object file that defines it, from cache or compiled.

    Raises
    ------
    BusyError
        If another process is compiling it, and ``pauses`` is true.
    """
    found, folder = find(name), cache_directory()
    if found is None and folder:
        path = folder / f"{name}.kernel"
        with _claimed(path.with_suffix(".lock"), pauses):
            found = find(name)  # another process may have written it meanwhile
            if found is None:
                found = compile()
                _write(path, *found)
    return found or compile()


@contextlib.contextmanager
def _claimed(path: Path, pauses: bool) -> Iterator[None]:
    """Lock a file while a block compiles a kernel, so that no other process compiles it.

    Where files cannot be locked, several processes may compile one kernel.
    """
    file = None
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    if file is None or fcntl is None:
        yield
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # it is locked, or the file system has no locks
            if pauses and isinstance(error, BlockingIOError):
                raise BusyError from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
    finally:
        os.close(file)


def find(name: str) -> tuple[str, bytes] | None:
    """Return the file cached on disk under a name; `None` if there is none."""
    folder = cache_directory()
    return _read(folder / f"{name}.kernel") if folder else None


def _machine(**options: Any) -> Any:
    return _llvm().Target.from_default_triple().create_target_machine(jit=True, **options)


def code(source: str) -> bytes:
    """Return the object file of a module whose code is already vectorised for this processor."""
    return _emitted(_parsed(source))


def optimized_code(source: str) -> bytes:
    """Return the object file of a module that LLVM should vectorise and optimise.

    Raises
    ------
    RuntimeError
        If LLVM rejects the source.
    """
    return _emitted(_optimized(source))


def _parsed(source: str) -> Any:
    llvm = _llvm()  # a context of its own, whose memory is freed with the module
    module = llvm.parse_assembly(source, llvm.create_context())
    module.verify()
    return module


def _optimized(source: str) -> Any:
    llvm, module = _llvm(), _parsed(source)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(_this_machine(threading.get_ident()), options)
    _unlocked("LLVMPY_RunNewModulePassManager")(passes.getModulePassManager(), module, passes)
    return module


def _emitted(module: Any) -> bytes:
    ffi, machine = _llvm().ffi, _this_machine(threading.get_ident())
    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(name: str) -> Any:
    """Return a function of LLVM without llvmlite's lock, which lets only one thread compile.

    LLVM needs no lock here, because each module has its own context and each thread its own target
    machine.  To compile 88 kernels took 0.91 s on two threads with the lock, and 0.52 s without it.
    """
    function = getattr(_llvm().ffi.lib, name)
    return getattr(function, "_cfn", function)


@functools.lru_cache(64)
def _this_machine(thread: int) -> Any:
    llvm = _llvm()
    features = llvm.get_host_cpu_features().flatten()
    return _machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


def _write(path: Path, name: str, code: bytes) -> None:
    """Write machine code to a temporary file and rename it, so that readers see whole files."""
    body = f"{name}\n".encode() + code
    text = _FORMAT + _checksum(path, body) + body
    aside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if next(_writings) % _OFTEN == 0:
            _prune(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            aside = file.name
            file.write(text)
        os.replace(aside, path)
    except OSError:  # without a writeable cache kernels are compiled again
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def _checksum(path: Path, body: bytes) -> bytes:
    """Return a checksum that is valid only under the file's own name."""
    return hashlib.sha256(path.name.encode() + b"\0" + body).digest()


def _contents(path: Path) -> bytes:
    """Return the bytes of a regular file; raise `OSError` otherwise, because pipes would block."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is not a regular file")
    # Checked again after opening, because the path may have been replaced meanwhile.
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            raise OSError(f"{path} is not a kernel's file")
        return file.read(status.st_size)  # a bound instead would be allocated whole


def _prune(folder: Path, most: int = _MOST) -> None:
    """Remove the least recently used files if the cache has become too large."""
    found = []
    with os.scandir(folder) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process has removed it
                status = file.stat()
                found.append((status.st_mtime, status.st_size, file.path))
    size = sum(length for _, length, _ in found)
    for _, length, path in sorted(found):
        if size <= most:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= length


def _read(path: Path) -> tuple[str, bytes] | None:
    """Return cached machine code and its name; `None` if there is none, or it is damaged."""
    try:
        text = _contents(path)
    except OSError:
        return None
    start = len(_FORMAT) + 32
    body = text[start:]
    if text[:start] != _FORMAT + _checksum(path, body):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # marks it as recently used
    name, code = body.split(b"\n", 1)
    return name.decode(), code


def placed(name: str, code: bytes) -> Address:
    """Load an object file; return the address of one of its functions.

    Each file has an engine of its own, because functions of different files may share a name.
    """
    llvm = _llvm()
    scalars.provide(llvm, code)
    nothing = llvm.parse_assembly("")  # in the global context: an engine outlives its module
    engine = llvm.create_mcjit_compiler(nothing, _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Address(Owner(engine, engine.get_function_address(name), len(code)))
