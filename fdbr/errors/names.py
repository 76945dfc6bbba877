"""Errors for names of other libraries, which say the name of the counterpart in fdbr.

The tables in ``counterparts/`` have a row for each public name of JAX, Optax, Equinox, Flax,
PyTorch, Chainer and ChainerCV, and for the names of NumPy's and Python's random numbers.  They are
read when the first name is missing.
"""

import functools
import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

__all__ = ["import_late", "missing_from", "table"]

_TABLES = ("random", "jax", "pytorch", "chainer", "chainercv")


def table(library: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a library, by part of the library and name."""
    file = resources.files(__package__) / "counterparts" / f"{library}.json"
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def import_late(module: str) -> Any:
    """Import a module of fdbr at its first use, which may be in several threads at the same time.

    Two threads that import modules of one package from different ends wait for each other.  Python
    raises an error in one of them, which then waits for the other thread and tries again.
    """
    while True:
        try:
            return importlib.import_module(module)
        except RuntimeError as error:
            if type(error).__name__ != "_DeadlockError":
                raise
        time.sleep(0.001)


def missing_from(module: str, later: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module, which raises the error for a missing name.

    ``later`` maps names that their first use loads to the modules that define them.  A submodule
    has its own name there.
    """
    homes = later or {}

    def __getattr__(name: str) -> Any:
        if name in homes:
            found = import_late(homes[name])
            if homes[name] != f"{module}.{name}":
                found = getattr(found, name)
            vars(sys.modules[module])[name] = found  # the next use finds it immediately
            return found
        # Copying, pickling and introspection ask every module for names with two underscores.
        advice = "" if name.startswith("__") else _advice(module, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}{advice}", name=name)

    return __getattr__


def _advice(module: str, name: str) -> str:
    rows = _rows().get(name, [])
    here = [row for row in rows if row[1].get("path", "").rpartition(".")[0] == module]
    texts = dict.fromkeys(f"{peer}: {_text(row)}" for peer, row in here[:1] or rows)
    return "".join(f"; {text}" for text in list(texts)[:3])


def _text(row: dict[str, str]) -> str:
    differs = f" ({row['differs']})" if "differs" in row else ""
    if "path" in row:
        return f"use {row['path']}{differs}"
    if "how" in row:
        return f"see docs/{row['how']}{differs}"
    return row["none"]


@functools.cache
def _rows() -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Return the rows of all tables with their full names, by the last part of the name."""
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for library in _TABLES:
        for part, rows in table(library).items():
            where = f"{library}.{part}" if library.startswith("chainer") else part
            for name, row in rows.items():
                entry = {"path": row} if isinstance(row, str) else row
                short = name.rpartition(".")[2]
                found.setdefault(short, []).append((f"{where}.{name}", entry))
    return found
