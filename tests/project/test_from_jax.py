"""Rows of counterparts/jax.json lead to names that exist, and hardly any name is missing."""

import inspect
import warnings

import pytest
from tables import check_row, resolved, rows, table

ROWS = rows("from-jax")


def test_every_row_leads_somewhere_or_says_why_not():
    for _, _, row in ROWS:
        check_row(row)


def test_most_names_have_a_counterpart():
    missing = [name for _, name, row in ROWS if isinstance(row, dict) and "none" in row]
    assert len(missing) < len(ROWS) / 6


@pytest.mark.parametrize("name", ["jax.tree", "jax.random", "jax.nn"])
def test_names_that_are_the_same_lead_to_the_same_name(name):
    ours = {"jax.tree": "tree", "jax.random": "random", "jax.nn": "ops"}[name]
    public = resolved(f"fdbr.{ours}")
    for key, row in table("from-jax")[name].items():
        if key in public.__all__:
            path = row if isinstance(row, str) else row["path"]
            assert path == f"fdbr.{ours}.{key}"


@pytest.mark.parametrize("module", sorted({kind for kind, _, _ in ROWS}))
def test_there_is_a_row_for_each_public_name_of_jax(module):
    pytest.importorskip(module.split(".")[0], reason="not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip(module, reason="not installed")
    names = {
        name
        for name in getattr(theirs, "__all__", ())
        if not name.startswith("_") and not inspect.ismodule(getattr(theirs, name, theirs))
    }
    primitives = {name for name in names if name.endswith("_p")}
    assert not names - primitives - table("from-jax")[module].keys()
