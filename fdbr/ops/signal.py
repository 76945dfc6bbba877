"""Convolution of sequences, and interpolation between samples."""

from typing import Any, Literal

from fdbr.core.array_modules import where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import fit, leading, multilinear
from fdbr.ops.dtypes import astype, float_dtype
from fdbr.ops.elementwise.comparison import isfinite, isnan, where
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.indexing.reading import pick
from fdbr.ops.indexing.searching import searchsorted
from fdbr.ops.indexing.sorting import argsort
from fdbr.ops.reductions.statistics import plain
from fdbr.ops.shape.creation import arrays
from fdbr.ops.shape.manipulation import concat, flip
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["convolve", "correlate", "interp"]

Overlap = Literal["full", "same", "valid"]


# --- convolution --------------------------------------------------------------------


_AT_ONCE = 1 << 24  # elements of windows that an array module may have to copy


def _windows(xp: Any, x: Any, y: Any) -> Any:
    """The products of a sequence along the last axis with every window of a longer one."""
    windows = xp.lib.stride_tricks.sliding_window_view(x, y.shape[-1], axis=-1)
    flipped = y[..., ::-1, None]
    step = max(1, _AT_ONCE * windows.shape[-2] // max(1, windows.size))
    parts = [
        xp.matmul(windows[..., i : i + step, :], flipped)[..., 0]
        for i in range(0, max(1, windows.shape[-2]), step)
    ]
    return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)


@multilinear(
    x=lambda ct, y, like: fit(_convolve_valid(ct, _reversed(y)), like),
    y=lambda ct, x, like: fit(_convolve_valid(ct, _reversed(x)), like),
    batch=leading(1),
)
def _convolve_full(xp: Any, x: Any, y: Any) -> Any:
    """All overlaps of two sequences along the last axes, the others broadcasting."""
    x, y = (x, y) if x.shape[-1] >= y.shape[-1] else (y, x)
    around = y.shape[-1] - 1
    padded = xp.zeros((*x.shape[:-1], x.shape[-1] + 2 * around), dtype=x.dtype)
    padded[..., around : around + x.shape[-1]] = x
    return _windows(xp, padded, y)


@multilinear(
    x=lambda ct, y, like: fit(_convolve_full(ct, _reversed(y)), like),
    y=lambda ct, x, like: fit(_reversed(_convolve_valid(x, _reversed(ct))), like),
    batch=leading(1),
)
def _convolve_valid(xp: Any, x: Any, y: Any) -> Any:
    """The overlaps in which the whole of ``y`` takes part; it is not the longer one."""
    return _windows(xp, x, y)


def _reversed(x: Any) -> Any:
    return flip(x, axis=-1)


@public("fdbr.ops")
def convolve(x: ArrayLike, y: ArrayLike, /, mode: Overlap = "full") -> Array:
    """The discrete convolution of two sequences: ``out[k] = sum(x[j] * y[k - j])``.

    Parameters
    ----------
    x, y
        Arrays of shapes ``(n,)`` and ``(m,)``.
    mode
        ``"full"``: all ``n + m - 1`` overlaps.  ``"same"``: the middle ones, as many as the
        longer sequence has elements.  ``"valid"``: those in which the shorter takes part as a
        whole.

    Raises
    ------
    ValueError
        If a sequence is empty or has not one dimension, or the mode is none.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))
    array([ 1., 12., 23., 30.])
    """
    x, y = _sequences(x, y, "convolve")
    return _overlaps(x, y, mode, (min(x.size, y.size) - 1) // 2, "convolve")


def _sequences(x: Any, y: Any, name: str) -> tuple[Any, Any]:
    x, y = arrays(x, y)
    for part in (x, y):
        if part.ndim != 1 or not part.size:
            raise ValueError(
                f"fdbr.ops.{name}: two sequences of one dimension with elements are needed, not "
                f"{describe(x)} and {describe(y)}"
            )
    return x, y


def _overlaps(x: Any, y: Any, mode: Any, first: int, name: str) -> Any:
    """A convolution, of which a mode keeps some overlaps; ``first`` is where the middle begins."""
    x, y = (x, y) if x.size >= y.size else (y, x)
    if mode == "valid":
        return _convolve_valid(x, y)
    if mode not in ("full", "same"):
        raise ValueError(f"fdbr.ops.{name}: mode is {mode!r}, not 'full', 'same' or 'valid'")
    out = _convolve_full(x, y)
    return out if mode == "full" else out[first : first + x.size]


@public("fdbr.ops")
def correlate(x: ArrayLike, y: ArrayLike, /, mode: Overlap = "valid") -> Array:
    """The cross-correlation of two sequences: ``out[k] = sum(x[j + k] * conj(y[j]))``.

    Parameters and errors are those of `convolve`; as in NumPy, ``"valid"`` is what it does by
    default.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.correlate(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0]))
    array([21., 32.])
    """
    x, y = _sequences(x, y, "correlate")
    # Of an even number of overlaps to leave out, or the odd one, as NumPy has it.
    shorter = min(x.size, y.size)
    first = (shorter if x.size < y.size else shorter - 1) // 2
    return _overlaps(x, _reversed(conj(y)), mode, first, "correlate")


# --- interpolation ------------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
def interp(
    x: Any,
    xp: Any,
    fp: Any,
    /,
    left: Any = None,
    right: Any = None,
    period: float | None = None,
) -> Any:
    """The straight lines between samples, as `numpy.interp`.

    It is differentiated by ``x`` (the slope, on a sample that of the line to its right), by the
    places of the samples and by their values.

    Parameters
    ----------
    x
        Where: an array of any shape.
    xp
        The places of the samples, in increasing order: shape ``(n,)``.
    fp
        Their values: shape ``(n,)``.
    left, right
        The values before the first sample and after the last; by default theirs.
    period
        The period of the function, with which the places may come in any order.

    Returns
    -------
    array
        The shape of ``x``.

    Raises
    ------
    ValueError
        If there is no sample, shapes do not fit, or the period is 0.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.interp(np.array([0.5, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 40.0]))
    array([ 5., 40.])
    """
    x, places, values = arrays(x, xp, fp)
    if places.ndim != 1 or places.shape != values.shape or not places.size:
        raise ValueError(
            f"fdbr.ops.interp: the samples' places {describe(places)} and values "
            f"{describe(values)} must be equally many, at least one"
        )
    dtype = float_dtype(x, places, values)
    x, places = (astype(a, dtype, copy=False) if a.dtype != dtype else a for a in (x, places))
    values = values if dtype_kind(values.dtype) in "fc" else astype(values, dtype)
    if period is not None:
        x, places, values = _one_period(x, places, values, period)
        left = right = None
    if places.size == 1:
        inside = values[0] + 0 * x
    else:
        after: Any = searchsorted(places, x, side="right")
        after = where(after < 1, 1, where(after > places.size - 1, places.size - 1, after))
        x0, x1 = pick(places, after - 1), pick(places, after)
        y0, y1 = pick(values, after - 1), pick(values, after)
        width = x1 - x0
        width = where(width == 0, 1, width)
        inside = y0 + (y1 - y0) * ((x - x0) / width)
        # NumPy interpolates from the other sample where this one gives NaN, and returns a sample
        # itself at its place.
        other = y1 + (y1 - y0) * ((x - x1) / width)
        other = where(isnan(other) & (y0 == y1) & (x == x), y0, other)
        other = where(x == x0, y0, where(x == x1, y1, where(isnan(inside), other, inside)))
        inside = where(isfinite(inside), inside, other)
    inside = where(x < places[0], values[0] if left is None else left, inside)
    return plain(where(x > places[-1], values[-1] if right is None else right, inside))


def _one_period(x: Any, places: Any, values: Any, period: float) -> tuple[Any, Any, Any]:
    """Everything within one period, and the samples next to it on both sides."""
    if period == 0:
        raise ValueError("fdbr.ops.interp: the period must not be 0")
    period = -period if period < 0 else period
    x, places = x % period, places % period
    order = argsort(places)
    places, values = pick(places, order), pick(values, order)
    places = concat([places[-1:] - period, places, places[:1] + period])
    return x, places, concat([values[-1:], values, values[:1]])
