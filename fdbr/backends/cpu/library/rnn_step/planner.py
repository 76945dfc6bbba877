"""Recurrences of NumPy arrays: each stage of a step is a kernel.

A kernel computes the product with the state and the function of its sums, so a step takes one call
a stage.  Without kernels the functions run on NumPy's arrays, with the products on the threads of
kernels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.matmul.matmuls import is_worth_threads, multiply
from fdbr.backends.cpu.library.rnn_step.rnn_step import Step, stepping
from fdbr.core.primitive import implement
from fdbr.ops.nn.recurrent.stages import Stage, run_by, run_steps
from fdbr.ops.nn.recurrent.steps import Steps

__all__: list[str] = []


class _Products:
    """NumPy with another `matmul`; `matmuls` says why NumPy's BLAS is not used."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        setattr(self, name, found)
        return found

    @staticmethod
    def matmul(a: Any, b: Any) -> Any:
        """Compute ``a @ b``."""
        if is_worth_threads(a.shape[-2], b.shape[-1], a.shape[-1]):
            return multiply(a, b, None)
        return np.matmul(a, b)


_NUMPY = _Products()


@implement(run_steps, np)
def _run_steps(x: Any, stages: Sequence[Stage], steps: Steps, carried: Any = None) -> None:
    kernels = [_kernel(stage) for stage in stages] if x.ndim == 2 else [None]
    if None in kernels:
        run_by(_NUMPY, stages, steps, carried)
        return
    for rows, count in steps:
        for kernel in kernels:
            kernel(rows.start, count)  # type: ignore[misc]
        if carried is not None:
            outs, state = carried
            state[:count] = outs[rows]


def _kernel(stage: Stage) -> Step | None:
    read = [(_in_rows(x), rows) for x, rows in stage.read]
    function, settings = stage.function, stage.settings

    def applied(*nodes: Any) -> Any:
        return function(*settings, *nodes)

    return stepping((function, *settings), applied, read, stage.write, stage.weight, stage.left)


def _in_rows(x: Any) -> Any:
    """Return an array whose rows are contiguous."""
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
