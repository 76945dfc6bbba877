"""Convolutions with few channels in each group, by direct sums over the elements of windows.

As matrix products they would take more time to arrange than to compute.  Arrays have shape
``(N, C, *spatial)``; a vector holds neighbouring windows along the last axis.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import Plan, expected, key_of, planned
from fdbr.backends.cpu.library.conv.window_kernels import Windows, correlated, summed
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, InexpressibleError

__all__ = ["Windows", "by_position", "over_windows"]

_POSITIONS = 64  # kernel positions, at most: the code is unrolled over them
_OUTPUTS = 4  # output channels that are computed from the same elements, at most
_ADDITIONS = 16  # estimated cost of an element of a window, in additions


def over_windows(
    x: Any, weight: Any, bias: Any, windows: Windows, counts: tuple[int, ...], groups: int
) -> Any:
    """Return for each window the sum of its elements times weights; `None` if there is no kernel.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``.
    weight
        Shape ``(O, C // groups, *kernel)``.
    bias
        Shape ``(O,)``, or `None`.
    windows, counts
        The geometry of windows, and their number along each axis.
    groups
        The number of groups of channels.
    """
    if not expected():
        return None
    operands = [x, weight] if bias is None else [x, weight, bias]
    key = "over windows", windows, counts, groups, key_of(operands)
    outputs = weight.shape[0]
    plan = planned(key, lambda: _plan(summed, operands, outputs, windows, counts, groups, _OUTPUTS))
    return plan and plan.run(operands)


def by_position(x: Any, y: Any, windows: Windows, inputs: int) -> Any:
    """Return for each kernel position the sum of elements of ``x`` times those of ``y``.

    ``y`` has an element for each window: shape ``(N, O, *counts)``; each of its channels belongs to
    ``inputs`` channels of ``x``.  The result has shape ``(N, O, inputs, *kernel)``.
    """
    if not expected():
        return None
    operands = [x, y]
    key = "by position", windows, inputs, key_of(operands)
    groups = x.shape[1] // inputs
    plan = planned(
        key,
        lambda: _plan(correlated, operands, y.shape[1], windows, y.shape[2:], groups, 2),
    )
    return plan and plan.run(operands)


def _plan(
    write: Callable[..., str],
    operands: Sequence[Any],
    outputs: int,
    windows: Windows,
    counts: tuple[int, ...],
    groups: int,
    most: int,
) -> Plan:
    x, dtype = operands[0], operands[0].dtype
    for v in operands:
        if type(v) is not np.ndarray or v.dtype != dtype or not v.flags.c_contiguous:
            raise InexpressibleError("other arrays")
    if (
        dtype not in FLOATS
        or math.prod(windows.kernel) > _POSITIONS
        or counts[-1] < TUNING.conv_shortest
    ):
        raise InexpressibleError("other windows")
    if not all(v.size for v in operands):
        raise InexpressibleError("no elements")
    inputs, per = x.shape[1] // groups, outputs // groups
    block = next(n for n in range(most, 0, -1) if per % n == 0)
    plan = Plan()
    plan.guarded = False
    plan.address = address_of(write(dtype, windows, len(operands), block))
    plan.turned, plan.single, plan.copied, plan.several = False, [], [], False
    rest = counts if write is summed else (inputs, *windows.kernel)
    plan.outs = [((x.shape[0], outputs, *rest), dtype)]
    work = math.prod(counts) * inputs * math.prod(windows.kernel) * block
    plan.divide(False, x.shape[0] * outputs // block, work, _ADDITIONS)
    plan.lengths = (outputs // block, per // block, inputs, *x.shape[2:], *counts)
    return plan
