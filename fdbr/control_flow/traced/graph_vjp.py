"""The backward pass over a graph: cotangents pass the blocks of a path in reverse order."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind, kind_of
from fdbr.control_flow.body_tracing import NoBodyError, evaluate, stage
from fdbr.control_flow.operands import scalar
from fdbr.control_flow.traced.batched_graph import (
    LanesPath,
    batched_body,
    filled,
    filled_with_zeros,
    is_apart,
)
from fdbr.control_flow.traced.compiled_parts import There, Way, WayBack
from fdbr.control_flow.traced.graphs import Block, Graph, Path
from fdbr.ops.dtypes import astype
from fdbr.pytrees.structure import is_inexact
from fdbr.transforms.vjp import vjp

__all__ = ["back_over", "back_over_lanes"]

Leaves = Sequence[Any]


def _active(graph: Graph, wanted: tuple[int, ...]) -> set[int]:
    """Return the registers that depend on some operands."""
    known = graph.active.get(wanted)
    if known is not None:
        return known
    found = set(wanted)
    size = -1
    while size < len(found):
        size = len(found)
        for block in graph.blocks:
            if not found.isdisjoint(block.reads):
                found.update(block.writes)
            found.update(i for i, source in block.moves if source in found)
    graph.active[wanted] = found
    return found


def _moving(block: Block, leaves: Leaves, active: set[int]) -> tuple[bool, ...]:
    """Return which of the values that a block has read are differentiated."""
    pairs = zip(block.reads, leaves, strict=True)
    return tuple([i in active and is_inexact(leaf) for i, leaf in pairs])


class _Pullback:
    """The backward pass over a block, as a function of leaves.

    The leaves are the cotangents of those results that have one, the known cotangents of operands,
    and the operands.

    Attributes
    ----------
    gives
        Which differentiated operands get a cotangent; known once it has run.
    """

    def __init__(
        self, block: Block, own: Sequence[bool], there: Sequence[bool], known: Sequence[bool]
    ) -> None:
        self._program, self._own, self._there, self._known = block.body.program, own, there, known
        self._first = block.question is not None  # the value that the guard reads has no cotangent
        self.gives: tuple[bool, ...] = ()

    def __call__(self, operands: list[Any]) -> list[Any]:
        count, more = sum(self._there), sum(self._known)
        given, added = operands[:count], iter(operands[count : count + more])
        point = operands[count + more :]

        def iteration(*moved: Any) -> list[Any]:
            new = iter(moved)
            full = [next(new) if one else v for one, v in zip(self._own, point, strict=True)]
            outs = evaluate(self._program, full)[self._first :]
            return [out for out, one in zip(outs, self._there, strict=True) if one]

        moved = [v for v, one in zip(point, self._own, strict=True) if one]
        outs, pull = vjp(iteration, *moved, unused="none")
        # Blocks with other dtypes may write the same register, which has the widest of them.
        found = pull([_in_dtype_of(out, slope) for out, slope in zip(outs, given, strict=True)])
        results = []
        for slope, one in zip(found, self._known, strict=True):
            old = next(added) if one else None
            if slope is not None:
                results.append(slope if old is None else old + slope)
        self.gives = tuple(slope is not None for slope in found)
        return results


def _in_dtype_of(out: Any, slope: Any) -> Any:
    dtype = getattr(out, "dtype", slope.dtype)
    return slope if slope.dtype == dtype else astype(slope, dtype)


def _pullback(block: Block, own: Any, there: Any, known: Any) -> _Pullback:
    key = "back", own, there, known
    found = block.backs.get(key)
    if found is None:
        found = block.backs[key] = _Pullback(block, own, there, known)
    return found


class _Way:
    """The backward step over a block in terms of registers, as a function of leaves.

    The leaves are the cotangents of some registers, and the values that the block has read.  The
    results are the cotangents that change.
    """

    def __init__(self, block: Block, own: Sequence[bool], reads: Sequence[int]) -> None:
        self._block, self._own, self.reads = block, own, reads
        self.writes: tuple[int, ...] = ()  # known once it has run
        self.lost: frozenset[int] = frozenset()

    def __call__(self, operands: list[Any]) -> list[Any]:
        block, count = self._block, len(self.reads)
        before = dict(zip(self.reads, operands, strict=False))
        derivatives = dict(before)
        moved = [(source, derivatives.pop(i, None)) for i, source in block.moves]
        outs = [derivatives.pop(i, None) for i in block.writes]
        for source, slope in moved:
            if slope is not None:
                old = derivatives.get(source)
                derivatives[source] = slope if old is None else old + slope
        if any(slope is not None for slope in outs) and any(self._own):
            read = [i for i, one in zip(block.reads, self._own, strict=True) if one]
            sums = [derivatives.get(i) for i in read]
            there = tuple([slope is not None for slope in outs])
            known = tuple([slope is not None for slope in sums])
            pullback = _pullback(block, self._own, there, known)
            given = [slope for slope in (*outs, *sums) if slope is not None]
            found = iter(pullback([*given, *operands[count:]]))
            for i, one in zip(read, pullback.gives, strict=True):
                if one:
                    derivatives[i] = next(found)
        self.writes = tuple(i for i in derivatives if derivatives[i] is not before.get(i))
        self.lost = frozenset(before) - frozenset(derivatives)
        return [derivatives[i] for i in self.writes]


def _way(
    block: Block,
    own: tuple[bool, ...],
    there: There,
    operands: Callable[[tuple[int, ...]], list[Any]],
) -> Way:
    """Return the backward step over a block, made for the first cotangents that reach it.

    ``operands`` returns the cotangents of some registers, and then the values that the block has
    read.
    """
    moving = [i for i, one in zip(block.reads, own, strict=True) if one]
    touched = {*block.writes, *moving, *(i for pair in block.moves for i in pair)}
    near = tuple([pair for pair in there if pair[0] in touched])
    known = block.backs.get(("way", own, near))
    if known is None:
        reads = tuple([i for i, _ in near])
        way = _Way(block, own, reads)
        leaves = operands(reads)
        body = stage(way, leaves)
        body.captured(leaves)
        if body.found:
            raise NoBodyError("its backward pass reads an array that may change")
        kinds = [_kind_in_registers(kind_of(out)) for out in body.outs]
        after = {i: kind for i, kind in near if i not in way.lost}
        after |= dict(zip(way.writes, kinds, strict=True))
        body.waits = block.body.waits
        known = block.backs["way", own, near] = body, reads, way.writes, after
    body, reads, writes, changed = known
    rest = {i: kind for i, kind in there if i not in reads}
    there = tuple(sorted((rest | changed).items(), key=lambda pair: pair[0]))
    return Way(body, reads, writes, there) if writes else Way(None, (), (), there)


def _operands(derivatives: dict[int, Any], leaves: Leaves, reads: tuple[int, ...]) -> list[Any]:
    return [*(derivatives[i] for i in reads), *leaves]


def _example(
    there: There, leaves: Leaves, own: Sequence[bool], lane: int, reads: tuple[int, ...]
) -> list[Any]:
    kinds = dict(there)
    derivatives = [scalar(np.ones(kinds[i].shape, kinds[i].dtype)) for i in reads]
    return [*derivatives, *(v[lane] if one else v for v, one in zip(leaves, own, strict=True))]


def _kind_in_registers(kind: Kind) -> Kind:
    return kind if kind.shape or not kind.is_array else Kind(kind.dtype.type, (), kind.dtype)


def back_over(graph: Graph, path: Path, wanted: tuple[int, ...], outs: list[Any]) -> list[Any]:
    """Return the cotangents of the wanted operands; `None` for those that have none."""
    derivatives = {-1 - i: scalar(slope) for i, slope in enumerate(outs) if slope is not None}
    back = graph.machine.back(wanted)
    if path.log is not None:
        found = back.run(path.log, derivatives)
        if found is not None:
            return [found.get(i) for i in wanted]
    with graph.machine.accounting():
        _back_by_python(graph, path, wanted, derivatives, back)
    return [derivatives.get(i) for i in wanted]


def _back_by_python(
    graph: Graph, path: Path, wanted: tuple[int, ...], derivatives: dict[int, Any], back: WayBack
) -> None:
    active = _active(graph, wanted)
    numbers = {id(block): number for number, block in enumerate(graph.blocks)}
    there = back.there((i, kind_of(slope)) for i, slope in derivatives.items())
    for block, leaves in path.back(graph):
        number = numbers[id(block)]
        way = back.known(number, there)
        if way is None:
            own = _moving(block, leaves, active)
            new = _way(block, own, there, functools.partial(_operands, derivatives, leaves))
            way = back.learn(number, there, new)
        if way.body is not None:
            operands = _operands(derivatives, leaves, way.reads)
            run = way.body.code(operands).run if block.compiles else way.body.steps(operands)
            derivatives.update(zip(way.writes, map(scalar, run(*operands)), strict=True))
        if len(derivatives) > len(way.after):
            for i in set(derivatives) - {i for i, _ in way.after}:
                del derivatives[i]
        there = way.after


# --- batches ------------------------------------------------------------------------


class _Derivatives:
    """Cotangents of registers for a batch, and masks of the examples that have one.

    They are zero for the other examples.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._known: dict[int, tuple[Any, Any]] = {}

    def add(self, register: int, slope: Any, mask: Any) -> None:
        """Add a cotangent for some examples."""
        own = filled_with_zeros(slope, mask)
        if register in self._known:
            old, there = self._known[register]
            own, mask = old + own, there | mask
        self._known[register] = own, mask

    def take(self, register: int, mask: Any) -> tuple[Any, Any] | None:
        """Remove and return the cotangent of some examples; `None` if they have none."""
        found = self._known.get(register)
        if found is None or not (found[1] & mask).any():
            return None
        slope, there = found
        if (there & ~mask).any():
            self._known[register] = filled_with_zeros(slope, ~mask), there & ~mask
        else:
            del self._known[register]
        return slope, there & mask

    def get(self, register: int) -> Any:
        """Return the cotangent of a register, if it has one."""
        return self._known.get(register, (None, None))[0]


def back_over_lanes(
    graph: Graph, path: LanesPath, wanted: tuple[int, ...], given: list[Any], size: int
) -> list[Any]:
    """Return the batched cotangents of the wanted operands; `None` for those without."""
    back = graph.machine.back(wanted)
    if path.logs:
        return _back_apart(graph, path, wanted, given, back)
    with graph.machine.accounting():
        if is_apart(graph, size):
            _learn_apart(graph, path, wanted, given, back, size)
        return _back_together(graph, path, wanted, given, size)


def _back_apart(
    graph: Graph, path: LanesPath, wanted: tuple[int, ...], given: list[Any], back: WayBack
) -> list[Any]:
    """Run the backward pass of each example along its own path."""
    size = len(path.logs)
    found: list[Any] = [None] * len(wanted)
    for lane, log in enumerate(path.logs):
        derivatives = {-1 - i: scalar(s[lane]) for i, s in enumerate(given) if s is not None}
        ends = back.run(log, derivatives)
        if ends is None:
            alone = Path()
            alone.log = log
            with graph.machine.accounting():
                _back_by_python(graph, alone, wanted, derivatives, back)
            ends = derivatives
        for place, register in enumerate(wanted):
            slope = ends.get(register)
            if slope is not None:
                if found[place] is None:
                    found[place] = np.zeros((size, *slope.shape), slope.dtype)
                found[place][lane] = slope
    return found


def _learn_apart(
    graph: Graph,
    path: LanesPath,
    wanted: tuple[int, ...],
    given: list[Any],
    back: WayBack,
    size: int,
) -> None:
    """Record the backward steps of each example after a forward run of the whole batch."""
    active = _active(graph, wanted)
    numbers = {id(block): number for number, block in enumerate(graph.blocks)}
    steps = [
        (block, mask, leaves, own, _moving(block, leaves, active))
        for block, mask, leaves, own in reversed(path.steps)
    ]
    ends = [(-1 - i, kind_of(scalar(s[0]))) for i, s in enumerate(given) if s is not None]
    for lane in range(size):
        there = back.there(ends)
        for block, mask, leaves, own, moving in steps:
            if not mask[lane]:
                continue
            way = back.known(numbers[id(block)], there)
            if way is None:
                operands = functools.partial(_example, there, leaves, own, lane)
                new = _way(block, moving, there, operands)
                way = back.learn(numbers[id(block)], there, new)
            there = way.after


def _back_together(
    graph: Graph, path: LanesPath, wanted: tuple[int, ...], given: list[Any], size: int
) -> list[Any]:
    """Run the backward pass over blocks that examples have run together."""
    derivatives = _Derivatives(size)
    apart = is_apart(graph, size)
    active = _active(graph, wanted)
    everybody = np.ones(size, bool)
    ends = [None if slope is None else (slope, everybody) for slope in given]
    with np.errstate(all="ignore"):
        for block, mask, leaves, own in reversed(path.steps):
            outs: list[Any]
            if block.question is None:
                outs = [end and (end[0], mask) for end in ends]
            else:
                moved = [(source, derivatives.take(i, mask)) for i, source in block.moves]
                outs = [derivatives.take(i, mask) for i in block.writes]
                for source, slope in moved:
                    if slope is not None:
                        derivatives.add(source, *slope)
            _back_over_lanes(block, mask, leaves, own, outs, derivatives, active, apart)
    return [derivatives.get(i) for i in wanted]


def _back_over_lanes(
    block: Block,
    mask: Any,
    leaves: Leaves,
    own: tuple[bool, ...],
    outs: list[Any],
    derivatives: _Derivatives,
    active: set[int],
    apart: bool,
) -> None:
    moving = _moving(block, leaves, active)
    if all(slope is None for slope in outs) or not any(moving):
        return
    read = [i for i, one in zip(block.reads, moving, strict=True) if one]
    none = tuple([False] * len(read))
    for group, there in _groups(outs, mask):
        first = int(group.argmax())
        pullback = _pullback(block, moving, there, none)
        cotangents = [
            filled_with_zeros(out[0], group) for out, one in zip(outs, there, strict=True) if one
        ]
        points = leaves
        if not group.all():
            points = [filled(v, group, first) if o else v for v, o in zip(leaves, own, strict=True)]
        operands = [*cotangents, *points]
        flags = (*(True for _ in cotangents), *own)
        key = "back", moving, there
        body = batched_body(block, key, pullback, operands, flags, derivatives.size)
        everything = [*operands, *body.found]
        run = body.steps(everything) if apart else body.code(everything).run
        found = iter(run(*everything))
        for i, one in zip(read, pullback.gives, strict=True):
            if one:
                derivatives.add(i, next(found), group)


def _groups(outs: list[Any], mask: Any) -> list[tuple[Any, tuple[bool, ...]]]:
    """Group the examples of a block by which of its results have a cotangent for them."""
    there = np.array([np.zeros_like(mask) if out is None else out[1] & mask for out in outs])
    columns: dict[tuple[bool, ...], list[int]] = {}
    for lane in np.flatnonzero(mask).tolist():
        columns.setdefault(tuple(there[:, lane].tolist()), []).append(lane)
    found = []
    for key, lanes in columns.items():
        if any(key):
            group = np.zeros_like(mask)
            group[lanes] = True
            found.append((group, key))
    return found
