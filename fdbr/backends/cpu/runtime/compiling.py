"""From a kernel's source to the address of its machine code, with a cache in memory and on disk."""

import functools
import inspect
import re
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fdbr.backends.cpu.codegen import intrinsics, language, loop_nest, nest_lowering
from fdbr.backends.cpu.codegen.llvm_lowering import lower
from fdbr.backends.cpu.library.matmul import register_tiles, tiles
from fdbr.backends.cpu.runtime import machine
from fdbr.backends.cpu.runtime.machine import (
    Address,
    code,
    code_of,
    digest,
    optimized_code,
    placed,
    processor,
)
from fdbr.backends.cpu.runtime.workers import compute

__all__ = ["address_of", "addresses_of", "front_end", "measures", "translated"]

_LIBRARIES = tiles, language, intrinsics, register_tiles
_IMPORT = re.compile(r"^from fdbr\.backends\.cpu\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
_ROOT = Path(__file__).parents[1]  # the folder of `fdbr.backends.cpu`
# Characters of LLVM IR from which its passes take longer than they save: the text is that of a loop
# with thousands of steps on few elements, which nothing vectorises.
_LONG = 300_000
_RECENT = 64  # kernels that stay in memory although no program uses them


# Owners of kernels in memory, by source; they live at least as long as one of their addresses.
_loaded: WeakValueDictionary[str, Any] = WeakValueDictionary()
_recent: deque[Any] = deque(maxlen=_RECENT)


def address_of(source: str) -> Address:
    """Return the address of a kernel's machine code.

    The code stays in memory as long as the address object is referenced.
    """
    return _in_memory(source) or addresses_of([source])[source]


def addresses_of(sources: Iterable[str]) -> dict[str, Address]:
    """Return the addresses of kernels, by source; those that are missing are compiled in threads.

    Raises
    ------
    KernelError, RuntimeError
        If a kernel cannot be compiled.
    """
    found: dict[str, Address] = {}
    missing = []
    for source in dict.fromkeys(sources):
        address = _in_memory(source)
        if address is None:
            missing.append(source)
        else:
            found[source] = address
    return found | compute(_load, missing) if missing else found


def _load(source: str, pauses: bool) -> Address:
    start = time.perf_counter()
    code = code_of(_key(source), lambda: _compiled(source), pauses)
    seconds = time.perf_counter() - start
    found = _in_memory(source)  # another thread may have been faster
    if found is None:
        found = placed(*code)
        found.owner.seconds = seconds
        _loaded[source] = found.owner
        _recent.append(found.owner)
    return found


def measures(sources: Iterable[str]) -> tuple[int, float]:
    """Return the bytes of machine code of kernels in memory, and their compile time in seconds."""
    owners = [owner for source in sources if (owner := _loaded.get(source)) is not None]
    return sum(owner.place[1] for owner in owners), sum(owner.seconds for owner in owners)


def _in_memory(source: str) -> Address | None:
    owner = _loaded.get(source)
    return None if owner is None else Address(owner)


def _key(source: str) -> str:
    return digest(source, _library_version(), processor())


@functools.cache
def _library_version() -> str:
    """Return a digest of the functions that kernels call, and of the translator and compiler."""
    texts = front_end()
    return digest(inspect.getsource(machine), *[texts[name] for name in sorted(texts)])


def front_end() -> dict[str, str]:
    """Return the sources of the modules that translate kernels, by module name.

    These are the modules below `fdbr.backends.cpu` that `codegen.llvm_lowering`,
    `codegen.nest_lowering` and the libraries import, directly or indirectly, and the expressions of
    nests.
    """
    texts = {"expr": (_ROOT.parents[1] / "core" / "expr.py").read_text()}
    waiting = ["codegen.llvm_lowering", "codegen.nest_lowering"]
    waiting += [module.__name__.removeprefix("fdbr.backends.cpu.") for module in _LIBRARIES]
    while waiting:
        name = waiting.pop()
        path = _ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if name not in texts and path.exists():  # imported names that are not modules have no file
            texts[name] = path.read_text()
            for module, members in _IMPORT.findall(texts[name]):
                waiting += [module, *(f"{module}.{part}" for part in re.findall(r"\w+", members))]
    return texts


def _compiled(source: str) -> tuple[str, bytes]:
    text, final = translated(source)
    return "kernel", code(text) if final or len(text) > _LONG else optimized_code(text)


def translated(source: str) -> tuple[str, bool]:
    """Return a kernel in LLVM's language, and whether it needs no optimisation: see `lower`."""
    if source.startswith("nest"):
        return nest_lowering.lowered(*loop_nest.read(source), objects=True), True
    return lower(source, _scope())


@functools.cache
def _scope() -> dict[str, Any]:
    """Return the names that kernels may use."""
    return {name: made for module in _LIBRARIES for name, made in module.NAMES.items()}
