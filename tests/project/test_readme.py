"""The Python blocks of the README and of docs/ run as written.

The blocks of a page run in order and share their names, as a reader would type them, in an
empty folder.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_name(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """The page's blocks, each with the line it starts at."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": f"blocks of {page_name(page)}"}
    for line, block in blocks(page):
        # Blank lines before the block let a traceback show the page's own lines.
        exec(compile("\n" * line + block, str(page), "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=page_name)
def test_links_between_pages_lead_somewhere(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_has_an_example_and_docs_are_found():
    assert blocks(ROOT / "README.md")
    assert ROOT / "docs" / "index.md" in PAGES
