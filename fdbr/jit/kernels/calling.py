"""Fused steps as statements of the program's source."""

from array import array
from typing import Any

import numpy as np

from fdbr.jit.kernels.orders import in_one_order
from fdbr.jit.kernels.small import write_small
from fdbr.jit.kernels.writing import Output, Written, write
from fdbr.jit.program import Fused, Small, Variable, kind_of

__all__ = ["call_lines"]

_WORTH = 500_000  # additions from which on more threads than one pay


def call_lines(writer: Any, fused: Fused | Small, ordered: set[Variable]) -> list[str]:
    """The statements that run fused steps.

    ``ordered`` are variables known to be laid out in order; what the kernel makes joins them.
    """
    from fdbr.jit.kernels.compiling import address_of
    from fdbr.jit.kernels.launching import launch, launch_alone, thread_count

    written = write_small(fused) if type(fused) is Small else write(fused)  # type: ignore[arg-type]
    threads = 1
    if written.rows * written.weight >= _WORTH:
        threads = max(1, min(thread_count(), written.rows))
    scope = writer.scope
    scope.update(array=array, launch=launch, launch_alone=launch_alone)
    lines: list[str] = []
    names: list[str] = []
    loose = _loose(fused, written, ordered)
    if loose:
        own = ", ".join(f"w{written.inputs.index(operand)}" for operand in loose)
        given = ", ".join(map(writer.operand, loose))
        lines.append(f"{own}, = in_one_order({given})")
        writer.scope["in_one_order"] = in_one_order
    for operand in written.inputs:
        name = writer.operand(operand)
        if operand in loose:
            names.append(f"id(w{len(names)})")
        else:
            names.append(f"id({_ordered(name, operand, ordered, lines, len(names))})")
    like = f"w{written.inputs.index(loose[0])}" if loose else ""
    made = [
        _output_lines(writer, output, threads, lines, i, like)
        for i, output in enumerate(written.outputs)
    ]
    names += [f"id({name})" for name in made]
    lines.append(f"t = array('q', ({', '.join(names)},))")
    kernel = f"{address_of(written.source)}, t.buffer_info()[0], {written.rows}"
    if threads == 1:
        lines.append(f"launch_alone({kernel})")
    else:
        lines.append(f"launch({kernel}, {threads})")
    for name, output in zip(made, written.outputs, strict=True):
        lines += _finish(writer, name, output, threads)
    if not loose:
        ordered.update(fused.outs)
    gone = [
        f"w{i}"
        for i, operand in enumerate(written.inputs)
        if operand in loose or any(s.startswith(f"w{i} =") for s in lines)
    ]
    gone += [name for name in made if name.startswith("m")]
    lines.append(f"del {', '.join(['t', *gone])}")
    return lines


def _ordered(
    name: str, operand: Any, ordered: set[Variable], lines: list[str], position: int
) -> str:
    """The name of an operand as an array that is laid out in order."""
    if type(operand) is not Variable:
        lines.append(f"w{position} = np.ascontiguousarray({name})")
        return f"w{position}"
    if not operand.kind.is_array:
        lines.append(f"w{position} = np.asarray({name}, dtype='{operand.kind.dtype.str}')")
        return f"w{position}"
    if operand in ordered:
        return name
    lines.append(
        f"w{position} = {name} if {name}.flags.c_contiguous else np.ascontiguousarray({name})"
    )
    return f"w{position}"


def _loose(fused: Fused | Small, written: Written, ordered: set[Variable]) -> list[Variable]:
    """The operands that only have to lie in one order, if that is all that the kernel needs.

    A kernel whose operands are known to be laid out in order is no such case.
    """
    if not isinstance(fused, Fused) or fused.split != len(fused.domain) or len(fused.domain) < 2:
        return []
    whole = [o for o in written.inputs if kind_of(o).size != 1]
    if not all(type(o) is Variable and o.kind.shape == fused.domain for o in whole):
        return []
    return [] if all(o in ordered for o in whole) else whole


def _output_lines(
    writer: Any, output: Output, threads: int, lines: list[str], i: int, like: str
) -> str:
    shape = (threads, *output.shape) if output.per_thread else output.shape
    dtype = writer.constant(np.dtype(output.dtype), "d")
    name = f"m{i}"
    if output.variable is not None and not output.per_thread:
        name = writer.variable(output.variable)
        if like:
            lines.append(f"{name} = np.empty_like({like}, {dtype})")
            return name
        if output.variable in writer.places:
            lines.append(f"{name} = memory[{writer.places[output.variable]}]")
            return name
    lines.append(f"{name} = np.empty({shape!r}, {dtype})")
    return name


def _finish(writer: Any, name: str, output: Output, threads: int) -> list[str]:
    """Put the partial sums of threads together."""
    if output.variable is None or not output.per_thread:
        return []
    out = writer.variable(output.variable)
    total = f"{name}[0]" if threads == 1 else f"np.add.reduce({name}, 0)"
    if output.divisor != 1:
        total = f"{total} / {output.divisor}"
    shape = output.variable.kind.shape
    if output.variable.kind.is_array and shape != output.shape:
        total = f"np.reshape({total}, {shape!r})"
    return [f"{out} = {total}"]
