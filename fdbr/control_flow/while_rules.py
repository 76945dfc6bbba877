"""A while loop in a program: one instruction, and what transformations make of it.

In forward mode it carries tangents beside values; in a batch it continues as long as any example
does, and those that have ended keep what they have.  In reverse mode a second instruction runs the
loop once more, keeps the value of each turn, and goes back over them.  The number of turns is known
to none of these programs.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.compiler.capture.tracers import capturing
from fdbr.control_flow.body_tracing import Body, StageTrace, Step, evaluate, example, stage
from fdbr.control_flow.operands import for_each, own_memory, rounded, scalar, sum_start, zero
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace, innermost, stop_gradient
from fdbr.pytrees.structure import is_inexact
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import vjp
from fdbr.transforms.vmap import BatchTrace, on_batch

__all__ = ["BACK", "LIVE", "WHILE", "While", "apply"]

Leaves = Sequence[Any]
Function = Callable[[list[Any]], list[Any]]


class While:
    """A loop whose operands are ``(*carry, *consts)``.

    Attributes
    ----------
    carried, shared
        How many leaves are carried, and how many constants both functions take; those that only
        the body takes come next, and then those of the condition.
    cond, body
        From ``(*carry, *consts)`` to a truth value, and to the next carry.
    masked
        Whether turns are also computed for examples of a batch that have ended.
    """

    __slots__ = ("body", "carried", "cond", "masked", "shared")

    def __init__(
        self,
        cond: Function,
        body: Function,
        carry: Leaves,
        consts: Leaves,
        masked: bool = False,
        checks: bool = False,
    ) -> None:
        self.masked = masked
        self.carried, self.shared = len(carry), len(consts)
        shown = [example(leaf) for leaf in (*carry, *consts)]
        self.cond, self.body = stage(cond, shown), stage(body, shown, checks)

    @property
    def found(self) -> list[Any]:
        """The operands that come after those which the loop was made with."""
        return [*self.body.found, *self.cond.found]

    def forget(self) -> None:
        """Give up the values with which the bodies were captured."""
        for body in self.bodies:
            body.forget()

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The programs within."""
        return self.cond, self.body

    def watched(self) -> Any:
        """A context for turns: nobody is warned of what becomes of examples that have ended."""
        return np.errstate(all="ignore") if self.masked else contextlib.nullcontext()

    def takes(self, operands: Leaves) -> tuple[Leaves, Leaves, Leaves]:
        """The carry, and the constants of the body and of the condition."""
        consts = operands[self.carried :]
        cut = self.shared + len(self.body.found)
        return (
            operands[: self.carried],
            consts[:cut],
            [*consts[: self.shared], *consts[cut:]],
        )

    def goes_on(self, operands: Leaves) -> Any:
        """Whether there is a next turn, on arrays or traced values."""
        carry, _, consts = self.takes(operands)
        return evaluate(self.cond.program, [*carry, *consts])[0]

    def iteration(self, operands: Leaves) -> list[Any]:
        """The next carry."""
        carry, consts, _ = self.takes(operands)
        return evaluate(self.body.program, [*carry, *consts])

    def differentiable(self, operands: Leaves) -> list[Any]:
        """The next carry, for a transformation that differentiates."""
        carry, consts, _ = self.takes(operands)
        return evaluate(self.body.program, [*carry, *consts], _DIFFERENTIATED)

    def unrolled(self, operands: Leaves) -> list[Any]:
        """The loop as one of Python."""
        carry, consts = list(operands[: self.carried]), operands[self.carried :]
        while bool(self.goes_on([*carry, *consts])):
            carry = self.differentiable([*carry, *consts])
        return carry

    def __repr__(self) -> str:
        return f"<turns of {len(self.body.program.steps)} steps>"


def apply(loop: While, operands: Leaves) -> tuple[Any, ...]:
    """The last carry, on operands that may be traced."""
    outs: tuple[Any, ...] = WHILE.apply(*operands, loop=loop)
    return outs


def _unrolled(why: str, *operands: Any, loop: While) -> list[Any]:
    _note_unrolled(why)
    return loop.unrolled(operands)


def _note_unrolled(why: str) -> None:
    """Have the report on a jitted function say why a loop of it is not one step."""
    captured = capturing.get()
    if captured is not None:
        captured.unrolled[f"fdbr.while_loop is traced iteration by iteration: {why}"] = None


def _run(xp: Any, *operands: Any, loop: While) -> tuple[Any, ...]:
    for carry in _carries(loop, operands):  # noqa: B007
        pass
    return own_memory(carry, operands)


def _carries(loop: While, operands: Leaves) -> Any:
    """The carry before each turn, and the last one."""
    carry, consts, asked = loop.takes(operands)
    carry = list(map(scalar, carry))
    consts, asked = list(map(scalar, consts)), list(map(scalar, asked))
    goes_on = loop.cond.code([*carry, *asked])
    code: Any = None
    while goes_on.run_or_step(*carry, *asked)[0]:
        yield carry
        code = code or loop.body.code([*carry, *consts])
        with loop.watched():
            carry = list(map(scalar, code.run_or_step(*carry, *consts)))
    yield carry


# --- reverse mode -------------------------------------------------------------------


def _reverse(trace: Trace, values: Leaves, mine: Sequence[bool], loop: While) -> Any:
    outs = apply(loop, values)
    wanted = tuple(mine)

    def vjp_of_loop(cotangents: list[Any]) -> list[Any]:
        derivatives = [
            (zero(out) if ct is None else ct)
            for ct, out in zip(cotangents, outs, strict=True)
            if is_inexact(out)
        ]
        return list(BACK.apply(*values, *derivatives, loop=loop, wanted=wanted))

    return outs, vjp_of_loop


def _unrolled_back(why: str, *operands: Any, loop: While, wanted: tuple[bool, ...]) -> list[Any]:
    _note_unrolled(why)
    values, derivatives = operands[: len(wanted)], operands[len(wanted) :]

    def outs(*moved: Any) -> list[Any]:
        new = iter(moved)
        given = [next(new) if own else v for own, v in zip(wanted, values, strict=True)]
        return [out for out in loop.unrolled(given) if is_inexact(out)]

    chosen = (v for v, own in zip(values, wanted, strict=True) if own)
    return list(vjp(outs, *chosen)[1](list(derivatives)))


def _run_back(xp: Any, *operands: Any, loop: While, wanted: tuple[bool, ...]) -> tuple[Any, ...]:
    """The cotangents of the wanted operands; those of the results come after the operands."""
    values, derivatives = operands[: len(wanted)], list(map(scalar, operands[len(wanted) :]))
    carry, consts, _ = loop.takes(values)
    # what the condition alone takes has no derivative
    own = wanted[loop.carried : loop.carried + len(consts)]
    active = [is_inexact(leaf) for leaf in carry]
    owned = [value for value, one in zip(consts, own, strict=True) if one]
    sums = [scalar(sum_start(value)) for value in owned]
    *iterations, _ = _carries(loop, values)
    if iterations:
        code = _back_of(loop, active, own, iterations[0], consts, derivatives, sums)
        while iterations:
            with loop.watched():
                found = code(*derivatives, *sums, *iterations.pop(), *map(scalar, consts))
            derivatives = list(map(scalar, found[: len(derivatives)]))
            sums = list(map(scalar, found[len(derivatives) :]))
    of_carry, of_consts = iter(derivatives), iter(sums)
    result = []
    for one, mine in zip(active, wanted, strict=False):
        slope = next(of_carry) if one else None
        result += [slope] if mine else []
    result += map(rounded, of_consts, owned)
    result += [zero(v) for v, one in zip(values, wanted, strict=True) if one][len(result) :]
    return own_memory(result, operands)


def _back_of(
    loop: While,
    active: Sequence[bool],
    own: Sequence[bool],
    carry: Leaves,
    consts: Leaves,
    derivatives: Leaves,
    sums: Leaves,
) -> Callable[..., Any]:
    """Make the pullback of a turn."""

    def back(leaves: list[Any]) -> list[Any]:
        given, added = (
            leaves[: len(derivatives)],
            leaves[len(derivatives) : len(derivatives) + len(sums)],
        )
        point = leaves[len(derivatives) + len(sums) :]
        flags = [*active, *own]

        def iteration(*moved: Any) -> list[Any]:
            new = iter(moved)
            full = [next(new) if one else v for one, v in zip(flags, point, strict=True)]
            outs = evaluate(loop.body.program, full, _DIFFERENTIATED)
            return [out for out, one in zip(outs, active, strict=True) if one]

        found = vjp(iteration, *(v for v, one in zip(point, flags, strict=True) if one))[1](given)
        more = [a + b for a, b in zip(added, found[len(derivatives) :], strict=True)]
        return [*found[: len(derivatives)], *more]

    leaves = [*derivatives, *sums, *carry, *map(scalar, consts)]
    known = loop.body.back.get(tuple(own))
    if known is None:
        known = loop.body.back[tuple(own)] = stage(back, leaves)
    body: Body = known
    body.compiled = loop.body.compiled
    code = body.code([*leaves, *body.found])
    return lambda *leaves: code.run_or_step(*leaves, *body.found)


# --- forward mode -------------------------------------------------------------------


def _forward(trace: Trace, values: Leaves, tangents: Leaves, loop: While) -> Any:
    carry, consts = values[: loop.carried], values[loop.carried :]
    active = [is_inexact(leaf) for leaf in carry]
    flags = [*active, *(t is not None for t in tangents[loop.carried :])]
    starts = [
        zero(v) if t is None else t
        for v, t, one in zip(carry, tangents, active, strict=False)
        if one
    ]
    moved = [t for t in tangents[loop.carried :] if t is not None]
    count, more = loop.carried, len(starts)

    def plain(leaves: list[Any]) -> list[Any]:
        return [*leaves[:count], *leaves[count + more : count + more + len(consts)]]

    def cond(leaves: list[Any]) -> list[Any]:
        return [loop.goes_on(plain(leaves))]

    def body(leaves: list[Any]) -> list[Any]:
        given = iter([*leaves[count : count + more], *leaves[count + more + len(consts) :]])
        tangent_out = tuple(next(given) if one else None for one in flags)
        out, derivatives = jvp(
            lambda *full: loop.differentiable(full), tuple(plain(leaves)), tangent_out
        )
        return [*out, *(s for s, one in zip(derivatives, active, strict=True) if one)]

    found = _looped(cond, body, [*carry, *starts], [*consts, *moved], loop.masked)
    given = iter(found[count:])
    return found[:count], [next(given) if one else None for one in active]


def _looped(
    cond: Function, body: Function, carry: Leaves, consts: Leaves, masked: bool
) -> tuple[Any, ...]:
    new = While(cond, body, carry, consts, masked)
    outs = apply(new, [*carry, *consts, *new.found])
    new.forget()
    return outs


# --- batches ------------------------------------------------------------------------


class _MoreInBatchError(Exception):
    """A leaf of the carry that was the same for all examples differs after a turn."""


def _batched(
    loop: While, size: int, values: Leaves, mine: Sequence[bool]
) -> tuple[While, list[Any], list[bool]]:
    """The loop over a whole batch, its operands, and of which leaves there is a batch."""
    own = list(mine)

    def goes_on(leaves: list[Any]) -> tuple[Any, bool]:
        outs, mine = on_batch(lambda given: [loop.goes_on(given)], size, leaves, own)
        return outs[0], mine[0]

    def cond(leaves: list[Any]) -> list[Any]:
        live, differs = goes_on(leaves[: len(own)])
        return [ops.any(live) if differs else live]

    def body(leaves: list[Any]) -> list[Any]:
        leaves, safe = leaves[: len(own)], leaves[len(own) :]
        live, differs = goes_on(leaves)
        given = _of_live_examples(live, leaves, own, safe) if differs and size else leaves
        outs, mine = on_batch(loop.iteration, size, given, own)
        for i, one in enumerate(mine):
            if (one or differs) and not own[i]:
                own[i] = True
                raise _MoreInBatchError
            if own[i] and not one:
                outs[i] = for_each(outs[i], size)
            if differs:
                outs[i] = ops.where(_as_column(live, outs[i]), outs[i], leaves[i])
        return outs

    while True:
        given = [
            for_each(v, size) if one and not had else v
            for v, one, had in zip(values, own, mine, strict=True)
        ]
        live, differs = goes_on(given)
        safe = _first_live_example(live, given, own) if differs and size else []
        try:
            new = While(cond, body, given[: loop.carried], [*given[loop.carried :], *safe], True)
            return new, [*given, *safe, *new.found], own
        except _MoreInBatchError:
            continue


def _first_live_example(live: Any, leaves: Leaves, own: Sequence[bool]) -> list[Any]:
    first = ops.reshape(ops.argmax(live), (1,))
    return [
        ops.take(stop_gradient(leaf), first, axis=0)
        for leaf, one in zip(leaves, own, strict=True)
        if one
    ]


def _of_live_examples(live: Any, leaves: Leaves, own: Sequence[bool], safe: Leaves) -> list[Any]:
    given = iter(safe)
    return [
        LIVE.apply(leaf, _as_column(live, leaf), next(given))[0] if one else leaf
        for leaf, one in zip(leaves, own, strict=True)
    ]


def _as_column(live: Any, leaf: Any) -> Any:
    """Return a flag for each example in a shape that broadcasts with a batch."""
    return ops.reshape(live, (-1,) + (1,) * (len(leaf.shape) - 1))


class _Live(Step):
    """The values of a batch that an iteration gets: `LIVE.apply(leaf, live, safe)`.

    Examples that have ended get the first values of a live example if the iteration is
    differentiated, because a cotangent of zero times infinity is NaN.  Otherwise nothing needs to
    be replaced, because their results are discarded.
    """

    __slots__ = ()

    def apply(self, *operands: Any) -> Any:
        if isinstance(innermost(operands), StageTrace | BatchTrace):
            return super().apply(*operands)
        return operands[:1]


def _batch_live(trace: BatchTrace, values: Leaves, mine: Sequence[bool]) -> Any:
    full = [v if own else for_each(v, trace.size) for v, own in zip(values, mine, strict=True)]
    return LIVE.apply(*full), [True]


def _of_live(leaf: Any, live: Any, safe: Any) -> tuple[Any]:
    return (ops.where(live, leaf, safe),)


LIVE = _Live("live", lambda xp, leaf, live, safe: (leaf,), batch=_batch_live)
_DIFFERENTIATED: dict[Primitive, Any] = {LIVE: _of_live}
"""Replacements of primitives in a differentiated iteration."""


def _batch(trace: BatchTrace, values: Leaves, mine: Sequence[bool], loop: While) -> Any:
    new, given, own = _batched(loop, trace.size, values, mine)
    return apply(new, given), own[: loop.carried]


def _batch_back(
    trace: BatchTrace, values: Leaves, mine: Sequence[bool], loop: While, wanted: tuple[bool, ...]
) -> Any:
    """Each example's own cotangents, also those of operands that all examples share."""
    count = len(wanted)
    flags = [own or one for own, one in zip(mine[:count], wanted, strict=True)]
    active = [i for i in range(loop.carried) if is_inexact(values[i])]
    for i, had in zip(active, mine[count:], strict=True):
        flags[i] = (
            flags[i] or had
        )  # a batch of cotangents, as of a Jacobian, makes one of the carry
    full = [
        for_each(v, trace.size) if one and not own else v
        for v, one, own in zip(values, flags, mine, strict=False)
    ]
    new, given, own = _batched(loop, trace.size, full, flags)
    derivatives = [
        for_each(s, trace.size) if own[i] and not had else s
        for s, had, i in zip(values[count:], mine[count:], active, strict=True)
    ]
    wanted = (*wanted, *(False for _ in given[count:]))
    found = BACK.apply(*given, *derivatives, loop=new, wanted=wanted)
    return found, [True] * len(found)


WHILE = Step("while_loop", _run, _unrolled, reverse=_reverse, forward=_forward, batch=_batch)
BACK = Step("while_loop_vjp", _run_back, _unrolled_back, batch=_batch_back)
