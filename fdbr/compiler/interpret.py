"""The interpreter: runs programs step by step with NumPy.

It runs the first iterations of eager loops, and programs that kernels refuse.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.blocks import in_blocks, unlocked
from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.liveness import last_uses
from fdbr.compiler.ir.loops import Loop, loop_of
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Kind,
    Step,
    Variable,
    is_variable,
    kind_of,
    unfused,
)
from fdbr.compiler.ir.python_numbers import exact
from fdbr.core.primitive import dispatch

__all__ = ["function_of", "is_direct", "stepwise", "unboxed"]


def stepwise(
    inputs: Iterable[Variable], steps: Sequence[Step], outputs: Sequence[Any]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function from inputs to the tuple of outputs that runs one step after the other.

    Preparing it takes a fraction of the time of compiling, and it frees values after their last
    use.  It raises `GuardFailure` where a guard fails.  The steps include fused kernels only if
    they overwrite inputs; then the function also takes the list that `Compiled` describes.
    """
    taken = list(inputs)  # a variable may occur twice
    places: dict[Any, int] = {variable: i for i, variable in enumerate(taken)}
    begun = len(taken)
    over = any(isinstance(step, Fused) for step in steps)
    given = begun + over
    rest: list[Any] = []  # constants, and slots for results

    def place(operand: Any) -> int:
        key = operand if is_variable(operand) else ("constant", id(operand))
        if key not in places:
            places[key] = given + len(rest)
            rest.append(None if is_variable(operand) else operand)
        return places[key]

    ends = last_uses(steps, outputs)
    code: list[tuple[Callable[..., Any], list[int], Any, Any, list[int]]] = []
    for position, step in enumerate(steps):
        if isinstance(step, Guard):
            line: Any = _check(step), [place(step.operand)], {}, -1
        elif isinstance(step, Fused):
            reads = [*map(place, step.reads), begun]
            line = _writing_over(step), reads, {}, [place(out) for out in step.outs]
        else:
            assert isinstance(step, Instruction)
            outs = [place(out) for out in step.outs]
            reads = [place(operand) for operand in step.operands]
            line = function_of(step), reads, step.params, outs if step.several else outs[0]
        code.append((*line, [place(variable) for variable in ends.get(position, ())]))
    results = [place(output) for output in outputs]
    rest.append(None)  # the last slot takes the results of guards
    size = given + len(rest)

    def run(*leaves: Any) -> tuple[Any, ...]:
        values = [*leaves, *rest]
        if len(values) < size:
            values.insert(begun, None)
        for function, reads, params, outs, dead in code:
            out = function(*[values[i] for i in reads], **params)
            if type(outs) is int:
                values[outs] = out
            else:
                for i, part in zip(outs, out, strict=True):
                    values[i] = part
            for i in dead:
                values[i] = out = None
        return tuple([values[i] for i in results])

    return run


def _writing_over(kernel: Fused) -> Callable[..., list[Any]]:
    """Return the function that runs a kernel on its operands, and a list or `None`."""
    reads = list(kernel.reads)
    iteration = stepwise(reads, kernel.steps, kernel.outs)
    places = [reads.index(kernel.over[out]) if out in kernel.over else None for out in kernel.outs]

    def run(*operands: Any) -> list[Any]:
        *values, begun = operands
        targets = []
        for place, out in zip(places, kernel.outs, strict=True):
            if place is None:
                targets.append(np.empty(out.kind.shape, out.kind.dtype))
                continue
            if begun is None or not values[place].flags.c_contiguous:
                values[place] = values[place].copy("C")
            targets.append(values[place])
        if begun is not None:
            begun.append(True)
        with unlocked(targets):
            in_blocks(iteration, values, targets)
        return targets

    return run


def _check(guard: Guard) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        answer = guard.question(value)
        if not same(answer, guard.answer):
            raise GuardFailure(guard.index, answer)

    return check


def function_of(step: Instruction) -> Callable[..., Any]:
    """Return the function that computes a step from its operands and parameters."""
    loop = loop_of(step)
    if loop is not None:
        return _looped(loop)
    whole = exact(step.primitive, [kind_of(operand).type for operand in step.operands])
    if whole is not None:
        return whole
    if is_direct(step):
        return functools.partial(step.primitive.host, np)
    return lambda *operands, **params: dispatch(step.primitive, operands, params)


def _looped(loop: Loop) -> Callable[..., Any]:
    """Return the function that runs a loop, whose body may have kernels."""
    iteration, *back = [
        stepwise(program.inputs, unfused(program.steps), program.outputs)
        for program in loop.programs
    ]
    return lambda *operands, **_: loop.iterations(iteration, operands, *back)


def is_direct(step: Instruction) -> bool:
    """Return whether dispatch would apply the primitive's value to NumPy's arrays directly."""
    types = {kind_of(operand).type for operand in step.operands}
    return any(map(_is_numpy, types)) and all(map(_is_plain, types))


@functools.cache
def _is_numpy(kind: type) -> bool:
    return issubclass(kind, np.ndarray | np.generic)


@functools.cache
def _is_plain(kind: type) -> bool:
    return _is_numpy(kind) or kind in (bool, int, float, complex, type(None), tuple, slice)


def unboxed(array: Any, kind: Kind) -> Any:
    """Return an array without axes as the NumPy scalar or Python number that the aval says."""
    if kind.is_array:
        return array
    return array.item() if kind.is_number else array[()]
