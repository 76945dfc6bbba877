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

    A transpose takes the cotangent, and what else its parameters name, to the operand's
    cotangent.  Fields of `fdbr.core.primitive.Facts` may be given beside the transposes.
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
    """Make the jvp rule: the operation applied to tangents, zeros where an operand has none."""

    def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
        args = list(values)
        for i in range(len(values)) if positions is None else positions:
            args[i] = zeros_of(values[i]) if tangents[i] is None else tangents[i]
        return match(dispatch(primitive, tuple(args), params), out)

    return forward


def joining(places: Function, batch: Function, **facts: Any) -> Declaration:
    """Declare an operation that joins any number of operands, as concatenation does.

    ``places(operands, params)`` returns an index for each operand, which selects it in the
    result: the operand's cotangent is the result's cotangent at that index, but for the dtype.
    """

    def declare(value: Function) -> Any:
        rules = Rules(lambda index: _JoiningRule(places, index), shared=places)
        function = operation(value, "linear", rules, None, batch, **facts)
        function.primitive.forward = _forward(function.primitive, None)
        return function

    return declare


class _JoiningRule:
    """The rule of one operand among many, which saves its own index in the result alone."""

    __slots__ = ("index", "places")

    retains = ()

    def __init__(self, places: Function, index: int) -> None:
        self.places = places
        self.index = index

    def save(self, args: Any, out: Any, shared: Any) -> tuple[Any, ...]:
        operand = args[self.index]
        # With one operand `Rules.shared` is not called, and ``shared`` is the params.
        places = shared if len(args) > 1 else self.places(args, shared)
        kept = None if dtype_of(operand) == out.dtype else (shape_of(operand), dtype_of(operand))
        return places[self.index], kept

    @staticmethod
    def pull(ct: Any, place: Any, like: Any) -> Any:
        return fit(ct[place], like)


def indexed(*transposes: Function, batch: Function, **facts: Any) -> Declaration:
    """Declare an operation that is linear in its first operands; the others are indices.

    There is one transpose for each linear operand: ``transpose(cotangent, shape, indices,
    params)`` returns its cotangent, in the output's dtype.
    """
    rules = [_IndexedRule(transpose, i, len(transposes)) for i, transpose in enumerate(transposes)]

    def declare(value: Function) -> Any:
        of = Rules(lambda i: rules[i] if i < len(rules) else None)
        function = operation(value, "linear", of, None, batch, **facts)
        function.primitive.forward = _forward(function.primitive, range(len(rules)))
        return function

    return declare


class _IndexedRule:
    """The rule of one operand; dispatch has made the indices read-only, so they are saved as is."""

    __slots__ = ("first", "index", "pull")

    retains = ()

    def __init__(self, transpose: Function, index: int, first: int) -> None:
        self.pull = transpose
        self.index = index
        self.first = first

    def save(self, args: Any, out: Any, params: dict[str, Any]) -> tuple[Any, ...]:
        return shape_of(args[self.index]), args[self.first :], params
