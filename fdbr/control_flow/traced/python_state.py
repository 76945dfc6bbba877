"""The state of Python at a guard: the code position and the variables of the frame.

What a function does next depends on its state, and on traced values, whose outcomes are guarded.
If the frame's value stack holds only the value that is read, the state is in its variables.  The
frames of its callers have not changed since they called it.
"""

from typing import Any

import numpy as np

from fdbr.compiler.capture.loop_states import IncomparableError, StateKey, operands_of_branch
from fdbr.compiler.capture.value_stack import depth_before
from fdbr.compiler.ir.program import Variable
from fdbr.core.tracer import Trace

__all__ = ["Seen", "Where", "seen"]

_LARGE = 1 << 16  # bytes of an array that is compared by its elements

Where = tuple[str, int]
"""The position of a traced value: the name of the variable, and the number in it."""


class Seen:
    """The state of a frame at a guard.

    Attributes
    ----------
    call
        The id of the frame, which is alive as long as the function runs.
    outermost
        Whether the frame was not called by another one of the user's.
    place
        The code, and the instruction in it.
    key
        The values of its variables except traced ones: equal for equal states of one call.
    traced
        The traced values, by their positions.
    """

    __slots__ = ("call", "key", "outermost", "place", "traced")

    def __init__(self, frame: Any, outermost: bool, sight: "_Sight") -> None:
        self.call, self.outermost = id(frame), outermost
        self.place = id(frame.f_code), frame.f_lasti
        self.key = sight.of_variables(frame.f_locals)
        self.traced = sight.found


class _Sight(StateKey):
    """Records the traced values that it meets; arrays are compared by elements."""

    def __init__(self, trace: Trace, held: list[Any]) -> None:
        super().__init__(trace, (), held)
        self.found: dict[Where, Variable] = {}
        self._name = ""

    def of_variables(self, variables: Any) -> Any:
        parts = []
        for self._name, value in sorted(variables.items()):
            parts.append((self._name, self.of(value)))
        return tuple(parts)

    def traced(self, value: Any) -> None:
        self.found[self._name, len(self.found)] = value.variable

    def foreign(self, value: Any) -> Any:
        if value._trace.level > self._trace.level:
            return super().foreign(value)
        return type(value), self._one(value)  # it exists before and after the run

    def _inside(self, value: Any, kind: Any) -> Any:
        if kind is np.ndarray and value.nbytes <= _LARGE and not value.dtype.hasobject:
            return value.dtype.str, value.shape, value.tobytes()
        return super()._inside(value, kind)


def seen(
    trace: Any, frame: Any, asked: Variable, base: Any, held: list[Any], frames: list[Any]
) -> Seen | None:
    """Return the state of a frame; `None` if it cannot be compared completely.

    Objects that must outlive the states are appended to ``held``, frames to ``frames``.
    """
    operands = 0 if frame is None else operands_of_branch(frame, asked, trace.places.compared)
    if not operands or depth_before(frame.f_code, frame.f_lasti) != operands:
        return None
    try:
        found = Seen(frame, _is_alone(frame.f_back, base), _Sight(trace, held))
    except IncomparableError:
        return None
    held.append(frame.f_code)
    frames.append(frame)
    return found


def _is_alone(frame: Any, base: Any) -> bool:
    """Return whether only fdbr's frames lie between a frame and a base frame."""
    while frame is not None and frame is not base:
        if frame.f_globals.get("__name__", "").split(".")[0] != "fdbr":
            return False
        frame = frame.f_back
    return True
