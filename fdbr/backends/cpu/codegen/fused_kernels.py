"""Generate the source of a kernel from fused steps.

A kernel is a function ``kernel(table, start, stop, thread)`` that computes the rows from ``start``
to ``stop``.  The table holds the addresses of array objects, in which the kernel finds the data
pointers.  Within a row there is one loop over the columns for each stage: a reduction over the
columns ends a stage, and the steps that depend on its result belong to the next.
"""

import math
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.fused_writer import Block, Writer
from fdbr.backends.cpu.codegen.join_kernels import join_body
from fdbr.backends.cpu.codegen.written import Join, Output, Written, store, stored
from fdbr.compiler.ir.program import Fused, Instruction, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of, join_of

__all__ = ["CHEAP", "JOINED", "STARTS", "STEPS", "extreme", "extreme_of", "framed", "write"]

CHEAP = 6  # additions; costlier values are kept for the next stage rather than computed again
_LARGE = 24 << 20  # bytes of a result that will have left the caches before it is read
_ROW = 256, 1 << 16  # bytes of a row that non-temporal stores may write
_BLOCK = 256  # elements in one partial sum; bounds the rounding error of a total
_ROWS = 128  # rows in one partial sum
STARTS = {"sum": "{0}(0)", "mean": "{0}(0)", "max": "{0}(-inf)", "min": "{0}(inf)"}
STEPS = {"sum": "plus", "mean": "plus", "max": "larger", "min": "smaller"}
JOINED = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}


def write(
    fused: Fused,
    passed_on: Container[Variable] = (),
    gapped: Mapping[Variable, bool] = MappingProxyType({}),
) -> Written:
    """Return the kernel for fused steps, some of whose results are ``passed_on`` to other steps.

    ``gapped`` maps operands whose rows are not adjacent, and which are read in place, to whether
    the elements within a row are adjacent.
    """
    writer = Writer(fused, passed_on, gapped)
    joins: tuple[Join, ...] = ()
    if any(join_of(step) is not None for step in fused.steps):
        body, joins = join_body(writer)
    else:
        body = _flat_body(writer) if writer.flat else _row_body(writer)
    return framed(writer, body, writer.columns * sum(map(cost, fused.steps)), joins)


def framed(writer: Any, body: list[str], weight: int, joins: tuple[Join, ...] = ()) -> Written:
    """Wrap a body, in which a writer names operands and outputs, into a complete kernel."""
    inputs = tuple(operand for _, operand in writer.inputs.values())
    lines = [
        f"{name} = {_pointer(i, operand)}"
        for i, (name, operand) in enumerate(writer.inputs.values())
    ]
    count = len(inputs)
    for i, output in enumerate(writer.outputs):
        if output.over is not None:
            lines.append(f"o{i} = {writer.inputs[output.over][0]}")
        else:
            lines.append(f"o{i} = data(table, {count}, {stored(output.dtype)}(0))")
            count += 1
    refuses = writer.elements.refuses
    if refuses:
        wrong = writer.output(Output(None, (1,), np.dtype(bool), False, 1))
        lines += [f"{wrong} = data(table, {count}, u1(0))", "bad = False"]
        body += ["if bad:", f"    {wrong}[0] = u1(1)"]
    text = "\n".join("    " + line for line in [*lines, *writer.head, *body])
    source = f"{writer.elements.source}def kernel(table, start, stop, thread):\n{text}\n"
    outputs = tuple(writer.outputs)
    apart = {
        i: writer.pitched[v]
        for i, v in enumerate(inputs)
        if type(v) is Variable and v in writer.pitched
    }
    return Written(
        source,
        inputs,
        outputs,
        writer.rows,
        weight,
        refuses,
        strided=frozenset(i for i, near in apart.items() if not near),
        pitched=frozenset(i for i, near in apart.items() if near),
        joins=joins,
    )


def _pointer(index: int, operand: Any) -> str:
    return f"data(table, {index}, {stored(kind_of(operand).dtype)}(0))"


def _full_output(writer: Writer, out: Variable) -> str:
    """Allocate the memory of a result with an element per index or per row, and return its name."""
    over, kind = writer.fused.over.get(out), out.kind
    name = writer.output(Output(out, kind.shape, kind.dtype, False, 1, over))
    size = kind.dtype.itemsize
    if (
        over is None
        and out not in writer.passed_on
        and kind.size * size >= _LARGE
        and kind.shape == writer.fused.domain
        and _ROW[0] <= writer.run * size <= _ROW[1]
    ):
        scratch = Output(None, (writer.run,), kind.dtype, True, 1)
        writer.streamed[out] = writer.output(scratch)
    return name


def _place(writer: Writer, names: dict[Variable, str], out: Variable) -> str:
    """Return the text of the element to which the result for a row and column is written."""
    if out in writer.streamed:
        return f"{writer.streamed[out]}[thread * {writer.columns} + c]"
    return f"{names[out]}[r * {writer.columns} + c]"


def _stream(writer: Writer, out: Variable, name: str, first: str, count: str) -> str:
    """Return the statement that writes elements with non-temporal stores."""
    scratch = f"{writer.streamed[out]}, thread * {writer.run}"
    return f"stream({name}, {first}, {scratch}, {count}, {out.kind.dtype.itemsize})"


def extreme(place: str, how: str, text: str) -> str:
    """Return the statement that updates memory with the larger, or smaller, of it and a value.

    A NaN in memory is kept.
    """
    sign = ">" if how == "max" else "<"
    other = f"select({text} != {text}, {text}, {place})"
    return f"{place} = select({text} {sign} {place}, {text}, {other})"


def extreme_of(name: str, how: str, text: str) -> list[str]:
    """Return the statements that do the same for a variable; a second variable records NaNs."""
    return [f"{name} = {STEPS[how]}({name}, {text})", f"bad_{name} |= {text} != {text}"]


def _final_output(writer: Writer, step: Instruction) -> tuple[str, str, str, bool]:
    """Allocate the memory for the partial results of a reduction over rows."""
    name, axes = fold_of(step) or ("", ())
    out = step.outs[0]
    whole = len(axes) == len(writer.fused.domain)
    shape = () if whole else writer.fused.domain[writer.fused.split :]
    count = math.prod(step.operands[0].kind.shape[i] for i in axes)
    output = Output(
        out, shape, out.kind.dtype, True, count if name == "mean" else 1, joined=JOINED[name]
    )
    return writer.output(output), CODES[out.kind.dtype], name, whole


def _flat_body(writer: Writer) -> list[str]:
    """Emit one loop over all elements."""
    block = Block(writer, 0, False)
    inside, totals, streams = [], [], []
    extremes: list[tuple[str, str, str]] = []
    for out in writer.fused.outs:
        step = writer.makers[out]
        if step in writer.finals:
            text, _ = block.value(step.operands[0], {})
            name, code, how, _ = _final_output(writer, step)
            if how in ("max", "min"):
                extremes.append((name, code, how))
                inside += extreme_of(f"t_{name}", how, text)
            else:
                totals.append(name)
                inside.append(f"p_{name} = plus(p_{name}, f8({text}))")
        else:
            text, _code = block.value(out, {})
            name = _full_output(writer, out)
            to = f"{name}[r]"
            if out in writer.streamed:
                to = f"{writer.streamed[out]}[thread * {writer.run} + r - b]"
                streams.append(_stream(writer, out, name, "b", f"min({writer.run}, stop - b)"))
            inside.append(store(to, text, out.kind.dtype))
    body = ["    " + line for line in [*block.lines, *inside]]
    first, each, last = _totals(totals)
    begin, end = _extremes(extremes)
    first, last = first + begin, last + end
    if not totals and not streams:
        return [*first, "for r in range(start, stop):", *body, *last]
    length = writer.run if streams else _BLOCK
    loop = [f"for r in range(b, min(b + {length}, stop)):", *body]
    blocks = [f"p_{name} = f8(0)" for name in totals] + loop + each + streams
    last += ["settle()"] * bool(streams)
    return [*first, f"for b in range(start, stop, {length}):", *("    " + s for s in blocks), *last]


def _totals(names: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the code that initialises totals, adds a partial sum to each, and stores them.

    Rounding errors are compensated (Kahan, *Further remarks on reducing truncation errors*, 1965),
    so that a total is as accurate as NumPy's pairwise sum.
    """
    first, each, last = [], [], []
    for name in names:
        first += [f"t_{name} = f8(0)", f"e_{name} = f8(0)"]
        each += [
            f"y_{name} = p_{name} - e_{name}",
            f"u_{name} = t_{name} + y_{name}",
            # An infinite total has no rounding error: infinity minus infinity would be NaN.
            f"e_{name} = select(isfinite(u_{name}), (u_{name} - t_{name}) - y_{name}, f8(0))",
            f"t_{name} = u_{name}",
        ]
        last.append(f"{name}[thread] = t_{name}")
    return first, each, last


def _extremes(found: list[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """Return the code that initialises the extremes of all elements, and stores them."""
    first, last = [], []
    for name, code, how in found:
        first += [f"t_{name} = {STARTS[how].format(code)}", f"bad_t_{name} = False"]
        last.append(f"{name}[thread] = select(bad_t_{name}, {code}(nan), t_{name})")
    return first, last


def _row_body(writer: Writer) -> list[str]:
    """Emit a loop over the rows that contains one loop over the columns for each stage."""
    fused = writer.fused
    top = max(writer.levels.values())
    names: dict[Variable, str] = {}  # the memory of outputs
    before: list[str] = []
    totals: list[str] = []
    extremes: list[tuple[str, str, str]] = []
    sums: list[tuple[str, str]] = []  # of columns: the names of partial sums and of totals
    finals: dict[Variable, tuple[str, str, str, bool]] = {}
    for out in fused.outs:
        step = writer.makers[out]
        if step in writer.finals:
            name, code, how, whole = _final_output(writer, step)
            sum_ = how in ("sum", "mean")
            if whole and sum_:
                totals.append(name)
            elif whole:
                extremes.append((name, code, how))
            else:
                before += _columns(writer, f"{name}[%s] = {STARTS[how].format(code)}")
                if sum_ and writer.rows > _ROWS:
                    partial = Output(None, (writer.columns,), out.kind.dtype, True, 1)
                    sums.append((writer.output(partial), name))
                    name = sums[-1][0]
            finals[out] = name, code, how, whole
        else:
            names[out] = _full_output(writer, out)
    _keep(writer, names)
    known: dict[Any, tuple[str, str]] = {}
    first, each, last = _totals(totals)
    begin, end = _extremes(extremes)
    first, last = first + begin, last + end
    rows = [f"p_{name} = f8(0)" for name in totals]
    for level in range(top + 1):
        rows += _row_values(writer, level, known, names)
        rows += _stage(writer, level, known, names, finals)
    columns = writer.columns
    streams = [
        _stream(writer, out, names[out], f"r * {columns}", str(columns)) for out in writer.streamed
    ]
    body = ["    " + line for line in [*writer.in_rows, *rows, *each, *streams]]
    if sums:
        blocks = [s for p, _ in sums for s in _columns(writer, f"{p}[%s] = 0")]
        blocks += [f"for r in range(b, min(b + {_ROWS}, stop)):", *body]
        blocks += [s for p, name in sums for s in _columns(writer, f"{name}[%s] += {p}[%s]")]
        loop = [f"for b in range(start, stop, {_ROWS}):", *("    " + s for s in blocks)]
    else:
        loop = ["for r in range(start, stop):", *body]
    return [*before, *first, *loop, *last, *["settle()"] * bool(streams)]


def _columns(writer: Writer, statement: str) -> list[str]:
    """Emit a statement for each element of a row that every thread has its own copy of."""
    at = f"thread * {writer.columns} + c"
    return [f"for c in range({writer.columns}):", "    " + statement.replace("%s", at)]


def _keep(writer: Writer, names: dict[Variable, str]) -> None:
    """Decide which full values are kept for a later stage, and where."""
    weights: dict[Variable, int] = {}
    for step in writer.fused.steps:
        out = step.outs[0]
        if writer.is_row.get(out, False) or step in writer.finals:
            continue
        weights[out] = cost(step) + sum(
            weights.get(v, 0) for v in step.reads if writer.levels.get(v, 0) == writer.levels[out]
        )
    for step in writer.fused.steps:
        for v in step.reads:
            needed = writer.levels[step.outs[0]] - (1 if writer.is_row.get(step.outs[0]) else 0)
            if fold_of(step) is None and not writer.is_row.get(step.outs[0]):
                needed = writer.levels[step.outs[0]]
            if v not in weights or v in writer.kept or needed <= writer.levels[v]:
                continue
            if v in names:
                writer.kept[v] = _place(writer, names, v)
            elif weights[v] > CHEAP:
                scratch = Output(None, (writer.columns,), v.kind.dtype, True, 1)
                name = writer.output(scratch)
                writer.kept[v] = f"{name}[thread * {writer.columns} + c]"


def _row_values(
    writer: Writer, level: int, known: dict[Any, tuple[str, str]], names: dict[Variable, str]
) -> list[str]:
    """Emit the values that have one element per row and are known when a stage begins."""
    block = Block(writer, level, True)
    lines: list[str] = []
    for step in writer.fused.steps:
        out = step.outs[0]
        if writer.levels[out] != level or not writer.is_row.get(out, False):
            continue
        found = fold_of(step)
        if found is not None and level:
            name, code = f"t{level}_{len(known)}", CODES[out.kind.dtype]
            total = f"s_{id_of(writer, out)}"
            if found[0] == "mean":
                text = f"{total} / {code}({writer.columns})"
            elif found[0] in ("max", "min"):
                text = f"select(bad_{id_of(writer, out)}, {code}(nan), {total})"
            else:
                text = total
            lines.append(f"{name} = {text}")
            known[out] = (name, code)
        else:
            start = len(block.lines)
            known[out] = block.value(out, known)
            lines += block.lines[start:]
        if out in names:
            lines.append(store(f"{names[out]}[r]", known[out][0], out.kind.dtype))
    return lines


def id_of(writer: Writer, variable: Variable) -> int:
    """Return the number that identifies a variable in a kernel."""
    return list(writer.levels).index(variable)


def _stage(
    writer: Writer,
    level: int,
    known: dict[Any, tuple[str, str]],
    names: dict[Variable, str],
    finals: dict[Variable, tuple[str, str, str, bool]],
) -> list[str]:
    """Emit the loop over the columns of one stage."""
    block = Block(writer, level, False)
    before: list[str] = []
    inside: list[str] = []
    for step in writer.fused.steps:
        out = step.outs[0]
        found = fold_of(step)
        if found is not None and writer.is_row.get(out, False):
            if writer.levels[out] != level + 1:
                continue
            text, code = block.value(step.operands[0], known)
            total = f"s_{id_of(writer, out)}"
            before.append(f"{total} = {STARTS[found[0]].format(code)}")
            inside.append(f"{total} = {STEPS[found[0]]}({total}, {text})")
            if found[0] in ("max", "min"):
                before.append(f"bad_{total[2:]} = False")
                inside.append(f"bad_{total[2:]} |= {text} != {text}")
        elif out in finals:
            if writer.levels[out] != level:
                continue
            text, code = block.value(step.operands[0], known)
            name, _, how, whole = finals[out]
            if how in ("max", "min") and whole:
                inside += extreme_of(f"t_{name}", how, text)
            elif how in ("max", "min"):
                inside.append(extreme(f"{name}[thread * {writer.columns} + c]", how, text))
            elif whole:
                inside.append(f"p_{name} = plus(p_{name}, f8({text}))")
            else:
                inside.append(f"{name}[thread * {writer.columns} + c] += {text}")
        elif writer.levels[out] == level and not writer.is_row.get(out, False):
            if out in names:
                text, _ = block.value(out, known)
                inside.append(store(_place(writer, names, out), text, out.kind.dtype))
            elif out in writer.kept:
                text, _ = block.value(out, known)
                inside.append(store(writer.kept[out], text, out.kind.dtype))
    if not inside:
        return []
    loop = [f"for c in range({writer.columns}):"]
    return [*before, *loop, *("    " + line for line in [*block.lines, *inside])]
