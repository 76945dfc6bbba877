"""The CPU's implementations of products, recurrent nets, convolutions and pooling, by primitive."""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.library.conv import batch_last_copy
from fdbr.backends.cpu.library.conv import compiled as conv
from fdbr.backends.cpu.library.conv.program_primitives import (
    EXAMPLES_LAST,
    VJP,
    WITH_RELU,
    last,
    to_last,
)
from fdbr.backends.cpu.library.matmul import matmuls
from fdbr.backends.cpu.library.pool import compiled as pool
from fdbr.backends.cpu.library.rnn_step import products
from fdbr.compiler.ir import op
from fdbr.core.primitive import Primitive

__all__ = ["VALUES"]

_OWN = conv.VALUES | pool.VALUES
_LAST = {last[p]: to_last(_OWN[p], *how) for p, how in EXAMPLES_LAST.items() if p in _OWN}

VALUES: dict[Primitive, Callable[..., Any]] = {
    **matmuls.VALUES,
    **products.VALUES,
    **batch_last_copy.VALUES,
    **_OWN,
    **_LAST,
    **{
        WITH_RELU[last[p]]: to_last(_OWN[WITH_RELU[p]], (0,), True)
        for p in (op.CONV, op.CONV_BIASED)
    },
    VJP[last[op.TO_WINNERS]]: to_last(_OWN[VJP[op.TO_WINNERS]], (0, 1, 2), True),
}
