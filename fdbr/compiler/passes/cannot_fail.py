"""Analysis of which steps of a program can fail for some values of their operands."""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.backend import Backend
from fdbr.compiler.ir.loops import is_guarded, loop_of
from fdbr.compiler.ir.program import Instruction, Step, Variable, has_effect, kind_of

__all__ = ["uncertain_first", "uncertain_steps"]

_SMALL = 1 << 12  # bytes of a result that may stay in memory longer than before


def uncertain_steps(steps: Sequence[Step], backend: Backend) -> list[int]:
    """Return the positions of steps that are guards, have a side effect, or may fail.

    Indexing fails if an index is out of bounds.  Its transpose with the same indices, for an array
    of the same shape, cannot fail after it.
    """
    known: set[Any] = set()
    found = []
    for position, step in enumerate(steps):
        named = _named_places(step)
        if not (named in known if named else _is_certain(step, backend)):
            found.append(position)
        if named:
            known.add(named)
    return found


def uncertain_first(steps: Sequence[Step], backend: Backend) -> tuple[list[Step], int]:
    """Move steps that may fail as early as possible; return them and the last one's position.

    No step moves before a guard, nor does one whose result takes much memory.
    """
    uncertain = set(uncertain_steps(steps, backend))
    made: dict[Variable, float] = {}
    keys: list[float] = []
    guard = -1.0
    for position, step in enumerate(steps):
        key = float(position)
        if position in uncertain:
            if is_guarded(step) or has_effect(step):
                guard = key
            elif all(v.kind.nbytes <= _SMALL for v in step.outs):
                key = max(guard, *(made.get(v, -1.0) for v in step.reads), -1.0) + 0.5
        made.update(dict.fromkeys(step.outs, key))
        keys.append(key)
    order = sorted(range(len(steps)), key=keys.__getitem__)  # stable: equal keys keep their order
    last = max((place for place, i in enumerate(order) if i in uncertain), default=-1)
    return [steps[i] for i in order], last


def _is_certain(step: Step, backend: Backend) -> bool:
    if is_guarded(step) or has_effect(step):
        return False
    loop = loop_of(step)
    if loop is not None:
        return not any(uncertain_steps(program.steps, backend) for program in loop.programs)
    parts = (step,) if isinstance(step, Instruction) else step.steps  # type: ignore[union-attr]
    return all(
        part.primitive.facts.total
        or bool(part.primitive.facts.fold)
        or part.primitive.kind in ("linear", "multilinear")
        or backend.is_total(part)
        for part in parts
    )


def _named_places(step: Step) -> Any:
    """Return a step's integer indices and the avals that they index; `None` for other steps."""
    if (
        type(step) is not Instruction
        or step.primitive.facts.total
        or step.primitive.facts.elementwise
    ):
        return None
    if step.primitive.kind not in ("linear", "multilinear"):
        return None
    kinds = [(o, kind_of(o)) for o in step.operands[1:]]
    whole = [o for o, kind in kinds if kind.is_array and kind.dtype.kind in "iub"]
    if not whole:
        return None
    places = tuple(o if type(o) is Variable else id(o) for o in whole)
    return places, frozenset({kind_of(step.operands[0]), step.outs[0].kind})
