"""Operations on large NumPy arrays.

Kernels compute them, or, of what those cannot do and takes long, threads compute piece by piece.
Where memory is short, because a function is run again to save it, the temporary arrays of a piece
are small beside the whole, and the result takes the place of an array that nobody can look at
again.
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
    "brought",
    "by_rows",
    "by_runs",
    "divided",
    "evaluated",
    "letting_go",
    "multiplied",
    "pulled",
    "reduces_by_kernel",
    "sparing",
]

LARGE = 1 << 18  # bytes from which on memory is saved
_ROWS = 16  # times as small as `LEAST` is what kernels reduce along rows in several steps
_STEPS = 8  # the same, of several steps on each element, or one that takes long
_LONG = 1 << 21  # bytes from which on operations that take long are divided among threads
_SHARE = 1 << 20  # bytes of a piece for a thread
_PIECES = 8  # to save memory

_sparing: ContextVar[bool] = ContextVar("sparing", default=False)
_array = np.ndarray


@contextmanager
def sparing() -> Iterator[None]:
    """Have memory saved, though it takes some time, in what is computed meanwhile."""
    token = _sparing.set(True)
    try:
        yield
    finally:
        _sparing.reset(token)


def _in_a_row(*arrays: Any) -> Any:
    """Arrays of one shape, so that their elements lie along the first axis if possible."""
    if all(array.flags.c_contiguous for array in arrays):
        return [array.reshape(-1) for array in arrays]
    if all(array.flags.f_contiguous for array in arrays):
        return [array.T.reshape(-1) for array in arrays]
    return arrays


# --- by kernels, or divided among threads ---------------------------------------------


def evaluated(value: Function, heavy: bool, several: bool) -> Function:
    """The value of an elementwise operation, of large arrays by a kernel.

    What no kernel can do is divided among threads, if it is heavy.  Of heavy operations, and those
    of ``several`` steps, arrays are large sooner.
    """
    times = _STEPS if heavy or several else 1
    if len(inspect.signature(value).parameters) == 2:  # the usual cases without packing

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


def divided(value: Function) -> Function:
    """The value of an elementwise operation that no kernel can do, divided among threads."""

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
    empty = value(np, *(_none(operand) for operand in operands), **params)
    out = np.empty_like(arrays[0], empty.dtype, subok=False, shape=shape)
    into, *parts = _alongside(out, *operands)

    def work(piece: slice) -> None:
        into[piece] = value(np, *(_part(part, piece) for part in parts), **params)

    divide(work, slices(into, _SHARE))
    return out


def along_rows(value: Function) -> Function:
    """The value of an operation on some axes, ``axes``, of one operand.

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
    """Whether an array is so large that kernels reduce it along rows in several steps."""
    return type(x) is _array and x.nbytes * _ROWS >= LEAST


def by_rows(function: Any, axes: tuple[int, ...], *operands: Any, name: Any = None) -> Any:
    """``function(axes, *operands)``, which acts along some axes of arrays.

    Its results have all axes of the operands, or 1 in the place of those along which it reduces.
    Of large arrays it is computed by a kernel, or divided among threads.  A function that is made
    anew for each call needs a name.
    """
    x = operands[0]
    if not reduces_by_kernel(x) or any(type(v) is not _array for v in operands):
        return function(axes, *operands)
    found = kernels.reduced(name or function, functools.partial(function, (1,)), axes, operands)
    if found is not None:
        return found
    place = next((i for i, n in enumerate(x.shape) if i not in axes and n > 1), None)
    if place is None or x.nbytes < _LONG:
        return function(axes, *operands)
    front = (slice(None),) * place

    def part_of(operand: Any, piece: slice) -> Any:
        return operand if operand.shape[place] == 1 else operand[(*front, piece)]

    first = function(axes, *(part_of(operand, slice(0, 1)) for operand in operands))
    several = type(first) is tuple
    length = x.shape[place]
    outs = [
        np.empty((*part.shape[:place], length, *part.shape[place + 1 :]), part.dtype)
        for part in (first if several else (first,))
    ]

    def work(piece: slice) -> None:
        made = function(axes, *(part_of(operand, piece) for operand in operands))
        for out, part in zip(outs, made if several else (made,), strict=True):
            out[(*front, piece)] = part

    divide(work, parts(length, x.nbytes // _SHARE))
    return tuple(outs) if several else outs[0]


def by_runs(function: Any, axes: tuple[int, ...], x: Any) -> Any:
    """`by_rows`, of a reduction that may as well go along some of the axes first."""
    for run in kernels.stages(x, axes):
        x = by_rows(function, run, x)
    return x


def _none(value: Any) -> Any:
    """An array of no elements in place of an array: what dtype a result has, it tells."""
    return np.empty(0, value.dtype) if type(value) is _array and value.ndim else value


def _part(value: Any, piece: slice) -> Any:
    return value[piece] if type(value) is _array and value.ndim else value


def _alongside(out: Any, *values: Any) -> list[Any]:
    """``out`` and values that broadcast to it, so that slices of them belong together."""
    whole = [value for value in values if type(value) is _array and value.ndim]
    if all(value.shape == out.shape for value in whole):
        out, *whole = _in_a_row(out, *whole)
    else:
        whole = [np.broadcast_to(value, out.shape) for value in whole]
    rest = iter(whole)
    return [out, *(next(rest) if type(v) is _array and v.ndim else v for v in values)]


def multiplied(
    ct: Any, partial: Function, saved: Sequence[Any], heavy: bool, fixed: frozenset[int]
) -> Any:
    """``ct * partial(*saved)``, where ``ct`` is large by a kernel, or divided among threads.

    ``fixed`` are the places of what was saved and is no operand: a kernel holds for that alone.
    """
    if type(ct) is not _array or ct.nbytes * (_STEPS if heavy else 1) < LEAST:
        return ct * partial(*saved)
    found = _by_kernel(ct, partial, saved, fixed)
    if found is not None:
        return found
    if not heavy or ct.nbytes < _LONG or not _fits(ct, partial, saved):
        return ct * partial(*saved)
    out = np.empty_like(ct)
    into, cts, *parts = _alongside(out, ct, *saved)

    def work(piece: slice) -> None:
        share = partial(*(_part(part, piece) for part in parts))
        if getattr(getattr(share, "dtype", None), "char", "") == "?":
            share = share.astype(ct.dtype)  # faster than to multiply by truth values
        np.multiply(cts[piece], share, out=into[piece])

    divide(work, slices(into, _SHARE))
    return out


def brought(
    ct: Any, partial: Function, saved: Sequence[Any], like: Any, fixed: frozenset[int]
) -> Any:
    """``ct * partial(*saved)``, added up where an operand of shape ``like[0]`` was repeated.

    A kernel does it at once; `None` where none can.
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
    """Which of what was saved are operands, the others, and the product as a function of nodes."""
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
    """Whether a partial derivative is an array of NumPy's, in the dtype and shape of ``ct``."""
    arrays = [value for value in saved if hasattr(value, "shape")]
    # `isinstance` would take a traced value for the array that it stands for.
    if not all(issubclass(type(array), np.ndarray | np.generic) for array in arrays):
        return False
    try:
        shape = np.broadcast_shapes(ct.shape, *(array.shape for array in arrays))
    except ValueError:
        return False
    share = partial(*(_none(value) for value in saved))
    return shape == ct.shape and ct.dtype == np.result_type(ct, share)


def pulled(
    references: int, ct: Any, partial: Function, saved: Any, heavy: bool, fixed: frozenset[int]
) -> Any:
    """``ct * partial(saved)`` for a large ``ct``.

    Where memory is short it takes the place of ``ct``, if nobody has that but the caller of the
    pull, who gives it away as `backward` does: ``references`` are those that the pull sees.
    """
    if not _sparing.get():
        return multiplied(ct, partial, (saved,), heavy, fixed)
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
    ct, saved, into = _in_a_row(ct, saved, out)

    def work(piece: slice) -> None:
        if heavy and ct[piece].nbytes >= LEAST // _STEPS:
            into[piece] = multiplied(ct[piece], partial, (saved[piece],), heavy, fixed)
        else:
            np.multiply(ct[piece], partial(saved[piece]), out=into[piece])

    if heavy and out.nbytes >= _LONG:
        divide(work, slices(into, _SHARE))
    else:
        for piece in _pieces(into, least):
            work(piece)
    return out


def _pieces(array: Any, least: int) -> list[slice]:
    """Pieces by which memory is saved; of so many bytes at least, which a kernel takes."""
    size = max(array.nbytes // _PIECES, least)
    rows = max(1, -(-size * len(array) // array.nbytes))
    return parts(len(array), len(array) // rows)


# --- in the place of what nobody needs any more -------------------------------------
#
# Whoever can look at an array holds a reference to it.  How few references there are at least is
# found out with an array that nobody else has, by counting in the same way.


def _is_private(array: Any) -> bool:
    return array.base is None and array.flags.writeable


def letting_go(function: Function) -> Function:
    """The function of an operation, which uses up an operand that nobody else has.

    In ``tanh(linear(x, weight))`` nobody but `tanh` has the result of `linear`.  Where memory is
    short, the result of `tanh` takes its place.
    """
    primitive = function.primitive  # type: ignore[attr-defined]
    value = primitive.value
    overwriting = copy.copy(primitive)  # the same operation otherwise
    overwriting.value = functools.partial(_overwrite, value)
    none: dict[str, Any] = {}

    @functools.wraps(function)
    def last(*args: Any) -> Any:
        if len(args) != 1:
            return function(*args)  # which says that this is an error
        if (
            type(args[0]) is ReverseTracer
            and type(args[0].value) is _array
            and args[0].value.nbytes >= LARGE
            and _sparing.get()
            # The arguments are a tuple that this call has alone.  The operand gets no name here.
            and (sys.getrefcount(args[0]), sys.getrefcount(args[0].value)) == _SOLE_OPERAND
            and _is_private(args[0].value)
            and primitive.value is value  # else somebody observes it
        ):
            return dispatch(overwriting, args, none)
        return dispatch(primitive, args, none)

    return last


def _overwrite(value: Function, xp: Any, x: Any) -> Any:
    if value(xp, x[:0]).dtype != x.dtype:
        return value(xp, x)
    (row,) = _in_a_row(x)
    for piece in _pieces(row, getattr(value, "least", 0)):
        row[piece] = value(xp, row[piece])
    return x


def _count_operand(*args: Any) -> tuple[int, int]:
    return sys.getrefcount(args[0]), sys.getrefcount(args[0].value)


def _sole_operand() -> Any:
    tracer = object.__new__(ReverseTracer)
    tracer.value = np.empty(0)
    return tracer


def _count_cotangent(ct: Any, like: Any, saved: Any) -> int:
    return sys.getrefcount(ct)


def _pull_alone(pull: Function, saved: tuple[Any, ...]) -> Any:
    cotangent = object()
    return pull(cotangent, *saved)  # as in `backward`


_SOLE_OPERAND = _count_operand(_sole_operand())
_SOLE_COTANGENT = _pull_alone(_count_cotangent, (None, None))
