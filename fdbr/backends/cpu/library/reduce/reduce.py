"""Functions that reduce large arrays along some of their axes, run as kernels."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import Plan, expected, key_of, planned, traced
from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule
from fdbr.backends.cpu.codegen.nest_lowering import lowered, width
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, InexpressibleError, Node, cost

__all__ = ["reduced", "stages"]

_PANEL = 4  # vectors of neighbouring results whose totals stay in registers
_LONG = 1 << 12  # elements from which on a sum is compensated
_HIGH = 1 << 10  # the same, for sums across rows
_CHUNK = 1 << 12  # elements of a partial result, where everything is reduced
_COMBINED = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def reduced(
    name: Any, function: Callable[..., Any], axes: tuple[int, ...], operands: Sequence[Any]
) -> Any:
    """Compute a function of arrays that reduces along some axes; return `None` without a kernel.

    Parameters
    ----------
    name
        A hashable name, unique for the function.
    function
        A function of expression nodes, whose axes are ``(1,)``.
    axes
        The non-negative axes along which it reduces.
    operands
        NumPy arrays of the shape of the first; or with length 1 for ``axes``, or for all other
        axes.

    Returns
    -------
    array or tuple of arrays, or None
        In the shape of the first operand, or with length 1 for ``axes``.
    """
    if not expected():
        return None
    key = name, axes, key_of(operands)
    plan = planned(key, lambda: _plan(name, function, axes, operands))
    if plan is None:
        return None
    found = plan.run(operands)
    return found if plan.several or type(found) is not tuple else found[0]


def stages(x: Any, axes: Iterable[int]) -> list[tuple[int, ...]]:
    """Return axes in groups, such that reducing along one group after the other is fastest."""
    every = tuple(sorted(axes))
    try:
        across, (outer, _, inner) = _axes(x.shape, every)
    except InexpressibleError:
        pass
    else:
        if across or outer == 1 or inner * x.itemsize >= TUNING.reduced_bytes:
            return [every]
    groups: list[tuple[int, ...]] = []
    for axis in every:
        if groups and math.prod(x.shape[groups[-1][-1] + 1 : axis]) == 1:
            groups[-1] += (axis,)
        else:
            groups.append((axis,))
    return groups[::-1] or [every]


class _Parts(Plan):
    """The plan of a reduction of everything, which computes partial results first."""

    __slots__ = ("finish",)

    def __init__(self, finish: list[tuple[Any, tuple[int, ...]]]) -> None:
        self.finish = finish

    def run(self, operands: Sequence[Any]) -> Any:
        """Return the outputs for some operands."""
        found = super().run(operands)
        several = found if type(found) is tuple else (found,)
        outs = tuple(
            combined.reduce(part, axis=None).reshape(shape)
            for part, (combined, shape) in zip(several, self.finish, strict=True)
        )
        return outs if type(found) is tuple else outs[0]


def _plan(
    name: Any, function: Callable[..., Any], axes: tuple[int, ...], operands: Sequence[Any]
) -> Plan:
    x = operands[0]
    for v in operands:
        if type(v) is not np.ndarray or v.dtype not in FLOATS or not v.flags.c_contiguous:
            raise InexpressibleError("other arrays")
    if not x.size:
        raise InexpressibleError("no elements")
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    gone = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    across, extents = _axes(x.shape, axes)
    outer, middle, inner = extents
    whole = not across and outer == middle == 1
    short = not across and outer == 1 and inner * x.itemsize < TUNING.reduced_bytes
    narrow = short and not whole and middle >= TUNING.reduced_columns
    results: tuple[bool, ...] = (True, False, True) if across else (False, True, False)
    count = middle if across else outer * inner
    beside = middle if narrow else inner
    few = count < TUNING.reduced_row and not narrow
    if few or beside < (TUNING.reduced_columns if across or narrow else TUNING.reduced_row):
        raise InexpressibleError("few elements")
    exact = count >= (_HIGH if across or narrow else _LONG) or (
        not across and not narrow and outer > TUNING.reduced_row
    )
    lengths: tuple[int, ...] = extents
    if narrow:  # there are two loops, and the first one is vectorised
        results, lengths = (True, False), (middle, inner)
    panels = across or narrow
    plain = Schedule(0 if narrow else 2, exact=exact, ragged=not panels)
    reads = [_read(v, x.shape, kept, gone, results) for v in operands]
    if whole:  # there is one result, whatever the number of partial ones
        reads = [(varies, read if varies else "---") for varies, read in reads]
    kinds = [(v.dtype, *read) for v, read in zip(operands, reads, strict=True)]

    def write(outs: Any, number: int, schedule: Schedule, conditions: Any) -> str:
        if conditions:
            raise InexpressibleError("formulas that do not hold for all numbers")
        accesses = tuple([Access(dtype, read) for dtype, _, read in kinds])
        return lowered(LoopNest(results, accesses, tuple(outs)), schedule)

    guess = 64 // x.itemsize  # lanes; there are fewer if the function computes in a wider dtype
    while True:
        schedule, count = plain.panelled(beside, guess) if panels else (plain, middle)
        source, outs, several, _ = traced(name, function, kinds, schedule, write)
        if not panels or width(outs) == guess:
            break
        guess = width(outs)
    parted = whole and _are_totals(outs)
    if parted:  # parts are short, and NumPy adds their results pairwise
        source, outs, several, _ = traced(name, function, kinds, plain._replace(exact=False), write)
    finish = [(_COMBINED[out.detail], kept) for out in outs] if parted else []
    plan = _Parts(finish) if parted else Plan()
    plan.turned, plan.single, plan.copied, plan.several = False, [], [], several
    plan.guarded = False
    plan.outs = [(x.shape if out.varies else kept, out.dtype) for out in outs]
    plan.lengths = lengths if panels else (*lengths, middle * inner)
    rows = count if narrow or not panels else outer * count
    if parted:
        rows = -(-inner // _CHUNK)
        plan.outs = [((rows,), out.dtype) for out in outs]
        plan.lengths = 1, rows, _CHUNK, inner
    plan.address = address_of(source)
    plan.divide(False, rows, x.size // rows, cost(outs))
    single = all(out.op == "reduced" and out.args[0].op == "operand" for out in outs)
    if panels and rows < (2 * thread_count() if single else 1) and x.size >= TUNING.reduced_thread:
        raise InexpressibleError("work that cannot be divided")
    return plan


def _are_totals(outs: Sequence[Node]) -> bool:
    """Return whether the results follow from those of parts."""
    return all(out.op == "reduced" and out.level == 1 for out in outs)


def _read(
    v: Any,
    shape: tuple[int, ...],
    kept: tuple[int, ...],
    gone: tuple[int, ...],
    results: tuple[bool, ...],
) -> tuple[bool, str]:
    """Return whether an operand varies along reduced axes, and how loops read it."""
    if v.shape == shape:
        return True, "c" * len(results)
    if v.shape == kept:
        return False, "".join("c" if result else "-" for result in results)
    if v.shape == gone:
        return True, "".join("-" if result else "c" for result in results)
    raise InexpressibleError("other shapes")


def _axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[bool, tuple[int, int, int]]:
    """Return whether reductions run across contiguous rows, and the lengths of the merged axes."""
    merged: list[tuple[bool, int]] = []
    for axis, length in enumerate(shape):
        if length != 1:
            gone = axis in axes
            if merged and merged[-1][0] == gone:
                length *= merged.pop()[1]
            merged.append((gone, length))
    match merged:
        case [(True, n)]:
            return False, (1, 1, n)
        case [(False, m), (True, n)]:
            return False, (1, m, n)
        case [(True, k), (False, m), (True, n)]:
            return False, (k, m, n)
        case [(True, m), (False, n)]:
            return True, (1, m, n)
        case [(False, k), (True, m), (False, n)]:
            return True, (k, m, n)
    raise InexpressibleError("other axes")
