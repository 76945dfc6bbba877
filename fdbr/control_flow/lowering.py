"""Lowering of scans to the loops of compiled programs.

During capture a scan is one step, because transformations may still be applied to it.  When its
program is compiled none are left, so its body becomes the body of a loop like those that are rolled
from Python's loops.
"""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import LOOP, LOWERED, Loop, stack_kind
from fdbr.compiler.ir.program import Instruction, Kind, Program, Variable, is_variable, kind_of
from fdbr.control_flow.body_tracing import STOP
from fdbr.control_flow.scan_rules import SCAN, Scan
from fdbr.transforms.custom_call import CALL

__all__ = ["loop_of_scan"]


def loop_of_scan(step: Instruction) -> tuple[Instruction, ...] | None:
    """Return the steps of a scan as a loop; `None` if an iteration changes the avals of values."""
    scan: Scan = step.params["scan"]
    found = _plain(scan.body.program)
    if found is None:
        return None
    program, arrays = found
    base, carry, xs, consts = scan.split(step.operands)
    numbers, starts, rows, rest = scan.split(program.inputs)
    consts = [*consts, *arrays]
    pairs = [*zip(carry, starts, strict=True), *zip(consts, rest, strict=True)]
    pairs += zip(program.outputs[: scan.carried], starts, strict=True)
    if any(kind_of(value) != variable.kind for value, variable in pairs):
        return None
    if not all(map(is_variable, program.outputs)) or not all(map(_is_row, xs, rows)):
        return None
    read = {v for part in program.steps for v in part.reads} | set(program.outputs)
    data: list[Sequence[Any]] = []
    if read.isdisjoint(numbers):
        numbers = []
    elif scan.numbers is not None:
        if is_variable(base[0]):
            return None
        data = [[base[0] + scan.numbers[index] for index in scan.order]]
        if kind_of(data[0][0]) != numbers[0].kind:
            return None
    body = Program(program.name, (*starts, *rows, *numbers, *rest), program.steps, program.outputs)
    direction = (scan.length - 1, -1) if scan.reverse else (0, 1)
    directions = (direction,) * len(rows)
    loop = Loop(body, scan.length, scan.carried, 0, directions, tuple(data))
    last, stacks = step.outs[: scan.carried], step.outs[scan.carried :]
    kinds = [stack_kind(v.kind, scan.length) for v in program.outputs[scan.carried :]]
    if [v.kind for v in (*last, *stacks)] != [*(v.kind for v in starts), *kinds]:
        return None
    made = tuple([Variable(v.kind) for v in stacks]) if scan.reverse else stacks
    iterations = Instruction(
        LOOP, (*carry, *xs, *consts), {"loop": loop}, (*last, *made), True, step.remat
    )
    return iterations, *(
        _reversed(a, b, step.remat) for a, b in zip(made, stacks, strict=True) if a is not b
    )


def _plain(program: Program) -> tuple[Program, list[Any]] | None:
    """Return a body without the markers of transformations; `None` if it states derivatives.

    Arrays in the body become inputs after the others.
    """
    names: dict[Any, Any] = {}
    arrays: dict[int, tuple[Any, Variable]] = {}

    def renamed(value: Any) -> Any:
        if is_variable(value):
            return names.get(value, value)
        kind = kind_of(value)
        if not kind.is_array or kind.size == 1:
            return value
        return arrays.setdefault(id(value), (value, Variable(kind)))[1]

    steps: list[Instruction] = []
    for step in program.steps:
        if not isinstance(step, Instruction) or step.primitive is CALL:
            return None
        operands = tuple(map(renamed, step.operands))
        if step.primitive is STOP:
            names[step.outs[0]] = operands[0]
        else:
            outs, remat = step.outs, step.remat
            steps.append(
                Instruction(step.primitive, operands, step.params, outs, step.several, remat)
            )
    outputs = tuple(map(renamed, program.outputs))
    inputs = (*program.inputs, *(variable for _, variable in arrays.values()))
    found = Program(program.name, inputs, tuple(steps), outputs)
    return found, [array for array, _ in arrays.values()]


def _is_row(array: Any, row: Variable) -> bool:
    """Return whether an iteration takes a row of an array as it is."""
    kind: Kind = kind_of(array)
    return bool(
        kind.is_array
        and kind.module is not None
        and (kind.shape[1:], kind.dtype) == (row.kind.shape, row.kind.dtype)
        and (row.kind.is_array or not row.kind.shape)
        and row.kind.is_array == bool(row.kind.shape)
        and not row.kind.is_number
    )


def _reversed(stack: Variable, out: Variable, remat: int) -> Instruction:
    """Reverse the stacked results of iterations that started from the last row."""
    return Instruction(op.SLICE, (stack,), {"key": (slice(None, None, -1),)}, (out,), False, remat)


LOWERED[SCAN] = loop_of_scan
