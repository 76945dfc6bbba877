"""Every name of ChainerCV's has its row in counterparts/chainercv.json, and leads somewhere."""

import json
from pathlib import Path

import pytest
from tables import check_row, reasons, rows, table

NAMES = json.loads(Path(__file__).with_name("chainercv-names.json").read_text(encoding="utf-8"))
"""ChainerCV's 217 public names, by the module of its reference."""


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_of_a_list_has_a_row(kind):
    assert sorted(table("from-chainercv")[kind]) == sorted(NAMES[kind])


def test_every_list_of_rows_is_one_of_names():
    assert table("from-chainercv").keys() == NAMES.keys()


@pytest.mark.parametrize(
    ("kind", "name", "row"), rows("from-chainercv"), ids=lambda value: str(value)[:60]
)
def test_a_row_leads_somewhere_or_says_why_not(kind, name, row):
    check_row(row)


def test_hardly_anything_has_no_counterpart():
    assert len(set(reasons("from-chainercv"))) <= 8
