"""Code generation for NumPy: a program becomes the source of one Python function.

Each step calls the primitive's value on arrays, without dispatch in between.  Values are deleted
after their last use.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.loop_calls import loop_lines
from fdbr.backends.cpu.codegen.written import Written
from fdbr.backends.cpu.exec.kernel import native
from fdbr.backends.cpu.exec.kernel_calls import call_lines
from fdbr.backends.cpu.exec.memory.buffer_assignment import Plan, is_join, plan
from fdbr.backends.cpu.exec.memory.workspaces import give, taker
from fdbr.backends.cpu.exec.sequence_building import Builder
from fdbr.backends.cpu.exec.sequence_lines import Sequences
from fdbr.backends.cpu.exec.sequencing import Natives, Run, gathered, is_look
from fdbr.backends.cpu.library.conv.program_primitives import IN_ORDER
from fdbr.backends.cpu.library.dispatch import VALUES
from fdbr.backends.cpu.library.matmul.matmuls import is_threaded
from fdbr.backends.cpu.library.matmul.small import product_lines
from fdbr.backends.cpu.runtime.compiling import addresses_of
from fdbr.compiler.interpret import is_direct
from fdbr.compiler.ir import op
from fdbr.compiler.ir.guards import EXACT, same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.liveness import last_uses
from fdbr.compiler.ir.loops import loop_of
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Program,
    Small,
    Step,
    Variable,
    is_variable,
    kind_of,
)
from fdbr.compiler.ir.python_numbers import exact
from fdbr.compiler.ir.subarrays import placed
from fdbr.compiler.passes.rules.views import view_of
from fdbr.core.primitive import dispatch
from fdbr.ops.nn.losses.softmax_losses import take_at_labels

__all__ = ["generate"]

# Primitives whose results NumPy lays out C-contiguously, whatever the operands are.
_ORDERED = op.PRODUCTS | IN_ORDER | {op.ADD_ROWS}

# Primitives whose results NumPy lays out as the operands are.
_KEEPING = frozenset(
    {op.ADD, op.SUBTRACT, op.MULTIPLY, op.DIVIDE, op.NEGATIVE, op.MAXIMUM, op.MINIMUM}
)

# Functions that compute the same in the memory of the first operand.
_IN_PLACE = {op.SUBTRACT_AT_LABELS: take_at_labels}


class _Writer:
    """The lines of the function, and the objects that they name."""

    def __init__(self, memory: Plan) -> None:
        self.places = memory.places
        self.inside = memory.inside
        self.has_block = self.refuses = False
        self.kernels: dict[str, tuple[Written, int]] = {}  # and their numbers of threads, by name
        self.loops: list[Any] = []  # the functions that run iterations
        self.lines: list[str] = []
        self.defined: set[Variable] = set()  # variables that have a Python name
        self.exposed: dict[Variable, int] = {}  # planned arrays that Python uses, numbered
        self.gapped: set[Variable] = set()  # slices of contiguous arrays, not contiguous themselves
        self.rooted: set[Variable] = set()  # variables whose memory sequences use
        self.turned: set[str] = set()  # the names of matrices that were copied to be contiguous
        self.scope: dict[str, Any] = {
            "np": np,
            "GuardFailure": GuardFailure,
            "same": same,
            "dispatch": dispatch,
        }
        self._names: dict[Any, str] = {}

    def variable(self, variable: Variable) -> str:
        """Return the local variable for a variable of the program."""
        return self._names.setdefault(variable, f"v{len(self._names)}")

    def memory(self, variable: Variable) -> str:
        """Return an expression for the array that is planned for a variable."""
        return f"memory[{self.exposed.setdefault(variable, len(self.exposed))}]"

    def instruction(self, step: Instruction) -> str:
        """Return the statement that computes a step by NumPy."""
        _write_instruction(self, step, set())
        return self.lines.pop()

    def constant(self, value: Any, prefix: str = "c") -> str:
        """Return an expression for a constant."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        key = id(value)
        name = f"{prefix}{key:x}"
        if name not in self.scope:
            self.scope[name] = value
        return name

    def kernel(self, written: Written, threads: int) -> str:
        """Return the name of a kernel, which is compiled once all are known."""
        name = f"k{len(self.kernels)}"
        self.kernels[name] = written, threads
        return name

    def operand(self, operand: Any) -> str:
        """Return an expression for an operand."""
        return self.variable(operand) if is_variable(operand) else self.constant(operand)


def generate(program: Program, products: bool = False) -> Callable[..., tuple[Any, ...]]:
    """Return a function from the inputs of a program to the tuple of its outputs.

    It raises `GuardFailure` where a guard fails.  With ``products`` kernels may compute small
    matrix products, and steps that no pass has fused; their results equal NumPy's but for the last
    bits.

    Attributes of the function are its ``source``, the ``sources`` of all kernels, and the bytes of
    its ``memory``.

    A program that overwrites inputs takes a list besides them, and appends to it before it
    overwrites the first one; without the list it overwrites copies, and spares the inputs.
    """
    natives = Natives(program, products, _passed_on(program))
    units = gathered(program, natives)
    steps = [step for unit in units for step in _steps_of(unit)]
    program = program.replace(steps)
    builder = Builder(natives)
    sequences = Sequences(units, program.outputs, builder)
    memory = plan(program, builder.own, builder.looks, builder.scratch, builder.early)
    sources = sequences.sources(memory)
    writer = _Writer(memory)
    writer.has_block = bool(memory.size or sequences.built)
    writer.rooted = {v for unit in units if isinstance(unit, Run) for v in unit.roots}
    heads = [writer.variable(variable) for variable in program.inputs]
    writer.defined.update(program.inputs)
    ordered = _order_inputs(writer, units, program.inputs)
    ends = last_uses(units, program.outputs)  # type: ignore[arg-type]
    reads = Counter(v for step in program.steps for v in step.reads)  # 1: no view of it exists
    lost = program.overwritten
    begun = False
    for position, unit in enumerate(units):
        over = [v for step in _steps_of(unit) for v in _written_over(step)]
        if over:
            writer.lines += _begin(writer, over, begun)
            begun = True
        if isinstance(unit, Run):
            writer.lines += sequences.lines(writer, unit, memory, ordered)
        elif isinstance(unit, Guard):
            _write_guard(writer, unit)
        elif (form := natives.form(unit)) is not None:
            writer.lines += call_lines(writer, unit, form, ordered)
            writer.lines += [_unboxed(writer, out) for out in unit.outs if not out.kind.is_array]
        elif (loop := loop_of(unit)) is not None:
            runs = [_iteration(writer, program, products) for program in loop.programs]
            writer.lines += loop_lines(writer, unit, loop, *runs)
        else:
            assert isinstance(unit, Instruction)
            own = {v for v in ends.get(position, ()) if v in ordered and reads[v] == 1}
            small = natives.is_small_product(unit)
            _write_by_python(writer, unit, small, own, ordered)
        if not isinstance(unit, Run):
            writer.defined.update(unit.outs)
        writer.lines += _deleted(writer, ends.get(position, ()))
    sources.update(written.source for written, _ in writer.kernels.values())
    codes = addresses_of(sorted(sources, key=len, reverse=True))  # the longest take longest
    for name, (written, threads) in writer.kernels.items():
        code = codes[written.source]
        writer.scope[name] = native(code, written.rows, threads, written.interruptible)
    outs = "".join(f"{writer.operand(output)}, " for output in program.outputs)
    if writer.has_block:
        shown = [memory.places[variable] for variable in writer.exposed]
        templates = [commands.template(codes) for commands in sequences.commands]
        writer.scope.update(take=taker(memory, shown, templates), give=give)
        writer.lines[:0] = ["block = take()", "memory = block.arrays", "tables = block.tables"]
        writer.lines.append("give(block)")
    body = "\n ".join([*writer.lines, f"return ({outs})"])
    heads += ["begun=None"] if lost else []
    source = f"def run({', '.join(heads)}):\n {body}\n"
    exec(compile(source, f"<fdbr.jit {program.name}>", "exec"), writer.scope)
    run = writer.scope.pop("run")  # otherwise the function and its globals form a cycle
    run.source, run.sources = source, sources.union(*(loop.sources for loop in writer.loops))
    run.memory, run.refuses = memory.size, writer.refuses
    return run


def _iteration(writer: _Writer, program: Program, products: bool) -> Any:
    """Generate the function that runs one iteration of a loop, or its pullback."""
    run: Any = generate(program, products)
    writer.loops.append(run)
    writer.refuses |= run.refuses
    return run


def _steps_of(unit: Step | Run) -> tuple[Step, ...]:
    return unit.steps if isinstance(unit, Run) else (unit,)


def _written_over(step: Step) -> tuple[Variable, ...]:
    return tuple(step.over.values()) if isinstance(step, Fused) else ()


def _passed_on(program: Program) -> set[Variable]:
    """Return the results that steps read, and that do not leave the program."""
    leaving = {output for output in program.outputs if is_variable(output)}
    for step in reversed(program.steps):
        if is_look(step) and not leaving.isdisjoint(step.outs):
            leaving.update(step.reads)
    return {v for step in program.steps for v in step.reads} - leaving


def _write_by_python(
    writer: _Writer, step: Instruction, small: bool, own: set[Variable], ordered: set[Variable]
) -> None:
    """Emit a step by NumPy; ``own`` are temporaries that no later step reads."""
    if step.outs[0] in writer.places:
        if is_join(step):
            _write_join(writer, step)
        elif step.primitive is op.RESHAPE:
            _write_copy(writer, step)
        else:
            _write_product(writer, step, small)
        ordered.update(step.outs)
        return
    _write_instruction(writer, step, own)
    if _is_ordered(step, ordered):
        ordered.update(step.outs)
    elif step.primitive is op.SLICE and step.operands[0] in ordered:
        writer.gapped.update(step.outs)


def _order_inputs(
    writer: _Writer, units: Sequence[Step | Run], inputs: Sequence[Variable]
) -> set[Variable]:
    """Emit copies that make inputs of kernels C-contiguous; return the set of those inputs."""
    kernels = [unit for unit in units if isinstance(unit, Fused | Small)]
    read = {v for step in kernels for v in step.reads}
    read.update(v for unit in units if isinstance(unit, Run) for v in unit.roots)
    found = [v for v in inputs if v in read and v.kind.is_array]
    for name in map(writer.variable, found):
        line = f"if not {name}.flags.c_contiguous: {name} = np.ascontiguousarray({name})"
        writer.lines.append(line)
    return set(found)


def _begin(writer: _Writer, over: Sequence[Variable], begun: bool) -> list[str]:
    """Emit what precedes kernels that overwrite inputs; ``begun`` if earlier ones have started."""
    copies = [f"{name} = {name}.copy()" for name in map(writer.variable, over)]
    lines = [f"if begun is None: {'; '.join(copies)}"]
    return lines if begun else [*lines, "else: begun.append(True)"]


def _is_ordered(step: Instruction, ordered: set[Variable]) -> bool:
    """Return whether a step's result is known to be C-contiguous."""
    if step.primitive in (op.RESHAPE, op.SLICE):
        x = step.operands[0]
        whole = step.primitive is op.RESHAPE or _is_run(x, step.params["key"])
        return whole and is_variable(x) and x in ordered
    if step.primitive in _KEEPING:
        shape = step.outs[0].kind.shape
        full = [o for o in step.operands if kind_of(o).shape == shape]
        rest = [o for o in step.operands if kind_of(o).shape != shape]
        known = all(is_variable(o) and o in ordered for o in full)
        return bool(full) and known and all(kind_of(o).size == 1 for o in rest)
    return step.primitive in _ORDERED


def _is_run(x: Any, key: Any) -> bool:
    """Return whether a key takes a contiguous part of a contiguous array."""
    shape = kind_of(x).shape
    view = view_of(shape, key)
    if view is None:
        return False
    pairs = list(zip(view.axes, shape, strict=True))
    while pairs and (isinstance(pairs[0][0], int) or len(pairs[0][0]) == 1):
        pairs.pop(0)
    first = pairs[:1]
    return all(isinstance(a, range) and a.step == 1 for a, _ in first) and all(
        a == range(n) for a, n in pairs[1:]
    )


def _deleted(writer: _Writer, variables: Sequence[Variable]) -> list[str]:
    """Return the statement that deletes variables."""
    names = ", ".join(map(writer.variable, (v for v in variables if v in writer.defined)))
    return [f"del {names}"] if names else []


def _write_product(writer: _Writer, step: Instruction, small: bool) -> None:
    """Emit a matrix product into its planned memory."""
    out = step.outs[0]
    name = writer.variable(out)
    writer.lines.append(f"{name} = {writer.memory(out)}")
    if small:
        writer.lines += product_lines(writer, step, name)
        return
    a, b, *bias = map(writer.operand, step.operands)
    b += "" if step.primitive is op.MATMUL else ".T"
    if is_threaded(step):
        own = writer.constant(VALUES[op.MATMUL], "f")
        writer.lines.append(f"{own}(np, {a}, {b}, {name})")
    elif len(out.kind.shape) == 2:
        writer.lines.append(f"{a}.dot({b}, {name})")
    else:
        writer.lines.append(f"np.matmul({a}, {b}, out={name})")
    writer.lines += [f"{name} += {part}" for part in bias]


def _write_join(writer: _Writer, step: Instruction) -> None:
    """Emit a concatenation, except for operands that are computed in its memory."""
    name = writer.variable(step.outs[0])
    writer.lines.append(f"{name} = {writer.memory(step.outs[0])}")
    for operand, (place,) in placed(step):
        if not is_variable(operand) or writer.inside.get(operand) is not step.outs[0]:
            text = f"{place.start}:{place.stop}" if isinstance(place, slice) else f"{place}"
            writer.lines.append(f"{name}[{text}] = {writer.operand(operand)}")


def _write_copy(writer: _Writer, step: Instruction) -> None:
    """Emit a reshape that must copy, into its planned memory."""
    name, x = writer.variable(step.outs[0]), writer.operand(step.operands[0])
    writer.lines.append(f"{name} = {writer.memory(step.outs[0])}")
    writer.lines.append(f"{name}.reshape({kind_of(step.operands[0]).shape!r})[...] = {x}")


def _unboxed(writer: _Writer, variable: Variable) -> str:
    """Return the statement that converts a kernel's array to a NumPy scalar or Python number."""
    name = writer.variable(variable)
    return f"{name} = {name}{'.item()' if variable.kind.is_number else '[()]'}"


def _write_guard(writer: _Writer, guard: Guard) -> None:
    question = guard.question
    asked = question.__name__ if isinstance(question, type) else writer.constant(question, "q")
    value = f"{asked}({writer.operand(guard.operand)})"
    answer = writer.constant(guard.answer)
    other = f"a != {answer}" if question in EXACT else f"not same(a, {answer})"
    back = "give(block); " if writer.has_block else ""  # so that the next run finds it
    writer.lines.append(f"a = {value}\n if {other}: {back}raise GuardFailure({guard.index}, a)")


def _write_instruction(writer: _Writer, step: Instruction, own: set[Variable]) -> None:
    """Emit a call; ``own`` are temporaries that no later step reads."""
    operands = [writer.operand(operand) for operand in step.operands]
    left = ", ".join(writer.variable(v) for v in step.outs)
    left += "," if step.several else ""
    params = [f"{key}={writer.constant(value)}" for key, value in step.params.items()]
    whole = exact(step.primitive, [kind_of(operand).type for operand in step.operands])
    if whole is not None:
        right = f"{writer.constant(whole, 'e')}({', '.join([*operands, *params])})"
    elif step.primitive is op.PERMUTE and kind_of(step.operands[0]).is_array:
        right = f"{operands[0]}.transpose({step.params['axes']!r})"
    elif is_direct(step):
        value = step.primitive.host
        if is_variable(step.operands[0]) and step.operands[0] in own:
            value = _IN_PLACE.get(step.primitive, value)
        ours = step.primitive not in op.PRODUCTS or is_threaded(step)
        function = writer.constant(VALUES.get(step.primitive, value) if ours else value, "f")
        right = f"{function}({', '.join(['np', *operands, *params])})"
    else:
        primitive = writer.constant(step.primitive, "p")
        keywords = f"dict({', '.join(params)})"
        right = f"dispatch({primitive}, ({''.join(o + ', ' for o in operands)}), {keywords})"
    writer.lines.append(f"{left} = {right}")
