"""Recurrent nets over whole sequences, with their products on the threads of kernels.

The loop over the steps is that of the operations themselves; `matmuls` says why NumPy's BLAS is not
used.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.matmul.matmuls import is_worth_threads, multiply
from fdbr.core.primitive import Primitive, registry

__all__ = ["VALUES"]


class _Products:
    """NumPy with another `matmul`."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        setattr(self, name, found)
        return found

    @staticmethod
    def matmul(a: Any, b: Any, out: Any = None) -> Any:
        """Compute ``a @ b``."""
        if is_worth_threads(a.shape[-2], b.shape[-1], a.shape[-1]):
            return multiply(a, b, out)
        return np.matmul(a, b, out=out)


_NUMPY = _Products()


def _by_kernels(primitive: Primitive) -> Callable[..., Any]:
    def value(xp: Any, *operands: Any, **params: Any) -> Any:
        return primitive.host(_NUMPY, *operands, **params)

    return value


VALUES: dict[Primitive, Callable[..., Any]] = {
    registry[name]: _by_kernels(registry[name])
    for name in (
        *("rnn_sequence", "lstm_sequence", "gru_sequence", "reset_sequence"),
        *("linear_recurrence", "transposed_recurrence"),
        *("reset_recurrence", "transposed_reset_recurrence"),
    )
}
"""The CPU's implementations of recurrent nets, by primitive."""
