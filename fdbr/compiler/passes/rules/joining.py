"""Rules for concatenation: slices of concatenations, and concatenations of slices."""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, between, rule
from fdbr.compiler.passes.rules.views import View, part_of, view_of
from fdbr.core.primitive import Primitive


@rule(op.CONCAT)
def of_one(step: Instruction, facts: Facts) -> Found:
    """Drop the concatenation of one array."""
    return Same(step.operands[0]) if len(step.operands) == 1 else None


@rule(op.CONCAT, op.STACK)
def of_parts(step: Instruction, facts: Facts) -> Found:
    """Replace the concatenation of all slices of an array by the array, possibly reshaped."""
    makers = [facts.made_by(operand, op.SLICE) for operand in step.operands]
    if makers[0] is None:
        return None
    whole = makers[0].operands[0]
    shape = kind_of(whole).shape
    keys = [maker.params["key"] for maker in makers if maker and maker.operands[0] is whole]
    parts = [part_of(shape, key) for key in keys]
    if len(parts) < len(makers) or not _is_all(parts, shape):
        return None
    axis, places = parts[0]  # type: ignore[misc]
    made = _arranged(step, whole, axis, None if type(places) is int else len(places))  # type: ignore[arg-type]
    unread = sum(facts.only_made_by(x, op.SLICE) is not None for x in step.operands)
    return Same(whole) if not made else made if len(made) <= max(1, unread) else None


def _is_all(parts: Sequence[Any], shape: Sequence[int]) -> bool:
    """Return whether slices cover one axis in order, with equal lengths."""
    if parts[0] is None:
        return False
    axis, first = parts[0]
    place = 0
    for part in parts:
        if part is None or part[0] != axis or type(part[1]) is not type(first):
            return False
        length = 1 if type(first) is int else len(first)
        expected = place if type(first) is int else range(place, place + length)
        if part[1] != expected:
            return False
        place += length
    return place == shape[axis]


def _arranged(step: Instruction, x: Any, axis: int, length: int | None) -> list[Instruction]:
    """Return the steps from an array to the concatenation of its slices along another axis.

    The slices have a ``length`` along the sliced axis; if it is `None`, they lack that axis.
    """
    kind, to = kind_of(x), step.params["axis"]
    shape = kind.shape
    joined = step.primitive is op.CONCAT
    if length is not None and joined and axis == to:
        return []
    plan: list[tuple[Primitive, dict[str, Any], tuple[int, ...]]] = []
    if length is not None:
        shape = (*shape[:axis], shape[axis] // length, length, *shape[axis + 1 :])
        plan.append((op.RESHAPE, {"to": shape}, shape))
    order = [i for i in range(len(shape)) if i != axis]
    order.insert(to, axis)
    if order != sorted(order):
        shape = tuple(shape[i] for i in order)
        plan.append((op.PERMUTE, {"axes": tuple(order)}, shape))
    if joined:
        shape = step.outs[0].kind.shape
        plan.append((op.RESHAPE, {"to": shape}, shape))
    made: list[Instruction] = []
    for primitive, params, shape in plan:
        x, instruction = between(step, kind.array(shape), primitive, x, **params)
        made.append(instruction)
    if made:
        made[-1] = applied(step, made[-1].primitive, *made[-1].operands, **made[-1].params)
    return made


@rule(op.SLICE)
def of_joined(step: Instruction, facts: Facts) -> Found:
    """Rewrite a slice of a concatenation as one of the operand that contains it."""
    maker = facts.made_by(step.operands[0], op.CONCAT, op.STACK)
    kind = step.outs[0].kind
    if maker is None or (kind.is_array and not kind.shape):
        return None
    view = view_of(maker.outs[0].kind.shape, step.params["key"])
    if view is None:
        return None
    axis = maker.params["axis"]
    if maker.primitive is op.STACK:
        return _of_stack(step, maker, view, axis)
    places = view.axes[axis]
    if type(places) is range and not places:
        return None
    first, last = (places, places) if type(places) is int else (places[0], places[-1])
    start = 0
    for operand in maker.operands:
        shape = kind_of(operand).shape
        if start <= min(first, last) and max(first, last) < start + shape[axis]:
            if kind_of(operand).dtype != kind.dtype:
                return None  # concatenation has converted its dtype
            moved = _moved(places, start)
            axes = (*view.axes[:axis], moved, *view.axes[axis + 1 :])
            return applied(step, op.SLICE, operand, key=View(axes, view.layout).key(shape))
        start += shape[axis]
    return None


def _moved(places: Any, by: int) -> Any:
    if type(places) is int:
        return places - by
    return range(places.start - by, places.stop - by, places.step)


def _of_stack(step: Instruction, maker: Instruction, view: View, axis: int) -> Found:
    place = view.axes[axis]
    if type(place) is not int:
        return None
    operand = maker.operands[place]
    if kind_of(operand).dtype != step.outs[0].kind.dtype:
        return None
    axes = (*view.axes[:axis], *view.axes[axis + 1 :])
    layout = tuple(a if a is None or a < axis else a - 1 for a in view.layout)
    shape = kind_of(operand).shape
    if not shape:
        return Same(operand)
    return applied(step, op.SLICE, operand, key=View(axes, layout).key(shape))
