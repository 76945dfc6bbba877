"""What `dir` shows of the public modules."""

import types
import typing

import numpy as np
import pytest

import fdbr


def _public_modules():
    """Every module that can be reached from `fdbr` by the names that `dir` shows."""
    found, waiting = {}, [fdbr]
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found:
            found[module.__name__] = module
            members = (getattr(module, name) for name in dir(module))
            waiting += [member for member in members if isinstance(member, types.ModuleType)]
    return found


MODULES = _public_modules()


def test_the_public_modules_are_those_of_the_documentation():
    assert set(MODULES) >= {
        "fdbr",
        "fdbr.backend",
        "fdbr.debug",
        "fdbr.distributed",
        "fdbr.distributions",
        "fdbr.nn",
        "fdbr.nn.initializers",
        "fdbr.ops",
        "fdbr.ops.fft",
        "fdbr.ops.linalg",
        "fdbr.random",
        "fdbr.testing",
        "fdbr.train",
        "fdbr.train.optim",
        "fdbr.tree",
    }


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_what_the_module_exports_and_nothing_else(name):
    module = MODULES[name]
    assert name.split(".")[0] == "fdbr"
    assert dir(module) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for shown in dir(module):
        assert not shown.startswith("_")
        member = getattr(module, shown)
        constant = member is None or isinstance(member, float)
        dtype = isinstance(member, type) and issubclass(member, np.generic)
        alias = typing.get_origin(member) is not None  # of a type: it tells no module of its own
        ours = getattr(member, "__module__", name).startswith("fdbr")
        assert ours or constant or dtype or alias, f"{name}.{shown} is {member!r}"


@pytest.mark.parametrize("name", MODULES)
def test_importing_everything_gives_what_dir_shows(name):
    names = {}
    exec(f"from {name} import *", names)
    assert set(names) - {"__builtins__"} == set(dir(MODULES[name]))
