"""A name of another library that is missing here is answered by the name of its counterpart."""

import copy
import importlib
import pickle
import random as python

import numpy as np
import pytest
from tables import check_row, resolved, rows

import fdbr
from fdbr import nn, ops, random, train

MODULES = "fdbr ops ops.fft ops.linalg ops.special nn nn.initializers random tree train".split()
MODULES += ["train.optim", "distributions", "distributed", "vision"]
LIBRARIES = ["random", "from-jax", "from-pytorch", "from-chainer", "from-chainercv"]


@pytest.mark.parametrize(
    ("module", "name", "counterpart"),
    [
        (fdbr, "cond", "Python's if"),
        (fdbr, "lax", "fdbr.ops"),
        (fdbr, "numpy", "fdbr.ops"),
        (fdbr, "jacobian", "fdbr.jacrev"),
        (fdbr, "remat", "fdbr.checkpoint"),
        (fdbr, "tree_map", "fdbr.tree.map"),
        (nn, "Dense", "fdbr.nn.Linear"),
        (nn, "Embedding", "fdbr.nn.Embed"),
        (nn, "functional", "fdbr.ops"),
        (ops, "arctan2", "fdbr.ops.atan2"),
        (ops, "concatenate", "fdbr.ops.concat"),
        (ops, "cumprod", "fdbr.ops.cumulative_prod"),
        (ops, "roi_align", "fdbr.ops.roi_average_align"),
        (ops, "transpose", "fdbr.ops.permute_dims"),
        (random, "PRNGKey", "fdbr.random.key"),
        (random, "default_rng", "fdbr.random.key"),
        (random, "seed", "fdbr.random.key"),
        (random, "RandomState", "fdbr.random.key"),
        (random, "rand", "fdbr.random.uniform"),
        (random, "randn", "fdbr.random.normal"),
        (random, "shuffle", "fdbr.random.permutation"),
        (random, "gauss", "fdbr.random.normal"),
        (random, "next_rng_key", "fdbr.random.split"),
        (train.optim, "SGD", "fdbr.train.optim.sgd"),
    ],
)
def test_the_error_for_a_name_of_another_library_says_the_name_here(module, name, counterpart):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
        getattr(module, name)
    assert counterpart in str(caught.value)


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_name_in_a_table_is_there_or_its_error_gives_advice(library):
    for _, name, row in rows(library):
        short = name.rpartition(".")[2]
        path = row if isinstance(row, str) else row.get("path", "")
        where = path.rpartition(".")[0]
        module = where.removeprefix("fdbr.") if where.startswith("fdbr.") else "ops"
        found = resolved(f"fdbr.{module}" if module in MODULES else "fdbr.ops")
        if short.startswith("__") or hasattr(found, short):
            continue
        with pytest.raises(AttributeError, match=r"; .+\..+: \S"):
            getattr(found, short)


@pytest.mark.parametrize("room", [np.random, np.random.Generator, np.random.RandomState, python])
def test_each_name_of_numpys_and_pythons_random_numbers_has_a_counterpart(room):
    numpys_own = {"test", "mtrand"}
    for name in getattr(room, "__all__", dir(room)):
        if name[0] != "_" and name not in numpys_own and not hasattr(random, name):
            with pytest.raises(AttributeError, match=r"; .+\..+: \S"):
                getattr(random, name)


def test_each_row_of_random_numbers_leads_somewhere():
    for _, _, row in rows("random"):
        check_row(row)


@pytest.mark.parametrize("name", MODULES)
def test_a_name_of_no_library_has_the_ordinary_error(name):
    module = importlib.import_module(name if name == "fdbr" else f"fdbr.{name}")
    with pytest.raises(AttributeError) as caught:
        _ = module.no_such_name
    assert str(caught.value) == f"module {module.__name__!r} has no attribute 'no_such_name'"
    assert not hasattr(module, "__wrapped__")
    assert copy.copy(module.__all__) == module.__all__


def test_imports_of_missing_names_fail_as_usual():
    with pytest.raises(ImportError, match="cannot import name 'concatenate'"):
        from fdbr.ops import concatenate  # noqa: F401
    with pytest.raises(AttributeError, match="no_such_name"):
        pickle.loads(b"cfdbr.ops\nno_such_name\n.")
