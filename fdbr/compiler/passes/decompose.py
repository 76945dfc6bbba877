"""Decomposition of compound primitives whose parts kernels can fuse.

The parts are not stated here: they are captured from the primitive's value function.
"""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import (
    Instruction,
    Kind,
    Program,
    Step,
    Variable,
    kind_of,
)
from fdbr.compiler.passes.reduction_fusion import can_nest
from fdbr.compiler.passes.steps import renamed, renamed_all, renamed_outputs

__all__ = ["decompose", "expand"]


def expand(program: Program) -> Program:
    """Expand shorthand primitives into the steps that they abbreviate."""
    if not any(
        type(step) is Instruction and step.primitive.facts.shorthand for step in program.steps
    ):
        return program
    return _taken_apart(
        program, lambda step: step.primitive.facts.shorthand, lambda step, parts: True
    )


def decompose(program: Program) -> Program:
    """Decompose compound primitives where that pays."""
    backend = backend_of(program)

    def pays(step: Instruction, parts: Program) -> bool:
        is_fast = _is_large(step, backend) and step.primitive.facts.compound is True
        return is_fast or _is_small(parts, backend)

    return _taken_apart(program, lambda step: bool(step.primitive.facts.compound), pays)


def _taken_apart(
    program: Program,
    chosen: Callable[[Instruction], bool],
    pays: Callable[[Instruction, Program], bool],
) -> Program:
    """Replace some steps by the steps of their value functions, where that pays."""
    backend = backend_of(program)
    templates: dict[Any, Program | None] = {}
    instead: dict[Variable, Any] = {}  # new variables for results of decomposed steps
    steps: list[Step] = []
    for step in program.steps:
        step, template = _plain(renamed(step, instead)), None
        if isinstance(step, Instruction) and chosen(step) and _has_kernels(step, backend):
            key = _key(step)
            if key not in templates:
                templates[key] = _template(step, backend)
            template = templates[key]
            if template is not None and not pays(step, template):
                template = None
        if template is None:
            steps.append(step)
            continue
        assert isinstance(step, Instruction)
        names: dict[Variable, Any] = dict(zip(template.inputs, step.operands, strict=True))
        for part in template.steps:
            assert type(part) is Instruction
            outs = tuple(Variable(v.kind) for v in part.outs)
            names.update(zip(part.outs, outs, strict=True))
            operands = renamed_all(part.operands, names)
            steps.append(
                Instruction(part.primitive, operands, part.params, outs, part.several, step.remat)
            )
        instead.update(zip(step.outs, renamed_all(template.outputs, names), strict=True))
    return renamed_outputs(program, steps, instead)


def _has_kernels(step: Instruction, backend: Backend) -> bool:
    """Return whether all operands are numbers, or arrays that kernels can read."""
    kinds = map(kind_of, step.operands)
    return all(k.is_number or k.is_scalar or k.module is backend.module for k in kinds)


def _plain(step: Step) -> Step:
    """Rewrite a sum of rows as a sum along an axis, which kernels compute."""
    if type(step) is not Instruction or step.primitive is not op.SUM_OF_ROWS:
        return step
    return attrs.evolve(step, primitive=op.SUM, params={"axes": (0,), "keepdims": False})


def _is_large(step: Instruction, backend: Backend) -> bool:
    kind = kind_of(step.operands[0])
    if not kind.is_array or not backend.can_fold(kind):
        return False
    if kind.size < backend.costs.launch:
        return False
    axes = step.params.get("axes", (len(kind.shape) - 1,) if step.several else ())
    trailing = tuple(range(len(kind.shape) - len(axes), len(kind.shape)))
    return tuple(sorted(axes)) == trailing or can_nest(kind.shape, axes)


def _is_small(template: Program, backend: Backend) -> bool:
    """Return whether one kernel for small arrays computes all the parts."""
    few = len(template.steps) < backend.costs.fewest_small
    return not few and all(map(backend.is_small, template.steps))


def _key(step: Instruction) -> Any:
    kinds = tuple(kind_of(operand) for operand in step.operands)
    return step.primitive, kinds, tuple(sorted(step.params.items()))


def _template(step: Instruction, backend: Backend) -> Program | None:
    """Return the program of a primitive's value; `None` if it has guards, or is no simpler.

    It is `None` as well if the value function fails for such avals, or returns others.
    """
    examples = [_example(kind_of(operand), backend) for operand in step.operands]

    def value(traced: list[Any]) -> list[Any]:
        out = step.primitive.value(np, *traced, **step.params)
        return list(out) if type(out) is tuple else [out]

    try:
        with np.errstate(all="ignore"):
            program = capture(value, step.primitive.value, examples).program
    except Exception:  # for example, booleans cannot be negated
        return None
    if program is None or program.guards or len(program.steps) < 2:
        return None
    kinds = [kind_of(out) for out in program.outputs]
    return program if kinds == [out.kind for out in step.outs] else None


def _example(kind: Kind, backend: Backend) -> Any:
    """Return a value of an aval; Python numbers are weak next to arrays, and scalars are not."""
    if kind.is_number:
        return kind.type()
    xp = backend.module  # not NumPy, whose `zeros` would trace here
    example = xp.zeros(kind.shape, kind.dtype)
    return example[()] if kind.is_scalar else example
