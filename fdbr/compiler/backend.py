"""The protocol of a back end.

A back end runs programs whose arrays belong to one array module.  Passes ask the back end which
steps its kernels can compute and what they cost; they never name a back end.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import attrs
import numpy as np

from fdbr.compiler.interpret import stepwise
from fdbr.compiler.ir.program import Instruction, Kind, Program, Step, Variable, unfused
from fdbr.core.loading import load_compiler
from fdbr.core.primitive import Primitive

__all__ = [
    "Backend",
    "Compiled",
    "Costs",
    "RefusedError",
    "Run",
    "backend_of",
    "fuse_operations",
    "lay_out",
    "register",
]

Run = Callable[..., tuple[Any, ...]]
"""From the inputs of a program to its outputs."""


class RefusedError(Exception):
    """A kernel refuses its operands.

    Its formula is invalid for their values, or the captured function raises an error for them.
    """


class Compiled(Protocol):
    """A program that can run.

    A program that overwrites inputs takes a list besides them, and appends to it before it
    overwrites the first one; without the list it overwrites copies, and spares the inputs.

    Attributes
    ----------
    source
        A readable text of the code.
    sources
        The sources of all kernels.
    memory
        Bytes of temporaries and results while it runs.
    refuses
        Whether it can raise a `RefusedError`.
    """

    source: str
    sources: set[str]
    memory: int
    refuses: bool

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        """Return the outputs for the leaves of the arguments.

        Raises
        ------
        RefusedError
            If a kernel refuses its operands.
        """


@attrs.frozen
class Costs:
    """The costs of kernels, in units that passes compare.

    Attributes
    ----------
    launch
        Elements of a step below which the array module's own loop is as fast as a kernel.
    access
        Additions that cost as much as writing an element to memory and reading it again.
    rows
        Rows from which on threads share a kernel.
    long
        Steps from which on a kernel pays however few elements there are.
    most
        Maximal steps of one kernel: compile time grows faster than their number.
    fewest_small, most_small
        Minimal and maximal steps of a kernel of steps on small arrays.
    """

    launch: int = 2048
    access: int = 4
    rows: int = 8
    long: int = 12
    most: int = 60
    fewest_small: int = 4
    most_small: int = 40


class Backend:
    """A back end; this base class has no kernels, and interprets programs step by step.

    Parameters
    ----------
    module
        The array module; `None` for arrays of any module, or of several in one program.
    costs
        The costs of kernels.
    """

    def __init__(self, module: Any = None, costs: Costs | None = None) -> None:
        self.module = module
        self.costs = Costs() if costs is None else costs

    # --- which steps kernels can compute ---
    def holds(self, kind: Kind) -> bool:
        """Return whether kernels can read and write values of an aval."""
        return False

    def is_elementwise(self, step: Instruction) -> bool:
        """Return whether a kernel can compute a step element by element, fused with others."""
        return False

    def is_total(self, step: Instruction) -> bool:
        """Return whether a kernel can compute a step for all values, and so never refuses."""
        return False

    def is_by_row(self, step: Instruction) -> bool:
        """Return whether a kernel can compute a step on matrices with one operand element a row."""
        return False

    def can_fold(self, kind: Kind) -> bool:
        """Return whether kernels can combine elements of an aval as `Facts.fold` says."""
        return False

    def can_join(self, step: Instruction) -> bool:
        """Return whether kernels can apply the function of a step that a user has declared."""
        return False

    def is_small(self, step: Step) -> bool:
        """Return whether a step has arrays so small that one kernel computes many such steps."""
        return False

    def is_large(self, variable: Variable) -> bool:
        """Return whether a result is large enough to plan its memory."""
        return False

    def has_own(self, primitive: Primitive) -> bool:
        """Return whether it computes a primitive faster than by its value function."""
        return False

    def lay_out(self, program: Program) -> Program:
        """Choose memory layouts that suit its kernels, before steps are decomposed and fused."""
        return program

    def fuse_operations(self, program: Program) -> Program:
        """Join steps for which it has one operation, before elementwise steps are fused."""
        return program

    # --- what steps cost ---

    def cost(self, step: Instruction) -> int:
        """Return the cost of an elementwise step for one element, in additions."""
        return 1

    def pays_alone(self, step: Instruction) -> bool:
        """Return whether a kernel of one elementwise step is faster than the array module."""
        return False

    # --- what runs ---

    def generate(self, program: Program, products: bool = False) -> Compiled:
        """Generate code for a program that has gone through the passes, and compile its kernels.

        The code raises `GuardFailure` where a guard fails.  With ``products`` kernels may compute
        small matrix products, and steps that no pass has fused; then the last bits may differ.
        """
        run: Any = stepwise(program.inputs, unfused(program.steps), program.outputs)
        run.source, run.sources, run.memory = str(program), set(), 0
        run.refuses = False
        compiled: Compiled = run
        return compiled

    def measures(self, sources: Iterable[str]) -> tuple[int, float]:
        """Return the bytes of machine code of some kernels, and their compile time in seconds."""
        return 0, 0.0


_PLAIN = Backend()
_backends: dict[Any, Backend] = {}


def register(backend: Backend) -> None:
    """Register a back end for the programs whose arrays are of its module."""
    _backends[backend.module] = backend


def backend_of(program: Program) -> Backend:
    """Return the back end for the array module of all variables of a program.

    Programs with arrays of several modules or devices, and those of a module without a back end,
    get one without kernels.
    """
    made = (out for step in program.steps for out in step.outs)
    kinds = {id(variable.kind): variable.kind for variable in (*program.inputs, *made)}
    places = {(kind.module, kind.device) for kind in kinds.values() if kind.module is not None}
    if len(places) > 1:
        return _PLAIN
    module = next(iter(places))[0] if places else np
    load_compiler(module)
    return _backends.get(module, _PLAIN)


def lay_out(program: Program) -> Program:
    """Apply the back end's `Backend.lay_out`."""
    return backend_of(program).lay_out(program)


def fuse_operations(program: Program) -> Program:
    """Apply the back end's `Backend.fuse_operations`."""
    return backend_of(program).fuse_operations(program)
