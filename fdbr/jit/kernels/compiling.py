"""From a kernel's source to the address of its machine code.

Machine code is kept in memory, and on disk under the user's cache directory: by the source, the
versions of what made it, and the processor.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np

from fdbr.jit.kernels.launching import data, stride
from fdbr.jit.kernels.mathematics import NAMES
from fdbr.jit.kernels.streaming import NAMES as STREAMING
from fdbr.jit.kernels.tiles import NAMES as TILES

__all__ = ["address_of", "cache_directory"]

# Kernels have many operands, which are never the same memory; without this LLVM gives up on
# loops that would need more than a few comparisons of addresses to see it.
llvm.set_option("fdbr", "-runtime-memory-check-threshold=1000")

_SIGNATURE = "void(intp, intp, intp, intp)"
_FORMAT = b"fdbr kernel 2\n"
_loaded: dict[str, tuple[int, Any]] = {}  # address and owner of the code, by source


def cache_directory() -> Path:
    """Where kernels are kept: ``FDBR_CACHE_DIR``, or ``fdbr`` in the user's cache directory."""
    chosen = os.environ.get("FDBR_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(base) / "fdbr" / "kernels"


def address_of(source: str) -> int:
    """The address of a kernel's machine code."""
    found = _loaded.get(source)
    if found is None:
        path = cache_directory() / f"{_key(source)}.kernel"
        found = _read(path)
        if found is None:
            found = _compiled(source, path)
        found = _loaded.setdefault(source, found)  # another thread may have been faster
    return found[0]


def _key(source: str) -> str:
    parts = [
        source,
        _library_version(),
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _library_version() -> str:
    """A digest of the functions that kernels call."""
    folder = Path(__file__).parent
    names = "mathematics.py", "launching.py", "tiles.py", "streaming.py"
    texts = [(folder / name).read_text() for name in names]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _compiled(source: str, path: Path) -> tuple[int, Any]:
    scope = dict(NAMES | TILES | STREAMING, data=data, stride=stride)
    exec(compile(source, "<fdbr kernel>", "exec"), scope)
    made = numba.cfunc(_SIGNATURE, error_model="numpy")(scope["kernel"])
    _, _, (code, _) = made._library.serialize_using_object_code()
    _write(path, made._wrapper_name, code)
    return _placed(made._wrapper_name, code)


def _write(path: Path, name: str, code: bytes) -> None:
    """Keep machine code: written aside and renamed, so that nobody reads half of it."""
    body = f"{name}\n".encode() + code
    text = _FORMAT + hashlib.sha256(body).digest() + body
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return  # a cache that cannot be written is none


def _read(path: Path) -> tuple[int, Any] | None:
    """Kept machine code; `None` if there is none, or it is damaged."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    start = len(_FORMAT) + 32
    body = text[start:]
    if text[:start] != _FORMAT + hashlib.sha256(body).digest():
        return None
    name, code = body.split(b"\n", 1)
    return _placed(name.decode(), code)


def _placed(name: str, code: bytes) -> tuple[int, Any]:
    """The address of a function of an object file, which is brought into memory, and its owner.

    Numba would keep its own representation of the function too, of twice the size.  Each has an
    engine to itself: functions of different processes may have the same name.
    """
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine.get_function_address(name), engine
