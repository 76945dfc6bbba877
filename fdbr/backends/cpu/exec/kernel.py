"""Kernels of compiled programs as functions of arrays."""

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.runtime.launching import function_at, launch
from fdbr.compiler.backend import RefusedError

__all__ = ["native", "word_of"]


def native(
    address: int, rows: int, threads: int, interruptible: bool = False
) -> Callable[..., None]:
    """Return a kernel as a function of its operands and outputs."""
    if threads == 1:
        function = function_at(address, interruptible)

        def run(*arrays: Any) -> None:
            table = array("q", map(id, arrays))
            function(table.buffer_info()[0], 0, rows, 0)

    else:

        def run(*arrays: Any) -> None:
            table = array("q", map(id, arrays))
            launch(address, table.buffer_info()[0], rows, threads)

    return run


def word_of(number: int) -> Any:
    """Return a Python integer as an array without axes.

    Raises
    ------
    RefusedError
        If the array's dtype does not hold it.
    """
    try:
        return np.asarray(number, np.int64)
    except OverflowError:
        raise RefusedError from None
