"""Kernels for small arrays: each step is a loop of constant length.

On small arrays NumPy spends its time on calls; in a kernel, a step on ten numbers is ten
instructions.  Slices, reshapes, permutations and broadcasts only change a view, so they emit no
instructions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.formulas import CODES, formula_of, is_elementwise
from fdbr.backends.cpu.codegen.small_forms import form_of
from fdbr.backends.cpu.codegen.small_writer import Writer
from fdbr.backends.cpu.codegen.written import Output, Written, literal, store, stored
from fdbr.backends.cpu.exec.views import Look, merged
from fdbr.compiler.ir.program import Instruction, Small, Variable, kind_of

__all__ = ["is_plain_loop", "is_small", "loop_weight", "write_small", "write_step", "written"]

_MOST = 1024  # elements of the largest array that counts as small


def is_small(step: Any, in_loop: bool = False) -> bool:
    """Return whether a kernel for small arrays can do a step, outside of loops or in one."""
    if type(step) is not Instruction or not step.outs:
        return False
    kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
    return all(kind.size <= _MOST for kind in kinds) and is_plain_loop(step, in_loop)


def is_plain_loop(step: Instruction, in_loop: bool = False) -> bool:
    """Return whether a kernel can do a step of any size by a loop of its own."""
    kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
    if any(not kind.size or kind.dtype not in CODES for kind in kinds):
        return False
    if not all(kind.is_number or _is_numpy(kind) for kind in kinds):
        return False
    form = form_of(step)
    if any(out.kind.is_number for out in step.outs):
        return in_loop and form is None and _is_of_floats(step)
    if form is None:
        return is_elementwise(step)
    return (in_loop or not form.only_in_loops) and form.fits(step)


def _is_of_floats(step: Instruction) -> bool:
    """Return whether a step computes a Python float, or a truth value, as NumPy does of float64."""
    types = {kind_of(operand).type for operand in step.operands}
    out = step.outs[0]
    if not types <= {float, bool, int} or float not in types or formula_of(step) is None:
        return False
    if out.kind.type is float:
        return True
    # Python does not round integers for comparisons.
    return out.kind.type is bool and int not in types


def _is_numpy(kind: Any) -> bool:
    return kind.type is np.ndarray or issubclass(kind.type, np.generic)


def write_small(small: Small, lying: Callable[[Variable], Look | None] | None = None) -> Written:
    """Return the kernel for steps on small arrays; it has one row.

    For operands that are not contiguous arrays, ``lying`` returns their view of memory.
    """
    writer = Writer(small, lying)
    for step in small.steps:
        write_step(writer, step)
    return written(writer, loop_weight(small.steps))


def written(writer: Writer, weight: int) -> Written:
    """Return the kernel of a writer's statements; it has one row."""
    for code, size in writer.scratch.items():
        dtype = next(d for d, name in CODES.items() if name == code)
        writer.outputs.append(Output(None, (size,), dtype, False, 1))
    scratch = [f"s_{code}" for code in writer.scratch]
    names = [name for name, _ in writer.inputs.values()]
    count = len(writer.outputs) - len(scratch)
    names += [f"o{i}" for i in range(count)] + scratch
    dtypes = [kind_of(operand).dtype for _, operand in writer.inputs.values()]
    dtypes += [output.dtype for output in writer.outputs]
    heads = [
        f"{name} = data(table, {i}, {stored(dtype)}(0))"
        for i, (name, dtype) in enumerate(zip(names, dtypes, strict=True))
    ]
    refuses = any(line.lstrip().startswith("bad |=") for line in writer.lines)
    if refuses:
        heads.append(f"wrong = data(table, {len(names)}, u1(0))")
        heads.append("bad = False")
        writer.lines.append("wrong[0] = u1(bad)")
        writer.outputs.append(Output(None, (1,), np.dtype(bool), False, 1))
    text = "\n".join("    " + line for line in [*heads, *writer.lines] or ["pass"])
    inputs = tuple(operand for _, operand in writer.inputs.values())
    source = f"{writer.elements.source}def kernel(table, start, stop, thread):\n{text}\n"
    return Written(source, inputs, tuple(writer.outputs), 1, weight, refuses)


def write_step(writer: Writer, step: Instruction) -> None:
    """Emit the statements of a step."""
    form = form_of(step)
    if form is None:
        _elementwise(writer, step)
    else:
        form.write(writer, step)


def loop_weight(steps: Sequence[Instruction]) -> int:
    """Return the approximate cost of steps in additions, each as a loop of its own."""
    return sum(
        cost(step) * max(kind_of(o).size for o in (*step.operands, *step.outs)) for step in steps
    )


def _elementwise(writer: Writer, step: Instruction) -> None:
    out = step.outs[0]
    looks: list[Any] = []
    for operand in step.operands:
        constant = type(operand) is not Variable and kind_of(operand).size == 1
        looks.append(None if constant else writer.look(operand))
    target, *looks = merged(writer.target(out), looks)

    def body(at: list[str]) -> list[str]:
        texts, codes = [], []
        for operand, look in zip(step.operands, looks, strict=True):
            code = CODES[kind_of(operand).dtype]
            texts.append(literal(operand, code) if look is None else look.at(at, len(at)))
            codes.append(code)
        lines: list[str] = []
        text = writer.elements.element(step, texts, codes, lines)
        return [*lines, store(target.place(at), text, out.kind.dtype)]

    writer.loop(target.shape, body)
