"""Sphinx's settings: these pages, and the reference made of the docstrings, as a static site."""

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference_pages  # noqa: E402

from fdbr import __version__  # noqa: E402

project = "fdbr"
author = "The fdbr authors"
release = version = __version__

extensions = [
    "myst_parser",  # the pages are Markdown
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # docstrings are in NumPy's style
]
root_doc = "contents"
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]  # `total` in a docstring may be one of several
html_theme = "furo"
html_title = f"fdbr {version}"

myst_heading_anchors = 3  # links to headings, as on GitHub
default_role = "py:obj"  # `softmax` in a docstring is a link where there is such a name
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what is taken, in more words than Any
napoleon_use_rtype = False
napoleon_use_ivar = True

reference_pages.write(HERE / "reference")


def read(app: Any, page: str, source: list[str]) -> None:
    """Take links to files outside this folder, which the site does not have, for their text."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)", r"\1", source[0])


def head(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a heading above a docstring's examples: they would be part of the section before."""
    first = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    if first is not None and "Examples" not in lines:
        lines[first:first] = ["", "Examples", "--------"]


def setup(app: Any) -> None:
    """Have the pages and docstrings prepared."""
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", head, priority=100)
