"""Cumulative sums and products along any axis: several chains are computed side by side.

A chain of dependent additions or multiplications runs along the axis through each of the other
positions.  Results equal NumPy's bitwise, because no chain is split.
"""

import functools
import math
from array import array
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import expected
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count

__all__ = ["accumulated"]

_CHAINS = 8  # chains side by side, to hide the latency of a multiplication
_PART = 1 << 16  # bytes of a part: waking a thread takes as long as a smaller one
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


_STEPS = {"sum": ("fadd", "-0.0"), "prod": ("fmul", "1.0")}
"""The instruction of each step, and its neutral element: adding 0.0 would change -0.0."""


@functools.cache
def _source(name: str, kind: str) -> str:
    """Return a kernel; if fewer chains are left, the last one is computed repeatedly.

    Chain ``r`` begins at element ``r % inner`` of block ``r / inner``.
    """
    step, neutral = _STEPS[name]
    every = range(_CHAINS)
    chains = "".join(
        f"""
  %near{k} = add i64 %r, {k}
  %inside{k} = icmp slt i64 %near{k}, %stop
  %chain{k} = select i1 %inside{k}, i64 %near{k}, i64 %last
  %block{k} = udiv i64 %chain{k}, %inner
  %before{k} = mul i64 %block{k}, %inner
  %rest{k} = sub i64 %chain{k}, %before{k}
  %start{k} = mul i64 %block{k}, %size
  %first{k} = add i64 %start{k}, %rest{k}
  %x{k} = getelementptr {kind}, ptr %x, i64 %first{k}
  %out{k} = getelementptr {kind}, ptr %out, i64 %first{k}"""
        for k in every
    )
    totals = "".join(f"\n  %t{k} = phi {kind} [{neutral}, %row], [%u{k}, %column]" for k in every)
    steps = "".join(
        f"""
  %from{k} = getelementptr {kind}, ptr %x{k}, i64 %c
  %value{k} = load {kind}, ptr %from{k}
  %u{k} = {step} {kind} %t{k}, %value{k}
  %to{k} = getelementptr {kind}, ptr %out{k}, i64 %c
  store {kind} %u{k}, ptr %to{k}"""
        for k in every
    )
    return f"""{HEAD}{words(("x", "out", "size", "inner"), ("x", "out"))}
  %last = sub i64 %stop, 1
  br label %next
next:
  %r = phi i64 [%start, %entry], [%r.next, %done]
  %more = icmp slt i64 %r, %stop
  br i1 %more, label %row, label %end
row:{chains}
  br label %column
column:
  %c = phi i64 [0, %row], [%c.next, %column]{totals}{steps}
  %c.next = add i64 %c, %inner
  %again = icmp slt i64 %c.next, %size
  br i1 %again, label %column, label %done
done:
  %r.next = add i64 %r, {_CHAINS}
  br label %next
end:
  ret void
}}
"""


def accumulated(name: str, x: Any, axis: int) -> Any:
    """Return the cumulative sums or products along an axis; `None` if there is no kernel.

    >>> import numpy as np
    >>> accumulated("prod", np.full((20, 3), 2.0), 1)[0]
    array([2., 4., 8.])
    """
    n = x.shape[axis]
    chains = x.size // n if n else 0
    if type(x) is not np.ndarray or x.dtype not in _NAMES or chains < _CHAINS or not expected():
        return None
    x = np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    inner = math.prod(x.shape[axis + 1 :])
    table = array("q", [data_address(v) for v in (x, out)])
    table.extend((n * inner, inner))
    kernel = address_of(_source(name, _NAMES[x.dtype]))
    parts = part_count(min(chains // _CHAINS, x.nbytes // _PART))
    launch(kernel, table.buffer_info()[0], chains, _CHAINS, parts)
    return out
