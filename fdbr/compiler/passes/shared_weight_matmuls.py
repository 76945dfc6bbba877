"""Products of many matrices with one weight, merged to one product of all their rows."""

from collections.abc import Iterator, Sequence
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import (
    Instruction,
    Program,
    Step,
    Variable,
    kind_of,
)
from fdbr.compiler.passes.steps import last_remats

__all__ = ["merge_shared_weights"]

# Measured limits: see `batch_matmuls`.
_FEW = 4  # products from which on merging pays
_ROWS = 128  # rows of one product beyond which it does not pay
_ALL_ROWS = 16  # rows of all products together below which it does not pay

Node = list[Instruction]
"""Instructions that run one after the other."""


def merge_shared_weights(program: Program) -> Program:
    """Merge the products that share a weight, between two guards.

    Steps are reordered where this requires it, and keep the captured order otherwise.
    """
    orders = {
        frozenset(map(id, step.operands)): step.operands
        for step in program.steps
        if type(step) is Instruction and step.primitive is op.CONCAT and not step.params["axis"]
    }
    remats = last_remats(program)
    steps: list[Step] = []
    segment: list[Instruction] = []
    changed = False
    for step in (*program.steps, None):
        if type(step) is Instruction:
            segment.append(step)
            continue
        waiting = True
        while waiting and (groups := list(_groups(segment, remats))):
            segment, merged, waiting = _merged(segment, groups, orders)
            changed |= merged
        steps += segment
        segment = []
        if step is not None:
            steps.append(step)
    return program.replace(steps) if changed else program


# --- grouping -----------------------------------------------------------------------


def _groups(segment: Sequence[Instruction], remats: dict[Variable, int]) -> Iterator[Node]:
    """Yield independent products that share a weight, where merging pays."""
    found: dict[Any, list[int]] = {}
    for place, step in enumerate(segment):
        if step.primitive in op.PRODUCTS and (key := _weight(step)) is not None:
            last = max([remats.get(v, 0) for v in step.reads], default=0)
            found.setdefault((key, last), []).append(place)
    groups = [places for places in found.values() if len(places) >= _FEW]
    if not groups:
        return
    own = {place: 1 << number for number, places in enumerate(groups) for place in places}
    behind: dict[Variable, int] = {}  # a bit mask of the groups that a variable depends on
    free: set[int] = set()
    for place, step in enumerate(segment):
        before = 0
        for operand in step.operands:
            if type(operand) is Variable:
                before |= behind.get(operand, 0)
        mine = own.get(place, 0)
        if mine and not before & mine:
            free.add(place)
        if before | mine:
            behind.update(dict.fromkeys(step.outs, before | mine))
    for places in groups:
        group = [segment[place] for place in places if place in free]
        rows = sum(step.outs[0].kind.shape[0] for step in group)
        if len(group) >= _FEW and rows >= _ALL_ROWS:
            yield group


def _weight(step: Instruction) -> Any:
    """Return the key of products that share a weight; `None` if merging does not pay."""
    x, weight, *bias = step.operands
    mine, theirs = kind_of(x), kind_of(weight)
    if not (mine.is_array and theirs.is_array and len(mine.shape) == len(theirs.shape) == 2):
        return None
    if not 0 < mine.shape[0] <= _ROWS or any(len(kind_of(b).shape) != 1 for b in bias):
        return None
    return step.primitive, step.remat, mine.dtype, *map(id, (weight, *bias))


# --- merging ------------------------------------------------------------------------


def _merged(
    segment: list[Instruction], groups: list[Node], orders: dict[Any, Any]
) -> tuple[list[Instruction], bool, bool]:
    """Merge groups; return the steps, whether any was merged, and whether more may be now.

    Each group can be merged alone, but two of them may depend on each other.
    """
    kept = groups
    order = _ordered(segment, groups)
    if order is None:
        kept = []
        for group in groups:
            found = _ordered(segment, [*kept, group])
            if found is not None:
                kept.append(group)
                order = found
    if order is None:
        return segment, False, False
    steps: list[Instruction] = []
    for node in order:
        steps += node if len(node) == 1 else _one_product(node, orders)
    return steps, True, len(kept) < len(groups)


def _ordered(segment: list[Instruction], groups: list[Node]) -> list[Node] | None:
    """Order the steps with each group in one place; return `None` if that is impossible.

    A group runs when its first result is needed, and the steps that it needs run before; no other
    step moves.
    """
    nodes = [*groups, *([step] for step in segment)]
    grouped = {step for group in groups for step in group}
    makers = {out: i for i, node in enumerate(nodes) for step in node for out in step.outs}
    makers |= {out: i for i, group in enumerate(groups) for step in group for out in step.outs}
    first = len(groups)
    roots = [first + i for i, step in enumerate(segment) if step not in grouped]
    order: list[Node] = []
    begun, done = set[int](), set[int]()
    stack = [*range(first), *reversed(roots)]
    while stack:
        number = stack[-1]
        if number in done:
            stack.pop()
            continue
        needed = [] if number in begun else _needed(nodes[number], makers, done)
        if not needed:
            stack.pop()
            done.add(number)
            order.append(nodes[number])
        elif begun.isdisjoint(needed):
            begun.add(number)
            stack += needed
        else:
            return None
    return order


def _needed(node: Node, makers: dict[Variable, int], done: set[int]) -> list[int]:
    """Return the nodes that must still run before a node, the last one first."""
    needed = {
        makers[operand]
        for step in node
        for operand in step.operands
        if type(operand) is Variable and operand in makers
    }
    return sorted(needed - done, reverse=True) if needed else []


def _one_product(group: Node, orders: dict[Any, Any]) -> Iterator[Instruction]:
    """Yield the concatenation of rows, its product with the weight, and the slices of that."""
    first = group[0]
    inputs = [step.operands[0] for step in group]
    order = orders.get(frozenset(map(id, inputs)))
    if order is not None and len(order) == len(inputs):  # reuse a concatenation of the program
        by_input = {id(step.operands[0]): step for step in group}
        group = [by_input[id(x)] for x in order]
        inputs = list(order)
    rows = [step.outs[0].kind.shape[0] for step in group]
    kind, out = kind_of(inputs[0]), first.outs[0].kind
    x = Variable(kind.array((sum(rows), kind.shape[1])))
    whole = Variable(out.array((sum(rows), out.shape[1])))
    yield Instruction(op.CONCAT, tuple(inputs), {"axis": 0}, (x,), False, first.remat)
    operands = (x, *first.operands[1:])
    yield Instruction(first.primitive, operands, first.params, (whole,), False, first.remat)
    start = 0
    for step, count in zip(group, rows, strict=True):
        key = {"key": slice(start, start + count)}
        yield Instruction(op.SLICE, (whole,), key, step.outs, False, first.remat)
        start += count
