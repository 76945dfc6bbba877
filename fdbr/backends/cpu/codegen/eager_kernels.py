"""Kernels that compute functions of NumPy arrays outside of compiled functions."""

import importlib
import itertools
import logging
import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule
from fdbr.backends.cpu.codegen.math import functions
from fdbr.backends.cpu.codegen.nest_lowering import lowered
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, Graph, InexpressibleError, Node, cost, every

__all__ = ["Plan", "converted", "elementwise", "expected", "key_of", "planned", "traced"]

_GRAIN = 1 << 10  # elements
_LOOPS = 4  # nested loops over an array
_OF_ROWS = frozenset({"reduced", "columns"})  # operations that are not elementwise
_BOOL = np.dtype(np.bool_)
_MOST = 4096  # plans in the cache
_UNSUITED = AttributeError, TypeError, ValueError, IndexError, KeyError, OverflowError
_log = logging.getLogger("fdbr.backends.cpu.kernels")
_VARIANTS = 32  # plans of one function, for different keywords
_quiet = frozenset({"ignore", "warn", "print"})
_settings: Any = getattr(importlib.import_module("numpy._core.umath"), "_extobj_contextvar", None)
_quiet_settings: Any = None  # an object of NumPy's that holds such settings


class Plan:
    """Describe how a kernel runs on operands of given dtypes, shapes and strides.

    Attributes
    ----------
    address
        The address of the machine code.
    outs
        The shape and the dtype of each output.
    several
        Whether the function returns a tuple.
    turned
        Whether the axes are traversed in reverse order, for operands in Fortran order.
    single
        The indices of operands that have one element, broadcast everywhere.
    copied
        The indices of operands that must be copied first, and the dtype of each copy.
    lengths
        The last entries of the kernel's argument table.
    shares
        The number of rows or elements, the smallest number that one thread takes, and the number
        of parts.
    guarded
        Whether the kernel reports elements for which the function's formulas do not hold.
    """

    __slots__ = (
        *("address", "copied", "guarded", "lengths", "outs", "several", "shares", "single"),
        "turned",
    )

    address: int
    outs: list[tuple[tuple[int, ...], Any]]
    several: bool
    turned: bool
    single: list[int]
    copied: list[tuple[int, Any]]
    lengths: tuple[int, ...]
    shares: tuple[int, int, int]
    guarded: bool

    def divide(self, flat: bool, rows: int, columns: int, additions: int) -> None:
        """Divide the work among threads if ``additions`` per element make that worth while."""
        number, grain = (columns, _GRAIN) if flat else (rows, 1)
        work = rows * columns * additions
        parts = (
            part_count(min(work // (TUNING.kernel_thread_work // 8), number // grain))
            if work >= TUNING.kernel_thread_work
            else 1
        )
        self.shares = number, grain, parts

    def run(self, operands: Sequence[Any]) -> Any:
        """Return the outputs, or `None` if the formulas do not hold for all of the operands."""
        if self.turned or self.copied:
            operands = [v.T if self.turned and hasattr(v, "T") else v for v in operands]
            for i in self.single:
                operands[i] = operands[i].flat[0]
            for i, dtype in self.copied:
                operands[i] = np.ascontiguousarray(operands[i], dtype)
        outs = [np.empty(shape, dtype) for shape, dtype in self.outs]
        table = array("q", [data_address(v) for v in (*operands, *outs)])
        table.extend(self.lengths)
        failed = array("q", (0,)) if self.guarded else None
        if failed is not None:
            table.append(failed.buffer_info()[0])
        launch(self.address, table.buffer_info()[0], *self.shares)
        if failed is not None and failed[0]:
            return None
        if self.turned:
            outs = [out.T for out in outs]
        return tuple(outs) if self.several else outs[0]


_P = TypeVar("_P")
_plans: dict[Any, Any] = {}
_sources: dict[Any, dict[Any, tuple[str, list[Any], bool, bool]]] = {}


def planned(key: Any, make: Callable[[], _P]) -> _P | None:
    """Return the plan for a key, or `None` if no kernel can be generated."""
    try:
        known: _P | None = _plans[key]
        return known
    except KeyError:
        pass
    except TypeError:  # a keyword that is not hashable
        return None
    if len(_plans) >= _MOST:
        _plans.clear()
    found = None
    try:
        found = make()
    except InexpressibleError:
        pass  # NumPy computes the result, or raises its own error
    except RuntimeError as error:
        _log.warning("LLVM cannot compile a kernel, so NumPy computes instead: %s", error)
    _plans[key] = found
    return found


def traced(
    name: Any,
    function: Callable[..., Any],
    operands: Sequence[tuple[Any, bool, str]],
    layout: Any,
    write: Callable[[Sequence[Node], int, Any, Sequence[Node]], str],
) -> tuple[str, list[Node], bool, bool]:
    """Return the kernel's source, its outputs, whether they are a tuple, and whether it is guarded.

    A guarded kernel reports elements for which the function's formulas do not hold
    (`Graph.require`).  Each operand is described by its dtype, whether it varies along columns, and
    how it is read.  The layout says in which order ``write`` traverses them.
    """
    settings = tuple(operands), layout
    known = _sources.setdefault(name[0] if type(name) is tuple else name, {})
    found = known.get((name, settings))
    if found is None:
        if sum(other != name for other, _ in known) >= _VARIANTS:
            raise InexpressibleError("a keyword that changes from call to call")
        graph = Graph(functions, guarded=True)
        nodes = [
            graph.node("operand", dtype, (), (i, varies))
            for i, (dtype, varies, _) in enumerate(operands)
        ]
        try:
            made = function(*nodes)
        except _UNSUITED as error:
            raise InexpressibleError(str(error)) from error
        outs = list(made) if type(made) is tuple else [made]
        if not all(isinstance(out, Node) for out in outs):
            raise InexpressibleError("a constant")
        if any(out.dtype not in FLOATS and out.dtype != _BOOL for out in outs):
            raise InexpressibleError("results of integers")
        conditions = graph.conditions or []
        source = write(outs, len(operands), layout, conditions)
        found = known[name, settings] = source, outs, type(made) is tuple, bool(conditions)
    return found


def key_of(operands: Sequence[Any]) -> Any:
    """Return the key of a plan: the operands' dtypes, shapes and strides."""
    return tuple(
        [(v.dtype.char, v.shape, v.strides) if type(v) is np.ndarray else type(v) for v in operands]
    )


def expected() -> bool:
    """Return whether NumPy would report no floating-point errors, which kernels cannot raise."""
    global _quiet_settings
    # NumPy keeps its settings in an immutable object, so they are compared by identity where it has
    # this context variable; `numpy.geterr` takes as long as a small operation.
    settings = _settings.get() if _settings is not None else None
    if settings is not None and settings is _quiet_settings:
        return True
    found = _quiet.issuperset(np.geterr().values())
    if found:
        _quiet_settings = settings
    return found


# --- elementwise --------------------------------------------------------------------


def elementwise(name: Any, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Apply an elementwise function by a kernel; return `None` if no kernel can do it.

    Parameters
    ----------
    name
        A hashable identity of the function.
    function
        A function of nodes (`ir.expressions`).
    operands
        NumPy arrays and numbers that broadcast to each other.

    Returns
    -------
    array or None
        A new array in C order, or in Fortran order if all operands of its shape are.
    """
    if not expected():
        return None
    plan = planned((name, key_of(operands)), lambda: _elementwise(name, function, operands))
    return plan and plan.run(operands)


def converted(x: Any, to: Any) -> Any:
    """Return ``x.astype(to)`` as a new array, computed by a kernel if the array is large.

    >>> converted(np.ones(2, np.float32), np.dtype(np.float64)).dtype
    dtype('float64')
    """
    if x.nbytes >= TUNING.kernel_bytes and x.dtype in FLOATS and to in FLOATS and x.flags.forc:
        found = elementwise(("astype", to), lambda node: node.astype(to), (x,))
        if found is not None:
            return found
    return x.astype(to)


def _elementwise(name: Any, function: Callable[..., Any], operands: Sequence[Any]) -> Plan:
    for v in operands:
        known = type(v) is np.ndarray or issubclass(type(v), np.generic)
        if v.dtype not in FLOATS and v.dtype != _BOOL if known else type(v) not in (float, int):
            raise InexpressibleError("other dtypes")
    strong = [v.dtype for v in operands if hasattr(v, "dtype")]
    if not strong or (_BOOL in strong and len(strong) < len(operands)):
        raise InexpressibleError("numbers whose dtype depends on what they meet")
    weak = np.result_type(*strong)
    if weak not in FLOATS:
        raise InexpressibleError("no floating numbers")
    dtypes = [getattr(v, "dtype", weak) for v in operands]
    try:
        shape = np.broadcast_shapes(*(getattr(v, "shape", ()) for v in operands))
    except ValueError as error:
        raise InexpressibleError(str(error)) from error
    plan = Plan()
    plan.single = [i for i, v in enumerate(operands) if _is_single(v)]
    shapes = [getattr(v, "shape", ()) for v in operands]
    for i in plan.single:
        shapes[i] = ()
    if not any(shapes):
        raise InexpressibleError("scalars")
    whole = [v for v, s in zip(operands, shapes, strict=True) if s == shape]
    orders = {(v.flags.c_contiguous, v.flags.f_contiguous) for v in whole}
    plan.turned = orders == {(False, True)}
    if plan.turned:
        if any(s not in ((), shape) for s in shapes):
            raise InexpressibleError("operands in several orders")
        shape, shapes = shape[::-1], [s[::-1] for s in shapes]
    stepped = {} if plan.turned else _stepped(operands, shapes, shape)
    extents, axes, steps = _loops(shapes, shape, stepped)
    last = len(extents) - 1
    schedule = Schedule(last, masked=extents[last] < TUNING.narrow_columns)
    kinds = [(dtype, way[last] != "-", way) for dtype, way in zip(dtypes, axes, strict=True)]

    def write(outs: Any, count: int, layout: Schedule, conditions: Any) -> str:
        if len(outs) > 1 or any(node.op in _OF_ROWS for node in every([*outs, *conditions])):
            raise InexpressibleError("what is no function of each element")
        accesses = tuple([Access(dtype, way) for dtype, _, way in kinds])
        kept = (True,) * len(extents)
        return lowered(LoopNest(kept, accesses, tuple(outs), tuple(conditions)), layout)

    source, (out,), plan.several, plan.guarded = traced(name, function, kinds, schedule, write)
    if plan.several or not out.varies:
        raise InexpressibleError("what is no function of each element")
    plan.address = address_of(source)
    plan.outs = [(shape, out.dtype)]
    plan.copied = [
        (i, dtype)
        for i, (v, dtype) in enumerate(zip(operands, dtypes, strict=True))
        if i in plan.single
        or type(v) is not np.ndarray
        or not (i in steps or (v.flags.f_contiguous if plan.turned else v.flags.c_contiguous))
    ]
    plan.divide(last == 0, math.prod(extents[:last]), extents[last], cost([out]))
    plan.lengths = *extents, *itertools.chain(*steps.values())
    return plan


def _stepped(
    operands: Sequence[Any], shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    """Return the element strides of operands whose rows are not adjacent, by operand index."""
    return {
        i: tuple([step // v.itemsize for step in v.strides])
        for i, v in enumerate(operands)
        if type(v) is np.ndarray
        and shapes[i] == shape
        and not v.flags.c_contiguous
        and all(step % v.itemsize == 0 for step in v.strides)
    }


def _is_single(value: Any) -> bool:
    """Return whether an array broadcasts one element, as the cotangent of a sum does."""
    return type(value) is np.ndarray and value.size > 1 and not any(value.strides)


def _loops(
    shapes: Sequence[tuple[int, ...]],
    shape: tuple[int, ...],
    stepped: dict[int, tuple[int, ...]],
) -> tuple[list[int], list[str], dict[int, list[int]]]:
    """Return the loops over the elements of a result; an operand has all or some of them.

    Returns
    -------
    extents
        The lengths of the loops: of axes that can be traversed as one.
    axes
        How each operand is read (see `Access`).
    steps
        The distances along each loop but the last of the operands of ``stepped``; none of these
        operands are read in place if one has gaps within rows, or if the rows are short.
    """
    ndim = len(shape)
    merged: list[tuple[int, tuple[bool, ...]]] = []
    ends: list[int] = []  # the last axis of each loop
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        here = [len(s) - ndim + axis for s in shapes]
        mask = tuple([i >= 0 and s[i] != 1 for i, s in zip(here, shapes, strict=True)])
        if (
            merged
            and merged[-1][1] == mask
            and all(step[ends[-1]] == step[axis] * length for step in stepped.values())
        ):
            merged[-1] = merged[-1][0] * length, mask
            ends[-1] = axis
        else:
            merged.append((length, mask))
            ends.append(axis)
    if not merged:
        merged, ends = [(1, (True,) * len(shapes))], [0]
    extents = [length for length, _ in merged]
    if stepped and (
        extents[-1] < TUNING.narrow_columns or any(step[ends[-1]] != 1 for step in stepped.values())
    ):
        return _loops(shapes, shape, {})
    if len(merged) > _LOOPS:
        raise InexpressibleError("too many axes that are broadcast")
    axes = ["".join("c" if mask[i] else "-" for _, mask in merged) for i in range(len(shapes))]
    for i in stepped:
        axes[i] = "s" * (len(merged) - 1) + "c"
    return extents, axes, {i: [step[end] for end in ends[:-1]] for i, step in stepped.items()}
