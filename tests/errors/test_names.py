"""A name of another library that is missing here is answered by the name of its counterpart."""

import copy
import importlib
import pickle

import pytest
from tables import resolved, rows

import fdbr
from fdbr import nn, ops, random, train

MODULES = "fdbr ops ops.fft ops.linalg ops.special nn nn.initializers random tree train".split()
MODULES += ["train.optim", "distributions", "distributed", "vision"]
LIBRARIES = ["from-jax", "from-pytorch", "from-chainer", "from-chainercv"]


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
