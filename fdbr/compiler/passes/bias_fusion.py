"""Bias fusion: biases of products are added in the kernels that read the products."""

from collections.abc import Iterator
from typing import Any

import attrs

from fdbr.compiler.backend import Backend, backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import (
    Instruction,
    Program,
    Step,
    Variable,
    is_variable,
    kind_of,
)
from fdbr.compiler.passes.loop_fusion import VIEWS, is_candidate
from fdbr.compiler.passes.rules.views import view_of
from fdbr.compiler.passes.steps import readers_of

__all__ = ["fuse_biases"]

_SMALL = 1 << 9  # elements below which a kernel adds no faster than NumPy


def fuse_biases(program: Program) -> Program:
    """Split ``x @ w.T + b`` into a product, and an addition that a kernel can fuse.

    It applies if all readers of the result, possibly through reshapes and slices, are elementwise
    or reductions, or gather single elements, which then gather product and bias separately.
    """
    backend, readers = backend_of(program), readers_of(program)
    for output in program.outputs:
        if is_variable(output):
            readers.setdefault(output, []).append(None)  # type: ignore[arg-type]
    free: dict[Step, Any] = {}  # the steps to rewrite, with their bias
    for step in program.steps:
        if type(step) is Instruction and step.primitive is op.AFFINE and _is_large(step):
            found = list(_views(step, readers, backend))
            if None not in found:
                free.update(dict.fromkeys([step, *found], step.operands[2]))
    if not free:
        return program
    return program.replace(_rewritten(program, free, readers))


def _is_large(step: Instruction) -> bool:
    kinds = [kind_of(operand) for operand in step.operands]
    kind = step.outs[0].kind
    same = all(k.is_array and k.dtype == kind.dtype for k in (*kinds, kind))
    return same and kind.size >= _SMALL and kinds[2].shape == kind.shape[-1:]


def _views(step: Step, readers: dict[Variable, list[Step]], backend: Backend) -> Iterator[Any]:
    """Yield the views and gathers of a step's result, and `None` if another reader forbids it."""
    out = step.outs[0]
    found = readers.get(out, [])
    looks = [reader for reader in found if _is_view(reader, out)]
    if looks:
        yield from looks if len(looks) == len(found) else [None]
        for look in looks:
            yield from _views(look, readers, backend)
        return
    picks = [reader for reader in found if _is_pick(reader, out)]
    rest = [reader for reader in found if reader not in picks]
    yield from picks
    if not rest or out.kind.size < _SMALL or not all(_is_fused(reader, backend) for reader in rest):
        yield None


def _is_fused(step: Step, backend: Backend) -> bool:
    """Return whether a step is fused into kernels, and is not a view."""
    view = isinstance(step, Instruction) and step.primitive in VIEWS
    return is_candidate(step, backend) and not view


def _is_view(step: Any, x: Variable) -> bool:
    """Return whether a step is a reshape or slice of an array with the same last axis."""
    if type(step) is not Instruction or step.primitive not in (op.RESHAPE, op.SLICE):
        return False
    mine, theirs = step.outs[0].kind, x.kind.shape
    if not mine.is_array or mine.shape[-1:] != theirs[-1:]:
        return False
    if step.primitive is op.RESHAPE:
        return True
    view = view_of(theirs, step.params["key"])
    last = len(theirs) - 1
    whole = view is not None and view.axes[last] == range(theirs[last])
    return whole and view is not None and view.layout[-1:] == (last,)


def _is_pick(step: Any, x: Variable) -> bool:
    """Return whether a step gathers single elements, by an index for each axis."""
    if type(step) is not Instruction or step.primitive is not op.GATHER:
        return False
    array, *indices = step.operands
    last = kind_of(indices[-1])
    return (
        array is x
        and all(x is not index for index in indices)
        and len(indices) == len(x.kind.shape) == len(step.params["key"])
        and last.is_array
        and last.shape == step.outs[0].kind.shape != ()
    )


def _rewritten(
    program: Program, free: dict[Step, Any], readers: dict[Variable, list[Step]]
) -> Iterator[Step]:
    plain: dict[Any, Variable] = {}  # the variables without bias for those with it
    for step in program.steps:
        if step not in free:
            yield step
            continue
        assert type(step) is Instruction
        bias, out = free[step], step.outs[0]
        if step.primitive is op.GATHER:
            yield from _picked(step, plain[step.operands[0]], bias)
            continue
        own = plain[out] = Variable(out.kind)
        if step.primitive is op.AFFINE:
            product = op.MATMUL_TRANSPOSED
            yield Instruction(product, step.operands[:2], {}, (own,), False, step.remat)
        else:
            yield attrs.evolve(step, operands=(plain[step.operands[0]],), outs=(own,))
        if any(reader not in free for reader in readers.get(out, ())):
            yield Instruction(op.ADD, (own, bias), {}, (out,), False, step.remat)


def _picked(step: Instruction, plain: Variable, bias: Any) -> Iterator[Instruction]:
    """Gather elements of a product and of its bias, and add them."""
    _, *indices = step.operands
    kind = step.outs[0].kind
    shape = kind_of(indices[-1]).shape
    own, shift = Variable(kind), Variable(kind.array(shape))
    yield attrs.evolve(step, operands=(plain, *indices), outs=(own,))
    params = {**step.params, "key": step.params["key"][-1:]}
    gather = step.primitive
    yield Instruction(gather, (bias, indices[-1]), params, (shift,), False, step.remat)
    yield Instruction(op.ADD, (own, shift), {}, step.outs, False, step.remat)
