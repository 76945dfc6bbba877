"""Writes the pages of the reference: for each public module one with a section for each family.

A family is what one source file holds; its docstring gives the section's title.
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = (
    "fdbr",
    "fdbr.ops",
    "fdbr.ops.linalg",
    "fdbr.ops.fft",
    "fdbr.ops.special",
    "fdbr.ops.sparse",
    "fdbr.nn",
    "fdbr.nn.initializers",
    "fdbr.nn.models",
    "fdbr.distributions",
    "fdbr.random",
    "fdbr.tree",
    "fdbr.train",
    "fdbr.train.optim",
    "fdbr.distributed",
    "fdbr.vision",
    "fdbr.vision.models",
    "fdbr.vision.transforms",
    "fdbr.vision.evaluation",
    "fdbr.vision.datasets",
    "fdbr.vision.drawing",
    "fdbr.testing",
    "fdbr.debug",
    "fdbr.backend",
)


def write(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(exist_ok=True)
    names = [name for name in MODULES if _module(name)]
    for name in names:
        _put(folder / f"{name}.rst", "\n".join(_page(name)))
    listed = "\n".join(["# Reference", "", "```{toctree}", ":maxdepth: 2", "", *names, "```", ""])
    _put(folder / "index.md", listed)


def _put(path: Path, text: str) -> None:
    """Write what is new: a page that stays as it is need not be made again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _page(name: str) -> Iterator[str]:
    module = _module(name)
    yield from (name, "=" * len(name), "", f".. automodule:: {name}", "")
    yield from (f".. currentmodule:: {name}", "")
    families: dict[str, list[str]] = {}
    for member in module.__all__:
        value = getattr(module, member)
        if callable(value) and inspect.getdoc(value):
            families.setdefault(_home(value, name), []).append(member)
    for home, members in families.items():
        if len(families) > 1:
            title = _title(home)
            yield from (title, "-" * len(title), "")
        for member in members:
            kind = "class" if inspect.isclass(getattr(module, member)) else "function"
            yield f".. auto{kind}:: {name}.{member}"
            yield "   :members:\n" if kind == "class" and not member.endswith("Error") else ""


def _home(value: Any, public: str) -> str:
    """The module that a value was defined in; the public one for what is another library's."""
    home = getattr(value, "__module__", None) or public
    return home if home.startswith("fdbr.") else public


def _title(home: str) -> str:
    text = (inspect.getdoc(importlib.import_module(home)) or home).splitlines()[0]
    return text.rstrip(".").split(":")[0].replace("`", "")
