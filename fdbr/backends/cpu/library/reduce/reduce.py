"""Functions that reduce large arrays along some of their axes, run as kernels."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import Plan, expected, key_of, planned, traced
from fdbr.backends.cpu.codegen.writer import width
from fdbr.backends.cpu.library.reduce.accumulators import PANEL, Fold
from fdbr.backends.cpu.library.reduce.inner_axes import Along
from fdbr.backends.cpu.library.reduce.outer_axes import Across
from fdbr.backends.cpu.library.reduce.short_axes import Narrow
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, InexpressibleError, Node, cost

__all__ = ["reduced", "stages"]

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
    ways = [_way(v, x.shape, kept, gone) for v in operands]
    across, (outer, middle, inner) = _axes(x.shape, axes)
    whole = not across and outer == middle == 1
    short = not across and outer == 1 and inner * x.itemsize < TUNING.reduced_bytes
    narrow = short and not whole and middle >= TUNING.reduced_columns
    if narrow:
        across, (middle, inner) = True, (inner, middle)
    if whole:  # there is one result, whatever the number of partial ones
        ways = [(varies, offset if varies else "0") for varies, offset in ways]
    count = middle if across else outer * inner
    few = count < TUNING.reduced_row and not narrow
    if few or inner < (TUNING.reduced_columns if across else TUNING.reduced_row):
        raise InexpressibleError("few elements")
    exact = count >= (_HIGH if across else _LONG) or (not across and outer > TUNING.reduced_row)
    panel = min(PANEL, -(-inner * x.itemsize // 64)) if across else PANEL
    fold = Fold(across, exact, tuple([offset for _, offset in ways]), narrow, panel)
    kinds = [(v.dtype, *way) for v, way in zip(operands, ways, strict=True)]
    source, outs, several, _ = traced(name, function, kinds, fold, _source)
    parted = whole and _are_totals(outs)
    if parted:  # parts are short, and NumPy adds their results pairwise
        shorter = fold._replace(exact=False)
        source, outs, several, _ = traced(name, function, kinds, shorter, _source)
    finish = [(_COMBINED[out.detail], kept) for out in outs] if parted else []
    plan = _Parts(finish) if parted else Plan()
    plan.turned, plan.single, plan.copied, plan.several = False, [], [], several
    plan.guarded = False
    plan.outs = [(x.shape if out.varies else kept, out.dtype) for out in outs]
    total = middle * inner
    if parted:
        middle, inner = -(-total // _CHUNK), _CHUNK
        plan.outs = [((middle,), out.dtype) for out in outs]
    plan.address = address_of(source)
    rows = middle
    if across:
        total = -(-inner // (panel * width(outs)))
        rows = outer * total
    plan.divide(False, rows, x.size // rows, 1, cost(outs))
    plain = all(out.op == "reduced" and out.args[0].op == "operand" for out in outs)
    if across and rows < (2 * thread_count() if plain else 1) and x.size >= TUNING.reduced_thread:
        raise InexpressibleError("work that cannot be divided")
    plan.lengths = outer, middle, inner, total
    return plan


def _are_totals(outs: Sequence[Node]) -> bool:
    """Return whether the results follow from those of parts."""
    return all(out.op == "reduced" and out.level == 1 for out in outs)


def _source(outs: Sequence[Node], operands: int, fold: Fold, conditions: Sequence[Node]) -> str:
    if conditions:
        raise InexpressibleError("formulas that do not hold for all numbers")
    kind = Narrow if fold.narrow else Across if fold.across else Along
    return kind(outs, operands, fold).text()


def _way(
    v: Any, shape: tuple[int, ...], kept: tuple[int, ...], gone: tuple[int, ...]
) -> tuple[bool, str]:
    """Return whether an operand varies along reduced axes, and whether it does elsewhere."""
    if v.shape == shape:
        return True, "r"
    if v.shape == kept:
        return False, "r"
    if v.shape == gone:
        return True, "0"
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
