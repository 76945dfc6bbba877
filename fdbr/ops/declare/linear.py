"""Operations that are linear in all their operands together."""

from collections.abc import Sequence
from typing import Any

from fdbr.core.primitive import dispatch
from fdbr.ops.declare.operation import Declaration, facts_in, operands_of, operation
from fdbr.ops.declare.rules import Function, Rules, stated_rule
from fdbr.ops.declare.unbroadcast import dtype_of, fit, match, shape_of, zeros_of

__all__ = ["indexed", "joining", "linear"]


def linear(*, batch: Function | None = None, **transposes: Any) -> Declaration:
    """Declare an operation that is linear in all the operands given here together.

    A transpose takes the cotangent, and what it names, to the operand's cotangent.  Facts
    may stand beside them (see `fdbr.core.primitive.Facts`).
    """
    facts = facts_in(transposes)

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        rules = [stated_rule(transposes.get(n), operands, i) for i, n in enumerate(operands)]
        positions = [operands.index(name) for name in transposes]
        function = operation(value, "linear", rules, None, batch, **facts)
        function.primitive.forward = _forward(function.primitive, positions)
        return function

    return declare


def _forward(primitive: Any, positions: Sequence[int] | None) -> Function:
    """The operation itself, of the tangents; of zeros where an operand has none."""

    def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
        args = list(values)
        for i in range(len(values)) if positions is None else positions:
            args[i] = zeros_of(values[i]) if tangents[i] is None else tangents[i]
        return match(dispatch(primitive, tuple(args), params), out)

    return forward


def joining(places: Function, batch: Function, **facts: Any) -> Declaration:
    """Declare an operation that puts any number of operands side by side.

    ``places(operands, params)`` are the keys by which the operands are found again in the result,
    one an operand: what is read there of a cotangent is the operand's, but for the dtype.
    """

    def declare(value: Function) -> Any:
        rules = Rules(lambda index: _JoiningRule(places, index), shared=places)
        function = operation(value, "linear", rules, None, batch, **facts)
        function.primitive.forward = _forward(function.primitive, None)
        return function

    return declare


class _JoiningRule:
    """The rule of one operand among many, which keeps its own place and nothing of the others."""

    __slots__ = ("index", "places")

    retains = ()

    def __init__(self, places: Function, index: int) -> None:
        self.places = places
        self.index = index

    def save(self, args: Any, out: Any, shared: Any) -> tuple[Any, ...]:
        mine = args[self.index]
        # Of one operand alone nothing is shared: these are the params.
        places = shared if len(args) > 1 else self.places(args, shared)
        kept = None if dtype_of(mine) == out.dtype else (shape_of(mine), dtype_of(mine))
        return places[self.index], kept

    @staticmethod
    def pull(ct: Any, place: Any, like: Any) -> Any:
        return fit(ct[place], like)


def indexed(*transposes: Function, batch: Function, **facts: Any) -> Declaration:
    """Declare an operation that is linear in its first operands, at places the others tell.

    There is one transpose for each operand that is no index: ``transpose(cotangent, shape,
    indices, params)`` is its cotangent, in the output's dtype.
    """
    rules = [_IndexedRule(transpose, i, len(transposes)) for i, transpose in enumerate(transposes)]

    def declare(value: Function) -> Any:
        of = Rules(lambda i: rules[i] if i < len(rules) else None)
        function = operation(value, "linear", of, None, batch, **facts)
        function.primitive.forward = _forward(function.primitive, range(len(rules)))
        return function

    return declare


class _IndexedRule:
    """The rule of one operand; the indices are read-only when they come here."""

    __slots__ = ("first", "index", "pull")

    retains = ()

    def __init__(self, transpose: Function, index: int, first: int) -> None:
        self.pull = transpose
        self.index = index
        self.first = first

    def save(self, args: Any, out: Any, params: dict[str, Any]) -> tuple[Any, ...]:
        return shape_of(args[self.index]), args[self.first :], params
