"""Every name of Chainer's has its row in docs/from-chainer.json, and leads somewhere."""

import importlib
import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

import fdbr
from fdbr import random

DOCS = Path(fdbr.__file__).parents[1] / "docs"
TABLE = json.loads((DOCS / "from-chainer.json").read_text())
ROWS = [(kind, name, row) for kind, rows in TABLE.items() for name, row in rows.items()]
COUNTS = {
    "core": 61,
    "config": 19,
    "gradient_check": 7,
    "function_hooks": 4,
    "distributions": 19,
}
"""How many names Chainer 7.8.1 has in each list."""


def resolved(path):
    """What a dotted path leads to."""
    parts = path.split(".")
    value = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            importlib.import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", (DOCS / page).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_name_of_a_list_has_a_row():
    assert {kind: len(TABLE[kind]) for kind in COUNTS} == COUNTS


@pytest.mark.parametrize(("kind", "name", "row"), ROWS, ids=lambda value: str(value)[:40])
def test_a_row_leads_somewhere_or_says_why_not(kind, name, row):
    if isinstance(row, str):
        row = {"path": row}
    assert row.keys() <= {"path", "how", "none", "differs"}
    assert len(row.keys() & {"path", "how", "none"}) == 1
    if "path" in row:
        value = resolved(row["path"])
        public = row["path"].rpartition(".")[0]
        assert inspect.isclass(resolved(public)) or row["path"].split(".")[-1] in dir(
            resolved(public)
        )
        assert value is not None
    elif "how" in row:
        page, _, anchor = row["how"].partition("#")
        assert anchor in anchors(page)
    else:
        assert len(row["none"]) > 20


def test_hardly_anything_has_no_counterpart():
    assert sum(isinstance(row, dict) and "none" in row for _, _, row in ROWS) <= 6


KEY = random.key(0)
D = fdbr.distributions
DIFFERENCES = {
    "Bernoulli": lambda: D.Bernoulli(probs=0.5).sample(KEY).dtype.kind == "f",
    "Categorical": lambda: D.Categorical(probs=np.ones(2)).count == 2,
    "OneHotCategorical": lambda: D.OneHotCategorical(probs=np.ones(2)).count == 2,
    "Geometric": lambda: D.Geometric(0.5).mean == 1 and D.Geometric(0.5, start=1).mean == 2,
    "Gamma": lambda: D.Gamma(2.0, 4.0).mean == 0.5,
}
"""What holds here, for each row that says what differs."""


def test_what_a_row_says_to_differ_does():
    differing = {name for _, name, row in ROWS if isinstance(row, dict) and "differs" in row}
    assert differing == DIFFERENCES.keys()
    wrong = [name for name, holds in DIFFERENCES.items() if not holds()]
    assert not wrong
