"""From LLVM's language to the address of machine code.

Machine code is cached in memory, and on disk under the user's cache directory, by its source, the
version of LLVM, and the processor.
"""

import atexit
import contextlib
import functools
import hashlib
import itertools
import os
import stat
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fdbr.backends.cpu.runtime import scalars

__all__ = [
    *("Address", "address_of", "cache_directory", "code", "code_of", "digest", "find", "kept"),
    *("optimized_address", "optimized_code", "placed", "processor", "takes_to_load"),
    "vector_bytes",
]

_FORMAT = b"fdbr kernel 4\n"
_LOADING = 0.05  # seconds of importing LLVM
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


@atexit.register
def _leave() -> None:
    """Detach all engines at exit, so that the operating system frees the code with the process."""
    for owner in list(_owners):
        owner.engine.detach()


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
    """Hold LLVM's lock while the process forks, so that no thread is inside LLVM then.

    Otherwise the child would inherit a lock that is never released, and half-changed data.
    """
    lock = getattr(llvm.ffi.lib, "_lock", None)
    if lock is None or not hasattr(os, "register_at_fork"):
        return

    def leave() -> None:
        lock.__exit__(None, None, None)

    os.register_at_fork(before=lock.__enter__, after_in_parent=leave, after_in_child=leave)


def takes_to_load() -> float:
    """Return the estimated seconds of importing LLVM; 0 if it has been imported."""
    return 0.0 if _llvm.cache_info().currsize else _LOADING


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
    found = _loaded.get(source)
    if found is None:
        name = digest(source, processor())
        found = kept(name, lambda: ("kernel", code(source)))
        found = _loaded.setdefault(source, found)  # another thread may have been faster
    return found


def optimized_address(source: str) -> int:
    """Return `address_of` for a module that LLVM should optimise before code generation."""
    found = _loaded.get(source)
    if found is None:
        name = digest("optimized", source, processor())
        found = kept(name, lambda: ("kernel", optimized_code(source)))
        found = _loaded.setdefault(source, found)
    return found


def kept(name: str, compile: Callable[[], tuple[str, bytes]]) -> Address:
    """Return the address of machine code that is cached under a name, or else compiled.

    ``compile`` returns the name of a function, and an object file that defines it.
    """
    return placed(*code_of(name, compile))


def code_of(name: str, compile: Callable[[], tuple[str, bytes]]) -> tuple[str, bytes]:
    """Return the name of a function, and an object file that defines it, from cache or compiled."""
    found = find(name)
    if found is None:
        found = compile()
        folder = cache_directory()
        if folder:
            _write(folder / f"{name}.kernel", *found)
    return found


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
    passes = llvm.create_pass_builder(_this_machine(), options)
    passes.getModulePassManager().run(module, passes)
    return module


def _emitted(module: Any) -> bytes:
    found: bytes = _this_machine().emit_object(module)
    return found


@functools.cache
def _this_machine() -> Any:
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
