"""Loops as statements of the generated program: a Python loop over calls of a function."""

import itertools
from collections.abc import Callable
from typing import Any

from fdbr.compiler.ir.loops import Loop, is_guarded, row_of

__all__ = ["loop_lines"]


def loop_lines(
    writer: Any, step: Any, loop: Loop, run: Callable[..., Any], *back: Callable[..., Any]
) -> list[str]:
    """Return the statements that run a loop.

    ``run`` computes one iteration, and ``back`` its pullback if the loop runs back.
    """
    first, second = loop.carried, loop.carried + len(loop.rows)
    kept = loop.carried + loop.lasts
    given = list(map(writer.operand, step.operands))
    outs = list(map(writer.variable, step.outs))
    if back:
        runs = [writer.constant(one, "f") for one in (run, *back)]
        text = f"({runs[0]}, ({', '.join(given)},), {runs[1]})"
        return [f"{', '.join(outs)}, = {writer.constant(loop, 'l')}.iterations{text}"]
    lines = [f"{out} = {value}" for out, value in zip(outs, given[:first], strict=False)]
    for out, variable in zip(outs[kept:], step.outs[kept:], strict=True):
        dtype = writer.constant(variable.kind.dtype, "d")
        lines.append(f"{out} = np.empty({variable.kind.shape!r}, {dtype})")
    heads, sources = ["t"], ["count()" if loop.is_open else f"range({loop.length})"]
    writer.scope.update(count=itertools.count)
    for i, (array, place) in enumerate(zip(given[first:second], loop.rows, strict=True)):
        heads.append(f"x{i}")
        sources.append(_rows(writer, array, place, loop, loop.body.inputs[first + i].kind))
    for i, values in enumerate(loop.data):
        heads.append(f"d{i}")
        sources.append(writer.constant(values))
    each = [f"y{i}" for i in range(len(outs) - kept)]
    left = "".join(f"{name}, " for name in (*outs[:kept], *each))
    iteration = [
        f"{writer.constant(run, 'f')}({', '.join([*outs[:first], *heads[1:], *given[second:]])})"
    ]
    iteration = [f"{left}= {iteration[0]}" if left else iteration[0]]
    iteration += [f"{out}[t] = {y}" for out, y in zip(outs[kept:], each, strict=True)]
    head = f"for {''.join(f'{name}, ' for name in heads)}in zip({', '.join(sources)}):"
    block = [head, *(f" {line}" for line in iteration)]
    if any(map(is_guarded, loop.body.steps)):
        gives = "give(block); " if writer.has_block else ""
        block = ["try:", *(f" {line}" for line in block), "except GuardFailure as failure:"]
        block.append(f" try: {writer.constant(loop, 'l')}.ends(t, failure)")
        block.append(f" except GuardFailure: {gives}raise")
    lines += block
    gone = [*each, *heads]
    return [*lines, f"del {', '.join(gone)}"]


def _rows(writer: Any, array: str, place: tuple[int, int], loop: Loop, kind: Any) -> str:
    """Return an expression for an iterator over the rows of an array."""
    start, step = place
    stop = start + step * loop.length
    text = f"{array}[{start}:{stop if stop >= 0 else ''}:{step}]"
    if kind.is_number:
        return f"{text}.tolist()"
    if kind.is_array and not kind.shape:
        writer.scope.update(row_of=row_of)
        return f"[row_of({text}, i, {writer.constant(kind)}) for i in range({loop.length})]"
    return text
