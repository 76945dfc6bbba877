"""Memory planning: which results of a program share buffers that are kept from run to run.

A result that only the program sees lies in a buffer from its making to its last use; then the
buffer serves others.  What leaves the program is never in one.
"""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.jit.program import Fused, Guard, Instruction, Program, Small, Step, Variable, is_variable

__all__ = ["Plan", "is_product", "plan"]

_LEAST = 4096  # bytes; below, NumPy's own cache of memory is as good
_ALIGNED = 64

# The primitives that NumPy can have write to given memory.
_PRODUCTS = frozenset({"matmul", "matmul_transposed", "affine"})

# Primitives that are not elementwise and whose results never share memory with an operand.
_FRESH = frozenset(
    {
        *("sum", "mean", "max", "min", "stack", "concat", "rows", "add_rows", "gather", "scatter"),
        *("where", "unslice", "softmax", "log_softmax", "logsumexp", "standardize", "rescale"),
        *("cross_entropy", "conv", "conv_biased", "conv_input", "conv_kernel", "max_windows"),
        *(
            "sum_windows",
            "spread_windows",
            "window_winners",
            "at_winners",
            "to_winners",
            "contract",
        ),
        *("pad_zeros", "argmax", "argmin", "astype_inexact", "astype_exact"),
        *_PRODUCTS,
    }
)


@attrs.frozen
class Plan:
    """Where results lie.

    Attributes
    ----------
    places
        The number of each planned variable among the arrays of a set of buffers.
    kinds
        What those arrays are.
    buffers
        In which buffer each of them lies.
    sizes
        The sizes of the buffers, in bytes.
    """

    places: dict[Variable, int]
    kinds: tuple[Any, ...]
    buffers: tuple[int, ...]
    sizes: tuple[int, ...]

    def arrays(self) -> list[Any]:
        """A set of buffers, as the arrays that lie in them."""
        memory = [_aligned(size) for size in self.sizes]
        return [
            memory[buffer][: math.prod(kind.shape) * kind.dtype.itemsize]
            .view(kind.dtype)
            .reshape(kind.shape)
            for kind, buffer in zip(self.kinds, self.buffers, strict=True)
        ]


def _aligned(size: int) -> Any:
    whole = np.empty(size + _ALIGNED, np.uint8)
    start = -whole.ctypes.data % _ALIGNED
    return whole[start : start + size]


def is_product(step: Step) -> bool:
    """Whether a step is a product that can be written to given memory."""
    if not isinstance(step, Instruction) or step.primitive.name not in _PRODUCTS:
        return False
    kinds = [o.kind for o in step.operands if is_variable(o)]
    out = step.outs[0].kind
    whole = len(kinds) == len(step.operands) and all(
        kind.is_array and kind.dtype == out.dtype for kind in kinds
    )
    # Outer products have a way of their own, which is faster.
    return whole and out.dtype.kind == "f" and kinds[0].shape[-1] != 1


def plan(program: Program) -> Plan:
    """Plan a program's memory."""
    roots: dict[Variable, frozenset[Variable]] = {}
    born: dict[Variable, int] = {}
    last: dict[Variable, int] = {}
    for position, step in enumerate(program.steps):
        below = [roots[v] for v in step.reads if v in roots]
        for root in frozenset().union(*below):
            last[root] = position
        if isinstance(step, Guard):
            continue
        made = isinstance(step, Fused | Small) or is_product(step)
        for out in step.outs:
            if made and _is_large(out):
                roots[out] = frozenset({out})
                born[out] = last[out] = position
            elif not made and below and not _is_fresh(step):
                roots[out] = frozenset().union(*below)
    gone = {root for v in program.outputs if is_variable(v) for root in roots.get(v, ())}
    return _shared([v for v in born if v not in gone], born, last)


def _is_large(variable: Variable) -> bool:
    kind = variable.kind
    return bool(kind.is_array and kind.size * kind.dtype.itemsize >= _LEAST)


def _is_fresh(step: Any) -> bool:
    primitive = step.primitive
    return primitive.kind == "elementwise" or primitive.name in _FRESH


def _shared(
    variables: Sequence[Variable], born: dict[Variable, int], last: dict[Variable, int]
) -> Plan:
    """Buffers for variables in the order of their making: the best that is free, or a new one."""
    sizes: list[int] = []
    free_from: list[int] = []  # the position after which a buffer is free
    places: dict[Variable, int] = {}
    buffers: list[int] = []
    for number, variable in enumerate(variables):
        need = variable.kind.size * variable.kind.dtype.itemsize
        found = [
            b for b, size in enumerate(sizes) if free_from[b] < born[variable] and size >= need
        ]
        best = min(found, key=sizes.__getitem__, default=None)
        if best is None or sizes[best] > 4 * need:
            best = len(sizes)
            sizes.append(need)
            free_from.append(0)
        free_from[best] = last[variable]
        places[variable] = number
        buffers.append(best)
    return Plan(places, tuple(v.kind for v in variables), tuple(buffers), tuple(sizes))
