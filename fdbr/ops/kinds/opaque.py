"""Operations that state their rules one by one, and those that have no derivative."""

import functools
import inspect
import operator
from typing import Any

from fdbr.ops.kinds.batches import aligned
from fdbr.ops.kinds.fitting import fit, match
from fdbr.ops.kinds.operation import operands_of, operation
from fdbr.ops.kinds.rules import Function, Rules, Unknown, names_of, saver, stated_rule

__all__ = ["constant", "opaque", "several"]


def opaque(*, batch: Function | None = None, **statements: tuple[Function, Function]) -> Any:
    """Declare an operation whose rules are stated one by one.

    For each operand there is a pair: the reverse rule, which takes the cotangent and what it
    names to the operand's cotangent; and the forward rule, which takes the operand's tangent
    and what it names to its share of the output's.  Of an operation with several outputs both
    are tuples.  `Unknown` twice stands for a derivative that is not known.
    """

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs = [statements.get(name, (None, None)) for name in operands]
        rules = [stated_rule(pull, operands, i) for i, (pull, _) in enumerate(pairs)]
        pushes = [_push_rule(push, operands, i) for i, (_, push) in enumerate(pairs)]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total: Any = None
            for tangent, rule in zip(tangents, pushes, strict=True):
                if tangent is not None and rule is not None:
                    push, save = rule
                    total = _plus(total, push(tangent, *save(values, out, params)))
            return match(total, out)

        return operation(value, "opaque", rules, forward, batch)

    return declare


def several(**partials: Any) -> Any:
    """Declare an operation of several outputs that acts on each element alone.

    The statement of an operand is a function of what it names, whose result is the tuple of
    the outputs' partial derivatives; or `Unknown`.  One that may be infinite where another is
    not is given as a function of nothing, and is only computed where the output is used.
    """

    def declare(value: Function) -> Any:
        return opaque(batch=aligned, **{name: _pair(p) for name, p in partials.items()})(value)

    return declare


def _pair(partial: Any) -> tuple[Any, Any]:
    """The reverse and the forward rule that follow from partial derivatives."""
    if isinstance(partial, Unknown):
        return partial, partial

    def pull(ct: Any, shape: Any, dtype: Any, *saved: Any) -> Any:
        pairs = zip(ct, partial(*saved), strict=True)
        terms = [c * (p() if callable(p) else p) for c, p in pairs if c is not None]
        return fit(functools.reduce(operator.add, terms), (shape, dtype))

    def push(tangent: Any, *saved: Any) -> Any:
        return tuple(tangent * (p() if callable(p) else p) for p in partial(*saved))

    named = list(inspect.signature(partial).parameters.values())
    first = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in _FIRST]
    pull.__signature__ = inspect.Signature([*first, *named])  # type: ignore[attr-defined]
    push.__signature__ = inspect.Signature([first[0], *named])  # type: ignore[attr-defined]
    return pull, push


_FIRST = ("ct", "shape", "dtype")


def _push_rule(push: Any, operands: tuple[str, ...], index: int) -> Any:
    """The forward rule of an operand, and what keeps the things that it names."""
    if push is None:
        return None
    if isinstance(push, Unknown):
        return push, push.of(index).save
    return push, saver(names_of(push), operands, index)


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
