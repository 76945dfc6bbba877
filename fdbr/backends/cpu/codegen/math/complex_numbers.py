"""Complex numbers in single precision made of real ones: two words of 32 bits, written as one."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import elementwise
from fdbr.backends.cpu.codegen.math.formulas import bits_of, from_bits, integers
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import Node

__all__ = ["as_imaginary"]


def as_imaginary(x: Any) -> Any:
    """``-1j * x``, the real part of which is 0, for a large array; `None` where no kernel does it.

    >>> import numpy as np
    >>> as_imaginary(np.full(300_000, 2.0, "float32"))[0].imag
    np.float32(-2.0)
    """
    if x.dtype.char != "f" or x.nbytes < TUNING.kernel_bytes:
        return None
    found = elementwise("as imaginary", _moved, (x,))
    return None if found is None else found.view(np.complex64)


def _moved(x: Node) -> Node:
    return from_bits(integers("shl", bits_of(-x).astype(np.int64), 32), np.dtype(np.float64))
