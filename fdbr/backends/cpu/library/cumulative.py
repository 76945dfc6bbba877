"""Cumulative sums, products and linear recurrences along any axis, several chains side by side.

A chain of dependent additions or multiplications runs along the axis through each of the other
positions.  Results equal NumPy's bitwise, because no chain is split.
"""

import functools
import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import expected
from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number
from fdbr.backends.cpu.codegen.llvm_values import BYTES
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count

__all__ = ["CHAINS", "accumulated"]

CHAINS = 8  # chains side by side, to hide the latency of a multiplication
_PART = 1 << 16  # bytes of a part: waking a thread takes as long as a smaller one
_CODES = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
_STEPS: dict[str, tuple[Callable[..., Number], float]] = {
    "sum": (Number.__add__, -0.0),
    "prod": (Number.__mul__, 1.0),
    "recurrence": (lambda total, x, factor: factor * total + x, -0.0),
}
"""The operation of each step, and its neutral element: adding 0.0 would change -0.0."""


@functools.cache
def _source(name: str, code: str, together: int) -> str:
    """Return a kernel; if fewer chains are left, the last one is computed repeatedly.

    Chain ``r`` begins at element ``r % inner`` of block ``r / inner``.
    """
    step, neutral = _STEPS[name]
    kernel = Kernel(("x", *["factors"] * (name == "recurrence"), "out", "size", "inner"))
    x, *others, out, size, inner = kernel.word.values()
    # The distance of the arrays, as pointers to each chain in all would not fit into registers.
    itemsize, last, apart = BYTES[code], kernel.stop - 1, out - x
    distances = [0, *(other - x for other in others)]
    with kernel.each(kernel.start, kernel.stop, together) as first:
        chains = [kernel.apply("smin", first + k, last) for k in range(together)]
        begins = [x + (r // inner * size + r % inner) * itemsize for r in chains]

        def column(at: Number, *totals: Number) -> list[Number]:
            found = []
            for total, begin in zip(totals, begins, strict=True):
                places = [kernel.pointer_to(begin + (at + each), code) for each in distances]
                found.append(step(total, *map(kernel.load, places)))
                kernel.store(kernel.pointer_to(begin + (at + apart), code), found[-1])
            return found

        none = [kernel.constant(neutral, code)] * together
        kernel.repeat(0, size * itemsize, column, *none, step=inner * itemsize)
    return kernel.text()


def accumulated(name: str, x: Any, axis: int, *factors: Any) -> Any:
    """Return the cumulative sums or products along an axis; `None` if there is no kernel.

    A ``"recurrence"`` is ``s[i] = factors[i] * s[i - 1] + x[i]``, with factors like ``x`` that
    begin with 1.

    >>> import numpy as np
    >>> accumulated("prod", np.full((20, 3), 2.0), 1)[0]
    array([2., 4., 8.])
    """
    n = x.shape[axis]
    chains = x.size // n if n else 0
    if type(x) is not np.ndarray or x.dtype not in _CODES or not chains or not expected():
        return None
    together = CHAINS if chains >= CHAINS else 1
    operands = [np.ascontiguousarray(v) for v in (x, *factors)]
    out = np.empty(x.shape, x.dtype)
    inner = math.prod(x.shape[axis + 1 :])
    table = array("q", [data_address(v) for v in (*operands, out)])
    table.extend((n * inner, inner))
    kernel = address_of(_source(name, _CODES[x.dtype], together))
    parts = part_count(min(chains // together, x.nbytes // _PART))
    launch(kernel, table.buffer_info()[0], chains, together, parts)
    return out
