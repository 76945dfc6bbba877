"""Operations that are linear in each of their operands alone."""

from typing import Any

from fdbr.core.primitive import dispatch
from fdbr.ops.declare.operation import Declaration, facts_in, operands_of, operation
from fdbr.ops.declare.rules import Function, stated_rule
from fdbr.ops.declare.unbroadcast import match

__all__ = ["multilinear"]


def multilinear(*, batch: Function | None = None, **transposes: Any) -> Declaration:
    """Declare an operation that is linear in each of the operands given here alone.

    A transpose takes the cotangent, and what else its parameters name, to the operand's
    cotangent.  Fields of `fdbr.core.primitive.Facts` may be given beside the transposes.
    """
    facts = facts_in(transposes)

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        rules = [stated_rule(transposes.get(n), operands, i) for i, n in enumerate(operands)]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total = None
            for i, tangent in enumerate(tangents):
                if tangent is not None and rules[i] is not None:
                    args = (*values[:i], tangent, *values[i + 1 :])
                    term = dispatch(made.primitive, args, params)
                    total = term if total is None else total + term
            return match(total, out)

        made: Any = operation(value, "multilinear", rules, forward, batch, **facts)
        return made

    return declare
