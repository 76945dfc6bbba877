"""Operations that state their rules one by one, and those that have no derivative."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, Concatenate, overload

from fdbr.ops.declare.batches import aligned
from fdbr.ops.declare.operation import (
    Declaration,
    Operation,
    P,
    R_co,
    facts_in,
    operands_of,
    operation,
)
from fdbr.ops.declare.rules import Function, Rules, Unknown, names_of, saver, stated_rule
from fdbr.ops.declare.unbroadcast import dtype_of, fit, in_precision, match

__all__ = ["constant", "opaque", "several"]


def opaque(
    *,
    batch: Function | None = None,
    first: Function | None = None,
    **statements: Any,
) -> Declaration:
    """Declare an operation whose rules are stated one by one.

    For each operand there is a pair: the reverse rule, which takes the cotangent and what it
    names to the operand's cotangent; and the forward rule, which takes the operand's tangent
    and what it names to its share of the output's.  Of an operation with several outputs both
    are tuples.  `Unknown` twice stands for a derivative that is not known.  Where the reverse
    rules begin with the same work, ``first`` does it once: it takes the cotangent and what it
    names to what they are given in the cotangent's place.  Facts may stand beside the pairs (see
    `fdbr.core.primitive.Primitive`).
    """
    facts = facts_in(statements)

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs = [statements.get(name, (None, None)) for name in operands]
        rules: Any = [stated_rule(pull, operands, i) for i, (pull, _) in enumerate(pairs)]
        pushes = [_push_rule(push, operands, i) for i, (_, push) in enumerate(pairs)]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total: Any = None
            for tangent, rule in zip(tangents, pushes, strict=True):
                if tangent is not None and rule is not None:
                    push, save = rule
                    total = _plus(total, push(tangent, *save(values, out, params)))
            return match(total, out)

        if first is not None:
            rules = Rules(rules.__getitem__, first=stated_rule(first, operands, 0))
        return operation(value, "opaque", rules, forward, batch, **facts)

    return declare


def several(**partials: Any) -> Declaration:
    """Declare an operation of several outputs that acts on each element alone.

    The statement of an operand is a function of what it names, whose result is the tuple of
    the outputs' partial derivatives; or `Unknown`.  One that may be infinite where another is
    not is given as a function of nothing, and is only computed where the output is used.
    """

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs: dict[str, Any] = {
            name: _pair(partial, operands) for name, partial in partials.items()
        }
        return opaque(batch=aligned, **pairs)(value)

    return declare


def _pair(partial: Any, operands: tuple[str, ...]) -> tuple[Any, Any]:
    """The reverse and the forward rule that follow from partial derivatives.

    They are computed in the precision of the results, as those of `elementwise` are.
    """
    if isinstance(partial, Unknown):
        return partial, partial
    named = list(inspect.signature(partial).parameters.values())
    mine = [p.name in operands for p in named]

    def slopes(saved: Any, dtype: Any) -> Any:
        pairs = zip(saved, mine, strict=True)
        return partial(*(in_precision(v, dtype) if own else v for v, own in pairs))

    def pull(ct: Any, shape: Any, dtype: Any, *saved: Any) -> Any:
        to = next(dtype_of(c) for c in ct if c is not None)
        pairs = zip(ct, slopes(saved, to), strict=True)
        terms = [c * (p() if callable(p) else p) for c, p in pairs if c is not None]
        return fit(functools.reduce(operator.add, terms), (shape, dtype))

    def push(tangent: Any, out: Any, *saved: Any) -> Any:
        rest = iter(saved)
        known = [out if p.name == "out" else next(rest) for p in named]
        return tuple(tangent * (p() if callable(p) else p) for p in slopes(known, dtype_of(out[0])))

    pull.__signature__ = inspect.Signature(_first("ct", "shape", "dtype") + named)  # type: ignore[attr-defined]
    others = [p for p in named if p.name != "out"]
    push.__signature__ = inspect.Signature(_first("tangent", "out") + others)  # type: ignore[attr-defined]
    return pull, push


def _first(*names: str) -> list[inspect.Parameter]:
    return [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]


def _push_rule(push: Any, operands: tuple[str, ...], index: int) -> Any:
    """The forward rule of an operand, and what keeps the things that it names."""
    if push is None:
        return None
    if isinstance(push, Unknown):
        return push, push.of(index).save
    return push, saver(names_of(push), operands, index)


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return tuple(map(_plus, a, b)) if type(a) is tuple else a + b


@overload
def constant(
    value: Callable[Concatenate[Any, P], R_co], *, batch: Function = ..., **facts: Any
) -> Operation[P, R_co]: ...


@overload
def constant(*, batch: Function = ..., **facts: Any) -> Declaration: ...


def constant(value: Function | None = None, *, batch: Function = aligned, **facts: Any) -> Any:
    """Declare an operation whose derivative is zero wherever it exists.

    It broadcasts as elementwise operations do, unless it states how else it acts on a batch.
    Facts may stand beside that (see `fdbr.core.primitive.Facts`).
    """
    if value is None:
        return lambda value: constant(value, batch=batch, **facts)
    rules = Rules(lambda index: None)
    return operation(value, "constant", rules, None, batch, **facts)
