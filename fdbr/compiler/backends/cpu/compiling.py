"""From a kernel's source to the address of its machine code, which is kept as all kernels' is."""

import functools
import inspect
from pathlib import Path
from typing import Any

from fdbr.compiler.backends.cpu import (
    conv_tiles,
    intrinsics,
    language,
    register_tiles,
    streaming,
)
from fdbr.compiler.backends.cpu.lowering import lower
from fdbr.kernels import machine
from fdbr.kernels.machine import code_of as kept_code
from fdbr.kernels.machine import digest, find, optimized_code, placed, processor

__all__ = ["address_of", "code_of", "find_address", "load", "translated"]

_LIBRARIES = conv_tiles, language, intrinsics, register_tiles, streaming
_FRONT_END = (
    *("kernel_expressions.py", "kernel_functions.py", "llvm_text.py", "lowering.py"),
    "vector_text.py",
)
_loaded: dict[str, tuple[int, Any]] = {}  # address and owner of the code, by source


def address_of(source: str) -> int:
    """The address of a kernel's machine code."""
    found = _loaded.get(source)
    return load(source, code_of(source)) if found is None else found[0]


def load(source: str, code: tuple[str, bytes]) -> int:
    """Bring a kernel's machine code into memory; its address there."""
    return _loaded.setdefault(source, placed(*code))[0]  # another thread was faster, maybe


def code_of(source: str) -> tuple[str, bytes]:
    """The name of a kernel's function, and an object file that has it."""
    return kept_code(_key(source), lambda: _compiled(source))


def find_address(source: str) -> int | None:
    """The address of a kernel that is in memory or on disk; `None` if it has to be compiled."""
    if source in _loaded:
        return _loaded[source][0]
    code = find(_key(source))
    return None if code is None else load(source, code)


def _key(source: str) -> str:
    return digest(source, _library_version(), processor())


@functools.cache
def _library_version() -> str:
    """A digest of the functions that kernels call, and of what translates and compiles them."""
    folder = Path(__file__).parent
    texts = [inspect.getsource(module) for module in (*_LIBRARIES, machine)]
    return digest(*texts, *[(folder / name).read_text() for name in _FRONT_END])


def _compiled(source: str) -> tuple[str, bytes]:
    return "kernel", optimized_code(translated(source))


def translated(source: str) -> str:
    """A kernel in LLVM's language."""
    return lower(source, _scope())


@functools.cache
def _scope() -> dict[str, Any]:
    """The names that kernels may use."""
    return {name: made for module in _LIBRARIES for name, made in module.NAMES.items()}
