"""Operations that state their rules one by one, and those that have no derivative."""

from typing import Any

from fdbr.ops.kinds.batches import aligned
from fdbr.ops.kinds.fitting import match
from fdbr.ops.kinds.operation import operands_of, operation
from fdbr.ops.kinds.rules import Function, Rules, names_of, saver, stated_rule

__all__ = ["constant", "opaque"]


def opaque(*, batch: Function | None = None, **statements: tuple[Function, Function]) -> Any:
    """Declare an operation whose rules are stated one by one.

    For each operand there is a pair: the reverse rule, which takes the cotangent and what it
    names to the operand's cotangent; and the forward rule, which takes the operand's tangent
    and what it names to its share of the output's.  Of an operation with several outputs both
    are tuples.
    """

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs = [statements.get(name, (None, None)) for name in operands]
        rules = [stated_rule(pull, operands, i) for i, (pull, _) in enumerate(pairs)]
        pushes = [
            None if push is None else (push, saver(names_of(push), operands, i))
            for i, (_, push) in enumerate(pairs)
        ]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total: Any = None
            for tangent, rule in zip(tangents, pushes, strict=True):
                if tangent is not None and rule is not None:
                    push, save = rule
                    total = _plus(total, push(tangent, *save(values, out, params)))
            return match(total, out)

        return operation(value, "opaque", rules, forward, batch)

    return declare


def _plus(a: Any, b: Any) -> Any:
    if a is None:
        return b
    return tuple(map(_plus, a, b)) if type(a) is tuple else a + b


def constant(value: Function | None = None, *, batch: Function = aligned) -> Any:
    """Declare an operation whose derivative is zero wherever it exists.

    It acts element by element, unless it states how else it acts on a batch.
    """
    if value is None:
        return lambda value: constant(value, batch=batch)
    return operation(value, "constant", Rules(lambda index: None), None, batch)
