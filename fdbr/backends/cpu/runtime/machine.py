"""From LLVM's language to the address of machine code.

Machine code is kept in memory, and on disk under the user's cache directory: by its source, the
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
_LOADING = 0.05
_MOST = 1 << 29  # bytes that are kept on disk
_OFTEN = 256  # kernels that are written until the next look at them
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_writings = itertools.count()


class Owner:
    """Keeps machine code in memory as long as it is there, and then gives the memory back.

    It is not LLVM's engine itself: that can still be found by a weak reference while it is being
    closed, and the code at its address is no more.

    Attributes
    ----------
    place
        The address, and how many bytes the object file has.
    seconds
        How long it took to compile.
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
    """Leave it to the system to take machine code away with the process, when Python ends."""
    for owner in list(_owners):
        owner.engine.detach()


class Address(int):
    """The address of machine code, which stays there as long as this is referred to.

    Attributes
    ----------
    owner
        What keeps it there.
    """

    owner: Owner

    def __new__(cls, owner: Owner) -> "Address":
        made = super().__new__(cls, owner.place[0])
        made.owner = owner
        return made


_loaded: dict[str, Address] = {}  # by source; what eager mode computes with is not given back


def cache_directory() -> Path | None:
    """The folder of kernels: ``FDBR_CACHE_DIR``, or ``fdbr`` in the user's cache directory.

    Where there is no home they are not: a folder that others can write to is no place for code.
    """
    chosen = os.environ.get("FDBR_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "fdbr" / "kernels"
    except RuntimeError:  # what Path.home says
        return None


def digest(*parts: str) -> str:
    """A name for what follows from some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _llvm() -> Any:
    """LLVM, which takes a while to import."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _keep_over_forks(llvm)
    return llvm


def _keep_over_forks(llvm: Any) -> None:
    """Have no thread be within LLVM while this process is forked.

    Its lock would be held for ever in the child, and what it was about to change half changed.
    """
    lock = getattr(llvm.ffi.lib, "_lock", None)
    if lock is None or not hasattr(os, "register_at_fork"):
        return

    def leave() -> None:
        lock.__exit__(None, None, None)

    os.register_at_fork(before=lock.__enter__, after_in_parent=leave, after_in_child=leave)


def takes_to_load() -> float:
    """The seconds that LLVM takes to be imported; none if it has been."""
    return 0.0 if _llvm.cache_info().currsize else _LOADING


@functools.cache
def processor() -> str:
    """The environment that machine code depends on beside its source."""
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    return digest(version, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


@functools.cache
def vector_bytes() -> int:
    """The bytes of the processor's vectors."""
    features = _llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def address_of(source: str) -> int:
    """The address of the function ``kernel`` of a module in LLVM's language.

    Raises
    ------
    RuntimeError
        If LLVM does not understand the source.
    """
    found = _loaded.get(source)
    if found is None:
        name = digest(source, processor())
        found = kept(name, lambda: ("kernel", code(source)))
        found = _loaded.setdefault(source, found)  # another thread may have been faster
    return found


def optimized_address(source: str) -> int:
    """As `address_of`, of a module that LLVM is to improve before it chooses instructions."""
    found = _loaded.get(source)
    if found is None:
        name = digest("optimized", source, processor())
        found = kept(name, lambda: ("kernel", optimized_code(source)))
        found = _loaded.setdefault(source, found)
    return found


def kept(name: str, compile: Callable[[], tuple[str, bytes]]) -> Address:
    """The address of machine code that is kept under a name, or else compiled.

    ``compile`` gives the name of a function, and an object file that has it.
    """
    return placed(*code_of(name, compile))


def code_of(name: str, compile: Callable[[], tuple[str, bytes]]) -> tuple[str, bytes]:
    """The name of a function, and an object file that has it: as `kept`, but not in memory."""
    found = find(name)
    if found is None:
        found = compile()
        folder = cache_directory()
        if folder:
            _write(folder / f"{name}.kernel", *found)
    return found


def find(name: str) -> tuple[str, bytes] | None:
    """Read the file kept on disk under a name; `None` if there is none."""
    folder = cache_directory()
    return _read(folder / f"{name}.kernel") if folder else None


def _machine(**options: Any) -> Any:
    return _llvm().Target.from_default_triple().create_target_machine(jit=True, **options)


def code(source: str) -> bytes:
    """The object file of a module that is written for this processor."""
    return _emitted(_parsed(source))


def optimized_code(source: str) -> bytes:
    """The object file of a module of which LLVM is to make vectors, and whatever else it can.

    Raises
    ------
    RuntimeError
        If LLVM does not understand the source.
    """
    return _emitted(_optimized(source))


def _parsed(source: str) -> Any:
    llvm = _llvm()  # what it learns of a module goes with the context
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
    """Keep machine code: written aside and renamed, so that nobody reads half of it."""
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
    except OSError:  # a cache that cannot be written is none
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def _checksum(path: Path, body: bytes) -> bytes:
    """The checksum of a file of machine code, which is right under its own name alone."""
    return hashlib.sha256(path.name.encode() + b"\0" + body).digest()


def _contents(path: Path) -> bytes:
    """The bytes of a file; an `OSError` for all else, as a pipe, which would be waited for."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is no file")
    # What it is may change after that: pipes are not waited for, and of a file no more is read.
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            raise OSError(f"{path} is no file of a kernel")
        return file.read(_MOST)


def _prune(folder: Path, most: int = _MOST) -> None:
    """Remove the files that were used least recently, if there are more bytes than are kept."""
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
    """Kept machine code and its name; `None` if there is none, or it is damaged."""
    try:
        text = _contents(path)
    except OSError:
        return None
    start = len(_FORMAT) + 32
    body = text[start:]
    if text[:start] != _FORMAT + _checksum(path, body):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # it is of use
    name, code = body.split(b"\n", 1)
    return name.decode(), code


def placed(name: str, code: bytes) -> Address:
    """The address of a function of an object file, which is brought into memory.

    Each has an engine to itself: functions of different files may have the same name.
    """
    llvm = _llvm()
    scalars.provide(llvm, code)
    nothing = llvm.parse_assembly("")  # of the context that stays: an engine outlives its module
    engine = llvm.create_mcjit_compiler(nothing, _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Address(Owner(engine, engine.get_function_address(name), len(code)))
