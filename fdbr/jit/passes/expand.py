"""Primitives made of others are taken apart, where a kernel can put the parts together again.

What a primitive is made of is not stated here: its value is recorded.
"""

from typing import Any

import attrs
import numpy as np

from fdbr.jit.kernels.expressions import CODES
from fdbr.jit.kernels.small import is_small
from fdbr.jit.passes.gather import FEWEST
from fdbr.jit.program import Instruction, Program, Step, Variable, is_variable, kind_of
from fdbr.jit.recording import record

__all__ = ["expand"]

_SMALL = 2048  # elements below which the whole is as fast as its parts, but in one kernel

_COMPOUND = frozenset(
    {
        *("softmax", "log_softmax", "logsumexp", "standardize", "rescale"),
        "cross_entropy",
        *("gelu_tanh", "gelu", "gelu_share", "silu", "softplus", "softsign", "leaky_relu", "elu"),
    }
)


def expand(program: Program) -> Program:
    """Take compound primitives apart."""
    templates: dict[Any, Program | None] = {}
    renamed: dict[Variable, Any] = {}
    steps: list[Step] = []

    def of(operand: Any) -> Any:
        return renamed.get(operand, operand) if is_variable(operand) else operand

    for step in program.steps:
        if not isinstance(step, Instruction):
            steps.append(_renamed(step, of))
            continue
        template = None
        if step.primitive.name in _COMPOUND:
            key = _key(step)
            if key not in templates:
                templates[key] = _template(step)
            template = templates[key]
            if template is not None and not (_is_large(step) or _is_small(template)):
                template = None
        if template is None:
            steps.append(_renamed(step, of))
            continue
        names: dict[Variable, Any] = dict(zip(template.inputs, map(of, step.operands), strict=True))
        for part in template.steps:
            assert type(part) is Instruction
            outs = tuple(Variable(v.kind) for v in part.outs)
            names.update(zip(part.outs, outs, strict=True))
            operands = tuple(names[o] if is_variable(o) else o for o in part.operands)
            steps.append(
                Instruction(part.primitive, operands, part.params, outs, part.several, step.region)
            )
        for old, new in zip(step.outs, template.outputs, strict=True):
            renamed[old] = names[new] if is_variable(new) else new
    return program.replace(steps, [of(output) for output in program.outputs])


def _renamed(step: Any, of: Any) -> Step:
    if type(step) is Instruction:
        operands = tuple(map(of, step.operands))
        if all(a is b for a, b in zip(operands, step.operands, strict=True)):
            return step
        return attrs.evolve(step, operands=operands)
    return attrs.evolve(step, operand=of(step.operand))  # a guard


def _is_large(step: Instruction) -> bool:
    kind = kind_of(step.operands[0])
    if not kind.is_array or CODES.get(kind.dtype) not in ("f4", "f8"):
        return False
    axes = step.params.get("axes", (len(kind.shape) - 1,) if step.several else ())
    trailing = tuple(range(len(kind.shape) - len(axes), len(kind.shape)))
    return kind.size >= _SMALL and tuple(sorted(axes)) == trailing


def _is_small(template: Program) -> bool:
    """Whether the parts are to be done by one kernel for small arrays."""
    return len(template.steps) >= FEWEST and all(map(is_small, template.steps))


def _key(step: Instruction) -> Any:
    kinds = tuple(kind_of(operand) for operand in step.operands)
    return step.primitive.name, kinds, tuple(sorted(step.params.items()))


def _template(step: Instruction) -> Program | None:
    """The program of a primitive's value; `None` if it takes decisions, or does not change."""
    examples = [np.zeros(kind.shape, kind.dtype) for kind in map(kind_of, step.operands)]

    def value(traced: list[Any]) -> list[Any]:
        out = step.primitive.value(np, *traced, **step.params)
        return list(out) if type(out) is tuple else [out]

    with np.errstate(all="ignore"):
        program = record(value, step.primitive.value, examples).program
    if program is None or program.guards or len(program.steps) < 2:
        return None
    return program
