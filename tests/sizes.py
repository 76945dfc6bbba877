"""Have arrays of other sizes count as large."""

import math
from typing import Any

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library import adam, copies, elementwise, reductions, rows, scans, select
from fdbr.backends.cpu.library.conv import planner
from fdbr.ops.declare import cotangent_products, unbroadcast
from fdbr.ops.reductions import squared_error

_MODULES = kernels, adam, copies, elementwise, planner, reductions, rows, scans, select
_ROUTINES = (
    cotangent_products.cotangent_product,
    cotangent_products.summed_product,
    squared_error.squared_distance,
    unbroadcast.converted,
)


def use_kernels_from(size: float, patch: Any) -> None:
    """Have kernels compute arrays from that many bytes on; `math.inf` is for no kernels at all."""
    for module in _MODULES:
        patch.setattr(module, "LEAST", 1 << 60 if size == math.inf else size)
    for routine in _ROUTINES:
        patch.setattr(routine, "least", size)


def use_threads_from(size: int, share: int, patch: Any) -> None:
    """Have threads share arrays from that many bytes on, ``share`` bytes for each at a time."""
    for module in (elementwise, reductions, rows):
        patch.setattr(module, "LONG", size)
    for module in (elementwise, rows):
        patch.setattr(module, "SHARE", share)
