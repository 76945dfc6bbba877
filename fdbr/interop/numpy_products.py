"""NumPy's products and windows on traced values.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import operator
import string
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import as_view
from fdbr.interop.numpy_basics import array_of, as_tuple, cast, in_their_dtype
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axis
from fdbr.ops.shape.creation import arrays

# --- products -----------------------------------------------------------------------

implements("dot")(lambda a, b: ops.dot(a, b))
implements("inner")(ops.inner)


@implements("outer")
def _outer(a: Any, b: Any) -> Any:
    return in_their_dtype(ops.outer(a, b), a, b)


@implements("vdot")
def _vdot(a: Any, b: Any, /) -> Any:
    return in_their_dtype(ops.vecdot(ops.reshape(a, -1), ops.reshape(b, -1)), a, b)


@implements("tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """It is never a scalar, as what NumPy reshapes is none."""
    if hasattr(axes, "__len__"):
        first, second = axes  # and no third
        axes = (first, second)
    return array_of(ops.tensordot(a, b, axes=axes))


_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # in the order of NumPy's numbers


def _subscripts(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of `numpy.einsum` with the subscripts as a text, if they were lists of numbers."""
    if isinstance(operands[0], str):
        return operands

    def text(places: Any) -> str:
        return "".join("..." if i is Ellipsis else _LETTERS[operator.index(i)] for i in places)

    factors, lists = operands[: len(operands) // 2 * 2 : 2], operands[1::2]
    out = ",".join(map(text, lists))
    return (f"{out}->{text(operands[-1])}" if len(operands) % 2 else out), *factors


@implements("einsum")
def _einsum(
    *operands: Any,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Any:
    subscripts, *factors = _subscripts(operands)
    factors = arrays(*cast(factors, dtype, casting, "np.einsum"))
    out = ops.einsum(subscripts, *factors)
    own = ops.result_type(*factors)  # in which NumPy adds up, truth values too
    if own.kind == "b":
        return out != 0
    return ops.astype(out, own, copy=False) if own.kind in "iu" else out


@implements("einsum_path")
def _einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: Any = False) -> Any:
    """NumPy's own, which looks at nothing but the shapes."""
    alike = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if hasattr(x, "shape") else x
        for x in _subscripts(operands)
    ]
    return np.einsum_path(*alike, optimize=optimize, einsum_call=einsum_call)


# --- windows ------------------------------------------------------------------------


def _windows(x: Any, window_shape: Any, axis: Any = None) -> Any:
    window = as_tuple(window_shape)
    given = range(x.ndim) if axis is None else as_tuple(axis)
    axes = [normalize_axis(i, x.ndim, "sliding_window_view") for i in given]
    if len(window) != len(axes):
        raise ValueError(
            f"np.lib.stride_tricks.sliding_window_view: window_shape {window} and axis {axes} must "
            "have as many elements"
        )
    for i, n in zip(axes, window, strict=True):
        count = x.shape[i] - n + 1
        if n < 0 or count < 1:
            raise ValueError(
                f"np.lib.stride_tricks.sliding_window_view: a window of {n} does not fit into "
                f"axis {i} of shape {x.shape}"
            )
        xp = array_module(x)
        places = xp.arange(count)[:, None] + xp.arange(n)
        x = as_view(ops.moveaxis(ops.take(x, places, axis=i), i + 1, -1), x)
    return x


implements("sliding_window_view", module=np.lib.stride_tricks)(_windows)
