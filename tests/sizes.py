"""Have arrays of other sizes count as large."""

import math
from typing import Any

from fdbr.backends.cpu.tuning import TUNING
from fdbr.ops.declare import cotangent_products, unbroadcast
from fdbr.ops.reductions import squared_error

_ROUTINES = (
    cotangent_products.cotangent_product,
    cotangent_products.summed_product,
    squared_error.squared_distance,
    unbroadcast.converted,
)


def use_kernels_from(size: float, patch: Any) -> None:
    """Have kernels compute arrays from that many bytes on; `math.inf` is for no kernels at all."""
    patch.setattr(TUNING, "kernel_bytes", 1 << 60 if size == math.inf else size)
    for routine in _ROUTINES:
        patch.setattr(routine, "least", size)


def use_threads_from(size: int, share: int, patch: Any) -> None:
    """Have threads share arrays from that many bytes on, ``share`` bytes for each at a time."""
    patch.setattr(TUNING, "divide_bytes", size)
    patch.setattr(TUNING, "divide_share", share)
