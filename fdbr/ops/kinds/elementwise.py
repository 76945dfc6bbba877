"""Operations that act on each element alone."""

import inspect
from typing import Any

from fdbr.ops.kinds.batches import aligned
from fdbr.ops.kinds.fitting import fit, match
from fdbr.ops.kinds.operation import operands_of, operation
from fdbr.ops.kinds.rules import Function, Rule

__all__ = ["elementwise"]


def elementwise(**partials: Any) -> Any:
    """Declare an operation that acts on each element alone, with NumPy's broadcasting.

    The partial derivative in an operand is a function of what it names, or the number 1 or
    -1, or `None` where it is zero.
    """

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        rules = [_partial_rule(partials[name], operands, i) for i, name in enumerate(operands)]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total = None
            for rule, tangent in zip(rules, tangents, strict=True):
                if tangent is not None and rule is not None:
                    _, *named = rule.save(values, out, params)
                    # The pull with nothing to fit is the product with the partial derivative.
                    term = rule.pull(tangent, None, *named)
                    total = term if total is None else total + term
            return match(total, out)

        return operation(value, "elementwise", rules, forward, aligned)

    return declare


def _partial_rule(partial: Any, operands: tuple[str, ...], index: int) -> Rule | None:
    if partial is None:
        return None
    if isinstance(partial, int):
        pull = _identity_pull if partial == 1 else _negative_pull
        return Rule(pull, ["like"], operands, index)
    names = list(inspect.signature(partial).parameters)
    make = _partial_pull_of_one if len(names) == 1 else _partial_pull
    return Rule(make(partial), ["like", *names], operands, index)


def _partial_pull(partial: Function) -> Function:
    def pull(ct: Any, like: Any, *saved: Any) -> Any:
        ct = ct * partial(*saved)
        return ct if like is None else fit(ct, like)

    return pull


def _partial_pull_of_one(partial: Function) -> Function:
    # The usual case without the packing of arguments.
    def pull(ct: Any, like: Any, saved: Any) -> Any:
        ct = ct * partial(saved)
        return ct if like is None else fit(ct, like)

    return pull


def _identity_pull(ct: Any, like: Any) -> Any:
    return ct if like is None else fit(ct, like)


def _negative_pull(ct: Any, like: Any) -> Any:
    return -ct if like is None else fit(-ct, like)
