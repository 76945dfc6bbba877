"""Every name of Chainer's has its row in counterparts/chainer.json, and leads somewhere."""

import json
from pathlib import Path

import pytest
from project import chainer_differences, chainermn_differences
from project.chainer_differences import read
from project.chainer_signatures import CHAINERS, unsaid
from tables import check_row, resolved, rows, table

import fdbr
from fdbr import nn

CLAUSES = {**chainer_differences.CLAUSES, **chainermn_differences.CLAUSES}
ROWS = rows("from-chainer")
NAMES = json.loads(Path(__file__).with_name("chainer-names.json").read_text(encoding="utf-8"))
"""Chainer 7.8.1's public names: lists by subject, and what else its reference documents."""


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_of_a_list_has_a_row(kind):
    assert sorted(table("from-chainer")[kind]) == sorted(NAMES[kind])


def test_every_list_of_rows_is_one_of_names():
    assert table("from-chainer").keys() == NAMES.keys()


@pytest.mark.parametrize(("kind", "name", "row"), ROWS, ids=lambda value: str(value)[:40])
def test_a_row_leads_somewhere_or_says_why_not(kind, name, row):
    check_row(row)


def test_hardly_anything_has_no_counterpart():
    without = [name for _, name, row in ROWS if isinstance(row, dict) and "none" in row]
    assert len(without) <= 16


CLAUSES_OF_ROWS = [
    (name, row["path"], clause)
    for _, name, row in ROWS
    if isinstance(row, dict) and "differs" in row
    for clause in row["differs"].split("; ")
]


def test_what_a_row_says_to_differ_does():
    wrong = []
    for name, path, clause in CLAUSES_OF_ROWS:
        target = resolved(path)
        holds = CLAUSES[clause](target) if clause in CLAUSES else read(clause, target)
        wrong += [] if holds else [(name, clause)]
    assert not wrong


def test_every_check_of_a_difference_belongs_to_a_row():
    assert CLAUSES.keys() <= {clause for _, _, clause in CLAUSES_OF_ROWS}


@pytest.mark.parametrize("kind", CHAINERS)
def test_a_row_states_each_difference_of_the_signatures(kind):
    lacking = {}
    for name, signature in CHAINERS[kind].items():
        row = table("from-chainer")[kind][name]
        note = row.get("differs", "") if isinstance(row, dict) else ""
        path = row["path"] if isinstance(row, dict) else row
        if missing := unsaid(signature, resolved(path), note):
            lacking[name] = missing
    assert not lacking


def test_a_missing_note_is_found():
    target, chainers = nn.Linear, "in_size, out_size=None, nobias=False, initialW=None"
    assert unsaid(chainers, target, "") == [
        "there is no in_size",
        "there is no out_size",
        "there is no nobias",
        "there is no initialW",
    ]
    names = "in_features=, out_features=, weight_init= are Chainer's in_size=, out_size=, initialW="
    assert len(unsaid(chainers, target, f"{names}; bias=False is Chainer's nobias=True")) == 3
    assert unsaid("x, axis=1", fdbr.ops.softmax, "by name only: axis") == [
        "axis=-1 by default, Chainer's 1"
    ]
    assert unsaid("x, reps", fdbr.ops.tile, "repetitions= is Chainer's reps=") == [
        "reps is given by position"
    ]
