"""Graphs as machine code: as soon as that is there, Python goes no longer from block to block.

The way back is another graph, whose blocks are pullbacks: which of them comes next follows from the
block that was run, and from what has a cotangent then.  Python learns that as it goes back itself.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.backends.interface import backend_of
from fdbr.compiler.budget import Budget, compiling, passing, patience
from fdbr.compiler.ir.basic_blocks import BasicBlock
from fdbr.compiler.ir.program import Kind, Program, Variable, kind_of
from fdbr.loops.bodies import Body
from fdbr.loops.leaves import scalar

__all__ = ["Machine", "There", "Way", "WayBack"]

There = tuple[tuple[int, Kind], ...]
"""The registers that have a cotangent, in their order, and what it is."""

_MOST = 2000  # blocks of a way back
_AT_ONCE = 8  # kernels that are compiled at a time
_EACH = 2e-3  # seconds that the passes take for a block, beside those for its steps
_TOGETHER = 0.7  # of the time of a block for one example, which Python takes for all of a batch


@attrs.frozen(eq=False)
class Way:
    """The way back over a block, with some cotangents.

    Attributes
    ----------
    body
        From the cotangents of ``reads``, and what the block has read, to those of ``writes``;
        `None` if there is nothing to do.
    reads, writes
        Registers.
    after
        What has a cotangent then.
    """

    body: Body | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: There


class _Refused(Exception):
    """There is something that machine code does not do."""


@attrs.frozen(eq=False)
class _Made:
    """Blocks as machine code.

    Attributes
    ----------
    code
        The machine code.
    shown
        The places of registers that are written before a run or read after it, in their order.
    results
        The places that are read then, by the number of the last block.
    numbers
        Of ways back: the numbers of their blocks.
    """

    code: Any
    shown: Mapping[tuple[int, Kind], int]
    results: Mapping[int, Sequence[int]]
    numbers: Mapping[tuple[int, There], int] = attrs.field(factory=dict)


class _Part:
    """Blocks that are machine code, or will be.

    Attributes
    ----------
    now
        The machine code that runs, if there is most of it; NumPy does the rest.
    calls
        How often it was asked for.
    lanes
        For how many examples it runs.
    """

    def __init__(self) -> None:
        self.now: _Made | None = None
        self.calls = 0
        self.lanes = 1
        self._made: _Made | None = None
        self._count = 0

    def bodies(self) -> list[Body]:
        """The programs of the blocks, as far as they have run."""
        raise NotImplementedError

    def made(self, waits: bool) -> _Made:
        """The machine code of all blocks that have gone through the passes."""
        raise NotImplementedError

    @property
    def is_behind(self) -> bool:
        """Whether there is more than has been compiled."""
        return self._count < len(self.bodies())

    def renew(self, waits: bool) -> None:
        """Make the machine code anew, if there are more blocks than there were."""
        bodies = self.bodies()
        if self._count < len(bodies):
            for body in bodies:
                body.passed()
            self._made, self._count = self.made(waits), len(bodies)
        self.take_up()

    def visits(self) -> list[int]:
        """The number of times that Python has run each of the blocks."""
        raise NotImplementedError

    def take_up(self) -> list[Any]:
        """Have it run from now on, if most kernels are there; those that are not."""
        if self._made is None:
            return []
        kernels, share = self._made.code.missing(self.visits())
        if share * max(1.0, self.lanes * _TOGETHER) < 1:
            self.now = self._made
        return kernels


class _Forward(_Part):
    """The blocks of the function."""

    def __init__(
        self, blocks: Sequence[Any], first: int, inputs: Sequence[Kind], keeps: bool
    ) -> None:
        super().__init__()
        self._blocks, self._first = blocks, first
        self._inputs, self._keeps = inputs, keeps

    def bodies(self) -> list[Body]:
        if not self._blocks[self._first].body.has_run:
            return []
        return [block.body for block in self._blocks if block.body.has_run]

    def visits(self) -> list[int]:
        return [block.visits for block in self._blocks]

    def made(self, waits: bool) -> _Made:
        shown = {pair: place for place, pair in enumerate(enumerate(self._inputs))}
        results = {}
        blocks: list[BasicBlock | None] = []
        for number, block in enumerate(self._blocks):
            if not block.body.has_passed:
                blocks.append(None)
                continue
            program = block.body.passed()
            if block.question is None:
                pairs = [
                    (register, out)
                    for register, out in zip(block.writes, program.outputs, strict=True)
                    if type(out) is Variable
                ]
                results[number] = [
                    shown.setdefault((register, out.kind), len(shown)) for register, out in pairs
                ]
                if len(pairs) < len(program.outputs):
                    program = program.replace(None, [out for _, out in pairs])
                writes: Any = tuple([register for register, _ in pairs])
            else:
                kind = kind_of(program.outputs[0])
                if block.question is not bool or kind.dtype.kind != "b" or kind.size != 1:
                    raise _Refused
                writes = (None, *block.writes)
            asks = block.question is not None
            blocks.append(BasicBlock(program, block.reads, writes, block.moves, asks, block.nexts))
        return _Made(_compiled(blocks, self._keeps, shown, waits), shown, results)


class WayBack(_Part):
    """The ways back over the blocks of a graph."""

    def __init__(self, blocks: Sequence[Any], wanted: Sequence[int]) -> None:
        super().__init__()
        self._blocks, self._wanted = blocks, wanted
        self.ways: dict[tuple[int, There], Way] = {}
        self._visits: Counter[tuple[int, int]] = Counter()
        self._known: dict[tuple[int, int], Way] = {}
        self._there: dict[There, There] = {}

    def there(self, slopes: Iterable[tuple[int, Kind]]) -> There:
        """The one object that stands for the registers that have a cotangent."""
        there = tuple(sorted(slopes, key=itemgetter(0)))
        return self._there.setdefault(there, there)

    def known(self, block: int, there: There) -> Way | None:
        """The way over a block, if there is one yet; it is about to be gone."""
        key = block, id(there)
        self._visits[key] += 1
        return self._known.get(key)

    def learn(self, block: int, there: There, way: Way) -> Way:
        """Note a way over a block."""
        way = attrs.evolve(way, after=self.there(way.after))
        self._known[block, id(there)] = way
        if len(self.ways) < _MOST:
            self.ways[block, there] = way
        return way

    def bodies(self) -> list[Body]:
        ways = self.ways.items()
        return [way.body or self._blocks[block].body for (block, _), way in ways]

    def visits(self) -> list[int]:
        numbers = () if self._made is None else self._made.numbers
        return [self._visits[block, id(there)] for block, there in numbers]

    def made(self, waits: bool) -> _Made:
        shown: dict[tuple[int, Kind], int] = {}
        numbers = {key: number for number, key in enumerate(self.ways)}
        after: dict[There, dict[int, int]] = {}
        for (block, there), number in numbers.items():
            after.setdefault(there, {})[block] = number
        blocks: list[BasicBlock] = []
        results = {}
        for (block, there), way in self.ways.items():
            if way.body is None:
                inputs = self._blocks[block].body.captured().inputs
                program = Program("back", inputs, (), ())
            else:
                program = way.body.passed()
            taken = (None,) * (len(program.inputs) - len(way.reads))
            reads = (*way.reads, *taken)
            writes = way.writes
            nexts = after.get(way.after, {})
            results[numbers[block, there]] = [
                shown.setdefault(pair, len(shown)) for pair in way.after if pair[0] in self._wanted
            ]
            for pair in there:
                if pair[0] < 0:
                    shown.setdefault(pair, len(shown))
            blocks.append(BasicBlock(program, reads, writes, (), False, nexts))
        code = _compiled(blocks, False, shown, waits, len(self._blocks))
        return _Made(code, shown, results, numbers)

    def run(self, log: Any, slopes: Mapping[int, Any]) -> dict[int, Any] | None:
        """The cotangents in the end, by registers; `None` if it does not know the way."""
        now = self.now
        if now is None:
            return None
        there = self.there((i, kind_of(slope)) for i, slope in slopes.items())
        start = now.numbers.get((log.last(), there))
        if start is None:
            return None
        given: list[Any] = [None] * len(now.shown)
        for pair in there:
            given[now.shown[pair]] = slopes[pair[0]]
        found = now.code.run(start, given, log, now.results)
        if found is None:
            return None
        shown = list(now.shown)
        end, values = found
        places = now.results[end]
        return {shown[place][0]: value for place, value in zip(places, values, strict=True)}


def _compiled(
    blocks: Sequence[BasicBlock | None], keeps: bool, shown: Any, waits: bool, noted: int = 0
) -> Any:
    backends = {backend_of(block.program) for block in blocks if block is not None}
    if len(backends) != 1:
        raise _Refused
    backend = backends.pop()
    try:
        return backend.control_flow(blocks, keeps, list(shown), waits, noted)
    except NotImplementedError as error:
        raise _Refused from error


class Machine:
    """A graph as machine code.

    Parameters
    ----------
    blocks
        The graph's.
    first
        The number of the block that begins.
    """

    def __init__(self, blocks: Sequence[Any], first: int) -> None:
        self._blocks, self._first = blocks, first
        self._forward: dict[bool, _Forward] = {}
        self._back: dict[tuple[int, ...], WayBack] = {}
        self._budget = Budget(often=math.inf)
        self._waits = False
        self.refused = False

    def forward(self, operands: Sequence[Any], path: Any) -> Any:
        """Run the graph; `None` if it does not know the way."""
        part = self._part(operands, path is not None)
        if part.now is None:
            return None
        log = None if path is None else self._log()
        found = self._ran(part, operands, log)
        if found is not None and path is not None:
            path.log = log
        return found

    def forward_apart(
        self, operands: Sequence[Any], own: Sequence[bool], size: int, path: Any
    ) -> list[Any] | None:
        """Run the graph for each example of a batch; `None` if it does not know all ways."""

        def example(lane: int) -> list[Any]:
            return [value[lane] if one else value for value, one in zip(operands, own, strict=True)]

        part = self._part(example(0), path is not None)
        part.lanes = size
        ways = self._back.values() if path is not None else ()
        if part.now is None or any(way.now is None for way in ways):  # back they go together
            return None
        logs, results = [], []
        for lane in range(size):
            log = None if path is None else self._log()
            found = self._ran(part, example(lane), log)
            if found is None:
                return None
            logs.append(log)
            results.append(found)
        if path is not None:
            path.logs = logs
        return [np.array(values, kind_of(values[0]).dtype) for values in zip(*results, strict=True)]

    def _part(self, operands: Sequence[Any], keeps: bool) -> _Forward:
        part = self._forward.get(keeps)
        if part is None:
            kinds = list(map(kind_of, map(scalar, operands)))
            part = self._forward[keeps] = _Forward(self._blocks, self._first, kinds, keeps)
        self._at_once(part)
        return part

    def _log(self) -> Any:
        return backend_of(self._blocks[self._first].body.captured()).log()

    def _ran(self, part: _Forward, operands: Sequence[Any], log: Any) -> list[Any] | None:
        now = part.now
        assert now is not None
        found = now.code.run(self._first, operands, log, now.results)
        if found is None:
            return None
        end, values = found
        left = iter(values)
        outputs = self._blocks[end].body.passed().outputs
        return [next(left) if type(out) is Variable else out for out in outputs]

    def back(self, wanted: tuple[int, ...]) -> WayBack:
        """The way back to the cotangents of some operands."""
        part = self._back.get(wanted)
        if part is None:
            part = self._back[wanted] = WayBack(self._blocks, wanted)
        self._at_once(part)
        return part

    def _at_once(self, part: _Part) -> None:
        """Compile a part, if nobody minds waiting."""
        part.calls += 1
        if part.is_behind and not self.refused and (self._waits or not patience()):
            self._renew(part, True)

    def _renew(self, part: _Part, waits: bool) -> None:
        try:
            part.renew(waits)
        except _Refused:
            self._refuse()

    def _refuse(self) -> None:
        self.refused = True
        self._forward.clear()
        self._back.clear()
        for block in self._blocks:
            block.compiles = True

    def _parts(self) -> list[_Part]:
        return [*self._forward.values(), *self._back.values()]

    @contextlib.contextmanager
    def accounting(self) -> Iterator[None]:
        """Pay for machine code by the time that Python takes from block to block."""
        start = time.perf_counter()
        yield
        if not self.refused:
            self._budget.ran(time.perf_counter() - start)
            self.advance(self._budget)

    # --- what programs ask of those within them ---

    def advance(self, budget: Budget) -> None:
        """Go on towards machine code, as far as there is a budget for it."""
        for block in self._blocks:
            block.advance(budget)
        for part in self._parts():
            if part.is_behind:
                if part.calls > 1:  # the first one may be the capture's
                    self._pass(part, budget)
                if self.refused:
                    return
            else:
                _ask(part.take_up(), budget)

    def _pass(self, part: _Part, budget: Budget) -> None:
        left = [body.captured() for body in part.bodies() if not body.has_passed]
        takes = passing.of(sum(len(program.steps) for program in left)) + _EACH * len(left)
        backend = backend_of(self._blocks[self._first].body.program)
        if not budget.affords(backend.takes_to_prepare() + takes):
            return
        start = time.perf_counter()
        backend.prepare()
        self._renew(part, False)
        budget.spend(time.perf_counter() - start)

    def finish(self) -> None:
        """Have everything compiled that has run, and wait for it."""
        self._waits = True
        for part in self._parts():
            self._renew(part, True)
            if self.refused:
                break
            for kernel in part.take_up():
                kernel.settle()
            part.take_up()
        for block in self._blocks:
            block.finish()

    def waiting(self) -> int:
        """The number of kernels that have not been compiled yet."""
        waiting = sum(block.waiting() for block in self._blocks)
        return waiting + sum(len(part.take_up()) for part in self._parts())

    @property
    def settled(self) -> bool:
        """Whether it runs as it always will, as far as it has run."""
        parts = [part for part in self._parts() if part.calls > 1]
        if any(part.is_behind or part.take_up() for part in parts):
            return False
        return all(block.settled for block in self._blocks)


def _ask(kernels: Sequence[Any], budget: Budget) -> None:
    """Have kernels compiled in the background."""
    takes = 0.0
    for kernel in kernels[:_AT_ONCE]:
        takes += compiling.of(kernel.length)
        if kernel.asked:
            kernel.hurry(budget.affords(takes))
        elif budget.affords(takes):
            kernel.ask()
