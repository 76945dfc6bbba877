"""Statements of a program's source that call kernels."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.written import Join, Output, Written
from fdbr.backends.cpu.exec.kernel import word_of
from fdbr.backends.cpu.exec.memory.memory_order import in_one_order
from fdbr.backends.cpu.runtime.launching import thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.backend import RefusedError
from fdbr.compiler.ir.loops import loop_of
from fdbr.compiler.ir.program import Fused, Step, Variable, kind_of
from fdbr.ops.declare.user_reductions import reduce_states

__all__ = ["call_lines"]


def call_lines(writer: Any, step: Step, written: Written, ordered: set[Variable]) -> list[str]:
    """Return the statements that run a step by its kernel.

    ``ordered`` are the variables known to be C-contiguous; the kernel's results are added to it.
    """
    threads = 1
    if written.rows * written.weight >= TUNING.program_thread:
        threads = max(1, min(thread_count(), written.rows))
    lines: list[str] = []
    names: list[str] = []
    loose = _loose(step, written, ordered, writer.gapped)
    if (
        written.strided
        or written.pitched
        or any(out in writer.inside or out in writer.rooted for out in step.outs)
        or any(o.over for o in written.outputs)
    ):
        loose = []  # their memory is planned, so its layout is fixed
    if loose:
        own = ", ".join(f"w{written.inputs.index(operand)}" for operand in loose)
        given = ", ".join(map(writer.operand, loose))
        lines.append(f"{own}, = in_one_order({given})")
        writer.scope["in_one_order"] = in_one_order
    for i, operand in enumerate(written.inputs):
        if operand in loose:
            names.append(f"w{len(names)}")
        elif i in written.strided and kind_of(operand).is_array:
            names.append(writer.operand(operand))
        elif i in written.pitched:
            names.append(_pitched(writer, operand, lines, len(names)))
        elif type(operand) is Variable and operand.kind.type is int and loop_of(step) is not None:
            names.append(_word(writer, operand, lines, len(names)))
        else:
            names.append(_ordered(writer, operand, ordered, lines, len(names)))
    like = f"w{written.inputs.index(loose[0])}" if loose else ""
    made = []
    for i, output in enumerate(written.outputs):
        if output.over is not None:
            made.append(names[written.inputs.index(output.over)])
            lines.append(f"{writer.variable(output.variable)} = {made[-1]}")
        else:
            made.append(_output_lines(writer, output, threads, lines, i, like))
    if written.refuses:
        lines.append(f"{made[-1]}[0] = 0")
    names += [
        name for name, output in zip(made, written.outputs, strict=True) if output.over is None
    ]
    run = writer.kernel(written, threads)
    lines.append(f"{run}({', '.join(names)})")
    if written.refuses:
        writer.refuses = True
        lines.append(f"if {made[-1]}[0]: raise RefusedError")  # the interpreter computes it then
        writer.scope["RefusedError"] = RefusedError
    joined = {i for join in written.joins for i in join.parts}
    for i, (name, output) in enumerate(zip(made, written.outputs, strict=True)):
        lines += [] if i in joined else _finish(writer, name, output, threads)
    if threads > 1:
        for join in written.joins:
            lines += _join(writer, join, made, written)
    if not loose:
        ordered.update(step.outs)
    gone = [
        f"w{i}"
        for i, operand in enumerate(written.inputs)
        if operand in loose or any(s.startswith(f"w{i} =") for s in lines)
    ]
    gone += [name for name in made if name.startswith("m")]
    lines += [f"del {', '.join(gone)}"] if gone else []
    return lines


def _ordered(
    writer: Any, operand: Any, ordered: set[Variable], lines: list[str], position: int
) -> str:
    """Return the name of an operand as a C-contiguous array."""
    name = writer.operand(operand)
    if type(operand) is not Variable:
        return writer.constant(np.ascontiguousarray(operand))
    if not operand.kind.is_array:
        lines.append(f"w{position} = np.asarray({name}, dtype='{operand.kind.dtype.str}')")
        return f"w{position}"
    if operand in ordered:
        return name
    lines.append(
        f"w{position} = {name} if {name}.flags.c_contiguous else np.ascontiguousarray({name})"
    )
    return f"w{position}"


def _word(writer: Any, operand: Variable, lines: list[str], position: int) -> str:
    """Return the name of a Python integer as an array; Python runs a loop with a larger one."""
    writer.refuses = True
    writer.scope["word_of"] = word_of
    lines.append(f"w{position} = word_of({writer.operand(operand)})")
    return f"w{position}"


def _pitched(writer: Any, operand: Variable, lines: list[str], position: int) -> str:
    """Return the name of an operand as an array with contiguous rows."""
    name, size = writer.operand(operand), operand.kind.dtype.itemsize
    lines.append(
        f"w{position} = {name} if {name}.strides[-1] == {size} else np.ascontiguousarray({name})"
    )
    return f"w{position}"


def _loose(
    fused: Step, written: Written, ordered: set[Variable], gapped: set[Variable]
) -> list[Variable]:
    """Return the operands that need only one common memory order, if the kernel needs no more.

    The result is empty if they are known to be C-contiguous.  It is empty as well if one is
    ``gapped``: that one must be copied, and the others may be contiguous.
    """
    if not isinstance(fused, Fused) or fused.split != len(fused.domain) or len(fused.domain) < 2:
        return []
    whole = [o for o in written.inputs if kind_of(o).size != 1]
    if not all(type(o) is Variable and o.kind.shape == fused.domain for o in whole):
        return []
    known = all(o in ordered for o in whole) or any(o in gapped for o in whole)
    return [] if known else whole


def _output_lines(
    writer: Any, output: Output, threads: int, lines: list[str], i: int, like: str
) -> str:
    dtype = writer.constant(np.dtype(output.dtype), "d")
    if output.variable is None or (output.per_thread and threads > 1):
        shape = (threads, *output.shape) if output.per_thread else output.shape
        lines.append(f"m{i} = np.empty({shape!r}, {dtype})")
        return f"m{i}"
    name: str = writer.variable(output.variable)
    if like and not output.per_thread:
        lines.append(f"{name} = np.empty_like({like}, {dtype})")
    elif output.variable in writer.places:
        lines.append(f"{name} = {writer.memory(output.variable)}")
    else:
        lines.append(f"{name} = np.empty({output.variable.kind.shape!r}, {dtype})")
    return name


def _join(writer: Any, join: Join, made: list[str], written: Written) -> list[str]:
    """Return the statements that combine the partial results of threads by a user's function."""
    writer.scope["reduce_states"] = reduce_states
    parts, combine = ", ".join(made[i] for i in join.parts), writer.constant(join.combine)
    lines = [f"joined = reduce_states({combine}, ({parts},), (0,))"]
    for i, place in enumerate(join.parts):
        out = written.outputs[place].variable
        if out is not None:
            lines += _given(writer, out, f"joined[{i}]")
    return [*lines, "del joined"]


def _finish(writer: Any, name: str, output: Output, threads: int) -> list[str]:
    """Return the statements that reduce the partial results of threads."""
    if output.variable is None or not output.per_thread:
        return []
    out = writer.variable(output.variable)
    total = name if threads == 1 else f"np.{output.joined}.reduce({name}, 0)"
    if output.divisor != 1:
        total = f"{total} / {output.divisor}"
    shape = output.variable.kind.shape
    if threads > 1 and output.variable.kind.is_array and shape != output.shape:
        total = f"np.reshape({total}, {shape!r})"
    return [] if total == out else _given(writer, output.variable, total)


def _given(writer: Any, variable: Variable, text: str) -> list[str]:
    """Return the statements that assign an expression to a variable, in its planned memory."""
    name = writer.variable(variable)
    if variable not in writer.places:
        return [f"{name} = {text}"]
    return [f"{name} = {writer.memory(variable)}", f"{name}[...] = {text}"]
