"""The CPU's implementations in compiled programs that eager mode does not share, by primitive.

Their kernels are compiled for one shape, which pays only in programs, or divide products among the
threads of kernels.
"""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.library.conv import batch_last_copy
from fdbr.backends.cpu.library.conv.program_primitives import EXAMPLES_LAST, VJP, last, to_last
from fdbr.backends.cpu.library.matmul import matmuls
from fdbr.backends.cpu.library.pool import compiled as pool
from fdbr.compiler.ir import op
from fdbr.core.primitive import Primitive

__all__ = ["VALUES"]

_OF_VJP = pool.VALUES[VJP[op.TO_WINNERS]]

VALUES: dict[Primitive, Callable[..., Any]] = {
    **matmuls.VALUES,
    **batch_last_copy.VALUES,
    **pool.VALUES,
    last[op.MAX_WINDOWS]: to_last(pool.VALUES[op.MAX_WINDOWS], *EXAMPLES_LAST[op.MAX_WINDOWS]),
    VJP[last[op.TO_WINNERS]]: to_last(_OF_VJP, (0, 1, 2), True),
}
