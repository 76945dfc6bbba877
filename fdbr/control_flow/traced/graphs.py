"""Control flow as a graph of basic blocks, each of which ends with a guard or with the result.

The values between blocks are in *registers*.  A run of the graph goes from block to block by the
outcomes of guards, without the Python function.  At an outcome that was never seen there it raises
`GuardFailure`, or `UnknownWay` while a function is captured.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.engine.budget import Budget
from fdbr.compiler.ir.guards import GuardFailure
from fdbr.compiler.ir.program import Instruction, Program, Variable, kind_of
from fdbr.control_flow.body_tracing import Body, NoBodyError, evaluate
from fdbr.control_flow.operands import scalar
from fdbr.control_flow.traced.compiled_graph import Machine
from fdbr.control_flow.traced.discovery import (
    START,
    Ask,
    Edge,
    Flow,
    Leave,
    Name,
    Segment,
    answer_key,
)

__all__ = ["Block", "Graph", "Kept", "Path", "UnknownWay", "graph_of", "run"]

NOWHERE = 1 << 30
"""The index of the guard that a graph fails with; no trace has as many guards."""


class UnknownWay(BaseException):
    """A run of a graph has met an outcome that is not known there.

    It is not an `Exception`, because captured code must not catch it.

    Attributes
    ----------
    leaves
        The operands of the graph, of one example.
    lane
        The index of the example in a batch, if there is one.
    """

    def __init__(self, leaves: Sequence[Any], lane: int | None = None) -> None:
        super().__init__("an answer that is not known")
        self.leaves, self.lane = leaves, lane


@attrs.define(eq=False)
class Block:
    """Steps without a guard, and their successors.

    Attributes
    ----------
    body
        The steps: from the values of ``reads`` to the value that the guard reads, if there is one,
        and then the values of ``writes``, or the results.
    reads, writes
        Registers; those of the function's results are -1, -2 and so on.
    moves
        Pairs of registers (target, source).
    question
        The conversion of the guard; `None` where the function returns.
    nexts
        The numbers of the successors, by outcome.
    backs
        Its pullbacks, by what they are for.
    compiles
        Whether it is compiled by itself, because the graph as a whole cannot be.
    visits
        How often Python has run it.
    """

    body: Body
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    moves: tuple[tuple[int, int], ...]
    question: Any
    nexts: dict[Any, int]
    backs: dict[Any, Any] = attrs.field(factory=dict)
    compiles: bool = False
    visits: int = 0

    def _bodies(self) -> list[Body]:
        backs = [back[0] if type(back) is tuple else back for back in self.backs.values()]
        return [self.body, *(back for back in backs if isinstance(back, Body))]

    def finish(self) -> None:
        """Compile everything, and wait for it."""
        for body in self._bodies():
            body.finish()

    def waiting(self) -> int:
        """Return the number of kernels that are not compiled yet."""
        return sum(body.waiting() for body in self._bodies())

    @property
    def settled(self) -> bool:
        """Whether its code is final, as far as it has run."""
        return all(body.settled for body in self._bodies())

    def advance(self, budget: Budget) -> None:
        """Continue towards compiled code, as far as the budget allows."""
        for body in self._bodies():
            body.advance(budget)

    def evaluated(self, leaves: Sequence[Any]) -> list[Any]:
        """Evaluate the steps on arrays or traced values."""
        return evaluate(self.body.program, leaves)

    def run(self, leaves: Sequence[Any]) -> Any:
        """Run the steps on arrays and numbers."""
        body = self.body
        self.visits += 1
        outs: Any = (body.code(leaves).run if self.compiles else body.steps(leaves))(*leaves)
        return outs


@attrs.frozen(eq=False)
class Graph:
    """The control flow of a function.

    Attributes
    ----------
    flow
        The discovered control flow that it was built from.
    first
        The entry block.
    blocks
        All blocks.
    inputs, registers
        The number of operands, which are in the first registers, and the number of registers.
    lifted
        The numbers of the captured values that are operands after the arguments.
    active
        The registers that depend on some operands, by these operands.
    machine
        The machine code for it.
    """

    flow: Flow
    first: Block
    blocks: tuple[Block, ...]
    inputs: int
    registers: int
    lifted: tuple[int, ...]
    active: dict[Any, set[int]] = attrs.field(factory=dict)
    machine: Machine = attrs.field(init=False)

    @machine.default
    def _machine(self) -> Machine:
        return Machine(self.blocks, self.blocks.index(self.first))

    @property
    def bodies(self) -> tuple[Machine, ...]:
        """The programs in it."""
        return (self.machine,)

    def __repr__(self) -> str:
        steps = sum(len(block.body.program.steps) for block in self.blocks)
        return f"<{len(self.blocks)} blocks of {steps} steps>"


class Path:
    """The blocks that a run has gone through, with their operands; a value in programs.

    Attributes
    ----------
    steps
        The blocks, if Python ran them.
    log
        The log, if machine code ran them.
    """

    __slots__ = ("log", "steps")

    shape = ()
    dtype = np.dtype(object)

    def __init__(self) -> None:
        self.steps: list[tuple[Block, Sequence[Any]]] = []
        self.log: Any = None

    def back(self, graph: "Graph") -> Iterable[tuple[Block, Sequence[Any]]]:
        """Return the blocks and their operands in reverse order."""
        if self.log is None:
            return reversed(self.steps)
        programs = [block.body.captured() if block.body.has_run else None for block in graph.blocks]
        return ((graph.blocks[i], values) for i, values in self.log.entries(programs))


def run(graph: Graph, operands: Sequence[Any], path: Path | None, capturing: bool) -> Any:
    """Run a graph on arrays and numbers; return the results."""
    found = graph.machine.forward(operands, path)
    if found is None:
        with graph.machine.accounting():
            found = _walk(graph, operands, path, capturing)
    return found


def _walk(graph: Graph, operands: Sequence[Any], path: Path | None, capturing: bool) -> Any:
    registers = [*map(scalar, operands), *[None] * (graph.registers - graph.inputs)]
    block = graph.first
    while True:
        given = [registers[i] for i in block.reads]
        outs = block.run(given)
        if path is not None:
            path.steps.append((block, given))
        if block.question is None:
            return outs
        answer = block.question(outs[0])
        moved = [registers[source] for _, source in block.moves]
        for i, value in zip(block.writes, outs[1:], strict=True):
            registers[i] = scalar(value)
        for (i, _), value in zip(block.moves, moved, strict=True):
            registers[i] = value
        following = block.nexts.get(answer_key(answer))
        if following is None:
            if capturing:
                raise UnknownWay(operands)
            raise GuardFailure(NOWHERE, answer)
        block = graph.blocks[following]


# --- construction -------------------------------------------------------------------


Kept = dict[Edge, tuple[Any, Body, dict[Any, Any]]]
"""Bodies of blocks that were made before, with what they depend on, and their pullbacks."""


def graph_of(flow: Flow, args: int, lifted: tuple[int, ...], kept: Kept) -> Graph:
    """Build the graph of what is known, with some captured values as operands.

    ``kept`` holds the bodies of blocks that were made before.
    """
    known = {
        edge: segment
        for edge, segment in flow.segments.items()
        if all(name[0] != "lifted" or name[1] in flow.lifted for name in segment.names.values())
    }
    return _Making(known, args, lifted, flow, kept).graph()


class _Making:
    """Builds a graph."""

    def __init__(
        self,
        segments: dict[Edge, Segment],
        args: int,
        lifted: tuple[int, ...],
        flow: Flow,
        kept: Kept,
    ) -> None:
        self.segments, self.lifted, self.flow, self.kept = segments, lifted, flow, kept
        self.inputs = args + len(lifted)
        self.registers: dict[Name, int] = {("arg", i): i for i in range(args)}
        self.registers |= {("lifted", number): args + i for i, number in enumerate(lifted)}
        for name in flow.names:  # so that all graphs of one flow have the same registers
            self.registers.setdefault(name, len(self.registers))
        self.own = {
            edge: {variable: i for i, variable in enumerate(segment.made)}
            for edge, segment in segments.items()
        }
        self.live: dict[Any, set[Name]] = {}  # live names: of roles, and of results by edge
        self.taken: dict[Edge, list[Name]] = {}  # the names that a segment must provide

    def graph(self) -> Graph:
        """Build the graph."""
        if not _agree(self.segments):
            raise NoBodyError("its results differ in structure or aval")
        self._find_live()
        blocks = {edge: self._block(edge) for edge in self.segments}
        after: dict[int, dict[Any, int]] = {}
        for number, (state, answer) in enumerate(blocks):
            after.setdefault(state, {})[answer] = number
        for edge, segment in self.segments.items():
            if isinstance(segment.end, Ask):
                blocks[edge].nexts.update(after.get(segment.end.state, {}))
        every = tuple(blocks.values())
        registers = len(self.registers)
        return Graph(self.flow, blocks[START], every, self.inputs, registers, self.lifted)

    def _find_live(self) -> None:
        """Compute which values a block must leave for others."""
        changed = True
        while changed:
            changed = False
            for edge, segment in self.segments.items():
                for name in self._reads(edge, segment):
                    if name[0] == "role":
                        live = self.live.setdefault("roles", set())
                    elif name[0] == "made":
                        live = self.live.setdefault(name[1], set())
                    else:
                        continue
                    if name not in live:
                        live.add(name)
                        changed = True

    def _roles(self, segment: Segment) -> list[tuple[Name, Variable]]:
        """Return the values of Python's variables that a segment leaves for its successors."""
        end = segment.end
        if not isinstance(end, Ask):
            return []
        live = self.live.get("roles", ())
        return [(name, variable) for name, variable in end.roles.items() if name in live]

    def _wanted(self, edge: Edge, segment: Segment) -> list[Variable]:
        """Return the variables that a segment must compute."""
        made = segment.made
        names = sorted(self.live.get(edge, ()), key=lambda name: name[2])
        wanted = [made[name[2]] for name in names]
        wanted += [variable for _, variable in self._roles(segment)]
        end = segment.end
        if isinstance(end, Leave):
            return [*wanted, *(out for out in end.outputs if type(out) is Variable)]
        return [end.operand, *wanted]

    def _needed(self, edge: Edge, segment: Segment) -> list[Instruction]:
        """Return the steps of a segment that are not dead."""
        wanted = set(self._wanted(edge, segment))
        steps = []
        for step in reversed(segment.steps):
            if not wanted.isdisjoint(step.outs):
                steps.append(step)
                wanted.update(step.reads)
        return steps[::-1]

    def _reads(self, edge: Edge, segment: Segment) -> list[Name]:
        """Return the names of the values that a segment reads."""
        reads = [v for step in self._needed(edge, segment) for v in step.reads]
        reads += self._wanted(edge, segment)
        return [segment.names[v] for v in reads if v in segment.names]

    def _register(self, name: Name) -> int:
        if name not in self.registers:
            self.flow.names.append(name)
        return self.registers.setdefault(name, len(self.registers))

    def _block(self, edge: Edge) -> Block:
        segment = self.segments[edge]
        own, steps = self.own[edge], self._needed(edge, segment)
        outputs: list[Any] = []
        writes: list[int] = []
        moves: list[tuple[int, int]] = []
        end = segment.end
        if isinstance(end, Leave):
            outputs += end.outputs
            writes += [-1 - i for i in range(len(outputs))]
        else:
            outputs.append(end.operand)
            named = [(name, segment.made[name[2]]) for name in self.live.get(edge, ())]
            for name, variable in [*named, *self._roles(segment)]:
                register = self._register(name)
                if variable in own:
                    outputs.append(variable)
                    writes.append(register)
                elif (source := self._register(segment.names[variable])) != register:
                    moves.append((register, source))
        read = dict.fromkeys(v for step in steps for v in step.reads if v in segment.names)
        read |= dict.fromkeys(v for v in outputs if type(v) is Variable and v in segment.names)
        reads = tuple(self._register(segment.names[v]) for v in read)
        program = Program(f"part of {edge}", tuple(read), tuple(steps), tuple(outputs))
        question = end.question if isinstance(end, Ask) else None
        places = reads, tuple(writes), tuple(moves)
        key = places, *map(tuple, (program.inputs, program.outputs)), *program.steps
        known = self.kept.get(edge)
        if known is None or known[0] != key:
            known = self.kept[edge] = key, Body(program, [], []), {}
        _, body, backs = known
        return Block(body, *places, question, {}, backs)


def _agree(segments: dict[Edge, Segment]) -> bool:
    """Return whether all ends give results of one structure and with the same avals."""
    ends = [segment.end for segment in segments.values() if isinstance(segment.end, Leave)]
    forms = [(end.structure, *map(_form, end.outputs)) for end in ends]
    return all(form == forms[0] for form in forms)


def _form(output: Any) -> Any:
    if type(output) is Variable or isinstance(output, int | float | complex | np.generic):
        return kind_of(output)
    return kind_of(output) if isinstance(output, np.ndarray) else output
