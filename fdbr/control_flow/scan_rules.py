"""A scan in a program: one instruction, and what transformations make of it.

Each rule makes another scan, whose body is the transformed body: in forward mode it carries
tangents beside values, in a batch it carries batches.  In reverse mode the scan also keeps the
carry of each iteration, and a second scan in the opposite direction carries cotangents and
recomputes the intermediate values of each iteration.
"""

from collections.abc import Sequence
from typing import Any

from fdbr import ops
from fdbr.control_flow.body_tracing import Body, NoBodyError, Step, evaluate, stage
from fdbr.control_flow.operands import (
    Stack,
    cut,
    examples,
    for_each,
    own_memory,
    rounded,
    scalar,
    sum_start,
    taker,
    there,
    zero,
)
from fdbr.core.tracer import Trace
from fdbr.pytrees.structure import is_inexact
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import vjp
from fdbr.transforms.vmap import BatchTrace, on_batch

__all__ = ["SCAN", "Scan", "apply"]

Leaves = Sequence[Any]


class Scan:
    """A loop over rows, whose operands are ``(*base, *carry, *xs, *consts)``.

    Attributes
    ----------
    body
        From ``(*i, *carry, *x, *consts)`` to ``(*carry, *y)``.
    numbers
        The numbers that are added to the operand ``base`` to get the integers ``i`` of the
        iterations; `None` if the body takes none.
    carried, rows
        The number of carried leaves, and of operands whose rows are iterated over.
    length
        The number of iterations, at least one.
    reverse
        Whether the last row comes first.
    """

    __slots__ = ("body", "carried", "length", "numbers", "reverse", "rows")

    def __init__(
        self,
        body: Body,
        carried: int,
        rows: int,
        length: int,
        reverse: bool,
        numbers: range | None = None,
    ) -> None:
        self.body, self.carried, self.rows = body, carried, rows
        self.length, self.reverse, self.numbers = length, reverse, numbers

    @property
    def order(self) -> Any:
        """The indices of the rows, in the order of the iterations."""
        order = range(self.length)
        return reversed(order) if self.reverse else order

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The programs within."""
        return (self.body,)

    def split(self, leaves: Leaves) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Split operands, or flags for them, into base, carry, rows and constants."""
        first = 0 if self.numbers is None else 1
        second = first + self.carried
        third = second + self.rows
        given = list(leaves)
        return given[:first], given[first:second], given[second:third], given[third:]

    def arguments(self, index: int, base: Leaves, carry: Leaves, xs: Leaves, consts: Leaves) -> Any:
        """Return the arguments of the body in an iteration."""
        heads = [value + self.numbers[index] for value in base] if self.numbers else []
        return [*heads, *carry, *(x[index] for x in xs), *consts]

    def first(self, operands: Leaves) -> list[Any]:
        """Return plain values like the body's arguments in the first iteration."""
        index = self.length - 1 if self.reverse else 0
        leaves = self.arguments(index, *map(examples, self.split(operands)))
        return examples(leaves)

    def __repr__(self) -> str:
        back = ", from the last" if self.reverse else ""
        return f"<{self.length} iterations{back} of {len(self.body.program.steps)} steps>"


def apply(scan: Scan, operands: Leaves) -> tuple[Any, ...]:
    """The last carry and the stacked results, on operands that may be traced."""
    outs: tuple[Any, ...] = SCAN.apply(*operands, scan=scan)
    return outs


def _unrolled(scan: Scan, operands: Leaves) -> tuple[Any, ...]:
    """Run the loop in Python, one iteration after the other."""
    base, carry, xs, consts = scan.split(operands)
    rows = []
    for index in scan.order:
        outs = evaluate(scan.body.program, scan.arguments(index, base, carry, xs, consts))
        carry = outs[: scan.carried]
        rows.append(outs[scan.carried :])
    rows = rows[::-1] if scan.reverse else rows
    return (*carry, *(ops.stack(parts) for parts in zip(*rows, strict=True)))


def _run(xp: Any, *operands: Any, scan: Scan) -> tuple[Any, ...]:
    base, carry, xs, consts = scan.split(operands)
    carry = list(map(scalar, carry))
    consts = list(map(scalar, consts))
    code = scan.body.code(scan.first(operands), scan.length)
    stacks: list[Any] = []
    for index in scan.order:
        outs = code.run_or_step(*scan.arguments(index, base, carry, xs, consts))
        carry = list(map(scalar, outs[: scan.carried]))
        ys = outs[scan.carried :]
        if not stacks:
            stacks = [Stack(xp, y, scan.length) for y in ys]
        for stack, y in zip(stacks, ys, strict=True):
            stack[index] = y
    return (*own_memory(carry, operands), *(stack.whole(xp) for stack in stacks))


# --- reverse mode -------------------------------------------------------------------


def _reverse(trace: Trace, values: Leaves, mine: Sequence[bool], scan: Scan) -> Any:
    base, carry, xs, consts = scan.split(values)
    flags = [*(False for _ in base), *map(is_inexact, carry), *mine[len(base) + len(carry) :]]

    def body(leaves: list[Any]) -> list[Any]:
        outs = _vjp_of_iteration(scan, leaves, flags)[0]  # as it is where rules are stated
        return [*outs, *scan.split(leaves)[1]]

    found = _scanned(body, scan, base, carry, xs, consts, scan.reverse, scan.carried)
    count = len(scan.body.outs)
    outs, saved = tuple(found[:count]), found[count:]

    def vjp_of_scan(cotangents: list[Any]) -> list[Any]:
        try:
            return _cotangents(scan, values, mine, outs, saved, cotangents)
        except NoBodyError:
            return _vjp_unrolled(scan, values, mine, cotangents)

    return outs, vjp_of_scan


def _vjp_of_iteration(scan: Scan, leaves: Leaves, flags: Sequence[bool], used: Any = None) -> Any:
    """Return the used results of an iteration, and their pullback to the flagged leaves."""

    def iteration(*moved: Any) -> list[Any]:
        new = iter(moved)
        given = [next(new) if own else v for own, v in zip(flags, leaves, strict=True)]
        found = evaluate(scan.body.program, given)
        return [out for i, out in enumerate(found) if used is None or used[i]]

    return vjp(iteration, *(v for v, own in zip(leaves, flags, strict=True) if own))


def _cotangents(
    scan: Scan,
    values: Leaves,
    mine: Sequence[bool],
    outs: Leaves,
    saved: Leaves,
    cotangents: Leaves,
) -> list[Any]:
    """Compute the cotangents of operands by a scan in the opposite direction."""
    base, carry, xs, consts = scan.split(values)
    _, own_carry, own_xs, own_consts = scan.split(mine)
    active = [is_inexact(leaf) for leaf in carry]
    used = [ct is not None for ct in cotangents]
    chosen = [*active, *used[scan.carried :]]  # the results that have cotangents
    moving = [*active, *own_xs, *own_consts]

    def body(leaves: list[Any]) -> list[Any]:
        take = taker(leaves)
        heads, derivatives, sums = take(len(base)), take(sum(active)), take(sum(own_consts))
        point, given_ys = take(len(carry) + len(xs)), take(sum(used[len(carry) :]))
        flags = [*(False for _ in heads), *moving]
        _, back = _vjp_of_iteration(scan, [*heads, *point, *take(len(consts))], flags, chosen)
        found = list(back([*derivatives, *given_ys]))
        first, last = sum(active), len(found) - sum(own_consts)
        added = [a + b for a, b in zip(sums, found[last:], strict=True)]
        return [*found[:first], *added, *found[first:last]]

    starts = [
        zero(out) if ct is None else ct
        for out, ct, one in zip(outs, cotangents, active, strict=False)
        if one
    ]
    owned = [value for value, own in zip(consts, own_consts, strict=True) if own]
    sums = list(map(sum_start, owned))
    rows = [*saved, *xs, *(ct for ct in cotangents[scan.carried :] if ct is not None)]
    found = _scanned(
        body, scan, base, [*starts, *sums], rows, consts, not scan.reverse, len(starts) + len(sums)
    )
    of_carry, of_sums = iter(found[: len(starts)]), iter(found[len(starts) :])
    result: list[Any] = []
    for one, own in zip(active, own_carry, strict=True):
        slope = next(of_carry) if one else None
        result += [slope] if own else []
    of_consts = [rounded(next(of_sums), value) for value in owned]
    return [*result, *of_sums, *of_consts]


def _scanned(
    f: Any,
    like: Scan,
    base: Leaves,
    carry: Leaves,
    rows: Leaves,
    consts: Leaves,
    reverse: bool,
    carried: int,
) -> tuple[Any, ...]:
    """Apply a scan like another one with a different body."""
    operands = [*base, *carry, *rows, *consts]
    empty: Any = None
    new = Scan(empty, carried, len(rows), like.length, reverse, like.numbers)
    new.body = stage(f, new.first(operands))
    outs = apply(new, [*operands, *new.body.found])
    new.body.forget()
    return outs


def _vjp_unrolled(
    scan: Scan, values: Leaves, mine: Sequence[bool], cotangents: Leaves
) -> list[Any]:
    used = [ct is not None for ct in cotangents]

    def loop(*moved: Any) -> list[Any]:
        new = iter(moved)
        leaves = [next(new) if own else v for own, v in zip(mine, values, strict=True)]
        return [out for out, one in zip(_unrolled(scan, leaves), used, strict=True) if one]

    _, back = vjp(loop, *(v for v, own in zip(values, mine, strict=True) if own))
    return list(back([ct for ct in cotangents if ct is not None]))


# --- forward mode -------------------------------------------------------------------


def _forward(trace: Trace, values: Leaves, tangents: Leaves, scan: Scan) -> Any:
    base, carry, xs, consts = scan.split(values)
    _, of_carry, of_xs, of_consts = scan.split(tangents)
    active = [is_inexact(leaf) for leaf in carry]
    outputs = [is_inexact(out) for out in scan.body.outs]
    moving = [*active, *(t is not None for t in (*of_xs, *of_consts))]

    def body(leaves: list[Any]) -> list[Any]:
        take = taker(leaves)
        heads = take(len(base))
        parts = []
        for values, count in zip(
            (carry, xs, consts), map(sum, cut(moving, (len(carry), len(xs)))), strict=True
        ):
            parts.append((take(len(values)), take(count)))
        full = [value for part, _ in parts for value in part]
        new = iter([slope for _, part in parts for slope in part])
        tangent_out = tuple(next(new) if own else None for own in moving)
        out, derivatives = jvp(
            lambda *full: evaluate(scan.body.program, [*heads, *full]), tuple(full), tangent_out
        )
        derivatives = [s if one else None for s, one in zip(derivatives, outputs, strict=True)]
        last = scan.carried
        return [
            *out[:last],
            *there(derivatives[:last]),
            *out[last:],
            *there(derivatives[last:]),
        ]

    starts = [
        zero(value) if t is None else t
        for value, t, one in zip(carry, of_carry, active, strict=True)
        if one
    ]
    found = _scanned(
        body,
        scan,
        base,
        [*carry, *starts],
        [*xs, *there(of_xs)],
        [*consts, *there(of_consts)],
        scan.reverse,
        len(carry) + len(starts),
    )
    take = taker(found)
    last, last_derivatives = take(scan.carried), iter(take(sum(active)))
    ys = take(len(outputs) - scan.carried)
    derivatives = [next(last_derivatives) if one else None for one in active]
    derivatives += [take(1)[0] if one else None for one in outputs[scan.carried :]]
    return [*last, *ys], derivatives


# --- batches ------------------------------------------------------------------------


def _batch(trace: BatchTrace, values: Leaves, mine: Sequence[bool], scan: Scan) -> Any:
    base, carry, xs, consts = scan.split(values)
    own_base, own_carry, own_xs, own_consts = scan.split(mine)
    if any(own_base):
        raise NoBodyError("its integers differ between the examples of a batch")
    xs = [ops.moveaxis(x, 1, 0) if own else x for x, own in zip(xs, own_xs, strict=True)]
    own_ys: list[bool] = []

    def body(leaves: list[Any]) -> list[Any]:
        flags = [*own_base, *own_carry, *own_xs, *own_consts]
        program = scan.body.program
        results, own = on_batch(lambda given: evaluate(program, given), trace.size, leaves, flags)
        own_ys[:] = own[scan.carried :]
        for i in range(scan.carried):
            if own[i] and not own_carry[i]:
                own_carry[i] = True
                raise _MoreInBatchError
            if own_carry[i] and not own[i]:
                results[i] = for_each(results[i], trace.size)
        return results

    while True:
        starts = [
            for_each(value, trace.size) if own and not given else value
            for value, own, given in zip(carry, own_carry, scan.split(mine)[1], strict=True)
        ]
        try:
            found = _scanned(body, scan, base, starts, xs, consts, scan.reverse, scan.carried)
            break
        except _MoreInBatchError:
            continue
    last, ys = found[: scan.carried], found[scan.carried :]
    stacks = [ops.moveaxis(y, 1, 0) if own else y for y, own in zip(ys, own_ys, strict=True)]
    return [*last, *stacks], [*own_carry, *own_ys]


class _MoreInBatchError(Exception):
    """A leaf of the carry that was the same for all examples differs after an iteration."""


SCAN = Step(
    "scan",
    _run,
    lambda why, *operands, scan: _unrolled(scan, operands),
    reverse=_reverse,
    forward=_forward,
    batch=_batch,
)
