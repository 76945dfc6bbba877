"""Elementwise operations on large arrays: by kernels, or divided among threads."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.array_modules import array_module
from fdbr.core.primitive import Primitive, implement, implement_each
from fdbr.core.util.threads import divide, slices
from fdbr.ops.declare.cotangent_products import (
    cotangent_product,
    only_cotangent_product,
    product_of,
    summed_product,
)
from fdbr.ops.declare.memory_saving import (
    LARGE,
    flattened,
    is_saving_memory,
    pieces,
    sole_references,
)
from fdbr.ops.declare.operation import operands_of
from fdbr.ops.declare.unbroadcast import converted

__all__ = ["with_kernels", "with_threads"]

_array = np.ndarray
_Value = Callable[..., Any]


# --- values ---------------------------------------------------------------------------


def with_kernels(primitive: Primitive, smaller: _Value | None = None) -> _Value:
    """Return an implementation of an elementwise operation that uses a kernel for large arrays.

    Without a kernel, a heavy operation is divided among threads.  ``smaller`` is for all other
    arrays; by default that is the definition.
    """
    value, heavy = primitive.value, primitive.facts.heavy
    plain = smaller or value
    times = TUNING.kernel_passes if primitive.facts.compound else 1
    times = TUNING.heavy_passes if heavy else times
    parameters = inspect.signature(value).parameters
    if len(parameters) == 2:  # the usual cases, without packing arguments

        @functools.wraps(value)
        def of_one(xp: Any, x: Any) -> Any:
            if type(x) is _array and x.nbytes * times >= TUNING.kernel_bytes:
                return _of_large(value, plain, heavy, (x,), {})
            return plain(xp, x)

        of_one.least = TUNING.kernel_bytes // times if times > 1 else 0  # type: ignore[attr-defined]
        return of_one

    if len(parameters) == 3 and len(operands_of(value)) == 2:

        @functools.wraps(value)
        def of_two(xp: Any, x: Any, y: Any) -> Any:
            if (type(x) is _array and x.nbytes * times >= TUNING.kernel_bytes) or (
                type(y) is _array and y.nbytes * times >= TUNING.kernel_bytes
            ):
                return _of_large(value, plain, heavy, (x, y), {})
            return plain(xp, x, y)

        return of_two

    @functools.wraps(value)
    def of_all(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) is _array and x.nbytes * times >= TUNING.kernel_bytes:
                return _of_large(value, plain, heavy, operands, params)
        return plain(xp, *operands, **params)

    return of_all


def with_threads(value: _Value) -> _Value:
    """Wrap the value of an elementwise operation without a kernel to use threads if large."""

    @functools.wraps(value)
    def of_all(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) is _array and x.nbytes >= TUNING.divide_bytes:
                return _in_pieces(value, operands, params)
        return value(xp, *operands, **params)

    return of_all


def _of_large(
    value: _Value, plain: _Value, heavy: bool, operands: tuple[Any, ...], params: dict[str, Any]
) -> Any:
    name = value, tuple(params.items())
    found = kernels.elementwise(
        name, lambda *nodes: value(array_module(*nodes), *nodes, **params), operands
    )
    if found is not None:
        return found
    if heavy and max(getattr(x, "nbytes", 0) for x in operands) >= TUNING.divide_bytes:
        return _in_pieces(plain, operands, params)
    return plain(np, *operands, **params)


def _in_pieces(value: _Value, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    arrays = [operand for operand in operands if type(operand) is _array]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    empty = value(np, *(_emptied(operand) for operand in operands), **params)
    out = np.empty_like(arrays[0], empty.dtype, subok=False, shape=shape)
    flat_out, *parts = _alongside(out, *operands)

    def work(piece: slice) -> None:
        flat_out[piece] = value(np, *(_part(part, piece) for part in parts), **params)

    divide(work, slices(flat_out, TUNING.divide_share))
    return out


def _emptied(value: Any) -> Any:
    """Replace an array by an empty one of its dtype, from which the result's dtype is found."""
    return np.empty(0, value.dtype) if type(value) is _array and value.ndim else value


def _part(value: Any, piece: slice) -> Any:
    return value[piece] if type(value) is _array and value.ndim else value


def _alongside(out: Any, *values: Any) -> list[Any]:
    """Line up ``out`` and values that broadcast to it, so that equal slices correspond."""
    whole = [value for value in values if type(value) is _array and value.ndim]
    if all(value.shape == out.shape for value in whole):
        out, *whole = flattened(out, *whole)
    else:
        whole = [np.broadcast_to(value, out.shape) for value in whole]
    rest = iter(whole)
    return [out, *(next(rest) if type(v) is _array and v.ndim else v for v in values)]


@implement(converted, np, least=TUNING.kernel_bytes)
def _converted(x: Any, to: Any) -> Any:
    return kernels.converted(x, to)


@implement_each(np)
def _by_kernel(primitive: Primitive) -> _Value | None:
    return with_kernels(primitive) if primitive.kind == "elementwise" else None


# --- derivatives ----------------------------------------------------------------------


@implement(cotangent_product, np, least=TUNING.kernel_bytes // TUNING.heavy_passes)
def _cotangent_product(
    ct: Any, partial: _Value, saved: Sequence[Any], heavy: bool | str, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(*saved)``; for a large ``ct`` by a kernel, or divided among threads."""
    passes = TUNING.heavy_passes if heavy is True else TUNING.kernel_passes if heavy else 1
    if ct.nbytes * passes < TUNING.kernel_bytes:
        return ct * partial(*saved)
    positions, kept, product = product_of(partial, saved, fixed)
    found = kernels.elementwise((partial, kept), product, (ct, *(saved[i] for i in positions)))
    if found is not None and found.dtype == ct.dtype:
        return found
    if not heavy or ct.nbytes < TUNING.divide_bytes or not _fits(ct, partial, saved):
        return ct * partial(*saved)
    out = np.empty_like(ct)
    flat_out, cts, *parts = _alongside(out, ct, *saved)

    def work(piece: slice) -> None:
        share = partial(*(_part(part, piece) for part in parts))
        if getattr(getattr(share, "dtype", None), "char", "") == "?":
            share = share.astype(ct.dtype)  # NumPy multiplies by booleans more slowly
        np.multiply(cts[piece], share, out=flat_out[piece])

    divide(work, slices(flat_out, TUNING.divide_share))
    return out


def _fits(ct: Any, partial: _Value, saved: Sequence[Any]) -> bool:
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


@implement(summed_product, np, least=TUNING.kernel_bytes // TUNING.kernel_passes)
def _summed_product(
    ct: Any, partial: _Value, saved: Sequence[Any], shape: tuple[int, ...], fixed: frozenset[int]
) -> Any:
    """Multiply and sum in one kernel; return `None` if there is none."""
    axes = tuple(
        axis
        for axis, (n, m) in enumerate(zip(ct.shape, _padded(shape, ct.ndim), strict=True))
        if m == 1 != n
    )
    operands = [
        v.reshape(_padded(v.shape, ct.ndim)) if type(v) is _array and v.ndim < ct.ndim else v
        for v in saved
    ]
    positions, kept, product = product_of(partial, operands, fixed)
    found = kernels.reduced(
        (partial, kept, "summed"),
        lambda *nodes: product(*nodes).sum(axis=(1,), keepdims=True),
        axes,
        (ct, *(operands[i] for i in positions)),
    )
    return found if found is None or found.dtype != ct.dtype else found.reshape(shape)


def _padded(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    return (*(1,) * (ndim - len(shape)), *shape)


@implement(only_cotangent_product, np, least=LARGE)
def _only_cotangent_product(
    ct: Any, references: int, partial: _Value, saved: Any, heavy: bool | str, fixed: frozenset[int]
) -> Any:
    """Return ``ct * partial(saved)``; within `saving_memory` over ``ct``, if it has one reader.

    ``references`` is the number of references to ``ct`` that the vjp rule counts.
    """
    if not is_saving_memory():
        return _cotangent_product(ct, partial, (saved,), heavy, fixed)
    if (
        type(saved) is not _array
        or saved.dtype != ct.dtype
        or saved.shape != ct.shape
        or (ct[:0] * (share := partial(saved[:0]))).dtype != ct.dtype
    ):
        return ct * partial(saved)
    least = (
        0
        if getattr(share, "dtype", None) == np.bool_
        else TUNING.kernel_bytes // TUNING.kernel_passes
    )
    alone = references == sole_references and ct.base is None and ct.flags.writeable
    out = ct if alone else np.empty_like(saved)
    ct, saved, flat_out = flattened(ct, saved, out)

    def work(piece: slice) -> None:
        if heavy and ct[piece].nbytes >= TUNING.kernel_bytes // TUNING.kernel_passes:
            product = _cotangent_product(ct[piece], partial, (saved[piece],), heavy, fixed)
            flat_out[piece] = product
        else:
            np.multiply(ct[piece], partial(saved[piece]), out=flat_out[piece])

    if heavy and out.nbytes >= TUNING.divide_bytes:
        divide(work, slices(flat_out, TUNING.divide_share))
    else:
        for piece in pieces(flat_out, least):
            work(piece)
    return out
