"""Traced values of a capture, and the trace that writes down what is done with them."""

import operator
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np
from numpy._core import _ufunc_config

from fdbr.compiler.capture.signature import is_special
from fdbr.compiler.capture.watch.constants import Constants, narrowed
from fdbr.compiler.ir.blocks import ALONE, in_blocks, is_room, unlocked
from fdbr.compiler.ir.guards import EACH, to_list
from fdbr.compiler.ir.program import (
    Guard,
    Instruction,
    Kind,
    Step,
    Variable,
    kind_of,
)
from fdbr.compiler.ir.python_numbers import apply
from fdbr.core.primitive import EXPLAINED, Primitive, host_types
from fdbr.core.tracer import Trace, Tracer, ended, escaped, number_types, replay, stop_gradient
from fdbr.core.tracer_methods import ARRAYS_OF_TRACED, decided, refusing
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "AbandonedError",
    "CaptureTrace",
    "CaptureTracer",
    "OpaqueTracer",
    "capturing",
    "traced",
]

_LARGE = 1 << 18  # elements of an array from which on it is put off
_DEEPEST = 16  # steps of which each is put off because of the one before
_MOST = 50_000  # steps of a program: Python takes 0.2 ms to compile one

capturing: ContextVar["CaptureTrace | None"] = ContextVar("capturing", default=None)
"""The trace that captures here, if one does."""

# What NumPy does about floating errors: an object that changes with it.
_errors: Any = getattr(_ufunc_config, "_extobj_contextvar", None)
_errors_now: Callable[[], Any] = np.geterr if _errors is None else _errors.get
_harmless = frozenset({"ignore", "warn", "print"})


_refuse_array = refusing(
    f"conversion of {{}} to a NumPy array. {ARRAYS_OF_TRACED}. NumPy calls no other library there, "
    "and a trace holds for whatever values the arguments have. Use the functions of fdbr.ops or "
    "NumPy on it; to put it into an array B, write B = ops.at(B)[key].set(x). If code must see the "
    "numbers, x.tolist() gives them, and the trace then holds only for them."
)


def is_numeric(dtype: Any) -> bool:
    """Return whether a program may compute with elements of a dtype."""
    return dtype_kind(dtype) in "biufc"


class AbandonedError(RuntimeError):
    """A function does something that no program shows, and is to be run as it is."""


_class_of = vars(Tracer)["__class__"].fget


class Pending:
    """An elementwise step on large arrays that nobody has looked at yet.

    What a function computes at its end, as new parameters, is put off so: then each array is made
    when the one that it is made of can go, and not all arrays of a kind at a time.

    Attributes
    ----------
    primitive, operands
        The step; operands are traced values and numbers.
    depth
        How many steps are put off on the longest way to what is known.
    """

    __slots__ = ("depth", "operands", "primitive")

    def __init__(self, primitive: Primitive, operands: tuple[Any, ...], depth: int) -> None:
        self.primitive = primitive
        self.operands = operands
        self.depth = depth

    def compute(self, kind: Kind) -> Any:
        """Take the step; a value of that kind, in the memory of an operand that nobody else has."""
        operands, self.operands = list(self.operands), ()
        own = -1
        for i in range(len(operands)):
            tracer = operands[i]
            if isinstance(tracer, CaptureTracer):
                operands[i] = tracer.value
                last = sys.getrefcount(tracer) == ALONE
                tracer = None
                if last and sys.getrefcount(operands[i]) == ALONE and is_room(operands[i], kind):
                    own = i
        if own < 0:
            return apply(self.primitive, tuple(operands), {})
        target = operands[own]
        with unlocked([target]):
            in_blocks(lambda *parts: (apply(self.primitive, parts, {}),), operands, [target])
        return target


def _is_large(arg: Any) -> bool:
    """Whether an operand is a large array, or one that is put off."""
    known = arg.known if type(arg) is CaptureTracer else None
    return type(known) is Pending or (type(known) is np.ndarray and known.size >= _LARGE)


class CaptureTracer(Tracer):
    """A real value, and the variable of the program that stands for it."""

    __slots__ = ("known", "variable")

    known: Any  # the value, or how it is computed
    variable: Variable

    def __init__(self, trace: "CaptureTrace", value: Any, variable: Variable) -> None:
        self._trace = trace
        self.known = value
        self.variable = variable

    @property
    def value(self) -> Any:
        """The real value, which is computed now if it was put off."""
        if type(self.known) is Pending:
            self.known = self.known.compute(self.variable.kind)
        return self.known

    @value.setter
    def value(self, value: Any) -> None:
        self.known = value

    shape = property(operator.attrgetter("variable.kind.shape"), Tracer.shape.fset)  # type: ignore[attr-defined]
    dtype = property(operator.attrgetter("variable.kind.dtype"), Tracer.dtype.fset)  # type: ignore[attr-defined]
    ndim = property(lambda self: len(self.variable.kind.shape))
    size = property(operator.attrgetter("variable.kind.size"))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return np.ndarray if type(self.known) is Pending else _class_of(self)

    def __repr__(self) -> str:
        return repr(self._trace.show(self))

    def __str__(self) -> str:
        return str(self._trace.show(self))

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else str(self)

    def tolist(self) -> Any:
        """The elements as numbers of Python; the program holds for those numbers alone."""
        return self._trace.decide(self, to_list)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = decided(self, dtype)
        return _refuse_array(self) if found is None else found


def _abandon(self: Any, *args: Any, **kwargs: Any) -> Any:
    self._trace.abandon(f"it uses an array of dtype {self.dtype}, and only numbers are traced")


class OpaqueTracer(CaptureTracer):
    """An array of text, dates, records or objects, which may only be passed on.

    The operators of traced values hold for numbers.  The first use of such an array ends the
    capture, and the function runs untraced.
    """

    __slots__ = ()

    value = property(_abandon, _abandon)
    __array_ufunc__ = __array_function__ = __array__ = _abandon

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.variable.kind.type


def traced(trace: "CaptureTrace", value: Any, variable: Variable) -> CaptureTracer:
    """Return a value of any dtype as traced by a capture."""
    kind = CaptureTracer if is_numeric(variable.kind.dtype) else OpaqueTracer
    return kind(trace, value, variable)


class CaptureTrace(Trace):
    """One capture.

    Attributes
    ----------
    steps, answers
        The steps, and the guards among them.
    constants
        The arrays that came from elsewhere.
    obstacle
        Why the program cannot be replayed; empty if it can.
    abandoned
        Whether not even this run gives what the function gives.
    unrolled
        Why loops among the steps are not one step each.
    pending
        References to the values whose steps were put off.
    others
        The threads that were there before, and may find traced values around the function.
    closed
        Whether it has come to its end, after which only those may still have such values.
    cut
        Whether it took more steps than it may: what is computed since is not traced any more.
    """

    __slots__ = (
        *("_errors", "abandoned", "answers", "closed", "constants", "cut", "obstacle"),
        *("others", "pending", "steps", "unrolled"),
    )

    records = True

    def __init__(
        self,
        function: Any,
        known: Any = (),
        others: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__("jit", function)
        self.others = others - {threading.get_ident()}
        self.closed = self.cut = False
        self.steps: list[Step] = []
        self.answers: list[Any] = []
        self.pending: list[weakref.ref[CaptureTracer]] = []
        self.constants = Constants(known)
        self.obstacle = ""
        self.abandoned = False
        self.unrolled: dict[str, None] = {}
        self._errors = _errors_now()

    def _is_elsewhere(self) -> bool:
        """Whether another thread has found a traced value of this, which it continues without."""
        if threading.get_ident() not in self.others:
            if self.closed:
                raise escaped(self, "fdbr.jit")
            return False
        self.obstacle = "another thread uses what is around it at the same time"
        return True

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.others and self._is_elsewhere():
            own = [arg.value if isinstance(arg, CaptureTracer) else arg for arg in args]
            return apply(primitive, tuple(own), params)
        if primitive.kind == "elementwise" and not params and any(map(_is_large, args)):
            pending = self._put_off(primitive, args)
            if pending is not None:
                return pending
        values: list[Any] = []
        operands: list[Any] = []
        host, foreign, constants = False, False, False  # as in `dispatch`
        for arg in args:
            if type(arg) is CaptureTracer and arg._trace is self:
                operands.append(arg.variable)
                arg = arg.value
            else:
                operands.append(self.constant(arg))
                constants = True
            values.append(arg)
            kind = type(arg)
            if kind in host_types:
                host = True
            elif kind not in number_types:
                foreign = True
        if params:
            params = {name: self.setting(value) for name, value in params.items()}
        if self.cut:
            return apply(primitive, tuple(values), params)
        try:
            if host and not foreign:
                out = primitive.host(np, *values, **params)
            else:
                out = apply(primitive, tuple(values), params)
        except Exception as error:
            self.obstacle = f"{primitive.name} raised an error, which the function caught"
            if host and not foreign and isinstance(error, EXPLAINED):
                raise primitive.explain(error, values) from error
            raise
        if constants and len(operands) > 1 and primitive.kind == "elementwise":
            operands = narrowed(operands)
        if (errors := _errors_now()) is not self._errors or len(self.steps) >= _MOST:
            self._check(errors)
            if self.cut:
                return out
        if type(out) is not tuple:
            variable = Variable(kind_of(out))
            if params and out is not None and not is_numeric(variable.kind.dtype):
                self.abandon(f"{primitive.name} gives an array of dtype {out.dtype}")
            remat = replay()
            self.steps.append(
                Instruction(primitive, tuple(operands), params, (variable,), False, remat)
            )
            return None if out is None else CaptureTracer(self, out, variable)
        outs = tuple([Variable(kind_of(part)) for part in out])
        self.steps.append(Instruction(primitive, tuple(operands), params, outs, True, replay()))
        traced = [
            None if part is None else CaptureTracer(self, part, variable)
            for part, variable in zip(out, outs, strict=True)
        ]
        return tuple(traced)

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.capture is None:
            return self.process(primitive, tuple(operands), params)
        return primitive.capture(self, operands, **params)

    def noted(
        self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any], out: Any
    ) -> Any:
        """A step of the program for something done already: a tuple of its results, or `None`."""
        parts = () if out is None else out
        if self.others and self._is_elsewhere():
            return out
        operands = [
            arg.variable
            if type(arg) is CaptureTracer and arg._trace is self
            else self.constant(arg)
            for arg in args
        ]
        if len(self.steps) >= _MOST:
            self._check(_errors_now())
        if any(isinstance(part, Tracer) for part in parts):
            self.obstacle = "what is around it has to know of what it does"
        if self.cut or self.obstacle:
            return out
        outs = tuple([Variable(kind_of(part)) for part in parts]) or (Variable(kind_of(None)),)
        step = Instruction(primitive, tuple(operands), params, outs, out is not None, replay())
        self.steps.append(step)
        if out is None:
            return None
        return tuple(CaptureTracer(self, *pair) for pair in zip(out, outs, strict=True))

    def references(self, tracer: Tracer) -> int:
        """The number of references that the trace itself has to a value."""
        waiting = [
            x.known for ref in self.pending if (x := ref()) is not None and type(x.known) is Pending
        ]
        return sum(arg is tracer for step in waiting for arg in step.operands)

    def _put_off(self, primitive: Primitive, args: tuple[Any, ...]) -> CaptureTracer | None:
        """The result of an elementwise step that need not be taken yet; `None` if it must be.

        It is one of arrays of one shape, and numbers.
        """
        if self.cut or len(self.steps) >= _MOST or _errors_now() is not self._errors:
            return None
        depth, shape, samples = 1, None, []
        for arg in args:
            if type(arg) is not CaptureTracer or arg._trace is not self:
                if type(arg) not in (int, float):
                    return None
                samples.append(arg)
                continue
            kind = arg.variable.kind
            if kind.type in (int, float) or issubclass(kind.type, np.generic):
                samples.append(arg.known)
                continue
            if shape is None:
                if kind.type is not np.ndarray:
                    return None
            elif kind.type is not np.ndarray or kind.shape != shape:
                return None
            if type(arg.known) is Pending:
                depth = max(depth, arg.known.depth + 1)
            shape = kind.shape
            samples.append(np.empty(0, kind.dtype))
        if shape is None or depth > _DEEPEST:
            return None
        found = apply(primitive, tuple(samples), {})
        if type(found) is not np.ndarray or found.shape != (0,):
            return None
        out = Variable(kind_of(found).array(shape))
        operands = [
            arg.variable if type(arg) is CaptureTracer else self.constant(arg) for arg in args
        ]
        operands = narrowed(operands) if len(operands) > 1 else operands
        self.steps.append(Instruction(primitive, tuple(operands), {}, (out,), False, replay()))
        traced = CaptureTracer(self, Pending(primitive, args, depth), out)
        self.pending.append(weakref.ref(traced))
        return traced

    def _check(self, errors: Any) -> None:
        """See whether what continues can be replayed at all."""
        if errors is not self._errors and not _harmless.issuperset(np.geterr().values()):
            self.obstacle = "it has NumPy raise errors that are none outside of it"
        if len(self.steps) >= _MOST:
            self.obstacle = f"it takes more than {_MOST} steps; jit what it repeats instead"
            self.cut = True
            self.steps.clear()

    def constant(self, value: Any) -> Any:
        """Return an operand that is not this trace's, as the program has it."""
        if isinstance(value, Tracer) and type(value) is not OpaqueTracer:
            self.obstacle = f"it uses a traced value of {value._trace}, which is no argument"
            return value
        if type(value) is OpaqueTracer:
            _abandon(value)
        if is_special(value):
            self.abandon(f"a {type(value).__name__} has operators of its own")
        if isinstance(value, np.ndarray | np.generic) and not is_numeric(value.dtype):
            self.abandon(f"it uses an array of dtype {value.dtype}, and only numbers are traced")
        return self.result(value)

    def result(self, value: Any) -> Any:
        """Return a result that is not this trace's, as the program has it."""
        return None if self.cut else self.constants.keep(value)

    def abandon(self, why: str) -> NoReturn:
        """End the capture: what the function would give is not what it gives when captured."""
        self.obstacle, self.abandoned = why, True
        raise AbandonedError(f"fdbr.jit: {self.origin[1]} cannot be traced: {why}")

    def setting(self, value: Any) -> Any:
        """A keyword of a primitive: traced values in it become plain, which takes a guard."""
        if type(value) is slice:
            return slice(*map(self.setting, (value.start, value.stop, value.step)))
        if type(value) is tuple:
            return tuple(map(self.setting, value))
        if isinstance(value, Tracer):
            number: Any = value
            return float(number) if number.dtype.kind == "f" else number.__index__()
        return value

    def lower(self, tracer: Any) -> Any:
        below = stop_gradient(tracer.value)  # there may be a transformation around
        if below is tracer.value:
            return tracer
        return CaptureTracer(self, below, tracer.variable)

    def decide(self, tracer: Any, kind: Callable[[Any], Any]) -> Any:
        if self.others and self._is_elsewhere():
            return kind(tracer.value)
        if ended(self):
            raise escaped(self, f"fdbr.jit: {kind.__name__}()")
        try:
            answer = kind(tracer.value)
        except AbandonedError:
            raise
        except Exception:
            self.obstacle = f"{kind.__name__}() raised an error, which the function caught"
            raise
        if not self.cut:
            self.steps.append(Guard(tracer.variable, kind, answer, len(self.answers)))
            self.answers.append(answer)
        return answer

    def show(self, tracer: Tracer) -> Any:
        self.obstacle = "it makes text of a traced value, which a replay would not do anew"
        return super().show(tracer)

    def each(self, tracer: Any, kind: Callable[[Any], Any]) -> list[Any]:
        if isinstance(tracer.value, Tracer):
            return super().each(tracer, kind)  # type: ignore[arg-type]
        return self.decide(tracer, EACH[kind])
