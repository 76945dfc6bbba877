"""The state of Python at a question: its place in the code, and the asking function's variables.

What a function does next depends on its state, and on traced values, whose answers it asks for.  If
nothing is on the stack of the function that asks but the question, its variables are all that it
has.  Whatever waits for it, around it, is as it was when it was called.
"""

from typing import Any

import numpy as np

from fdbr.compiler.capture.loop_states import Sight, UnknownError, operands_of_branch
from fdbr.compiler.capture.value_stack import depth_before
from fdbr.compiler.ir.program import Variable
from fdbr.core import Trace

__all__ = ["Seen", "Where", "seen"]

_LARGE = 1 << 16  # bytes of an array that is compared by its elements

Where = tuple[str, int]
"""The place of a traced value: the variable, and which one in it."""


class Seen:
    """The state of a function where it asks a question.

    Attributes
    ----------
    call
        The address of the frame, which is there as long as the function runs.
    outermost
        Whether nothing waits for it.
    place
        The code, and where in it.
    key
        All that its variables have but traced values: equal for equal states of one call.
    traced
        The traced values, by their places.
    """

    __slots__ = ("call", "key", "outermost", "place", "traced")

    def __init__(self, frame: Any, outermost: bool, sight: "_Sight") -> None:
        self.call, self.outermost = id(frame), outermost
        self.place = id(frame.f_code), frame.f_lasti
        self.key = sight.of_variables(frame.f_locals)
        self.traced = sight.found


class _Sight(Sight):
    """Notes the traced values on its way; arrays are what their elements are."""

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
        return type(value), self._one(value)  # it is there all the time

    def _inside(self, value: Any, kind: Any) -> Any:
        if kind is np.ndarray and value.nbytes <= _LARGE and not value.dtype.hasobject:
            return value.dtype.str, value.shape, value.tobytes()
        return super()._inside(value, kind)


def seen(
    trace: Any, frame: Any, asked: Variable, base: Any, held: list[Any], frames: list[Any]
) -> Seen | None:
    """The state of a frame; `None` if there is more to it than can be seen.

    ``held`` and ``frames`` get what must not go before the states, and the function itself.
    """
    operands = 0 if frame is None else operands_of_branch(frame, asked, trace.places.compared)
    if not operands or depth_before(frame.f_code, frame.f_lasti) != operands:
        return None
    try:
        found = Seen(frame, _is_alone(frame.f_back, base), _Sight(trace, held))
    except UnknownError:
        return None
    held.append(frame.f_code)
    frames.append(frame)
    return found


def _is_alone(frame: Any, base: Any) -> bool:
    """Whether there are none but fdbr's frames up to another one."""
    while frame is not None and frame is not base:
        if frame.f_globals.get("__name__", "").split(".")[0] != "fdbr":
            return False
        frame = frame.f_back
    return True
