"""Operations on large NumPy arrays: by kernels, by threads, or in pieces that save memory.

A compiled kernel computes an operation where it can; an expensive operation without a kernel is
divided among threads.  While a checkpointed function is recomputed, results are computed piece
by piece, so that temporary arrays stay small, and overwrite operands that have no other
reference.
"""

import copy
import functools
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.kernels import LEAST
from fdbr.core.array_modules import array_module
from fdbr.core.primitive import dispatch
from fdbr.core.tape import ReverseTracer
from fdbr.core.util.threads import divide, parts, slices
from fdbr.ops.declare.operation import operands_of
from fdbr.ops.declare.rules import Function

__all__ = [
    "LARGE",
    "along_rows",
    "summed_product",
    "by_rows",
    "by_stages",
    "with_threads",
    "with_kernels",
    "reusing_operand",
    "cotangent_product",
    "memory_saving_product",
    "reduces_by_kernel",
    "saving_memory",
]

LARGE = 1 << 18  # bytes from which on memory is saved by overwriting and by pieces
# A kernel replaces several passes of NumPy in these operations, so it pays for smaller arrays:
# from `LEAST` / 16 bytes for reductions in several steps, from `LEAST` / 8 for elementwise
# operations that are compound or heavy.
_ROWS = 16
_STEPS = 8
_LONG = 1 << 21  # bytes from which on heavy operations are divided among threads
_SHARE = 1 << 20  # bytes that a thread computes at a time
_PIECES = 8  # pieces of a result that is computed to save memory: temporaries are 1/8 of it

_saving_memory: ContextVar[bool] = ContextVar("sparing", default=False)
_array = np.ndarray


@contextmanager
def saving_memory() -> Iterator[None]:
    """Save memory at the cost of time within the context."""
    token = _saving_memory.set(True)
    try:
        yield
    finally:
        _saving_memory.reset(token)


def _flattened(*arrays: Any) -> Any:
    """View arrays of one shape as one axis each, where their memory order allows it."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return arrays


# --- by kernels, or divided among threads ---------------------------------------------


def with_kernels(value: Function, heavy: bool, compound: bool) -> Function:
    """Wrap the value of an elementwise operation to compute large arrays by a kernel.

    Without a kernel, a heavy operation is divided among threads.  Heavy and compound operations
    use kernels for smaller arrays.
    """
    times = _STEPS if heavy or compound else 1
    if len(inspect.signature(value).parameters) == 2:  # the usual cases, without packing arguments

        @functools.wraps(value)
        def of_one(xp: Any, x: Any) -> Any:
            if type(x) is _array and x.nbytes * times >= LEAST:
                return _of_large(value, heavy, (x,), {})
            return value(xp, x)

        of_one.least = LEAST // times if times > 1 else 0  # type: ignore[attr-defined]
        return of_one

    if len(inspect.signature(value).parameters) == 3 and len(operands_of(value)) == 2:

        @functools.wraps(value)
        def of_two(xp: Any, x: Any, y: Any) -> Any:
            if (type(x) is _array and x.nbytes * times >= LEAST and xp is np) or (
                type(y) is _array and y.nbytes * times >= LEAST and xp is np
            ):
                return _of_large(value, heavy, (x, y), {})
            return value(xp, x, y)

        return of_two

    @functools.wraps(value)
    def of_all(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) is _array and x.nbytes * times >= LEAST and xp is np:
                return _of_large(value, heavy, operands, params)
        return value(xp, *operands, **params)

    return of_all


def with_threads(value: Function) -> Function:
    """Wrap the value of an elementwise operation without a kernel to use threads if large."""

    @functools.wraps(value)
    def of_all(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) is _array and x.nbytes >= _LONG and xp is np:
                return _in_pieces(value, operands, params)
        return value(xp, *operands, **params)

    return of_all


def _of_large(
    value: Function, heavy: bool, operands: tuple[Any, ...], params: dict[str, Any]
) -> Any:
    name = value, tuple(params.items())
    found = kernels.elementwise(
        name, lambda *nodes: value(array_module(*nodes), *nodes, **params), operands
    )
    if found is not None:
        return found
    if heavy and max(getattr(x, "nbytes", 0) for x in operands) >= _LONG:
        return _in_pieces(value, operands, params)
    return value(np, *operands, **params)


def _in_pieces(value: Function, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    arrays = [operand for operand in operands if type(operand) is _array]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    empty = value(np, *(_emptied(operand) for operand in operands), **params)
    out = np.empty_like(arrays[0], empty.dtype, subok=False, shape=shape)
    flat_out, *parts = _alongside(out, *operands)

    def work(piece: slice) -> None:
        flat_out[piece] = value(np, *(_part(part, piece) for part in parts), **params)

    divide(work, slices(flat_out, _SHARE))
    return out


def along_rows(value: Function) -> Function:
    """Wrap the value of an operation along ``axes`` of one operand.

    Large arrays are computed by a kernel, or divided among threads along another axis.
    """

    @functools.wraps(value)
    def of_any(xp: Any, x: Any, *, axes: tuple[int, ...], **params: Any) -> Any:
        if not reduces_by_kernel(x):
            return value(xp, x, axes=axes, **params)

        def of_rows(axes: tuple[int, ...], x: Any) -> Any:
            return value(array_module(x), x, axes=axes, **params)

        return by_rows(of_rows, axes, x, name=(value, tuple(params.items())))

    return of_any


def reduces_by_kernel(x: Any) -> bool:
    """Whether an array is large enough for a kernel that reduces rows in several steps."""
    return type(x) is _array and x.nbytes * _ROWS >= LEAST


def by_rows(function: Any, axes: tuple[int, ...], *operands: Any, name: Any = None) -> Any:
    """Call ``function(axes, *operands)``, which acts along some axes of arrays.

    Its results keep all axes of the operands; those it reduces have length 1.  Large arrays are
    computed by a kernel, or divided among threads.  Kernels are cached by ``name``, which a
    function needs that is made anew for each call.
    """
    x = operands[0]
    if not reduces_by_kernel(x) or any(type(v) is not _array for v in operands):
        return function(axes, *operands)
    found = kernels.reduced(name or function, functools.partial(function, (1,)), axes, operands)
    if found is not None:
        return found
    axis = next((i for i, n in enumerate(x.shape) if i not in axes and n > 1), None)
    if axis is None or x.nbytes < _LONG:
        return function(axes, *operands)
    front = (slice(None),) * axis

    def part_of(operand: Any, piece: slice) -> Any:
        return operand if operand.shape[axis] == 1 else operand[(*front, piece)]

    first = function(axes, *(part_of(operand, slice(0, 1)) for operand in operands))
    is_tuple = type(first) is tuple
    length = x.shape[axis]
    outs = [
        np.empty((*part.shape[:axis], length, *part.shape[axis + 1 :]), part.dtype)
        for part in (first if is_tuple else (first,))
    ]

    def work(piece: slice) -> None:
        made = function(axes, *(part_of(operand, piece) for operand in operands))
        for out, part in zip(outs, made if is_tuple else (made,), strict=True):
            out[(*front, piece)] = part

    divide(work, parts(length, x.nbytes // _SHARE))
    return tuple(outs) if is_tuple else outs[0]


def by_stages(function: Any, axes: tuple[int, ...], x: Any) -> Any:
    """Apply `by_rows` to one group of adjacent axes after another.

    This fits reductions whose result does not depend on the order of the axes.
    """
    for run in kernels.stages(x, axes):
        x = by_rows(function, run, x)
    return x


def _emptied(value: Any) -> Any:
    """Replace an array by an empty one of its dtype, from which the result's dtype is found."""
    return np.empty(0, value.dtype) if type(value) is _array and value.ndim else value


def _part(value: Any, piece: slice) -> Any:
    return value[piece] if type(value) is _array and value.ndim else value


def _alongside(out: Any, *values: Any) -> list[Any]:
    """Line up ``out`` and values that broadcast to it, so that equal slices correspond."""
    whole = [value for value in values if type(value) is _array and value.ndim]
    if all(value.shape == out.shape for value in whole):
        out, *whole = _flattened(out, *whole)
    else:
        whole = [np.broadcast_to(value, out.shape) for value in whole]
    rest = iter(whole)
    return [out, *(next(rest) if type(v) is _array and v.ndim else v for v in values)]


def cotangent_product(
    ct: Any, partial: Function, saved: Sequence[Any], heavy: bool, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(*saved)``; for a large ``ct`` by a kernel, or divided among threads.

    ``fixed`` are the positions in ``saved`` of keywords, whose values a kernel is compiled for.
    """
    if type(ct) is not _array or ct.nbytes * (_STEPS if heavy else 1) < LEAST:
        return ct * partial(*saved)
    found = _by_kernel(ct, partial, saved, fixed)
    if found is not None:
        return found
    if not heavy or ct.nbytes < _LONG or not _fits(ct, partial, saved):
        return ct * partial(*saved)
    out = np.empty_like(ct)
    flat_out, cts, *parts = _alongside(out, ct, *saved)

    def work(piece: slice) -> None:
        share = partial(*(_part(part, piece) for part in parts))
        if getattr(getattr(share, "dtype", None), "char", "") == "?":
            share = share.astype(ct.dtype)  # NumPy multiplies by booleans more slowly
        np.multiply(cts[piece], share, out=flat_out[piece])

    divide(work, slices(flat_out, _SHARE))
    return out


def summed_product(
    ct: Any, partial: Function, saved: Sequence[Any], like: Any, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(*saved)``, summed to the shape ``like[0]`` of a broadcast operand.

    One kernel multiplies and sums; return `None` if there is none.
    """
    axes = tuple(
        axis
        for axis, (n, m) in enumerate(zip(ct.shape, _padded(like[0], ct.ndim), strict=True))
        if m == 1 != n
    )
    operands = [
        v.reshape(_padded(v.shape, ct.ndim)) if type(v) is _array and v.ndim < ct.ndim else v
        for v in saved
    ]
    places, kept, product = _product(partial, operands, fixed)
    found = kernels.reduced(
        (partial, kept, "brought"),
        lambda *nodes: product(*nodes).sum(axis=(1,), keepdims=True),
        axes,
        (ct, *(operands[i] for i in places)),
    )
    return found if found is None or found.dtype != ct.dtype else found.reshape(like[0])


def _padded(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return (*(1,) * (ndim - len(shape)), *shape)


def _product(partial: Function, saved: Sequence[Any], fixed: frozenset[int]) -> Any:
    """Return the positions of operands in ``saved``, the other values, and the product.

    The product is a function of the cotangent and the operands.
    """
    places = [i for i in range(len(saved)) if i not in fixed]
    kept = tuple([(i, saved[i]) for i in fixed])

    def product(ct: Any, *nodes: Any) -> Any:
        whole = dict(kept) | dict(zip(places, nodes, strict=True))
        return ct * partial(*(whole[i] for i in range(len(saved))))

    return places, kept, product


def _by_kernel(ct: Any, partial: Function, saved: Sequence[Any], fixed: frozenset[int]) -> Any:
    places, kept, product = _product(partial, saved, fixed)
    found = kernels.elementwise((partial, kept), product, (ct, *(saved[i] for i in places)))
    return found if found is None or found.dtype == ct.dtype else None


def _fits(ct: Any, partial: Function, saved: Sequence[Any]) -> bool:
    """Whether a partial derivative is a NumPy array with the dtype and shape of ``ct``."""
    arrays = [value for value in saved if hasattr(value, "shape")]
    # `isinstance` is true for traced values, whose `__class__` is that of their array.
    if not all(issubclass(type(array), np.ndarray | np.generic) for array in arrays):
        return False
    try:
        shape = np.broadcast_shapes(ct.shape, *(array.shape for array in arrays))
    except ValueError:
        return False
    share = partial(*(_emptied(value) for value in saved))
    return shape == ct.shape and ct.dtype == np.result_type(ct, share)


def memory_saving_product(
    references: int, ct: Any, partial: Function, saved: Any, heavy: bool, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(saved)`` for a large ``ct``.

    Within `saving_memory` the result overwrites ``ct`` if only `backward` refers to it, which
    does not use it again; ``references`` is the number of references that the vjp rule counts.
    """
    if not _saving_memory.get():
        return cotangent_product(ct, partial, (saved,), heavy, fixed)
    if (
        type(saved) is not _array
        or saved.dtype != ct.dtype
        or saved.shape != ct.shape
        or (ct[:0] * (share := partial(saved[:0]))).dtype != ct.dtype
    ):
        return ct * partial(saved)
    least = 0 if getattr(share, "dtype", None) == np.bool_ else LEAST // _STEPS
    alone = references == _SOLE_COTANGENT and _is_private(ct)
    out = ct if alone else np.empty_like(saved)
    ct, saved, flat_out = _flattened(ct, saved, out)

    def work(piece: slice) -> None:
        if heavy and ct[piece].nbytes >= LEAST // _STEPS:
            flat_out[piece] = cotangent_product(ct[piece], partial, (saved[piece],), heavy, fixed)
        else:
            np.multiply(ct[piece], partial(saved[piece]), out=flat_out[piece])

    if heavy and out.nbytes >= _LONG:
        divide(work, slices(flat_out, _SHARE))
    else:
        for piece in _pieces(flat_out, least):
            work(piece)
    return out


def _pieces(array: Any, least: int) -> list[slice]:
    """Slices of about 1 / `_PIECES` of an array, of at least ``least`` bytes."""
    size = max(array.nbytes // _PIECES, least)
    rows = max(1, -(-size * len(array) // array.nbytes))
    return parts(len(array), len(array) // rows)


# --- overwriting operands without other references ------------------------------------
#
# CPython counts references.  The count of an array that only the running call refers to differs
# between versions, so it is measured once, with a fresh array on the same call path.


def _is_private(array: Any) -> bool:
    return array.base is None and array.flags.writeable


def reusing_operand(function: Function) -> Function:
    """Wrap an operation to overwrite an operand that has no other reference.

    In ``tanh(linear(x, weight))`` only `tanh` refers to the result of `linear`.  Within
    `saving_memory` the result of `tanh` overwrites it.
    """
    primitive = function.primitive  # type: ignore[attr-defined]
    overwriting = copy.copy(primitive)  # the same operation otherwise
    overwriting.host = functools.partial(_overwrite, primitive)
    none: dict[str, Any] = {}

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if len(args) != 1:
            return function(*args)  # raises the error for a wrong number of arguments
        if (
            type(args[0]) is ReverseTracer
            and type(args[0].value) is _array
            and args[0].value.nbytes >= LARGE
            and _saving_memory.get()
            # A local name for the operand would add a reference.
            and (sys.getrefcount(args[0]), sys.getrefcount(args[0].value)) == _SOLE_OPERAND
            and _is_private(args[0].value)
        ):
            return dispatch(overwriting, args, none)
        return dispatch(primitive, args, none)

    return call


def _overwrite(primitive: Any, xp: Any, x: Any) -> Any:
    value = primitive.host
    if value(xp, x[:0]).dtype != x.dtype:
        return value(xp, x)
    (row,) = _flattened(x)
    for piece in _pieces(row, getattr(value, "least", 0)):
        row[piece] = value(xp, row[piece])
    return x


def _operand_references(*args: Any) -> tuple[int, int]:
    return sys.getrefcount(args[0]), sys.getrefcount(args[0].value)


def _sole_operand() -> Any:
    tracer = object.__new__(ReverseTracer)
    tracer.value = np.empty(0)
    return tracer


def _cotangent_references(ct: Any, like: Any, saved: Any) -> int:
    return sys.getrefcount(ct)


def _call_as_backward(vjp: Function, saved: tuple[Any, ...]) -> Any:
    cotangent = object()
    return vjp(cotangent, *saved)  # as `backward` does, with the same number of references


_SOLE_OPERAND = _operand_references(_sole_operand())
_SOLE_COTANGENT = _call_as_backward(_cotangent_references, (None, None))
