"""Recurrences over packed sequences, step by step: a product with the state, and a plain function.

A step consists of stages.  Each is a function of operations for all its elements, so there is one
statement of a recurrent network's step: here it runs on arrays, and the CPU's library makes a
kernel of it (`fdbr.backends.cpu.library.rnn_step`).
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import parts_of

__all__ = [
    "EACH",
    "PACKED",
    "STATE",
    "Reader",
    "Stage",
    "in_parts",
    "projection",
    "run_by",
    "run_steps",
    "total",
    "weight_in_parts",
]

PACKED, STATE, EACH = "p", "r", "0"
"""The rows of an array that a step uses: its own, the first ones, or the only one."""

Rows = Sequence[tuple[Any, str]]


class Stage(NamedTuple):
    """A stage of a step: ``function(*settings, *sums, *operands)`` for some rows of arrays.

    Attributes
    ----------
    function, settings
        A function of operations on elements, and its first arguments, which are hashable.
    read, write
        The operands and the arrays that the results are written to, each with its rows
        (`PACKED`, `STATE` or `EACH`).  An operand may be one of the results.
    weight, left
        Shape ``(..., parts, size, length)``, and an array of shape ``(..., rows, length)`` with
        its rows: the product with each part gives a sum for every element.  `None` for no sums.
    """

    function: Callable[..., Any]
    settings: tuple[Any, ...]
    read: Rows
    write: Rows
    weight: Any = None
    left: tuple[Any, str] | None = None


def in_parts(x: Any, count: int = 1) -> list[tuple[Any, str]]:
    """Return the parts of the last axis of an array with rows for all steps."""
    return [(part, PACKED) for part in parts_of(x, count)]


def weight_in_parts(weight: Any, parts: int) -> Any:
    """Split the rows of a weight into those of each part."""
    *lead, rows, length = weight.shape
    return weight.reshape((*lead, parts, rows // parts, length))


def projection(x: Any, weight: Any, out: Any, *more: tuple[Any, str]) -> Stage:
    """Return the stage that multiplies rows by a weight, and adds further arrays to the product."""
    read = list(more)
    return Stage(total, (), read, in_parts(out), weight_in_parts(weight, 1), (x, PACKED))


def total(*terms: Any) -> Any:
    """Return the sum of some arrays."""
    return functools.reduce(operator.add, terms)


class Reader:
    """Reads operands one after the other; some may be missing."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._rest = iter(values)

    def take(self, count: int) -> list[Any]:
        """Return the next operands."""
        return [next(self._rest) for _ in range(count)]

    def add(self, given: bool, value: Any) -> Any:
        """Return a value plus the next operand, if that is given."""
        return value + next(self._rest) if given else value


@Routine
def run_steps(x: Any, stages: Sequence[Stage], steps: Steps, carried: Any = None) -> None:
    """Run the stages of all steps, in the array module of ``x``.

    ``carried`` is a pair of arrays: after each step the rows of the first become the state that the
    second holds.
    """
    run_by(array_module(x), stages, steps, carried)


def run_by(xp: Any, stages: Sequence[Stage], steps: Steps, carried: Any) -> None:
    """Run the stages of all steps with the functions of an array module."""
    weights = [
        None if stage.weight is None else xp.ascontiguousarray(_joined(stage.weight))
        for stage in stages
    ]
    for rows, count in steps:
        for stage, weight in zip(stages, weights, strict=True):
            sums: tuple[Any, ...] = ()
            if stage.left is not None:
                product = xp.matmul(_rows(*stage.left, rows, count), weight)
                sums = parts_of(product, stage.weight.shape[-3])
            operands = [_rows(x, where, rows, count) for x, where in stage.read]
            results = stage.function(*stage.settings, *sums, *operands)
            results = results if type(results) is tuple else (results,)
            for (out, where), result in zip(stage.write, results, strict=True):
                _rows(out, where, rows, count)[...] = result
        if carried is not None:
            outs, state = carried
            state[..., :count, :] = outs[..., rows, :]


def _joined(weight: Any) -> Any:
    """Return a matrix whose columns are the rows of all parts."""
    *lead, parts, size, length = weight.shape
    return weight.reshape((*lead, parts * size, length)).swapaxes(-1, -2)


def _rows(x: Any, where: str, rows: slice, count: int) -> Any:
    if where == EACH:
        return x
    return x[..., rows, :] if where == PACKED else x[..., :count, :]
