"""Notes on errors inside vjp rules, which name the operation that the rule belongs to."""

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from fdbr.core.primitive import registry
from fdbr.errors.checks import describe

__all__ = ["blame"]


def blame(error: Exception, name: str, edge: Any, cotangent: Any) -> None:
    """Add a note to an error that tells where in the backward pass it was raised.

    Parameters
    ----------
    error
        The error; those of `fdbr.debug` say it themselves and are left unchanged.
    name
        The operation, a node's name.
    edge
        The edge whose rule failed, ``(parent, pull, saved)``.
    cotangent
        The cotangent that the rule was given.
    """
    if hasattr(error, "direction"):
        return
    vars(error)["is_from_rule"] = True  # public functions do not rename it
    parent, pull, saved = edge
    given = [f"cotangent {text}" for text in _described(cotangent)]
    kept = list(_described(saved))
    given += [f"kept {', '.join(kept)}"] if kept else []
    operand = _operand(name, pull)
    shape = getattr(parent[2], "shape", None)  # the tape of `fdbr.debug` annotates its entries
    if operand and shape is not None:
        operand += f" {parent[2].dtype}[{','.join(map(str, shape))}]"
    source = getattr(name, "source", None)
    where = f"; {name} was applied at {source}: {source.text}" if source else ""
    text = (
        f"in the backward rule of {name}{operand and ' for its operand ' + operand} "
        f"({'; '.join(given)}){where}"
    )
    before = error.args
    if len(before) == 1 and type(before[0]) is str:
        error.args = (f"{before[0]}\n  {text}",)
        if str(error) == error.args[0]:
            return
        error.args = before  # the class computes its message from other arguments
    error.add_note(text)


def _described(values: Any) -> Iterator[str]:
    """Yield descriptions of the arrays and numbers among a rule's arguments."""
    if type(values) in (tuple, list):
        for value in values:
            yield from _described(value)
    elif (hasattr(values, "dtype") and hasattr(values, "shape")) or type(values) in (
        float,
        complex,
    ):
        yield describe(values)


def _operand(name: str, pull: Any) -> str:
    """Name the operand that a rule differentiates by; empty if that is unknown."""
    primitive = registry.get(str(name))
    if primitive is None:
        return ""
    pulls = [pull]  # and the rules that it wraps, if it is observed or runs on another device
    while isinstance(pulls[-1], functools.partial) and pulls[-1].args:
        pulls.append(pulls[-1].args[0])
    parameters = list(inspect.signature(primitive.value).parameters.values())[1:]
    operands = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    rules = [primitive.rules[i] for i in range(len(operands))]
    pairs = zip(operands, rules, strict=True)
    return " or ".join(name for name, rule in pairs if rule is not None and rule.pull in pulls)
