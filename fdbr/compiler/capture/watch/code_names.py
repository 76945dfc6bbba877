"""The names that code objects mention, read from their bytecode."""

import dis
import functools
import itertools
import keyword
from collections.abc import Iterator, Sequence, Set
from types import CodeType
from typing import Any

import attrs

__all__ = ["BY_NAME", "Mentions", "mentions", "reads"]

_VARIABLES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})
_SETS = frozenset({"STORE_ATTR", "STORE_NAME", "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME"})
_NAMES = _VARIABLES | _ATTRIBUTES | _SETS | {"IMPORT_NAME"}
_LOADS = _VARIABLES | _ATTRIBUTES | {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_WITH_NAMES = frozenset(dis.hasname)
_ADDING = frozenset({"add", "append", "appendleft", "extend", "extendleft", "insert", "update"})
_CALLS = frozenset({"PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX"})

# Functions that read attributes by names that do not occur in the code that calls them: of any
# object, or of instances.
_REFLECTION = frozenset({"vars", "dir", "__dict__", "__getattribute__", "getmembers"})
_OF_INSTANCES = frozenset({"asdict", "astuple", "evolve", "replace", "copy", "deepcopy", "dumps"})
_BY_NAME = frozenset({"getattr", "hasattr", "attrgetter"})
BY_NAME = _BY_NAME | {"vars", "dir"}
"""Builtin functions that read attributes by computed names."""
_CATCHING = frozenset({"AttributeError", "ImportError", "Exception", "BaseException"})

# Functions and attributes that reach variables by names that do not occur in the code.
_VARIABLES_BY_NAME = frozenset({"eval", "exec", "globals", "get_type_hints"})
_WORLD = frozenset(
    """
    __globals__ __subclasses__ _getframe bit_generator f_globals f_locals get_type_hints getstate
    """.split()
)
_SEEDED = frozenset(
    "default_rng RandomState Random SeedSequence PCG64 Philox MT19937 SFC64".split()
)
_NO_OPERATIONS = frozenset({"CACHE", "PUSH_NULL", "PRECALL", "NOP"})


@attrs.frozen
class Mentions:
    """The names in a code object, and in functions nested in it."""

    variables: frozenset[str]  # global ones, and builtins
    attributes: frozenset[str]
    set_attributes: frozenset[str]
    modules: frozenset[tuple[str, int]]  # imported modules, with the levels of relative imports
    asked: frozenset[str]  # attributes that it looks for where they may be missing
    any_attribute: bool  # whether it may read attributes of instances by computed names
    by_name: bool  # whether it may read attributes of any object by computed names
    identity: bool  # whether it compares objects by identity
    world: str  # how it reads what cannot be watched, as with `eval`; empty if it does not

    def __or__(self, other: "Mentions") -> "Mentions":
        pairs = zip(*(attrs.astuple(m, recurse=False) for m in (self, other)), strict=True)
        parts: Any = (a or b if type(a) is str else a | b for a, b in pairs)
        return Mentions(*parts)


@functools.lru_cache(maxsize=1024)
def mentions(code: CodeType) -> Mentions:
    """Return the names that a code object mentions."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    variables, attributes = (
        # What an instruction of a later Python does with a name is not known: it may be either.
        frozenset(
            step.argval
            for step in steps
            if step.opname in table or (step.opcode in _WITH_NAMES and step.opname not in _NAMES)
        )
        for table in (_VARIABLES, _ATTRIBUTES)
    )
    texts, both = frozenset(_texts(code.co_consts)), variables | attributes
    by_name = not _REFLECTION.isdisjoint(both) or _reads_by_computed_name(steps)
    asked = attributes if both & _CATCHING else frozenset()
    found = Mentions(
        variables,
        texts | attributes,
        frozenset(step.argval for step in steps if step.opname == "STORE_ATTR"),
        frozenset(_imports(steps)),
        asked | texts if both & (_CATCHING | _BY_NAME) else asked,
        by_name or not _OF_INSTANCES.isdisjoint(both),
        by_name,
        "id" in variables
        or any(
            step.opname == "IS_OP" and before.opname != "LOAD_CONST"
            for before, step in itertools.pairwise(steps)
        ),
        _world(variables, attributes, steps),
    )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= mentions(constant)
    return found


def _world(variables: Set[str], attributes: Set[str], steps: Sequence[dis.Instruction]) -> str:
    """Describe how code reads what cannot be watched; the text is empty if it does not."""
    if found := (variables & _VARIABLES_BY_NAME) | (attributes & _WORLD):
        return f"it looks for variables by name, with {min(found)}"
    steps = [step for step in steps if step.opname not in _NO_OPERATIONS]
    for step, after in itertools.pairwise(steps):
        unseeded = after.opname in _CALLS and not after.arg
        if unseeded and step.opname in _LOADS and step.argval in _SEEDED:
            return f"it makes a {step.argval} without a seed"
    return ""


def reads(code: CodeType, name: str) -> bool:
    """Return whether code reads a variable other than to append to it, as to a log."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    return any(
        step.opname in _LOADS
        and step.argval == name
        and not (after.opname in _ATTRIBUTES and after.argval in _ADDING)
        for step, after in itertools.pairwise(steps)
    ) or any(reads(part, name) for part in code.co_consts if isinstance(part, CodeType))


def _texts(constants: Any) -> Iterator[str]:
    """Yield the names in constants, which ``match`` patterns and `getattr` use."""
    for constant in constants:
        if type(constant) is str and len(constant) < 80:
            names = constant.split(".")
            yield from (n for n in names if n.isidentifier() and not keyword.iskeyword(n))
        elif type(constant) in (tuple, frozenset):
            yield from _texts(constant)


def _imports(steps: Sequence[dis.Instruction]) -> Iterator[tuple[str, int]]:
    for position, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":  # the two instructions before it load level and fromlist
            level, parts = (steps[position - i].argval for i in (2, 1))
            above = step.argval
            yield above, level
            for part in parts or () if not above else ():
                yield part, level
            while "." in above:
                above = above.rpartition(".")[0]
                yield above, level


def _reads_by_computed_name(steps: Sequence[dis.Instruction]) -> bool:
    """Return whether `getattr` or a similar function gets a name that is not a constant."""
    for position, step in enumerate(steps):
        if step.opname not in _VARIABLES | _ATTRIBUTES or step.argval not in _BY_NAME:
            continue
        given = []
        for other in steps[position + 1 :]:
            if other.opname in _CALLS:
                break
            given.append(other)
        else:
            return True  # the function itself is passed on, to an unknown caller
        last = other.argval if isinstance(other.argval, int) else 0
        if other.opname == "CALL_FUNCTION_EX" or other.opname == "CALL_KW":
            return True
        name = len(given) - (2 if last == 3 and step.argval == "getattr" else 1)
        if name < 0 or given[name].opname != "LOAD_CONST" or type(given[name].argval) is not str:
            return True
    return False
