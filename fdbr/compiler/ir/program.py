"""The captured program: the steps of a function's run, as a flat list.

A program is immutable.  Passes build new programs from it, a back end runs it, and printing it
shows the steps.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import is_array, module_at, module_of, number_of
from fdbr.core.primitive import Primitive
from fdbr.errors.checks import describe

__all__ = [
    "Fused",
    "Guard",
    "Instruction",
    "Kind",
    "Nest",
    "Program",
    "Small",
    "Step",
    "Variable",
    "has_effect",
    "is_collective",
    "is_variable",
    "kind_of",
    "unfused",
]


@attrs.frozen(slots=True)
class Kind:
    """The abstract value: type, shape, dtype and device, known before the program runs.

    Attributes
    ----------
    type
        The array type, a NumPy scalar type, or the type of a Python number, which is weak.
    shape, dtype
        Those of an array; for a number ``()`` and the dtype that NumPy would give it.
    device
        The number of the device that holds an array; `None` for host memory.
    """

    type: type
    shape: tuple[int, ...]
    dtype: Any
    device: int | None = None

    @property
    def module(self) -> Any:
        """The array module of an array; `None` for scalars and numbers, which suit any module."""
        return _module_of(self.type)

    @property
    def xp(self) -> Any:
        """The module that creates arrays on the value's device; NumPy for scalars and numbers."""
        module = self.module
        return np if module is None else module_at(module, self.device)

    @property
    def is_array(self) -> bool:
        """Whether it is an array of an array module, not a scalar or number."""
        return self.type is np.ndarray or _module_of(self.type) is not None

    @property
    def is_scalar(self) -> bool:
        """Whether it is a NumPy scalar."""
        return issubclass(self.type, np.generic)

    @property
    def is_number(self) -> bool:
        """Whether it is a Python number, which is weak in type promotion."""
        return self.type in (bool, int, float, complex)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        """The bytes of all elements, each counted once."""
        return int(self.size * self.dtype.itemsize)

    def __str__(self) -> str:
        if self.is_number:
            return self.type.__name__
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        module = self.module
        if module is np or not hasattr(module, "__name__"):
            return text
        return f"{text}@{module.__name__}" + ("" if self.device is None else f":{self.device}")

    def array(self, shape: Iterable[int]) -> "Kind":
        """Return the aval of an array with a shape, and otherwise like this one."""
        kind = self.type if self.is_array else np.ndarray
        return Kind(kind, tuple(shape), self.dtype, self.device)


@functools.cache
def _module_of(kind: type) -> Any:
    """Return the module of an array type; `None` for other types, and for subclasses."""
    if issubclass(kind, np.ndarray | np.generic):
        return np if kind is np.ndarray else None
    return module_of(kind, None)


def kind_of(value: Any) -> Kind:
    """Return the aval of a value or of a variable."""
    if type(value) is Variable:
        return value.kind
    kind: Any = type(value)
    if kind not in _HOST and is_array(value):
        return _kind_there(value)
    try:
        return _kind(kind, value.shape, value.dtype)
    except AttributeError:
        return _kind(kind, (), np.dtype(kind))


_HOST = frozenset(
    {np.ndarray, np.float64, np.float32, np.int64, np.bool_, bool, int, float, complex}
)


@functools.lru_cache(4096)
def _kind(kind: type, shape: Any, dtype: Any) -> Kind:
    return Kind(kind, tuple(shape), dtype)


def _kind_there(value: Any) -> Kind:
    """Return the aval of an array that may be on a device."""
    return Kind(type(value), tuple(value.shape), value.dtype, number_of(value))


# Variables and instructions are never mutated, but not frozen: attrs would spend as much time on
# that as the rest of a capture takes.
@attrs.define(eq=False, slots=True)
class Variable:
    """A value of the run, defined by one step or an input."""

    kind: Kind


def is_variable(operand: Any) -> bool:
    """Return whether an operand is a variable; otherwise it is a constant."""
    return type(operand) is Variable


@attrs.define(eq=False, slots=True)
class Instruction:
    """The application of one primitive.

    Attributes
    ----------
    primitive
        The primitive.
    operands
        Variables and constants.
    params
        The keyword parameters of the primitive.
    outs
        One variable, or several for a primitive that returns a tuple.
    several
        Whether the primitive returns a tuple.
    remat
        The rematerialisation scope: 0, or the number of a run that is repeated to save memory.
        Values in it must not be shared with those computed before.
    """

    primitive: Primitive
    operands: tuple[Any, ...]
    params: Mapping[str, Any]
    outs: tuple[Variable, ...]
    several: bool = False
    remat: int = 0

    @property
    def reads(self) -> Iterator[Variable]:
        """The variables among the operands."""
        return (operand for operand in self.operands if type(operand) is Variable)


@attrs.frozen(eq=False, slots=True)
class Guard:
    """A value that Python read: the program is valid only if the outcome is the same.

    Attributes
    ----------
    operand
        The variable that was read.
    question
        The conversion: `bool`, `int`, `float` or `complex`.
    answer
        Its outcome in the captured run.
    index
        The guard's number in the run.
    """

    operand: Variable
    question: Callable[[Any], Any]
    answer: Any
    index: int

    outs = ()

    @property
    def reads(self) -> Iterator[Variable]:
        """The variable that is read; none if a pass has found it to be a constant."""
        return iter((self.operand,) if type(self.operand) is Variable else ())


@attrs.frozen(eq=False, slots=True)
class Fused:
    """Elementwise steps and reductions that one kernel computes in one pass over its domain.

    Attributes
    ----------
    steps
        Instructions, in an order in which they can run.
    domain
        The shape that the kernel runs over.
    split
        The number of leading axes that make the rows; the others make the columns.
    outs
        The variables that other steps read.
    over
        For some of them, the donated operands that they may overwrite.
    """

    steps: tuple[Instruction, ...]
    domain: tuple[int, ...]
    split: int
    outs: tuple[Variable, ...]
    over: Mapping[Variable, Variable] = MappingProxyType({})

    @property
    def reads(self) -> Iterator[Variable]:
        """The variables defined outside of the kernel, each once."""
        return _from_outside(self.steps)

    @property
    def row_count(self) -> int:
        """The number of rows, which threads share."""
        return math.prod(self.domain[: self.split])


@attrs.frozen(eq=False, slots=True)
class Nest(Fused):
    """Steps of one kernel with reductions along any axes, whose rows are the axes left over.

    Attributes
    ----------
    kept
        The axes of the domain that make the rows; ``split`` is 0.
    """

    kept: tuple[int, ...] = ()

    @property
    def row_count(self) -> int:
        return math.prod(self.domain[axis] for axis in self.kept)


def _from_outside(steps: tuple[Instruction, ...]) -> Iterator[Variable]:
    made = {out for step in steps for out in step.outs}
    return iter(dict.fromkeys(v for step in steps for v in step.reads if v not in made))


@attrs.frozen(eq=False, slots=True)
class Small:
    """Steps on small arrays that one kernel computes one after the other.

    Attributes
    ----------
    steps
        Instructions, in their order.
    outs
        The variables that other steps read.
    """

    steps: tuple[Instruction, ...]
    outs: tuple[Variable, ...]

    @property
    def reads(self) -> Iterator[Variable]:
        """The variables defined outside of the kernel, each once."""
        return _from_outside(self.steps)


Step = Instruction | Guard | Fused | Small


def unfused(steps: Iterable[Step]) -> list[Guard | Instruction]:
    """Return the steps in order, with those of kernels inlined."""
    parts: list[Guard | Instruction] = []
    for step in steps:
        parts += step.steps if isinstance(step, Fused | Small) else (step,)
    return parts


def has_effect(step: Step) -> bool:
    """Return whether a step has a side effect."""
    return type(step) is Instruction and step.primitive.facts.effect


def is_collective(step: Step) -> bool:
    """Return whether a step is a collective, which all processes run together."""
    return type(step) is Instruction and step.primitive.facts.collective


@attrs.frozen(eq=False)
class Program:
    """A flat program.

    Attributes
    ----------
    name
        The name of the function.
    inputs
        One variable for each leaf of the arguments that is an array or a number.
    steps
        The steps, in the order in which they run.
    outputs
        Variables and constants: the leaves of the result.
    donated
        The inputs that the caller donates.
    """

    name: str
    inputs: tuple[Variable, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    donated: frozenset[Variable] = frozenset()

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards among the steps, in their order."""
        return tuple(step for step in self.steps if type(step) is Guard)

    @property
    def overwritten(self) -> tuple[Variable, ...]:
        """The inputs that kernels overwrite, in that order."""
        kernels = [step for step in self.steps if type(step) is Fused]
        return tuple(variable for kernel in kernels for variable in kernel.over.values())

    def replace(self, steps: Any = None, outputs: Any = None) -> "Program":
        """Return the program with other steps or outputs."""
        return Program(
            self.name,
            self.inputs,
            self.steps if steps is None else tuple(steps),
            self.outputs if outputs is None else tuple(outputs),
            self.donated,
        )

    def __str__(self) -> str:
        names: dict[Variable, str] = {}

        def named(operand: Any) -> str:
            if type(operand) is Variable:
                return names.setdefault(operand, f"v{len(names)}")
            return describe(operand) if kind_of(operand).shape else repr(operand)

        heads = [f"{named(v)}: {v.kind}" for v in self.inputs]
        lines = [f"program {self.name}({', '.join(heads)})"]
        for step in self.steps:
            if isinstance(step, Guard):
                asked = f"{step.question.__name__}({named(step.operand)})"
                lines.append(f"  guard {asked} == {step.answer!r}")
            elif isinstance(step, Instruction):
                lines.append(_line(step, named))
                body = getattr(step.params.get("loop"), "body", None)
                if isinstance(body, Program):
                    lines += [f"    {line}" for line in str(body).splitlines()]
            else:
                rows = step.kept if isinstance(step, Nest) else getattr(step, "split", None)
                over = f" over {step.domain} by {rows}" if isinstance(step, Fused) else ""
                lines.append(f"  kernel{over}:")
                lines += ["  " + _line(part, named) for part in step.steps]
                old = step.over if isinstance(step, Fused) else {}
                kept = [
                    f"{named(v)} over {named(old[v])}" if v in old else named(v) for v in step.outs
                ]
                lines.append(f"    keep {', '.join(kept)}")
        lines.append(f"  return {', '.join(map(named, self.outputs))}")
        return "\n".join(lines)


def _line(step: Instruction, named: Callable[[Any], str]) -> str:
    params = [f"{key}={_short(value)}" for key, value in step.params.items()]
    call = f"{step.primitive.name}({', '.join([*map(named, step.operands), *params])})"
    left = ", ".join(f"{named(v)}: {v.kind}" for v in step.outs)
    return f"  {left} = {call}"


def _short(value: Any) -> str:
    if hasattr(value, "shape") and getattr(value, "shape", ()) != ():
        return describe(value)
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
