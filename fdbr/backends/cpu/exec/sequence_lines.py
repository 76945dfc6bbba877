"""Statements of a program's source that run sequences, with their arguments and results."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan
from fdbr.backends.cpu.exec.memory.workspaces import give
from fdbr.backends.cpu.exec.sequence import Call, Commands, Iterations, Record
from fdbr.backends.cpu.exec.sequence_building import Builder, Built
from fdbr.backends.cpu.exec.sequence_runner import runner
from fdbr.backends.cpu.exec.sequencing import Run, is_look
from fdbr.compiler.ir.program import Fused, Instruction, Step, Variable, is_variable

__all__ = ["Sequences"]

_SHORT = 200_000  # additions below which releasing the GIL costs more than it gains


class Sequences:
    """All sequences of a program.

    Parameters
    ----------
    units
        The program's steps, and its runs of steps.
    outputs
        The outputs of the program.
    builder
        The builder of the records.
    """

    def __init__(self, units: Sequence[Step | Run], outputs: Iterable[Any], builder: Builder):
        self.builder = builder
        self.built: dict[Run, Built] = {}
        position = 0
        for unit in units:
            if isinstance(unit, Run):
                built = self.built[unit] = builder.build(unit.steps, position)
                unit.roots.extend([r for r in built.roots().values() if self._is_real(r)])
                position += len(unit.steps)
            else:
                position += 1
        self.shown = _shown(units, outputs)
        self.commands: list[Commands] = []
        self.boxes: dict[Variable, str] = {}

    def _is_real(self, root: Any) -> bool:
        return is_variable(root) and root not in self.builder.moving

    def sources(self, memory: Plan) -> set[str]:
        """Return the sources of all kernels, except copies that the memory plan avoids."""
        for built in self.built.values():
            built.leave_out(memory.inside)
        records = [record for built in self.built.values() for record in built.records]
        calls = [record for record in records if isinstance(record, Call)]
        return {call.code for call in calls if isinstance(call.code, str)}

    def lines(self, writer: Any, run: Run, memory: Plan, ordered: set[Variable]) -> list[str]:
        """Return the statements that run a sequence."""
        built = self.built[run]
        writer.refuses |= any(type(r) is Call and r.refuses for r in built.records)
        roots = [root for root in built.roots().values() if self._is_real(root)]
        given = [root for root in roots if root not in memory.places]
        lines: list[str] = []
        names = [self._argument(writer, root, ordered, lines) for root in given]
        starts = {root: memory.start(root) for root in roots if root in memory.places}
        weight = _weight(built.records)
        commands = Commands(built.records, given, starts, weight >= _SHORT)
        number = len(self.commands)
        self.commands.append(commands)
        writer.scope["sequence"] = runner()
        writer.scope[f"stop{number}"] = _stopping(commands, number)
        arguments = "".join(f", {name}" for name in names)
        lines.append(f"a = sequence(tables[{number}].words{arguments})")
        lines.append(f"if a is not None: stop{number}(a, block)")
        for step in run.steps:
            lines += self._after(writer, step, memory)
        ordered.update(v for v in run.outs if v in self.builder.own)
        return lines

    def _argument(
        self, writer: Any, root: Variable, ordered: set[Variable], lines: list[str]
    ) -> str:
        """Return the name of a C-contiguous array that holds a value; allocate it if need be."""
        name: str = writer.variable(root)
        kind = root.kind
        if root in self.boxes:
            return self.boxes[root]
        if root in writer.defined:
            if kind.is_array:
                if root not in ordered:
                    copy = f"{name} = np.ascontiguousarray({name})"
                    lines.append(f"if not {name}.flags.c_contiguous: {copy}")
                    ordered.add(root)
                return name
            self.boxes[root] = f"{name}_box"
            lines.append(f"{name}_box = np.asarray({name}, '{kind.dtype.str}')")
            return f"{name}_box"
        if kind.is_array:
            writer.defined.add(root)
            ordered.add(root)
        else:
            name = self.boxes[root] = f"{name}_box"
        lines.append(f"{name} = np.empty({kind.shape!r}, {writer.constant(kind.dtype, 'd')})")
        return name

    def _after(self, writer: Any, step: Step, memory: Plan) -> list[str]:
        """Return the statements that make a step's results available to Python, if needed."""
        lines = []
        over = step.over if isinstance(step, Fused) else {}
        for out in step.outs:
            if out not in self.shown:
                continue
            name = writer.variable(out)
            writer.defined.add(out)
            if out in over:
                lines.append(f"{name} = {writer.variable(over[out])}")
            elif out not in self.builder.own:
                assert isinstance(step, Instruction)
                lines.append(writer.instruction(step))
            else:
                box = self.boxes.get(out, name)
                if out in memory.places:
                    box = writer.memory(out)
                if not out.kind.is_array:
                    box += ".item()" if out.kind.is_number else "[()]"
                lines += [f"{name} = {box}"] if box != name else []
        return lines


def _weight(records: Sequence[Record]) -> int:
    """Return the estimated cost of records, in additions."""
    weight, times = 0, 1
    for record in records:
        if isinstance(record, Iterations):
            length = record.loop.length
            times = times // length if record.back else times * length
        elif isinstance(record, Call):
            weight += times * record.weight
    return weight


def _stopping(commands: Commands, number: int) -> Callable[[int, Any], None]:
    """Return the function that raises the error of a sequence that has stopped."""

    def stop(stopped: int, block: Any) -> None:
        try:
            commands.stop(stopped, block.tables[number])
        finally:
            give(block)  # so that the next run finds it

    return stop


def _shown(units: Sequence[Step | Run], outputs: Iterable[Any]) -> set[Variable]:
    """Return the values that Python needs names for."""
    shown = {output for output in outputs if is_variable(output)}
    for unit in reversed(units):
        if not isinstance(unit, Run):
            shown.update(unit.reads)
            continue
        for step in reversed(unit.steps):
            if is_look(step) and not shown.isdisjoint(step.outs):
                shown.update(step.reads)
    return shown
