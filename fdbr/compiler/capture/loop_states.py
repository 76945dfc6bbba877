"""Whether Python is where it was: what a function has around a question, but for traced values.

A ``while`` asks a question at every turn.  If Python stands at the same place of the same call, and
all that the call sees is what it was at the last turn, but for traced values, then what it does
next can depend on nothing else than these and the answers that they give: the next turn is as the
last one, and whatever follows the loop is the same after any number of turns.
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

from fdbr.backend import is_locked
from fdbr.compiler.ir.op import EQUAL
from fdbr.compiler.ir.program import Variable, kind_of
from fdbr.core import Primitive, Trace, Tracer, plain

__all__ = ["Places", "Sight", "UnknownError", "branches_are_read", "operands_of_branch", "outside"]

_MOST = 2000  # values that are looked at
_LARGE = 1 << 16  # bytes of an array that is compared by its elements

_HEAP = 1 << 9  # of the flags of a class: it was made by Python code
_GENERATING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SAME = (int, float, complex, bool, str, bytes, type(None), type(...), range, np.dtype, np.generic)
_FIXED = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)

fixed: set[type] = set()
"""Further classes whose objects are what they are, whatever goes on in them."""


class UnknownError(Exception):
    """There is something of which nobody can tell whether it has changed."""


class Places:
    """Numbers for the states in which Python asks questions, equal for equal states.

    Frames are kept while it is there, so that none is taken for another.

    Attributes
    ----------
    repeat
        Whether a question was asked at one place of one call again.
    compared
        The result of the last comparison, its operation, and the frame and instruction of the
        comparison.
    """

    def __init__(self) -> None:
        self._frames: dict[int, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # that no address is given to anything else
        self._asked: set[tuple[int, int]] = set()
        self.repeat = False
        self.compared: tuple[Any, ...] = ()

    def close(self) -> None:
        """Let frames go: the function has returned."""
        self._frames.clear()
        self._held.clear()

    def release(self) -> None:
        """Let go what variables of functions that have returned refer to."""
        for frame in list(self._frames.values()):
            if not frame.f_code.co_flags & _GENERATING:  # these may go on
                with contextlib.suppress(RuntimeError):  # it is running
                    frame.clear()
                    _ = frame.f_locals  # whose dict, up to Python 3.12, is as of the last reading

    def see(self, frame: Any) -> None:
        """Note that a question was asked below a frame."""
        if frame is not None and not self.repeat:
            self._frames[id(frame)] = frame
            key = id(frame), frame.f_lasti
            self.repeat = key in self._asked
            self._asked.add(key)

    def compare(self, primitive: Primitive, result: Variable, frame: Any) -> None:
        """Note a comparison that was made below a frame."""
        if frame is not None:
            self.compared = result, primitive, id(frame), frame.f_lasti

    def number(
        self, trace: Trace, frame: Any, asked: Variable
    ) -> tuple[int | None, tuple[Variable, ...]]:
        """The number for a question asked below a frame; `None` if it may not be the same again.

        Values of the trace, and of no other one, may be others: these come with it, in an order.
        """
        if frame is None or not operands_of_branch(frame, asked, self.compared):
            return None, ()
        sight = _TracedSight(trace, frame.f_code.co_freevars, self._held)
        try:
            seen = sight.of_variables(frame.f_locals)
        except UnknownError:
            return None, ()
        self._frames[id(frame)] = frame
        key = id(frame), frame.f_lasti, seen
        return self._numbers.setdefault(key, len(self._numbers)), tuple(sight.found)


def outside(frame: Any) -> Any:
    """The frame of the function that is not fdbr's own, from which one was called."""
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "fdbr":
        frame = frame.f_back
    return frame


def operands_of_branch(frame: Any, asked: Variable, compared: tuple[Any, ...]) -> int:
    """Return how many values a frame's instruction takes that branches by one truth value.

    It is 0 unless the next instruction depends on the truth of ``asked`` and on nothing else, and
    in a ``for``, whose iterator has a state that cannot be seen.

    Parameters
    ----------
    frame
        A frame, at the instruction.
    asked
        The variable whose truth is asked for.
    compared
        The last comparison, as `Places` has it.
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
def _branch_at(code: Any, place: int) -> Any:
    """Return how many values an instruction takes that only branches; 0 if it does something else.

    For one that compares as well, return the instruction before, or `None` if that may be another.
    """
    if code.co_flags & _GENERATING:
        return 0
    found: Any = 0
    before = None
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "FOR_ITER" and instruction.offset <= place < instruction.argval:
            return 0
        if instruction.offset == place:
            if ("JUMP" in name and "_IF_" in name) or name == "TO_BOOL":
                found = 1
            elif name == "COMPARE_OP" and instruction.argrepr.startswith("bool("):
                found = None if instruction.is_jump_target else before
        before = instruction
    return found


def _is_number(frame: Any, load: dis.Instruction | None) -> bool:
    """Whether an instruction puts a number on the stack: a constant, or a variable that is one."""
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


class Sight:
    """The values of variables, as one value that can be compared."""

    def __init__(self, trace: Trace, watched: tuple[str, ...], held: list[Any]) -> None:
        self._trace = trace
        self._watched = watched  # variables of functions around: capture sees if arrays change
        self._held = held
        self._known: dict[int, int] = {}

    def of_variables(self, variables: Any) -> Any:
        """All of them, by their names."""
        return tuple(
            (
                name,
                self._one(value) if name in self._watched and _is_array(value) else self.of(value),
            )
            for name, value in sorted(variables.items())
        )

    def of(self, value: Any) -> Any:
        """One value."""
        kind = type(value)  # a traced value says that it is an instance of what it stands for
        if issubclass(kind, _SAME):
            return kind, value if issubclass(kind, int | str | bytes) else repr(value)
        if issubclass(kind, _FIXED) or kind in fixed:
            return self._one(value)
        known = self._known.get(id(value))
        if known is not None:
            return "again", known
        self._known[id(value)] = len(self._known)
        if len(self._known) > _MOST:
            raise UnknownError
        if issubclass(kind, Tracer):
            if value._trace is not self._trace:
                return self.foreign(value)
            self.traced(value)
            return kind, type(plain(value)), kind_of(value)
        return kind, self._inside(value, kind)

    def traced(self, value: Any) -> None:
        """Note a traced value that was not met before."""

    def foreign(self, value: Any) -> Any:
        """A traced value of another trace: a tape, or a tangent, is more than a value."""
        raise UnknownError

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
        raise UnknownError

    def _one(self, value: Any) -> int:
        """The number of an object, which no other one has."""
        self._held.append(value)
        return id(value)

    def _of_cell(self, cell: Any) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # it is empty
            return None


class _TracedSight(Sight):
    """Notes the traced values on its way."""

    def __init__(self, trace: Trace, watched: tuple[str, ...], held: list[Any]) -> None:
        super().__init__(trace, watched, held)
        self.found: list[Variable] = []

    def traced(self, value: Any) -> None:
        self.found.append(value.variable)


@functools.lru_cache(1024)
def _is_plain(kind: type) -> bool:
    """Whether an object of a class has nothing but its attributes."""
    own = [base for base in kind.__mro__ if base is not object]
    if not kind.__dictoffset__:  # a class that is not written in Python
        return False
    return all(base.__flags__ & _HEAP and "__slots__" not in vars(base) for base in own)


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray


def _elements(array: Any) -> Any:
    """The elements of an array that may have changed."""
    if is_locked(array):
        return None
    if array.nbytes > _LARGE or array.dtype.hasobject:
        raise UnknownError
    return array.tobytes()
