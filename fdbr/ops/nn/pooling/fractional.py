"""Fractional max pooling: a given number of windows at random positions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import floor
from fdbr.ops.indexing.reading import along_axis
from fdbr.ops.nn.noise.samples import uniform_draws
from fdbr.ops.reductions.reduce import argmax
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import concat, expand_dims, reshape, squeeze
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["fractional_max_pool"]


@public("fdbr.ops")
@where_it_lies
def fractional_max_pool(
    x: Array,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    *,
    samples: Array = None,
    key: Any = None,
) -> Any:
    """The maxima of windows at random distances, which are one of two adjacent integers.

    Graham, *Fractional max-pooling*, arXiv:1412.6071.  With ``m`` windows of ``k`` elements on an
    axis of length ``n``, window ``i`` begins at ``floor((i + u) * a) - floor(u * a)`` with
    ``a = (n - k) / (m - 1)``, and the last one at the end, where ``u`` is a random number in
    [0, 1) for each channel of each example and each axis.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel, any axes before the spatial ones.
    kernel_size
        The lengths of a window: one for each of the last axes, or an integer for all axes
        after the first two.
    output_size
        The number of windows: an integer, or one for each axis.
    output_ratio
        The number of windows relative to that of elements, in (0, 1), instead of ``output_size``.
    return_indices
        Whether to return the indices of the maxima as well, as in `max_pool`.
    samples
        The numbers ``u``, shape ``(N, C, axes)``, in the order of the axes (in PyTorch the last of
        two axes comes first), instead of ``key``.
    key
        A key of `fdbr.random` to draw the numbers ``u``.

    Returns
    -------
    array
        Shape ``(N, C, *output_size)``.
    array
        Only with ``return_indices``: for each window the index of its maximum in the flattened
        spatial axes, int64.

    Raises
    ------
    ValueError
        If windows do not fit, or not exactly one of ``output_size`` and ``output_ratio``, or of
        ``samples`` and ``key``, is given.
    TypeError
        If ``x`` is not real, or ``key`` is not a key.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[[1.0, 3.0, 2.0, 0.0, 5.0]]])
    >>> ops.fractional_max_pool(x, 2, 3, samples=np.array([[[0.5]]]))
    array([[[3., 2., 5.]]])
    """
    name = "fdbr.ops.fractional_max_pool"
    x = asarray(x)
    if dtype_kind(x.dtype) not in "fiu":
        raise TypeError(f"{name}: x must be real numbers, not {describe(x)}")
    kernel = _for_axes(name, "kernel_size", kernel_size, x.ndim - 2, x)
    lead, size = tuple(x.shape[: x.ndim - len(kernel)]), tuple(x.shape[x.ndim - len(kernel) :])
    counts = _counts(name, x, kernel, size, output_size, output_ratio)
    shape = (*lead, len(kernel))
    if (samples is None) == (key is None):
        raise ValueError(f"{name}: give exactly one of samples and key")
    if samples is None:
        draws = uniform_draws(name, shape, key, x)
    else:
        draws = astype(beside(asarray(samples), x), "float64")
        if draws.shape != shape:
            raise ValueError(f"{name}: samples must have shape {shape}, got {describe(samples)}")
    window_indices = _window_indices(draws, kernel, size, counts)
    flat = reshape(x, (*lead, math.prod(size)))
    last = len(lead)
    elements = along_axis(flat, reshape(window_indices, (*lead, -1)), last)
    largest = argmax(reshape(elements, window_indices.shape), axis=-1)
    argmax_index = squeeze(
        along_axis(window_indices, expand_dims(largest, axis=-1), last + 1), axis=-1
    )
    out = reshape(along_axis(flat, argmax_index, last), (*lead, *counts))
    return (out, reshape(argmax_index, (*lead, *counts))) if return_indices else out


def _window_indices(draws: Any, kernel: Any, size: Any, counts: Any) -> Any:
    """Return indices of windows' elements in the flattened axes: ``(*lead, windows, elements)``."""
    xp, lead = array_module(draws), tuple(draws.shape[:-1])
    found = None
    for axis, (k, n, m) in enumerate(zip(kernel, size, counts, strict=True)):
        u, distance = draws[..., axis, None], (n - k) / max(m - 1, 1)
        window_numbers = beside(np.arange(m - 1.0), draws)
        starts = astype(floor((window_numbers + u) * distance) - floor(u * distance), "int64")
        end = beside(np.full((*lead, 1), n - k), draws)
        along_axis_indices = expand_dims(concat([starts, end], axis=-1), axis=-1) + xp.arange(k)
        if found is None:
            found = along_axis_indices
            continue
        joined = found[..., :, None, :, None] * n + along_axis_indices[..., None, :, None, :]
        found = reshape(joined, (*lead, found.shape[-2] * m, found.shape[-1] * k))
    return found


def _for_axes(name: str, argument: str, value: Any, axes: int, x: Any) -> tuple[int, ...]:
    """Check an integer argument and return one for each of the last axes."""
    given = tuple(value) if isinstance(value, Sequence) else (value,) * axes
    if not 0 < len(given) <= x.ndim:
        raise ValueError(
            f"{name}: {argument} must be an integer, or one for each spatial axis of x "
            f"{describe(x)}, got {value!r}"
        )
    return tuple(integer(name, argument, n, least=1) for n in given)


def _counts(name: str, x: Any, kernel: Any, size: Any, output_size: Any, ratio: Any) -> Any:
    """Check the arguments and return the number of windows on each axis."""
    if (output_size is None) == (ratio is None):
        raise ValueError(f"{name}: give exactly one of output_size and output_ratio")
    if ratio is None:
        counts = _for_axes(name, "output_size", output_size, len(kernel), x)
    else:
        ratios = tuple(ratio) if isinstance(ratio, Sequence) else (ratio,) * len(kernel)
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"{name}: output_ratio must lie in (0, 1), got {ratio!r}")
        counts = tuple(int(n * r) for n, r in zip(size, ratios, strict=False))
    is_invalid = len(counts) != len(kernel) or min(counts) < 1
    if is_invalid or any(m + k - 1 > n for m, k, n in zip(counts, kernel, size, strict=True)):
        raise ValueError(
            f"{name}: {counts} windows of {kernel} elements do not fit into the last axes of x "
            f"{describe(x)}; on each there may be length - kernel_size + 1"
        )
    return counts
