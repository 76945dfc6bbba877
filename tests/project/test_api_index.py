"""docs/api.md lists the public names as they are now."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_index_of_the_api_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    spec = importlib.util.spec_from_file_location("api_index", DOCS / "api_index.py")
    index = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(index)
    written = (DOCS / "api.md").read_text(encoding="utf-8")
    assert written == index.page(), "run `python docs/api_index.py`"
