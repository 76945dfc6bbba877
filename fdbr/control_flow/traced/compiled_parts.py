"""The compiled parts of a graph: its blocks forward, and the backward steps over them.

The backward pass is another graph, whose blocks are pullbacks.  Its successors follow from the
block that was run and from the registers that have a cotangent; Python records them as it runs the
backward pass itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import attrs

from fdbr.compiler.backend import backend_of
from fdbr.compiler.ir.basic_blocks import BasicBlock
from fdbr.compiler.ir.program import Kind, Program, Variable, kind_of
from fdbr.control_flow.body_tracing import Body

__all__ = ["Forward", "Made", "Part", "RefusedError", "There", "Way", "WayBack"]

There = tuple[tuple[int, Kind], ...]
"""The registers that have a cotangent, in order, with its aval."""

_MOST = 2000  # blocks of a backward pass; bounds the compile time
_TOGETHER = 0.7  # time of a block by Python for a whole batch, in times of compiled single examples


@attrs.frozen(eq=False)
class Way:
    """The backward step over a block, for cotangents of given registers.

    Attributes
    ----------
    body
        From the cotangents of ``reads``, and the values that the block has read, to the cotangents
        of ``writes``; `None` if there is nothing to compute.
    reads, writes
        Registers.
    after
        The registers that have a cotangent afterwards.
    """

    body: Body | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: There


class RefusedError(Exception):
    """The back end cannot compile some step or guard."""


@attrs.frozen(eq=False)
class Made:
    """Compiled blocks.

    Attributes
    ----------
    code
        The machine code.
    shown
        The positions of registers that are written before a run or read after it.
    results
        The positions that are read after a run, by the number of its last block.
    numbers
        For backward passes: the numbers of their blocks.
    """

    code: Any
    shown: Mapping[tuple[int, Kind], int]
    results: Mapping[int, Sequence[int]]
    numbers: Mapping[tuple[int, There], int] = attrs.field(factory=dict)


class Part:
    """Blocks that are compiled, or will be.

    Attributes
    ----------
    now
        The machine code in use, once most of it is compiled; NumPy runs the rest.
    calls
        How often it was requested.
    lanes
        The number of examples that it runs for.
    """

    def __init__(self) -> None:
        self.now: Made | None = None
        self.calls = 0
        self.lanes = 1
        self._made: Made | None = None
        self._count = 0

    def bodies(self) -> list[Body]:
        """Return the programs of the blocks, as far as they have run."""
        raise NotImplementedError

    def made(self, waits: bool) -> Made:
        """Compile all blocks that have gone through the passes."""
        raise NotImplementedError

    @property
    def is_behind(self) -> bool:
        """Whether some blocks are not compiled yet."""
        return self._count < len(self.bodies())

    def renew(self, waits: bool) -> None:
        """Compile again if there are more blocks than before."""
        bodies = self.bodies()
        if self._count < len(bodies):
            for body in bodies:
                body.passed()
            self._made, self._count = self.made(waits), len(bodies)
        self.take_up()

    def visits(self) -> list[int]:
        """Return how often Python has run each of the blocks."""
        raise NotImplementedError

    def take_up(self) -> list[Any]:
        """Use the machine code from now on if most kernels are compiled; return those missing."""
        if self._made is None:
            return []
        kernels, share = self._made.code.missing(self.visits())
        if share * max(1.0, self.lanes * _TOGETHER) < 1:
            self.now = self._made
        return kernels


class Forward(Part):
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

    def made(self, waits: bool) -> Made:
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
                    raise RefusedError
                writes = (None, *block.writes)
            asks = block.question is not None
            blocks.append(BasicBlock(program, block.reads, writes, block.moves, asks, block.nexts))
        return Made(_compiled(blocks, self._keeps, shown, waits), shown, results)


class WayBack(Part):
    """The backward steps over the blocks of a graph."""

    def __init__(self, blocks: Sequence[Any], wanted: Sequence[int]) -> None:
        super().__init__()
        self._blocks, self._wanted = blocks, wanted
        self.ways: dict[tuple[int, There], Way] = {}
        self._visits: Counter[tuple[int, int]] = Counter()
        self._known: dict[tuple[int, int], Way] = {}
        self._there: dict[There, There] = {}

    def there(self, derivatives: Iterable[tuple[int, Kind]]) -> There:
        """Return the unique object that represents the registers that have a cotangent."""
        there = tuple(sorted(derivatives, key=itemgetter(0)))
        return self._there.setdefault(there, there)

    def known(self, block: int, there: There) -> Way | None:
        """Return the known step over a block, and count that it is about to run."""
        key = block, id(there)
        self._visits[key] += 1
        return self._known.get(key)

    def learn(self, block: int, there: There, way: Way) -> Way:
        """Record a step over a block."""
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

    def made(self, waits: bool) -> Made:
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
        return Made(code, shown, results, numbers)

    def run(self, log: Any, derivatives: Mapping[int, Any]) -> dict[int, Any] | None:
        """Return the final cotangents by registers; `None` if a step is not compiled."""
        now = self.now
        if now is None:
            return None
        there = self.there((i, kind_of(slope)) for i, slope in derivatives.items())
        start = now.numbers.get((log.last(), there))
        if start is None:
            return None
        given: list[Any] = [None] * len(now.shown)
        for pair in there:
            given[now.shown[pair]] = derivatives[pair[0]]
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
        raise RefusedError
    backend = backends.pop()
    try:
        return backend.control_flow(blocks, keeps, list(shown), waits, noted)
    except NotImplementedError as error:
        raise RefusedError from error
