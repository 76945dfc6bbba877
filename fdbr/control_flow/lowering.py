"""Lowering of scans and while loops to the loops of compiled programs.

During capture such a loop is one step, because transformations may still be applied to it.  When
its program is compiled none are left, so its body becomes the body of a loop like those that are
rolled from Python's loops.  The condition of a while loop becomes a guard, which ends the loop when
it fails.
"""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import LOOP, LOWERED, Loop, stack_kind
from fdbr.compiler.ir.program import (
    Guard,
    Instruction,
    Kind,
    Program,
    Variable,
    has_effect,
    is_variable,
    kind_of,
)
from fdbr.compiler.ir.python_numbers import apply
from fdbr.control_flow.body_tracing import STOP, Body
from fdbr.control_flow.operands import scalar
from fdbr.control_flow.scan_rules import SCAN, Scan
from fdbr.control_flow.while_rules import BACK, LIVE, WHILE, While
from fdbr.core.higher_order import HigherOrder

__all__ = ["loop_of_pullback", "loop_of_scan", "loop_of_while"]


def loop_of_scan(step: Instruction) -> tuple[Instruction, ...] | None:
    """Return the steps of a scan as a loop; `None` if an iteration changes the avals of values."""
    scan: Scan = step.params["scan"]
    found = _program_of(scan.body)
    if found is None:
        return None
    program, arrays = found
    base, carry, xs, consts = scan.split(step.operands)
    numbers, starts, rows, rest = scan.split(program.inputs)
    before: list[Instruction] = []
    carry = _like(carry, starts, before)
    consts = [*_like(consts, rest, before), *arrays]
    pairs = [*zip(carry, starts, strict=True), *zip(consts, rest, strict=True)]
    after: list[Instruction] = []
    outputs = (
        *_like(program.outputs[: scan.carried], starts, after),
        *program.outputs[scan.carried :],
    )
    pairs += zip(outputs[: scan.carried], starts, strict=True)
    if any(kind_of(value) != variable.kind for value, variable in pairs):
        return None
    if not all(map(is_variable, outputs)) or not all(map(_is_row, xs, rows)):
        return None
    read = {v for part in program.steps for v in part.reads} | set(outputs)
    data: list[Sequence[Any]] = []
    if read.isdisjoint(numbers):
        numbers = []
    elif scan.numbers is not None:
        if is_variable(base[0]):
            return None
        data = [[base[0] + scan.numbers[index] for index in scan.order]]
        if kind_of(data[0][0]) != numbers[0].kind:
            return None
    steps, numbers = _folded([*_steps(program), *after], numbers, data)
    body = Program(program.name, (*starts, *rows, *numbers, *rest), steps, outputs)
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
    return (
        *before,
        iterations,
        *(_reversed(a, b, step.remat) for a, b in zip(made, stacks, strict=True) if a is not b),
    )


def loop_of_while(step: Instruction) -> tuple[Instruction, ...] | None:
    """Return the steps of a while loop as a loop; `None` if its avals or its condition are fixed.

    An iteration must not change the avals of values, and the condition must depend on values.
    """
    loop: While = step.params["loop"]
    before: list[Instruction] = []
    made = _open_loop(loop, step.operands, before)
    if made is None:
        return None
    operands, params = made
    if [out.kind for out in step.outs] != [v.kind for v in params.body.inputs[: loop.carried]]:
        return None
    operands, params = _without_unread(operands, params)
    return (
        *before,
        Instruction(LOOP, operands, {"loop": params}, step.outs, True, step.remat),
    )


def _without_unread(operands: Sequence[Any], loop: Loop) -> tuple[tuple[Any, ...], Loop]:
    """Drop the constants that only derivatives read: the first values of a live example."""
    body, count = loop.body, loop.carried
    read = {v for part in body.steps for v in part.reads} | set(body.outputs)
    kept = [i for i, v in enumerate(body.inputs) if i < count or v in read]
    inputs = tuple([body.inputs[i] for i in kept])
    body = Program(body.name, inputs, body.steps, body.outputs)
    return tuple([operands[i] for i in kept]), attrs.evolve(loop, body=body)


def loop_of_pullback(step: Instruction) -> tuple[Instruction, ...] | None:
    """Return the steps of a while loop's pullback as a loop that runs back over its iterations.

    The result is `None` if the pullback of an iteration has not run, or for the loops that
    `loop_of_while` leaves.
    """
    loop: While = step.params["loop"]
    wanted: tuple[bool, ...] = step.params["wanted"]
    values, cotangents = step.operands[: len(wanted)], list(step.operands[len(wanted) :])
    before: list[Instruction] = []
    made = _open_loop(loop, values, before)
    consts = loop.takes(values)[1]
    own = wanted[loop.carried : loop.carried + len(consts)]
    pullback = loop.body.back.get(tuple(own))
    found = None if pullback is None else _program_of(pullback)
    if made is None or pullback is None or found is None:
        return None
    operands, params = made
    program, arrays = found
    first = len(cotangents)
    sums = program.inputs[first : first + sum(own)]  # of 16-bit floats in float32
    cotangents += [_zeros(variable.kind) for variable in sums]
    count, shared = len(cotangents), loop.carried + len(consts)
    targets, point = list(program.inputs[:count]), program.inputs[count:]
    cotangents = _like(cotangents, targets, before)
    more = [*_like(pullback.found, point[shared:], before), *arrays]
    after: list[Instruction] = []
    results = _like(program.outputs, targets, after)
    for out in step.outs[len(step.outs) - sum(wanted[shared:]) :]:
        # Only the condition takes the operand, so it has no derivative.
        cotangents.append(_zeros(out.kind))
        targets.append(Variable(out.kind))
        results.append(targets[-1])
    inner, old = params.body, params.body.inputs
    unread = [Variable(v.kind) for v in old[shared:]]
    inputs = (*targets, *point[:shared], *unread, *point[shared:])
    back = Program(program.name, inputs, (*program.steps, *after), tuple(results))
    inputs = (*old, *(Variable(v.kind) for v in point[shared:]))
    body = Program(inner.name, inputs, inner.steps, inner.outputs)
    inexact = [v.kind.dtype.kind in "fc" for v in old[: loop.carried]]
    kept = [one for one, moves in zip(wanted, inexact, strict=False) if moves]
    new = iter(step.outs)
    outs = [next(new) if one else Variable(v.kind) for one, v in zip(kept, targets, strict=False)]
    outs += new
    last: list[Instruction] = []
    for i, target in enumerate(targets[first : first + sum(own)], first):
        outs[i] = _before_rounding(outs[i], target.kind, last, step.remat)
    given = (*operands, *more, *cotangents)
    kinds = [v.kind for v in targets]
    if not (
        list(map(kind_of, given)) == [*(v.kind for v in body.inputs), *kinds]
        and [v.kind for v in back.inputs[len(targets) :]] == [v.kind for v in body.inputs]
        and kinds == list(map(kind_of, results)) == [v.kind for v in outs]
    ):
        return None
    params = attrs.evolve(params, body=body, back=back)
    loop_step = Instruction(LOOP, given, {"loop": params}, tuple(outs), True, step.remat)
    return *before, loop_step, *last


def _before_rounding(out: Variable, kind: Kind, after: list[Instruction], remat: int) -> Variable:
    """Return what is rounded to ``out`` after the loop, a sum in a wider dtype."""
    if kind.dtype == out.kind.dtype:
        return out
    total = Variable(kind)
    rounded = out if out.kind.is_array else Variable(Kind(np.ndarray, (), out.kind.dtype))
    params = {"to": out.kind.dtype}
    after.append(Instruction(op.ASTYPE_INEXACT, (total,), params, (rounded,), False, remat))
    if rounded is not out:
        after.append(Instruction(op.SLICE, (rounded,), {"key": ()}, (out,), False, remat))
    return total


def _steps(program: Program) -> list[Instruction]:
    """Return the steps of a body that has just been recorded, which are instructions."""
    return [step for step in program.steps if isinstance(step, Instruction)]


def _zeros(kind: Kind) -> Any:
    """Return zeros of an aval."""
    zeros = np.zeros(kind.shape, kind.dtype)
    return zeros if kind.is_array else zeros[()]


def _open_loop(
    loop: While, operands: Sequence[Any], before: list[Instruction]
) -> tuple[tuple[Any, ...], Loop] | None:
    """Return the operands and the parameter of a while loop as a loop."""
    of_cond, of_body = map(_program_of, loop.bodies)
    if of_cond is None or of_body is None:
        return None
    (cond, asked_arrays), (body, arrays) = of_cond, of_body
    carry, consts, asked = loop.takes(operands)
    starts, rest = body.inputs[: loop.carried], body.inputs[loop.carried :]
    own = cond.inputs[loop.carried :]
    carry = _like(carry, starts, before)
    consts = [*_like(consts, rest, before), *arrays, *_like(asked, own, before), *asked_arrays]
    (outcome,) = cond.outputs
    names: dict[Any, Any] = dict(zip(cond.inputs, (*starts, *own), strict=True))
    head = [_renamed(part, names) for part in _steps(cond)]
    guard = Guard(names.get(outcome, outcome), bool, True, 0)
    inputs = (*body.inputs, *own)
    pairs = [*zip((*carry, *consts), inputs, strict=True)]
    after: list[Instruction] = []
    outputs = tuple(_like(body.outputs, starts, after))
    pairs += zip(outputs, starts, strict=True)
    pairs += zip(cond.inputs[: loop.carried], starts, strict=True)
    if not is_variable(outcome) or any(kind_of(a) != variable.kind for a, variable in pairs):
        return None
    whole = Program(body.name, inputs, (*head, guard, *body.steps, *after), outputs)
    return (*carry, *consts), Loop(whole, 1, loop.carried, 0, (), (), until=0)


def _renamed(step: Instruction, names: dict[Any, Any]) -> Instruction:
    """Return a step that reads other variables."""
    operands = tuple([names.get(x, x) if is_variable(x) else x for x in step.operands])
    return Instruction(step.primitive, operands, step.params, step.outs, step.several, step.remat)


def _folded(
    steps: Sequence[Instruction], numbers: Sequence[Variable], data: list[Sequence[Any]]
) -> tuple[tuple[Instruction, ...], list[Variable]]:
    """Compute the Python numbers that depend on the integer of an iteration alone.

    They are added to the constants of iterations.  Return the other steps, and the variables of
    these constants.
    """
    known = dict(zip(numbers, data, strict=True))
    left: list[Instruction] = []
    for step in steps:
        found: list[Any] | None = None
        if known and step.outs[0].kind.is_number and all(x in known for x in step.reads):
            given = [known[x] if is_variable(x) else itertools.repeat(x) for x in step.operands]
            with contextlib.suppress(ArithmeticError, ValueError):  # an iteration raises it
                rows = zip(range(len(data[0])), *given, strict=False)
                found = [apply(step.primitive, tuple(row), dict(step.params)) for _, *row in rows]
        if found is None:
            left.append(step)
        else:
            known[step.outs[0]] = found
    read = {v for step in left for v in step.reads}
    kept = [v for v in known if v in read or v in numbers]
    data[:] = [known[v] for v in kept]
    return tuple(left), kept


def _like(
    values: Sequence[Any], inputs: Sequence[Variable], before: list[Instruction]
) -> list[Any]:
    """Return operands of a loop as its body takes them: arrays without axes as scalars.

    The steps that convert them are appended to ``before``.
    """
    found: list[Any] = []
    for value, variable in zip(values, inputs, strict=False):
        if not is_variable(value):
            value = scalar(value)
        elif variable.kind.is_scalar and value.kind.is_array and not value.kind.shape:
            whole, value = value, Variable(variable.kind)
            before.append(Instruction(op.SLICE, (whole,), {"key": ()}, (value,)))
        found.append(value)
    return found


def _program_of(body: Body) -> tuple[Program, list[Any]] | None:
    """Return a body without the markers of transformations, and the arrays in it as more inputs.

    A body that states derivatives is replaced by what was recorded when it ran; the result is
    `None` if it has not run.
    """
    found = _plain(body.program)
    return _plain(body.captured()) if found is None and body.has_run else found


def _plain(program: Program) -> tuple[Program, list[Any]] | None:
    """Return a body without the markers of transformations.

    The result is `None` if it states derivatives, or communicates.  Arrays in the body become
    inputs after the others.
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
        if not isinstance(step, Instruction) or _states_derivatives(step) or has_effect(step):
            return None
        operands = tuple(map(renamed, step.operands))
        if step.primitive in (STOP, LIVE):
            names[step.outs[0]] = operands[0]
            continue
        primitive, outs, remat = step.primitive, step.outs, step.remat
        if primitive is op.AFFINE and all(kind_of(x).dtype.kind == "f" for x in operands):
            # Kernels of loops have forms for the product and the sum: 15 to 35 times faster in a
            # loop of 1,000 layers of 4 units.
            factors, bias = operands[:2], operands[2]
            dtype = np.result_type(*(kind_of(x).dtype for x in factors))
            product = Variable(attrs.evolve(outs[0].kind, dtype=dtype))
            operands = product, bias
            steps.append(Instruction(op.MATMUL_TRANSPOSED, factors, {}, (product,), False, remat))
            primitive = op.ADD
        steps.append(Instruction(primitive, operands, step.params, outs, step.several, remat))
    outputs = tuple(map(renamed, program.outputs))
    inputs = (*program.inputs, *(variable for _, variable in arrays.values()))
    found = Program(program.name, inputs, tuple(steps), outputs)
    return found, [array for array, _ in arrays.values()]


def _states_derivatives(step: Instruction) -> bool:
    primitive = step.primitive
    return (
        isinstance(primitive, HigherOrder)
        and primitive not in (STOP, LIVE)
        and primitive not in LOWERED
    )


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
LOWERED[WHILE] = loop_of_while
LOWERED[BACK] = loop_of_pullback
