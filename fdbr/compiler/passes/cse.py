"""Common subexpression elimination: compute equal steps once."""

from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Guard, Instruction, Program, Step, Variable, has_effect
from fdbr.compiler.passes.steps import renamed, renamed_outputs

__all__ = ["Identities", "cse"]

_SMALL = 1 << 12  # bytes up to which arrays are compared by their elements
_EXACT = frozenset({bool, int, str, type(None), type(...)})


def cse(program: Program) -> Program:
    """Replace equal steps by the first of them.

    Steps are equal if they apply the same primitive to the same variables and bitwise equal
    constants, with equal parameters, in the same rematerialisation scope: a checkpoint recomputes
    its values instead of reusing earlier ones.  Guards are equal if they read a variable in the
    same way.

    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = lambda xs: [xs[0] * 2 + xs[0] * 2]
    >>> print(cse(capture(f, f, [2.0]).program))
    program <lambda>(v0: float)
      v1: float = multiply(v0, 2)
      v2: float = add(v1, v1)
      return v2
    """
    identities = Identities()
    names: dict[Variable, Any] = {}
    known: dict[Any, tuple[Variable, ...]] = {}
    asked: set[Any] = set()
    steps: list[Step] = []
    for step in program.steps:
        step = renamed(step, names)
        if type(step) is Guard:
            asks = step.operand
            question = (
                asks if type(asks) is Variable else identities.of_value(asks),
                step.question,
            )
            if question in asked:
                continue
            asked.add(question)
        elif type(step) is Instruction and not has_effect(step):
            key = identities.of_step(step)
            first = known.setdefault(key, step.outs)
            if first is not step.outs:
                names.update(zip(step.outs, first, strict=True))
                continue
        steps.append(step)
    if len(steps) == len(program.steps):
        return program
    return renamed_outputs(program, steps, names)


class Identities:
    """Keys that are equal for equal steps.

    Numbers are compared by type and bits, so that 1 differs from 1.0 and True, and 0.0 from -0.0.
    Values that cannot be compared have their identity as key.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Any] = {}

    def of_step(self, step: Instruction) -> Any:
        """Return the key of a step."""
        operands = [
            operand if type(operand) is Variable else self.of_value(operand)
            for operand in step.operands
        ]
        params: Any = step.params and [
            (name, self.of_value(value)) for name, value in step.params.items()
        ]
        return step.primitive, step.remat, tuple(operands), tuple(params)

    def of_value(self, value: Any) -> Any:
        """Return the key of a constant or a parameter."""
        kind = type(value)
        if kind in _EXACT:
            return kind, value
        if kind is float:
            return kind, value.hex()
        if kind is complex:
            return kind, value.real.hex(), value.imag.hex()
        if kind is tuple or kind is list:
            return kind, tuple(map(self.of_value, value))
        if kind is slice:
            return kind, *map(self.of_value, (value.start, value.stop, value.step))
        if kind is np.ndarray:
            return self._of_array(value)
        if isinstance(value, np.generic):
            return kind, value.dtype, value.tobytes()
        if isinstance(value, np.dtype):
            return np.dtype, value
        return kind, id(value)

    def _of_array(self, array: Any) -> Any:
        key = self._arrays.get(id(array))
        if key is None:
            # Strides count, because NumPy's sums add in memory order.
            head = np.ndarray, array.dtype, array.shape, array.strides
            if array.dtype.hasobject or array.size == 0 or not _is_small(array):
                key = (np.ndarray, id(array))
            elif not any(array.strides):
                key = (*head, array[(0,) * array.ndim].tobytes())
            else:
                key = (*head, array.tobytes())
            self._arrays[id(array)] = key
        return key


def _is_small(array: Any) -> bool:
    return array.nbytes <= _SMALL or not any(array.strides)
