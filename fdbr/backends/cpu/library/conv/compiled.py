"""Convolutions in compiled programs: those of `library.conv.correlations`, with fused `relu`.

Arrays have their examples last in memory, as the layout pass arranges, or first.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.conv.correlations import (
    correlation,
    inner_correlation,
    transposed_correlation,
)
from fdbr.backends.cpu.library.conv.program_primitives import WITH_RELU
from fdbr.compiler.ir import op
from fdbr.core.primitive import Primitive
from fdbr.ops.nn.convolution import im2col
from fdbr.ops.nn.convolution.im2col import axes
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["VALUES"]

_WORTH = 1 << 16  # multiplications that are worth compiling a kernel


def _correlated(
    x: Any, weight: Any, bias: Any, geometry: Geometry, groups: int, positive: bool
) -> Any:
    size = tuple(x.shape[2:])
    if weight.size * math.prod(geometry.counts(size)) * len(x) >= _WORTH:
        found = correlation(x, weight, bias, axes(geometry, size), groups, positive)
        if found is not None:
            return found
    out = im2col.correlate(np, x, weight, bias, geometry, groups)
    return np.maximum(out, 0, out=out) if positive else out


def _conv(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return _correlated(x, weight, None, geometry, groups, False)


def _conv_relu(xp: Any, x: Any, weight: Any, *, geometry: Geometry, groups: int) -> Any:
    return _correlated(x, weight, None, geometry, groups, True)


def _conv_biased(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return _correlated(x, weight, bias, geometry, groups, False)


def _conv_biased_relu(
    xp: Any, x: Any, weight: Any, bias: Any, *, geometry: Geometry, groups: int
) -> Any:
    return _correlated(x, weight, bias, geometry, groups, True)


def _conv_kernel(xp: Any, x: Any, y: Any, *, geometry: Geometry, groups: int) -> Any:
    if y.size * (x.shape[1] // groups) * math.prod(geometry.kernel) >= _WORTH:
        found = inner_correlation(x, y, axes(geometry, tuple(x.shape[2:])), groups)
        if found is not None:
            return found
    return im2col.correlate_kernel(xp, x, y, geometry, groups)


def _conv_input(
    xp: Any, y: Any, weight: Any, *, geometry: Geometry, groups: int, size: Sizes
) -> Any:
    if weight.size * math.prod(y.shape[2:]) * len(y) >= _WORTH:
        found = transposed_correlation(y, weight, axes(geometry, size), groups)
        if found is not None:
            return found
    return im2col.correlate_transposed(xp, y, weight, geometry, groups, size)


VALUES: dict[Primitive, Callable[..., Any]] = {
    op.CONV: _conv,
    WITH_RELU[op.CONV]: _conv_relu,
    op.CONV_BIASED: _conv_biased,
    WITH_RELU[op.CONV_BIASED]: _conv_biased_relu,
    op.CONV_KERNEL: _conv_kernel,
    op.CONV_INPUT: _conv_input,
}
