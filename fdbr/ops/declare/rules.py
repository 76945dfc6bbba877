"""Make the vjp rule of one operand from a function whose parameters name what it needs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from fdbr.errors.checks import describe
from fdbr.ops.declare.unbroadcast import dtype_of, like, shape_of

__all__ = ["Function", "Rule", "Rules", "Unknown", "names_of", "saver", "stated_rule"]

Function = Callable[..., Any]


class Rule:
    """The vjp rule of one operand.

    ``pull(cotangent, *saved)`` returns the operand's cotangent, where ``saved`` is what
    ``save(operands, out, params)`` returned in the forward pass.  ``retains`` are the positions
    of the operands that ``save`` keeps.
    """

    __slots__ = ("pull", "retains", "save")

    def __init__(self, pull: Function, names: list[str], operands: tuple[str, ...], index: int):
        self.pull = pull
        self.save = saver(names, operands, index)
        self.retains = tuple(operands.index(name) for name in names if name in operands)


class Unknown:
    """The rule of an operand whose derivative is not implemented.

    Differentiating by the operand raises an error in the forward pass, rather than give zeros.
    """

    __slots__ = ("index", "message")

    retains = ()
    pull = None

    def __init__(self, message: str, index: int = 0) -> None:
        self.message = message
        self.index = index

    def of(self, index: int) -> "Unknown":
        """Make the rule of the operand at a position."""
        return Unknown(self.message, index)

    def save(self, args: Any, out: Any, params: dict[str, Any]) -> NoReturn:
        raise TypeError(self.message.format(describe(args[self.index])))


def saver(names: list[str], operands: tuple[str, ...], index: int) -> Function:
    """Make a function ``(args, out, params) -> tuple`` that returns the named values.

    It is compiled from source, as attrs makes its methods, because it runs for every operation.
    """
    me = f"args[{index}]"
    fast = {name: f"args[{i}]" for i, name in enumerate(operands)} | {
        "out": "out",
        "shape": f"{me}.shape",
        "dtype": f"{me}.dtype",
        "like": f"None if {me}.shape == out.shape and {me}.dtype is out.dtype else like({me}, out)",
    }
    # Python numbers have no shape and no dtype.
    slow = fast | {
        "shape": f"shape_of({me})",
        "dtype": f"dtype_of({me})",
        "like": f"like({me}, out)",
    }
    return _compiled(_tuple_source(names, fast), _tuple_source(names, slow))


@functools.cache  # many operations save the same values
def _compiled(fast: str, slow: str) -> Function:
    source = (
        "def save(args, out, params):\n"
        f" try: return {fast}\n"
        f" except AttributeError: return {slow}\n"
    )
    scope: dict[str, Any] = {"shape_of": shape_of, "dtype_of": dtype_of, "like": like}
    exec(source, scope)
    return scope["save"]


def _tuple_source(names: list[str], table: dict[str, str]) -> str:
    return f"({''.join(table.get(name, f'params[{name!r}]') + ', ' for name in names)})"


def names_of(statement: Function, first: int = 1) -> list[str]:
    """List the names of a rule's parameters after the first ones."""
    return list(inspect.signature(statement).parameters)[first:]


def stated_rule(statement: Any, operands: tuple[str, ...], index: int) -> Any:
    """Make a `Rule` that calls ``statement``; return `None` if it is `None`."""
    if statement is None:
        return None
    if isinstance(statement, Unknown):
        return statement.of(index)
    return Rule(statement, names_of(statement), operands, index)


class Rules:
    """The rules of an operation with any number of operands, or with shared computation.

    ``shared(operands, params)`` computes what depends on all operands.  If there are several, it
    is called once for each application, and its result is passed to `Rule.save` instead of the
    params.  ``first`` is a rule that runs once in the backward pass: its result is passed to the
    vjp rules of the operands instead of the output's cotangent.
    """

    __slots__ = ("_rule", "first", "shared")

    def __init__(self, rule: Function, shared: Function | None = None, first: Any = None) -> None:
        self._rule = rule
        self.shared = shared
        self.first = first

    def __getitem__(self, index: int) -> Any:
        return self._rule(index)
