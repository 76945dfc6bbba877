"""What `dir` shows of the public modules, and the recorded list of names and signatures.

``python -m tests.project.test_public_names`` records the list anew, for a change on purpose.
"""

import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import fdbr


def _public_modules():
    """Every module that can be reached from `fdbr` by the names that `dir` shows, by such names."""
    found, waiting = {}, {"fdbr": fdbr}
    while waiting:
        name, module = waiting.popitem()
        if module not in found.values():
            found[name] = module
            members = {f"{name}.{member}": getattr(module, member) for member in dir(module)}
            waiting |= {k: v for k, v in members.items() if isinstance(v, types.ModuleType)}
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


# --- the recorded list --------------------------------------------------------------

RECORDED = Path(__file__).with_name("public_names.txt")
RETURNED = {
    # Classes that have no public name, whose instances users call methods of.
    "fdbr.jit(f)": fdbr.jit(abs),
    "fdbr.ops.at(x)": fdbr.ops.at(np.ones(2)),
    "fdbr.ops.at(x)[i]": fdbr.ops.at(np.ones(2))[0],
}
SPECIAL = (
    "__call__ __getitem__ __len__ __iter__ __next__ __contains__ __enter__ __exit__ "
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __matmul__ __neg__ "
    "__and__ __or__ __invert__ __array__ __float__ __int__"
).split()
"""What users write without the name of a method; the others belong to Python's protocols."""


def public_names() -> Iterator[str]:
    """The lines of the recorded list: names, with parameters, defaults and bases.

    Annotations and the modules that define things are left out, as both may change.
    """
    names: dict[int, str] = {}  # the shortest name of what has several
    for path, module in MODULES.items():
        for member in dir(module):
            name = f"{path}.{member}"
            key = id(getattr(module, member))
            names[key] = min(names.get(key, name), name, key=lambda name: (len(name), name))
    for path, module in MODULES.items():
        yield f"{path} module"
        for member in dir(module):
            yield from _lines(f"{path}.{member}", getattr(module, member), names)
    for name, value in RETURNED.items():
        yield from _members(name, type(value), names)
    for path in Path(fdbr.__file__).parent.rglob("__main__.py"):
        parts = path.parent.relative_to(Path(fdbr.__file__).parents[1]).parts
        options = " ".join(re.findall(r'add_argument\("([^"]+)', path.read_text("utf-8")))
        yield f"python -m {'.'.join(parts)} {options}"


def _lines(name: str, value: Any, names: dict[int, str]) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        return
    if isinstance(value, type) and names[id(value)] != name:
        yield f"{name} is {names[id(value)]}"
    elif isinstance(value, type) and not _is_ours(value):
        yield f"{name} = {value.__module__}.{value.__name__}"
    elif isinstance(value, type):
        yield f"{name} class{_constructor(value, names)}{_bases(value, names)}{_fields(value)}"
        yield from _members(name, value, names)
    elif typing.get_origin(value) is not None:
        yield f"{name} type alias"
    elif callable(value):
        yield f"{name}{_signature(value, names)}"
    else:
        yield f"{name} = {value!r}"


def _members(name: str, cls: type, names: dict[int, str]) -> Iterator[str]:
    """What instances have, inherited or not, but for what Python's own classes give them."""
    fields = {field.name for field in attrs.fields(cls)} if attrs.has(cls) else set()
    for member in dir(cls):
        owner = next((base for base in cls.__mro__ if member in vars(base)), object)
        public = not member.startswith("_") or member in SPECIAL
        if not public or member in fields or not _is_ours(owner):
            continue
        value = vars(owner)[member]
        if isinstance(value, classmethod | staticmethod):
            kind = type(value).__name__
            yield f"{name}.{member} {kind}{_signature(getattr(cls, member), names)}"
        elif callable(value):
            yield f"{name}.{member}{_signature(value, names, bound=True)}"
        elif hasattr(type(value), "__get__"):
            yield f"{name}.{member} property"
        else:
            yield f"{name}.{member} = {value!r}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "fdbr"


def _constructor(cls: type, names: dict[int, str]) -> str:
    made = next(base for base in cls.__mro__ if "__init__" in vars(base) or "__new__" in vars(base))
    return _signature(cls, names) if _is_ours(made) else ""


def _bases(cls: type, names: dict[int, str]) -> str:
    """The nearest ancestors that are public or not ours; those of errors say what catches them."""
    found: list[type] = []
    for base in cls.__mro__[1:]:
        named = id(base) in names or not _is_ours(base)
        if named and base.__module__ not in ("typing", "abc") and base is not object:
            found += [base] if not any(issubclass(other, base) for other in found) else []
    shown = [names.get(id(base), f"{base.__module__}.{base.__name__}") for base in found]
    return f" of {', '.join(shown)}" if shown else ""


def _fields(cls: type) -> str:
    if not attrs.has(cls):
        return ""
    shown = [field.name for field in attrs.fields(cls) if not field.name.startswith("_")]
    return f" with {' '.join(shown)}" if shown else ""


def _signature(function: Any, names: dict[int, str], bound: bool = False) -> str:
    """Parameters and defaults, without annotations."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(?)"
    parameters = []
    for p in list(signature.parameters.values())[bound:]:
        if p.default is not p.empty:
            p = p.replace(default=_Shown(_default(p.default, names)))
        parameters.append(p.replace(annotation=p.empty))
    return str(inspect.Signature(parameters))


class _Shown(str):
    """A text that shows itself without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _default(value: Any, names: dict[int, str]) -> str:
    """The text of a default: the public name if there is one, and no address."""
    if isinstance(value, type | types.FunctionType | types.ModuleType):
        private = getattr(value, "__module__", "").startswith("fdbr.")
        return names.get(id(value), "..." if private else value.__name__)
    if re.search(" at 0x|<locals>", repr(value)):  # a private sentinel, or a record of functions
        return "..."
    return repr(value)


def test_names_and_signatures_are_those_that_are_recorded():
    recorded, found = _by_name(RECORDED.read_text("utf-8").splitlines()), _by_name(public_names())
    changes = [f"missing: {recorded[name]}" for name in recorded.keys() - found.keys()]
    changes += [f"new: {found[name]}" for name in found.keys() - recorded.keys()]
    for name in recorded.keys() & found.keys():
        if recorded[name] != found[name]:
            changes.append(f"changed: {recorded[name]}\n     to: {found[name]}")
    assert not changes, (
        "public names or signatures are not those of tests/project/public_names.txt:\n"
        + "\n".join(sorted(changes))
        + "\nIf that is on purpose, `python -m tests.project.test_public_names` records them; "
        "commit the list with the change."
    )


def _by_name(lines: typing.Iterable[str]) -> dict[str, str]:
    """Each line by its name: what is before its parameters, or the first word."""
    return {re.match(r"python -m \S+|[\w.]+(\(\w\)(\[\w\])?[\w.]+)?", x)[0]: x for x in lines}


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{line}\n" for line in sorted(public_names())), "utf-8")
