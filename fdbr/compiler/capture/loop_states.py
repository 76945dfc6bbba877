"""Detection of repeated Python states at guards, up to traced values.

A ``while`` loop evaluates a guard in every iteration.  If the frame is at the same instruction as
in the last iteration, and all its variables are equal but for traced values, then what Python does
next depends only on these values and on guard outcomes: the next iteration repeats the last one,
and the code after the loop does the same after any number of iterations.
"""

import contextlib
import dis
import functools
import inspect
import sys
import types
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir.op import EQUAL
from fdbr.compiler.ir.program import Variable, kind_of
from fdbr.core.array_modules import is_locked
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace, Tracer, plain

__all__ = [
    "GuardStates",
    "IncomparableError",
    "StateKey",
    "branches_are_read",
    "operands_of_branch",
    "user_frame",
]

_MOST = 2000  # values that are compared at one guard; beyond it comparing costs too much
_LARGE = 1 << 16  # bytes of an array that is compared by its elements

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: CPython sets it for classes made by Python code
_GENERATING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SAME = (int, float, complex, bool, str, bytes, type(None), type(...), range, np.dtype, np.generic)
_FIXED = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)

fixed: set[type] = set()
"""Further classes whose objects are immutable for this purpose, compared by identity."""


class IncomparableError(Exception):
    """A value cannot be compared with its earlier state."""


class GuardStates:
    """Numbers for the states in which Python evaluates guards; equal states have equal numbers.

    It keeps the frames alive, so that no two of them have the same address.

    Attributes
    ----------
    repeat
        Whether a guard was evaluated twice at one instruction of one call.
    compared
        The result of the last comparison, its operation, and the frame and instruction of the
        comparison.
    """

    def __init__(self) -> None:
        self._frames: dict[int, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # keeps objects alive, so that addresses are not reused
        self._asked: set[tuple[int, int]] = set()
        self.repeat = False
        self.compared: tuple[Any, ...] = ()

    def close(self) -> None:
        """Release the frames; the function has returned."""
        self._frames.clear()
        self._held.clear()

    def release(self) -> None:
        """Release the variables of functions that have returned."""
        for frame in list(self._frames.values()):
            if not frame.f_code.co_flags & _GENERATING:  # generators may continue
                with contextlib.suppress(RuntimeError):  # `clear` raises if the frame is running
                    frame.clear()
                    _ = frame.f_locals  # up to Python 3.12, reading it updates the cached dict

    def see(self, frame: Any) -> None:
        """Record that a guard was evaluated below a frame."""
        if frame is not None and not self.repeat:
            self._frames[id(frame)] = frame
            key = id(frame), frame.f_lasti
            self.repeat = key in self._asked
            self._asked.add(key)

    def compare(self, primitive: Primitive, result: Variable, frame: Any) -> None:
        """Record a comparison that ran below a frame."""
        if frame is not None:
            self.compared = result, primitive, id(frame), frame.f_lasti

    def number(
        self, trace: Trace, frame: Any, asked: Variable
    ) -> tuple[int | None, tuple[Variable, ...]]:
        """Return the number of the state at a guard below a frame; `None` if it cannot repeat.

        Values of this trace may differ in the same state; they are returned with it, in order.
        """
        if frame is None or not operands_of_branch(frame, asked, self.compared):
            return None, ()
        state_key = _TracedStateKey(trace, frame.f_code.co_freevars, self._held)
        try:
            seen = state_key.of_variables(frame.f_locals)
        except IncomparableError:
            return None, ()
        self._frames[id(frame)] = frame
        key = id(frame), frame.f_lasti, seen
        return self._numbers.setdefault(key, len(self._numbers)), tuple(state_key.found)


def user_frame(frame: Any) -> Any:
    """Return the innermost frame outside fdbr."""
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "fdbr":
        frame = frame.f_back
    return frame


def operands_of_branch(frame: Any, asked: Variable, compared: tuple[Any, ...]) -> int:
    """Return how many values a frame's instruction takes that branches by one truth value.

    It is 0 unless the next instruction depends on the truth of ``asked`` and on nothing else.  It
    is 0 in a ``for`` loop and in a generator too: the positions of iterators and generators cannot
    be read, so their states cannot be compared.

    Parameters
    ----------
    frame
        A frame, at the instruction.
    asked
        The variable whose truth value is needed.
    compared
        The last comparison, as `GuardStates` records it.
    """
    branch = _branch_at(frame.f_code, frame.f_lasti)
    if type(branch) is int:
        return branch
    # From Python 3.13 on, the instruction that compares also takes the truth of its result.  If it
    # compares lists, it takes the truth of each comparison of their elements before, and none of
    # these decides alone.  But the elements of containers are compared for equality only.
    if compared[:1] + compared[2:] != (asked, id(frame), frame.f_lasti):
        return 0
    return 2 if compared[1] is not EQUAL or _is_number(frame, branch) else 0


@functools.lru_cache(4096)
def _branch_at(code: Any, offset: int) -> Any:
    """Return how many values an instruction takes that only branches; 0 for other instructions.

    For an instruction that compares as well, return the instruction before it, or `None` if that
    may be another one.
    """
    if code.co_flags & _GENERATING:
        return 0
    found: Any = 0
    before = None
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "FOR_ITER" and instruction.offset <= offset < instruction.argval:
            return 0
        if instruction.offset == offset:
            if ("JUMP" in name and "_IF_" in name) or name == "TO_BOOL":
                found = 1
            elif name == "COMPARE_OP" and instruction.argrepr.startswith("bool("):
                found = None if instruction.is_jump_target else before
        before = instruction
    return found


def _is_number(frame: Any, load: dis.Instruction | None) -> bool:
    """Whether an instruction pushes a number: a constant, or a variable that holds one."""
    if load is None or not load.opname.startswith(("LOAD_CONST", "LOAD_FAST", "LOAD_SMALL_INT")):
        return False
    value = load.argval[-1] if type(load.argval) is tuple else load.argval
    if load.opname.startswith("LOAD_FAST"):
        value = frame.f_locals.get(value)
    return issubclass(type(value), (int, float, complex, np.generic, Tracer))


class _Probe:
    """Notes what its own truth is asked by."""

    def __init__(self) -> None:
        self.branches: list[int] = []
        self.compared: tuple[Any, ...] = ()

    def __gt__(self, other: Any) -> Any:
        self.compared = self, None, id(sys._getframe(1)), sys._getframe(1).f_lasti
        return self

    def __bool__(self) -> bool:
        found: Any = self
        self.branches.append(operands_of_branch(sys._getframe(1), found, self.compared))
        return False


@functools.cache
def branches_are_read() -> bool:
    """Whether branches are known by the instructions of this interpreter, which differ by version.

    Where they are not, every number of iterations of a ``while`` has a trace of its own.
    """
    probe = _Probe()
    while probe > 1:
        pass
    if probe:
        pass
    return all(probe.branches)


class StateKey:
    """The values of variables, as one value that can be compared."""

    def __init__(self, trace: Trace, watched: tuple[str, ...], held: list[Any]) -> None:
        self._trace = trace
        self._watched = watched  # free variables: `Captures` detects changes of their arrays
        self._held = held
        self._known: dict[int, int] = {}

    def of_variables(self, variables: Any) -> Any:
        """Return a key of all variables, with their names."""
        return tuple(
            (
                name,
                self._one(value) if name in self._watched and _is_array(value) else self.of(value),
            )
            for name, value in sorted(variables.items())
        )

    def of(self, value: Any) -> Any:
        """Return a key of one value."""
        kind = type(value)  # not `__class__`, which a tracer may fake
        if issubclass(kind, _SAME):
            return kind, value if issubclass(kind, int | str | bytes) else repr(value)
        if issubclass(kind, _FIXED) or kind in fixed:
            return self._one(value)
        known = self._known.get(id(value))
        if known is not None:
            return "again", known
        self._known[id(value)] = len(self._known)
        if len(self._known) > _MOST:
            raise IncomparableError
        if issubclass(kind, Tracer):
            if value._trace is not self._trace:
                return self.foreign(value)
            self.traced(value)
            return kind, type(plain(value)), kind_of(value)
        return kind, self._inside(value, kind)

    def traced(self, value: Any) -> None:
        """Record a traced value that is met for the first time."""

    def foreign(self, value: Any) -> Any:
        """Raise for a value of another trace: its tape or tangent cannot be compared."""
        raise IncomparableError

    def _inside(self, value: Any, kind: Any) -> Any:
        if _is_array(value):
            return self._one(value), _elements(value)
        if kind in (tuple, list):
            return tuple(map(self.of, value))
        if kind is dict:
            return tuple([(self.of(key), self.of(part)) for key, part in value.items()])
        if kind is types.FunctionType:
            cells = [self._of_cell(cell) for cell in value.__closure__ or ()]
            return self._one(value.__code__), tuple(cells), self.of(value.__defaults__)
        if kind is types.MethodType:
            return self.of(value.__func__), self.of(value.__self__)
        if kind is functools.partial:
            return self.of(value.func), self.of(value.args), self.of(value.keywords)
        if kind is slice:
            return tuple(map(self.of, (value.start, value.stop, value.step)))
        if attrs.has(kind):
            return tuple(self.of(getattr(value, field.name)) for field in attrs.fields(kind))
        if _is_plain(kind):
            return self.of(vars(value))
        raise IncomparableError

    def _one(self, value: Any) -> int:
        """Return the identity of an object, which is kept alive."""
        self._held.append(value)
        return id(value)

    def _of_cell(self, cell: Any) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # the cell is empty
            return None


class _TracedStateKey(StateKey):
    """Records the traced values that it meets."""

    def __init__(self, trace: Trace, watched: tuple[str, ...], held: list[Any]) -> None:
        super().__init__(trace, watched, held)
        self.found: list[Variable] = []

    def traced(self, value: Any) -> None:
        self.found.append(value.variable)


@functools.lru_cache(1024)
def _is_plain(kind: type) -> bool:
    """Return whether the state of a class's objects is only their attribute dictionary."""
    own = [base for base in kind.__mro__ if base is not object]
    if not kind.__dictoffset__:  # a C class, with state of its own
        return False
    return all(base.__flags__ & _HEAP and "__slots__" not in vars(base) for base in own)


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray


def _elements(array: Any) -> Any:
    """Return the elements of an array that may have changed."""
    if is_locked(array):
        return None
    if array.nbytes > _LARGE or array.dtype.hasobject:
        raise IncomparableError
    return array.tobytes()
