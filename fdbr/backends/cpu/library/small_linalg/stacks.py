"""Kernels for stacks of matrices, in one of two dtypes.

The table of such a kernel has the number of matrices, the numbers that the kernel declares, and a
word that is set if a matrix has no result; then four words for each array: its address, and the
distances in bytes of its matrices, rows and columns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number

__all__ = ["FORMATS", "Stacks"]

FORMATS = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
"""The dtypes of matrices, with their names in kernels."""


class Stacks(Kernel):
    """A kernel for stacks of matrices under construction.

    Parameters
    ----------
    dtype
        The dtype of the matrices.
    lanes
        The number of elements in a vector.
    numbers
        The names of the numbers in the table.
    arrays
        The names of the arrays.
    """

    def __init__(
        self, dtype: Any, lanes: int, numbers: Sequence[str], arrays: Sequence[str]
    ) -> None:
        fields = [
            f"{name}.{field}" for name in arrays for field in ("base", "next", "row", "column")
        ]
        code = FORMATS[dtype]
        bases = {f"{name}.base": code for name in arrays}
        super().__init__(["count", *numbers, "failed", *fields], bases)
        self.code, self.width, self.arrays = code, lanes, arrays
        self.integer, self.step = f"i{code[1]}", lanes * dtype.itemsize

    def fill(self, number: float) -> Number:
        """Return a number in every lane."""
        return self.constant(number, self.code, self.width)

    def truths(self, flag: bool) -> Number:
        """Return a boolean in every lane."""
        return self.constant(flag, "b1", self.width)

    def every(self, flag: Number) -> Number:
        """Emit a boolean in every lane."""
        return flag.spread(self.width)

    def numbered(self, index: Number) -> Number:
        """Emit an index as a float in every lane; floats are compared faster than integers."""
        return index.to(self.code).spread(self.width)

    def fused(self, x: Number, y: Number, z: Number) -> Number:
        """Emit ``x * y + z``, rounded once where the processor does so."""
        return self.apply("fmuladd", x, y, z)

    def larger(self, x: Number, y: Number) -> Number:
        """Emit the larger of two non-negative numbers; NaN if one of them is."""
        return self.choose((y < x) | x.differs(x), x, y)

    def offset(self, name: str, row: Any, column: Any) -> Number:
        """Emit the distance in bytes of an element from the first one of its matrix."""
        down, along = self.word[f"{name}.row"], self.word[f"{name}.column"]
        return down * self.index(row) + along * self.index(column)

    def fail(self) -> None:
        """Emit the report that a matrix has no result."""
        self.store(self.register("%failed.at", "*i8"), 1)
