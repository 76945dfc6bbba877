"""Writes docs/api.md, which lists each public name with the first sentence of its docstring.

Run it after a change of public names, signatures or docstrings: ``python docs/api_index.py``.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from reference_pages import MODULES  # noqa: E402

HEAD = """# Index of the API

This page lists every public function and class with the first sentence of its docstring. \
`help(fdbr.grad)` shows the whole docstring: parameters, shapes, errors and an example. \
`python docs/api_index.py` writes this page.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *_contents(), *(line for name in MODULES for line in _module(name))])


def _contents() -> Iterator[str]:
    for name in MODULES:
        yield f"- [{name}](#{name.replace('.', '')})"
    yield ""


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield from (f"## {name}", "")
    values = []
    for member in sorted(module.__all__, key=str.lower):
        value = getattr(module, member)
        if inspect.ismodule(value):
            continue
        if callable(value) and _home(value).startswith("fdbr") and inspect.getdoc(value):
            yield f"- `{member}{_arguments(value)}`: {_first_sentence(value)}"
        else:
            values.append(f"`{member}`")
    if values:
        yield f"- Constants, and names of NumPy: {', '.join(values)}"
    yield ""


def _arguments(value: Any) -> str:
    """Return the names of arguments: those of ``init`` for a class that has one."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    init = getattr(value, "init", None)
    made_by = init if inspect.isclass(value) and inspect.ismethod(init) else None
    names = []
    keyword_only = False
    for parameter in inspect.signature(made_by or value).parameters.values():
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind == parameter.KEYWORD_ONLY and not keyword_only:
            names.append("*")
        keyword_only |= star == "*" or parameter.kind == parameter.KEYWORD_ONLY
        names.append(star + parameter.name)
    return (".init" if made_by else "") + f"({', '.join(names)})"


def _home(value: Any) -> str:
    return getattr(value, "__module__", None) or "fdbr"


def _first_sentence(value: Any) -> str:
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    sentence = re.match(r".*?[.:](?=\s|$)", paragraph)
    text = (sentence[0] if sentence else paragraph).rstrip(".:")
    return text.replace("``", "`").replace("|", "\\|") + "."


if __name__ == "__main__":
    (HERE / "api.md").write_text(page(), encoding="utf-8")
