"""Rules for slices of slices, and of arrays that were written slice by slice."""

from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, rule
from fdbr.compiler.passes.rules.views import View, view_of
from fdbr.core.array_modules import lock

_LARGE = 1 << 20  # bytes from which on zeros are made at run time instead of stored as constants


def _taken(step: Instruction) -> View | None:
    """Return the view that a slice takes; `None` if a composed key would give a scalar instead."""
    kind = step.outs[0].kind
    if kind.is_array and not kind.shape:
        return None
    return view_of(kind_of(step.operands[0]).shape, step.params["key"])


@rule(op.SLICE)
def everything(step: Instruction, facts: Facts) -> Found:
    """Replace a slice of all elements in order by a reshape."""
    (x,) = step.operands
    kind = step.outs[0].kind
    if not kind.is_array or kind_of(x).size != kind.size:
        return None
    if not _is_whole(kind_of(x).shape, step.params["key"]):
        return None
    return Same(x) if kind_of(x) == kind else applied(step, op.RESHAPE, x, to=kind.shape)


@rule(op.UNSLICE)
def everywhere(step: Instruction, facts: Facts) -> Found:
    """Replace writing to all elements of zeros by the written values."""
    (x,) = step.operands
    shape = step.params["shape"]
    if not kind_of(x).is_array or not _is_whole(shape, step.params["key"]):
        return None
    return applied(step, op.RESHAPE, x, to=shape)


def _is_whole(shape: tuple[int, ...], key: Any) -> bool:
    view = view_of(shape, key)
    return view is not None and all(
        n == 1 if type(places) is int else places == range(n)
        for places, n in zip(view.axes, shape, strict=True)
    )


@rule(op.SLICE)
def of_slice(step: Instruction, facts: Facts) -> Found:
    """Merge a slice of a slice into one slice."""
    maker = facts.made_by(step.operands[0], op.SLICE)
    if maker is None or _taken(step) is None:
        return None
    shape = kind_of(maker.operands[0]).shape
    first = view_of(shape, maker.params["key"])
    both = first and first.then(step.params["key"])
    return applied(step, op.SLICE, maker.operands[0], key=both.key(shape)) if both else None


@rule(op.UNSLICE)
def of_unslice(step: Instruction, facts: Facts) -> Found:
    """Merge an embedding into zeros that is embedded into zeros again."""
    maker = facts.made_by(step.operands[0], op.UNSLICE)
    if maker is None:
        return None
    shape = step.params["shape"]
    first = view_of(shape, step.params["key"])
    both = first and first.then(maker.params["key"])
    if not both:
        return None
    return applied(step, op.UNSLICE, maker.operands[0], shape=shape, key=both.key(shape))


@rule(op.SLICE)
def of_embedded(step: Instruction, facts: Facts) -> Found:
    """Take a slice of an embedded array from the array, or replace it by zeros."""
    maker = facts.made_by(step.operands[0], op.UNSLICE, op.PAD_ZEROS)
    view = _taken(step) if maker else None
    if maker is None or view is None or None in view.layout:
        return None
    x, outer = maker.operands[0], _embedding(maker)
    if outer is None or None in outer.layout:
        return None
    key: list[Any] = []
    for mine, theirs in zip(view.axes, outer.axes, strict=True):
        if _is_apart(mine, theirs):
            return _zeros(step)
        part = _within(mine, theirs)
        if part is _UNKNOWN:
            return None
        key += part
    return applied(step, op.SLICE, x, key=tuple(key))


def _embedding(maker: Instruction) -> View | None:
    """Return the part of a result that an operand fills; the rest is zeros."""
    if maker.primitive is op.UNSLICE:
        return view_of(maker.params["shape"], maker.params["key"])
    lengths = kind_of(maker.operands[0]).shape
    starts = [before for before, _ in maker.params["widths"]]
    axes = tuple(range(start, start + n) for start, n in zip(starts, lengths, strict=True))
    return View(axes, tuple(range(len(axes))))


_UNKNOWN: list[Any] = [...]


def _within(mine: Any, theirs: Any) -> list[Any]:
    """Return the part of a key for one axis, relative to the embedded part of that axis."""
    if type(theirs) is int:  # the embedded array lacks this axis
        if type(mine) is int:
            return []
        return [None] if list(mine) == [theirs] else _UNKNOWN
    if type(mine) is int:
        return [theirs.index(mine)]
    if not mine or mine[0] not in theirs or mine[-1] not in theirs or mine.step % theirs.step:
        return _UNKNOWN
    indices = range(
        theirs.index(mine[0]), theirs.index(mine[-1]) + 1, abs(mine.step // theirs.step)
    )
    return (
        [slice(indices.start, indices.stop, indices.step)]
        if mine.step * theirs.step > 0
        else _UNKNOWN
    )


def _is_apart(mine: Any, theirs: Any) -> bool:
    """Return whether two sets of indices on an axis are disjoint."""
    if type(mine) is int and type(theirs) is int:
        return mine != theirs
    if type(mine) is int or type(theirs) is int:
        place, places = (mine, theirs) if type(mine) is int else (theirs, mine)
        return place not in places
    if not mine or not theirs:
        return False
    return max(mine[0], mine[-1]) < min(theirs[0], theirs[-1]) or max(theirs[0], theirs[-1]) < min(
        mine[0], mine[-1]
    )


def _zeros(step: Instruction) -> Found:
    kind = step.outs[0].kind
    if not kind.is_array or kind.nbytes > _LARGE:
        return None
    return Same(lock(kind.xp.zeros(kind.shape, dtype=kind.dtype)))
