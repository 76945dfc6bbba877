"""The tables of counterparts, such as counterparts/jax.json, and the check of their rows."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import fdbr
from fdbr.errors import names

__all__ = ["check_row", "reasons", "resolved", "rows", "table"]

DOCS = Path(fdbr.__file__).parents[1] / "docs"


def table(name: str) -> Any:
    """The rows of a table, by list and name."""
    return names.table(name.removeprefix("from-"))


def rows(name: str) -> list[tuple[str, str, Any]]:
    """All rows: list, name and what stands there."""
    return [(kind, key, row) for kind, part in table(name).items() for key, row in part.items()]


def reasons(name: str) -> list[str]:
    """Why names have no counterpart."""
    return [row["none"] for _, _, row in rows(name) if isinstance(row, dict) and "none" in row]


def resolved(path: str) -> Any:
    """The value that a dotted path leads to."""
    parts = path.split(".")
    value = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            importlib.import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def _anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_row(row: Any) -> None:
    """A row leads to something public, to a heading, or says why there is nothing."""
    row = {"path": row} if isinstance(row, str) else row
    assert row.keys() <= {"path", "how", "none", "differs"}
    assert len(row.keys() & {"path", "how", "none"}) == 1
    if "path" in row:
        resolved(row["path"])
        where, _, name = row["path"].rpartition(".")
        public = resolved(where)
        assert inspect.isclass(public) or name in dir(public)
    elif "how" in row:
        page, _, anchor = row["how"].partition("#")
        assert anchor in _anchors(page)
    else:
        assert len(row["none"]) > 20
