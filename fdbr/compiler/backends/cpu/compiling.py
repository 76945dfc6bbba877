"""From a kernel's source to the address of its machine code, which is kept as all kernels' is."""

from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np

from fdbr.compiler.backends.cpu.language import NAMES as ARRAYS
from fdbr.compiler.backends.cpu.mathematics import NAMES
from fdbr.compiler.backends.cpu.register_tiles import NAMES as TILES
from fdbr.compiler.backends.cpu.streaming import NAMES as STREAMING
from fdbr.kernels.machine import code_of as kept_code
from fdbr.kernels.machine import digest, find, placed, processor

__all__ = ["address_of", "code_of", "find_code"]

# Kernels have many operands, which are never the same memory; without this LLVM gives up on
# loops that would need more than a few comparisons of addresses to see it.
llvm.set_option("fdbr", "-runtime-memory-check-threshold=1000")

_SIGNATURE = "void(intp, intp, intp, intp)"
_loaded: dict[str, tuple[int, Any]] = {}  # address and owner of the code, by source


def address_of(source: str) -> int:
    """The address of a kernel's machine code."""
    found = _loaded.get(source)
    if found is None:
        found = _loaded.setdefault(source, placed(*code_of(source)))  # another was faster, maybe
    return found[0]


def code_of(source: str) -> tuple[str, bytes]:
    """The name of a kernel's function, and an object file that has it."""
    return kept_code(_key(source), lambda: _compiled(source))


def find_code(source: str) -> tuple[str, bytes] | None:
    """The same, if it is on disk."""
    return find(_key(source))


def _key(source: str) -> str:
    return digest(source, _library_version(), numba.__version__, np.__version__, processor())


def _library_version() -> str:
    """A digest of the functions that kernels call."""
    folder = Path(__file__).parent
    names = "mathematics.py", "language.py", "register_tiles.py", "streaming.py"
    texts = [(folder / name).read_text() for name in names]
    return digest(*texts)


def _compiled(source: str) -> tuple[str, bytes]:
    scope = NAMES | ARRAYS | TILES | STREAMING
    exec(compile(source, "<fdbr kernel>", "exec"), scope)
    made = numba.cfunc(_SIGNATURE, error_model="numpy")(scope["kernel"])
    _, _, (code, _) = made._library.serialize_using_object_code()
    return made._wrapper_name, code
