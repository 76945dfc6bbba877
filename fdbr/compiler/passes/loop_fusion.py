"""Loop fusion: chains of elementwise steps, broadcasts and reductions become kernels."""

import math
from collections.abc import Sequence
from typing import Any

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.broadcast_layout import best_split, splits
from fdbr.compiler.ir.program import Fused, Instruction, Nest, Program, Step, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of, join_of
from fdbr.compiler.passes.reduction_fusion import NestedGroup, Nests
from fdbr.compiler.passes.steps import readers_of

__all__ = ["VIEWS", "fuse_loops", "is_candidate"]

VIEWS = frozenset({op.RESHAPE, op.BROADCAST_TO})
_ALONE = 8  # a kernel of one step needs this many times the elements of one of several steps
_TOGETHER = 4  # on fewer elements than `launch`, elements times steps must exceed this multiple


class _Group:
    """A kernel under construction, of steps that kernels can compute.

    Attributes
    ----------
    most
        The maximal number of steps.
    joins
        Whether some steps reduce with a user's function; then all others are elementwise.
        `None` if that is undecided.
    rows
        The variables with one value a row, for a split that a reduction has decided.
    """

    __slots__ = (
        *("closed", "domain", "final", "joins", "members", "most", "parts", "rows", "splits"),
        "steps",
    )

    def __init__(self, domain: tuple[int, ...], most: int) -> None:
        self.domain, self.most = domain, most
        self.splits = frozenset(range(len(domain) + 1))
        self.steps: list[Instruction] = []
        self.members: set[Variable] = set()
        self.rows: set[Variable] = set()
        self.final: set[Variable] = set()  # reductions over rows: complete only after the kernel
        self.closed = False
        self.joins: bool | None = None
        self.parts: tuple[_Group, ...] = ()  # the groups that were merged into it last

    @classmethod
    def joined(cls, parts: list["_Group"]) -> "_Group | None":
        """Merge groups that run over the same domain; return `None` if they cannot be merged."""
        whole = cls(parts[0].domain, parts[0].most)
        for part in parts:
            whole.splits &= part.splits
            if part.domain != whole.domain or not whole.splits:
                return None
            if part.joins is not None:
                if whole.joins is not None and part.joins != whole.joins:
                    return None
                whole.joins = part.joins
            whole.steps += part.steps
            whole.members |= part.members
            whole.rows |= part.rows
            whole.final |= part.final
        whole.parts = tuple(parts)
        return whole

    def admit(self, step: Instruction) -> bool:
        """Add a step if it fits; return whether it does."""
        if len(self.steps) >= self.most or any(v in self.final for v in step.reads):
            return False
        fits = self._fits(step)
        if fits is None:
            return False
        self.splits, where = fits
        if not _is_plain(step):
            self.joins = join_of(step) is not None
        self.steps.append(step)
        self.members.update(step.outs)
        if where is not None:
            where.update(step.outs)
        return True

    def _fits(self, step: Instruction) -> tuple[frozenset[int], set[Variable] | None] | None:
        """Return the splits that are left, and the set for the step's results; `None` if unfit."""
        shape = step.outs[0].kind.shape
        if not _is_plain(step) and self.joins not in (None, join_of(step) is not None):
            return None
        if join_of(step) is not None:
            return self._fits_join(step)
        found = fold_of(step)
        if found is not None:
            operand: Variable = step.operands[0]
            if operand in self.rows or operand.kind.shape != self.domain:
                return None
            axes, rank = found[1], len(self.domain)
            if axes == tuple(range(rank)):
                return self.splits, self.final
            if axes == tuple(range(rank - len(axes), rank)) and axes:
                return self._only(rank - len(axes), self.rows)
            if axes == tuple(range(len(axes))) and axes:
                return self._only(len(axes), self.final)
            return None
        if not step.primitive.facts.elementwise and step.primitive not in VIEWS:
            return self._fits_by_row(step)
        if any(v in self.rows for v in step.reads) and shape != self.domain:
            return self._fits_row(step, shape)
        if shape != self.domain or (step.primitive is op.RESHAPE and self._reshapes(step)):
            return None
        left = self.splits
        for operand in step.operands:
            left = left & splits(kind_of(operand).shape, self.domain)
        return (left, None) if left else None

    def _fits_join(self, step: Instruction) -> Any:
        """Check a user's reduction, along the last axes, the first ones or all."""
        (shape, axes), rank = join_of(step) or ((), ()), len(self.domain)
        whole = all(kind_of(o).shape in (shape, ()) for o in step.operands)
        if shape != self.domain or not whole:
            return None
        if len(axes) == rank:
            return self.splits, self.final
        if axes == tuple(range(rank - len(axes), rank)):
            return self._only(rank - len(axes), self.final)
        return self._only(len(axes), self.final) if axes == tuple(range(len(axes))) else None

    def _fits_by_row(self, step: Instruction) -> Any:
        """Check a step on full arrays whose other operands have one value a row."""
        x, *others = step.operands
        lead = step.outs[0].kind.shape[:-1]
        if kind_of(x).shape != self.domain or step.outs[0].kind.shape != self.domain:
            return None
        if any(o in self.members and o not in self.rows for o in others if type(o) is Variable):
            return None
        whole = all(kind_of(o).size == 1 or kind_of(o).shape == lead for o in others)
        return self._only(len(lead), None) if whole else None

    def _only(self, split: int, where: set[Variable] | None) -> Any:
        return (frozenset({split}), where) if split in self.splits else None

    def _reshapes(self, step: Instruction) -> bool:
        return kind_of(step.operands[0]).shape != step.outs[0].kind.shape

    def _fits_row(self, step: Instruction, shape: tuple[int, ...]) -> Any:
        """Check a step on operands with one value a row."""
        (split,) = self.splits
        count, size = math.prod(self.domain[:split]), math.prod(shape)
        if size != count:
            return None
        for operand in step.operands:
            kind = kind_of(operand)
            row = type(operand) is Variable and operand in self.rows
            member = type(operand) is Variable and operand in self.members
            if kind.size != 1 and (kind.size != count or (member and not row)):
                return None
            # An operand from outside must have the same shape, up to axes of length 1.
            if kind.size == count != 1 and not row and not _is_squeezed(kind.shape, shape):
                return None
        if step.primitive is op.BROADCAST_TO:
            same = _is_squeezed(kind_of(step.operands[0]).shape, shape)
            return (self.splits, self.rows) if same else None
        return self.splits, self.rows


_AnyGroup = _Group | NestedGroup


def _is_plain(step: Instruction) -> bool:
    """Return whether a step maps elements at the same index, whatever the layout."""
    return step.primitive.facts.elementwise or step.primitive in VIEWS


def _is_squeezed(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether shapes are equal up to axes of length 1."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def is_candidate(step: Step, backend: Backend) -> bool:
    """Return whether a kernel can compute a step, fused or alone."""
    if type(step) is not Instruction:
        return False
    out = step.outs[0].kind
    if not out.size or not all(backend.holds(kind_of(o)) for o in (*step.operands, *step.outs)):
        return False
    if join_of(step) is not None:
        return any(step.reads) and backend.can_join(step)
    if len(step.outs) != 1:
        return False
    if step.primitive in VIEWS:
        return bool(kind_of(step.operands[0]).dtype == out.dtype)
    if step.primitive.facts.fold:
        return fold_of(step) is not None and backend.can_fold(out)
    if step.primitive.facts.elementwise:
        return _is_worth_joining(step, backend)
    return len(out.shape) > 1 and out.shape[-1] > 1 and backend.is_by_row(step)


def _is_worth_joining(step: Instruction, backend: Backend) -> bool:
    """Return whether a kernel is not slower than the array module for an elementwise step."""
    least = step.primitive.facts.cost
    return backend.is_elementwise(step) and (not least or backend.cost(step) <= least)


def _domain_of(step: Instruction) -> tuple[int, ...]:
    join = join_of(step)
    if join is not None:
        return join[0]
    whole = step.operands[0] if fold_of(step) else step.outs[0]
    return tuple(kind_of(whole).shape)


def fuse_loops(program: Program) -> Program:
    """Fuse the steps that one kernel can compute.

    A group stays open until a step outside of it reads a result; then it runs at the position of
    its last step.
    """
    backend = backend_of(program)
    program = program.replace(_views_last(_reductions_first(program.steps, backend)))
    nests = Nests(program)
    groups: dict[_AnyGroup, None] = {}
    home: dict[Variable, _AnyGroup] = {}
    reading: dict[Variable, _AnyGroup] = {}  # the last group that reads a variable as an operand
    for step in program.steps:
        near = list(dict.fromkeys(home[v] for v in step.reads if v in home))
        joined: _AnyGroup | None = None
        if isinstance(step, Instruction) and is_candidate(step, backend):
            still = [group for group in near if not group.closed]
            joined = _join(step, still, nests)
            if joined is None and not still and step.primitive not in VIEWS:
                joined = _join(step, _siblings(step, reading), nests)
            if joined is None and step.primitive not in VIEWS:
                new = _Group(_domain_of(step), backend.costs.most)
                joined = new if new.admit(step) else nests.of([new], step)
        if joined is not None:
            groups[joined] = None
            for old in joined.parts:
                groups.pop(old, None)
                old.closed = True
                home.update(dict.fromkeys(old.members, joined))
            home.update(dict.fromkeys(step.outs, joined))
            reading.update((v, joined) for v in step.reads if v not in joined.members)
        for group in near:
            if group is not joined and group not in (joined.parts if joined else ()):
                group.closed = True
    order = {step: position for position, step in enumerate(program.steps)}
    for group in groups:
        group.steps.sort(key=order.__getitem__)
    return _assembled(program, [_unnested(group, order) for group in groups], backend)


def _unnested(group: _AnyGroup, order: dict[Step, int]) -> _AnyGroup:
    """Turn a nested group that does not use its reductions again into a plain one, if possible.

    A plain kernel goes through memory once, in order.
    """
    if not isinstance(group, NestedGroup) or group.goes_on():
        return group
    plain = _Group(group.domain, group.most)
    rest = [step for step in group.steps if not plain.admit(step)]
    last = max(map(order.__getitem__, plain.steps), default=len(order))
    small = all(
        group.domain not in (kind_of(o).shape for o in (*s.operands, *s.outs)) for s in rest
    )
    return plain if small and all(order[s] > last for s in rest) else group


def _siblings(step: Instruction, reading: dict[Variable, _AnyGroup]) -> list[_AnyGroup]:
    """Return the open groups over the same domain that read a full operand of a step."""
    domain = _domain_of(step)
    found = dict.fromkeys(reading[v] for v in step.reads if v in reading and v.kind.shape == domain)
    return [group for group in found if not group.closed and group.domain == domain]


def _reductions_first(steps: Sequence[Step], backend: Backend) -> list[Step]:
    """Move reductions to where their operand is defined, before its other readers.

    A reduction over all axes that a reshape has merged reduces the unreshaped array instead.
    """
    makers: dict[Variable, Step] = {}
    after: dict[Variable, list[Step]] = {}
    rest: list[Step] = []
    for step in steps:
        makers.update(dict.fromkeys(step.outs, step))
        if type(step) is not Instruction or not _is_reduction(step, backend):
            rest.append(step)
            continue
        step = _unreshaped(step, makers, backend)
        operand, *_ = step.reads
        if operand in makers and type(makers[operand]) is Instruction:
            after.setdefault(operand, []).append(step)
        else:
            rest.append(step)
    found: list[Step] = []
    for step in rest:
        waiting = [step]
        while waiting:
            step = waiting.pop()
            found.append(step)
            for out in step.outs:
                waiting += reversed(after.get(out, ()))
    return found


def _views_last(steps: Sequence[Step]) -> list[Step]:
    """Move reshapes to where their result is read.

    Elsewhere they would close a kernel before all of its steps are found.
    """
    waiting: dict[Variable, Instruction] = {}
    found: list[Step] = []
    for step in steps:
        if type(step) is Instruction and step.primitive is op.RESHAPE:
            waiting[step.outs[0]] = step
        else:
            _put(step, waiting, found)
    while waiting:
        _put(waiting.pop(next(iter(waiting))), waiting, found)
    return found


def _put(step: Step, waiting: dict[Variable, Instruction], found: list[Step]) -> None:
    for variable in step.reads:
        if variable in waiting:
            _put(waiting.pop(variable), waiting, found)
    found.append(step)


def _is_reduction(step: Instruction, backend: Backend) -> bool:
    if join_of(step) is not None:
        return len(set(step.reads)) == 1 and backend.can_join(step)
    return fold_of(step) is not None and backend.can_fold(step.outs[0].kind)


def _unreshaped(step: Instruction, makers: dict[Variable, Step], backend: Backend) -> Instruction:
    """Rewrite a sum over leading axes of a reshaped array as one of the array itself."""
    if step.primitive is not op.SUM or step.params["keepdims"]:
        return step
    maker = makers.get(step.operands[0])
    if type(maker) is not Instruction or maker.primitive is not op.RESHAPE:
        return step
    source = maker.operands[0]
    if source not in makers or not is_candidate(makers[source], backend):
        return step
    axes, shape = tuple(sorted(step.params["axes"])), step.operands[0].kind.shape
    if type(source) is not Variable or axes != tuple(range(len(axes))):
        return step
    tail = shape[len(axes) :]
    lead = len(source.kind.shape) - len(tail)
    if lead < 1 or source.kind.shape[lead:] != tail:
        return step
    params = {**step.params, "axes": tuple(range(lead))}
    return Instruction(step.primitive, (source,), params, step.outs, False, step.remat)


def _join(step: Instruction, near: list[_AnyGroup], nests: Nests) -> _AnyGroup | None:
    """Return the open group that takes a step: a merger of those that it reads, or one of them."""
    plain = [group for group in near if isinstance(group, _Group)]
    if len(near) > 1 and len(plain) == len(near):
        both = _Group.joined(plain)
        if both is not None and both.admit(step):
            return both
    whole = nests.of(near, step) if len(near) > 1 else None
    if whole is not None:
        return whole
    for group in near:
        if group.admit(step):
            group.parts = ()
            return group
    for group in near:
        whole = nests.of([group], step)
        if whole is not None:
            return whole
    return None


def _assembled(program: Program, groups: list[_AnyGroup], backend: Backend) -> Program:
    readers = readers_of(program)
    kept = {v for v in program.outputs if type(v) is Variable}
    last: dict[Any, Fused] = {}
    inside: set[Any] = set()
    for group in groups:
        steps = _worth(group, backend)
        if not steps:
            continue
        own = set(steps)
        outs = [
            v
            for step in steps
            for v in step.outs
            if v in kept or any(reader not in own for reader in readers.get(v, ()))
        ]
        inside |= own
        if isinstance(group, NestedGroup):
            last[steps[-1]] = Nest(
                tuple(steps), group.domain, 0, tuple(outs), kept=tuple(group.kept)
            )
            continue
        shapes = {kind_of(o).shape for step in group.steps for o in step.operands}
        split = best_split(group.domain, group.splits, shapes, backend.costs.rows)
        last[steps[-1]] = Fused(tuple(steps), group.domain, split, tuple(outs))
    steps_: list[Step] = []
    for step in program.steps:
        if step in last:
            steps_.append(last[step])
        elif step not in inside:
            steps_.append(step)
    return program.replace(steps_)


def _worth(group: _AnyGroup, backend: Backend) -> list[Instruction]:
    """Return the steps of a group that should become a kernel; none if NumPy is as fast."""
    steps, costs = list(group.steps), backend.costs
    if group.joins:  # the array module needs many calls for a user's reduction
        return steps
    real = [s for s in steps if s.primitive not in VIEWS]
    size = math.prod(group.domain)
    alone = any(_repeats_all(s) or backend.pays_alone(s) for s in real)
    if len(real) < 2 and not (size >= _ALONE * costs.launch and alone):
        return []
    short = len(real) < costs.long and size * len(real) < _TOGETHER * costs.launch
    return [] if size < costs.launch and short else steps


def _repeats_all(step: Instruction) -> bool:
    """Return whether every operand is broadcast, which array modules have no fast loop for."""
    size = step.outs[0].kind.size
    return len(step.operands) > 1 and all(kind_of(o).size < size for o in step.operands)
