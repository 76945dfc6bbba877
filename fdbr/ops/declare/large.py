"""Names of the CPU's library that operations still import."""

import functools
from typing import Any

import numpy as np

from fdbr.backends.cpu.kernels import LEAST
from fdbr.backends.cpu.library.elementwise import STEPS, with_threads
from fdbr.backends.cpu.library.elementwise import _of_large as of_large
from fdbr.backends.cpu.library.rows import by_rows, reduces_by_kernel
from fdbr.core.array_modules import array_module

__all__ = ["LEAST", "along_rows", "by_rows", "reduces_by_kernel", "with_kernels", "with_threads"]


def with_kernels(value: Any, heavy: bool, compound: bool) -> Any:
    """Wrap a value."""
    times = STEPS if heavy or compound else 1

    @functools.wraps(value)
    def of_all(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) is np.ndarray and x.nbytes * times >= LEAST and xp is np:
                return of_large(value, value, heavy, operands, params)
        return value(xp, *operands, **params)

    return of_all


def along_rows(value: Any) -> Any:
    """Wrap a value."""

    @functools.wraps(value)
    def of_any(xp: Any, x: Any, *, axes: tuple[int, ...], **params: Any) -> Any:
        if not reduces_by_kernel(x):
            return value(xp, x, axes=axes, **params)

        def of_rows(axes: tuple[int, ...], x: Any) -> Any:
            return value(array_module(x), x, axes=axes, **params)

        return by_rows(of_rows, axes, x, name=(value, tuple(params.items())))

    return of_any


def is_large(x: Any) -> bool:
    """Whether."""
    return x.dtype.char in "fd" and x.nbytes >= LEAST
