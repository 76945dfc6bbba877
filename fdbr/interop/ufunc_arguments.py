"""The arguments that every ufunc takes: ``dtype`` and its kin, and the axes of matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.interop.signatures import refuse
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import is_number

__all__ = ["called"]


def called(
    op: Callable[..., Any],
    ufunc: Any,
    name: str,
    inputs: tuple[Any, ...],
    *,
    where: Any = True,
    order: Any = "K",
    subok: Any = True,
    axes: Any = None,
    axis: Any = None,
    keepdims: bool = False,
    **dtypes: Any,
) -> Any:
    """Apply ``op``, the operation of a ufunc, with further arguments of the ufunc.

    ``order`` and ``subok`` tell of memory and classes, and are of no account here.
    """
    if where is not True:
        refuse(name, "where")
    outputs = None
    if dtypes:
        inputs, outputs = _cast(ufunc, name, inputs, **dtypes)
    if axes is not None or axis is not None or keepdims:
        out = _along(op, ufunc, name, inputs, _axes(ufunc, name, axes, axis, keepdims), keepdims)
    else:
        out = op(*inputs)
    if outputs is None:
        return out
    parts = [
        part if is_number(part) else ops.astype(part, dtype, copy=False)
        for part, dtype in zip(out if ufunc.nout > 1 else [out], outputs, strict=True)
    ]
    return tuple(parts) if ufunc.nout > 1 else parts[0]


# --- dtypes -------------------------------------------------------------------------


def _cast(
    ufunc: Any,
    name: str,
    inputs: tuple[Any, ...],
    dtype: Any = None,
    casting: str = "same_kind",
    signature: Any = None,
    **others: Any,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The operands in the dtypes in which NumPy would compute, and the dtypes of the results."""
    signature = others.pop("sig", signature)
    if others:
        refuse(name, min(others))
    if dtype is not None:
        signature = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    elif isinstance(signature, str):
        signature = tuple(np.dtype(c) for c in signature.replace("->", ""))
    kinds = (*map(_kind, inputs), *(None,) * ufunc.nout)
    how = {} if signature is None else {"signature": signature}
    try:
        found = ufunc.resolve_dtypes(kinds, casting=casting, **how)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    cast = tuple(ops.astype(x, to, copy=False) for x, to in zip(inputs, found, strict=False))
    return cast, found[ufunc.nin :]


def _kind(x: Any) -> Any:
    """Represent an operand in promotion: by its dtype, or by the type of a Python number."""
    if not is_number(x):
        return ops.result_type(x) if isinstance(x, Tracer) else np.asarray(x).dtype
    while isinstance(x, Tracer):
        x = x.value
    return np.dtype(bool) if isinstance(x, bool) else type(x)


# --- the axes of matrices and vectors -----------------------------------------------


def _core(ufunc: Any) -> list[int]:
    """The number of a matrix's or vector's axes: of each operand, then of each result."""
    return [
        len([dim for dim in part.strip("() ").split(",") if dim])
        for side in ufunc.signature.split("->")
        for part in side.split("),(")
    ]


def _axes(ufunc: Any, name: str, axes: Any, axis: Any, keepdims: bool) -> list[tuple[int, ...]]:
    """The axes of each operand and result."""
    if ufunc.signature is None:
        refuse(name, "axes" if axes is not None else "axis" if axis is not None else "keepdims")
    counts = _core(ufunc)
    if axis is not None:
        if max(counts) > 1:
            refuse(name, "axis", "it has matrices, which have two. Give axes")
        axes = [(axis,) if n else () for n in counts]
    if axes is None:
        return [tuple(range(-n, 0)) for n in counts]
    given = [tuple(x) if isinstance(x, tuple | list) else (x,) for x in axes]
    if len(given) < len(counts) and not counts[-1]:
        given.append(given[0] if keepdims else ())
    return given


def _along(
    op: Callable[..., Any],
    ufunc: Any,
    name: str,
    inputs: tuple[Any, ...],
    axes: list[tuple[int, ...]],
    keepdims: bool,
) -> Any:
    """The operation with the axes of each operand moved to its end, and the result's back."""
    counts = _core(ufunc)
    if keepdims and counts[-1]:
        refuse(name, "keepdims", "its result has axes of its own. Leave it out")
    if len(axes) != len(counts) or any(
        len(of) not in (n, 1 if keepdims else n) for of, n in zip(axes, counts, strict=True)
    ):
        raise ValueError(f"{name}: axes must be {len(counts)} tuples of {counts} axes, not {axes}")
    moved = [
        ops.moveaxis(x, of, tuple(range(-len(of), 0))) if of else x
        for x, of in zip(map(ops.asarray, inputs), axes, strict=False)
    ]
    out = op(*moved)
    if keepdims:
        place = axes[-1][0] if axes[-1] else axes[0][0]
        return ops.expand_dims(out, axis=normalize_axis(place, out.ndim + 1, name))
    return ops.moveaxis(out, tuple(range(-len(axes[-1]), 0)), axes[-1]) if axes[-1] else out
