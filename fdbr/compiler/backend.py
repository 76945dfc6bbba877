"""The seam between passes and back ends.

A back end runs programs whose arrays are of one module.  Passes ask it which steps its kernels
can do and what they cost, and know no back end by name.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from fdbr.compiler.interpret import stepwise
from fdbr.compiler.ir.basic_blocks import BasicBlock
from fdbr.compiler.ir.program import Instruction, Kind, Program, Step, Variable, unfused
from fdbr.core.primitive import Primitive

__all__ = [
    "Backend",
    "Compiled",
    "Costs",
    "Kernel",
    "RefusedError",
    "Run",
    "backend_of",
    "fuse_operations",
    "is_busy",
    "lay_out",
    "register",
]

Run = Callable[..., tuple[Any, ...]]
"""From the inputs of a program to its outputs."""


class RefusedError(Exception):
    """A kernel does not compute with the numbers that it got.

    Its formula does not hold for them, or the function that was captured raises an error for them.
    """


class Kernel(Protocol):
    """A kernel of a program, which may have to be compiled yet."""

    @property
    def length(self) -> int:
        """The length of its source, by which the time of compiling it is estimated."""

    @property
    def seconds(self) -> float:
        """The seconds that something else has taken in its place."""

    @property
    def asked(self) -> bool:
        """Whether it is being compiled."""

    @property
    def settled(self) -> bool:
        """Whether it has taken its place, or never will."""

    def ask(self) -> None:
        """Have it compiled in the background."""

    def hurry(self, urgent: bool) -> None:
        """Have it compiled although others want the processor, or not."""

    def settle(self) -> Any:
        """Put it in its place; wait for it, if need be."""


class Compiled(Protocol):
    """A program that can run.

    A program that writes over inputs takes a list besides.  It gets an item when the first of
    them is about to be lost; without the list they are spared, and copies written over.

    Attributes
    ----------
    source
        A text of what runs, for those who want to read it.
    kernels
        The kernels that may not be compiled yet.
    sources
        The sources of all its kernels.
    memory
        Bytes that its results take while it runs.
    refuses
        Whether it can raise a `RefusedError`.
    """

    source: str
    kernels: Sequence[Kernel]
    sources: set[str]
    memory: int
    refuses: bool

    def __call__(self, *leaves: Any) -> tuple[Any, ...]:
        """The outputs for the leaves of the arguments.

        Raises
        ------
        RefusedError
            If a kernel refuses the numbers that it got.
        """


@attrs.frozen
class Costs:
    """The costs of kernels, beside those of calls of the array module and of additions.

    Attributes
    ----------
    launch
        Elements of a step below which the array module's own loop is as fast as a kernel.
    access
        Additions that cost less than to write an element and to read it again.
    rows
        Rows from which on threads can share a kernel.
    long
        Steps from which on a kernel pays however few elements there are.
    most
        Steps of one kernel: the time of compilers grows faster than their number.
    fewest_small, most_small
        The same for kernels of steps on small arrays: from how many steps on they pay, and how
        many they may be.
    """

    launch: int = 2048
    access: int = 4
    rows: int = 8
    long: int = 12
    most: int = 60
    fewest_small: int = 4
    most_small: int = 40


class Backend:
    """A back end; this one has no kernels, and takes one step of a program after the other.

    Parameters
    ----------
    module
        The array module; `None` for arrays of any, and of several in one program.
    costs
        What kernels cost.
    """

    def __init__(self, module: Any = None, costs: Costs | None = None) -> None:
        self.module = module
        self.costs = Costs() if costs is None else costs

    # --- which steps kernels can do ---

    def holds(self, kind: Kind) -> bool:
        """Whether kernels read and write values of a kind."""
        return False

    def is_elementwise(self, step: Instruction) -> bool:
        """Whether a kernel can do a step element by element, with others."""
        return False

    def is_total(self, step: Instruction) -> bool:
        """Whether it can do so for whatever numbers it gets: it never has to start again."""
        return False

    def is_by_row(self, step: Instruction) -> bool:
        """Whether a kernel can do a step on matrices that takes one element a row of the others."""
        return False

    def can_fold(self, kind: Kind) -> bool:
        """Whether kernels combine elements of a kind, as `Primitive.fold` says."""
        return False

    def can_join(self, step: Instruction) -> bool:
        """Whether kernels join elements as a step says, whose function a user has declared."""
        return False

    def is_small(self, step: Step) -> bool:
        """Whether a step is on so small arrays that one kernel does many, one after the other."""
        return False

    def is_large(self, variable: Variable) -> bool:
        """Whether it pays to plan in which memory a result lies."""
        return False

    def has_own(self, primitive: Primitive) -> bool:
        """Whether it computes a primitive faster than by its value function."""
        return False

    def lay_out(self, program: Program) -> Program:
        """Choose memory layouts that suit its kernels, before steps are decomposed and fused."""
        return program

    def fuse_operations(self, program: Program) -> Program:
        """Join steps for which it has one operation, before elementwise steps are fused."""
        return program

    # --- what they cost ---

    def cost(self, step: Instruction) -> int:
        """About how many additions an element of an elementwise step costs."""
        return 1

    def pays_alone(self, step: Instruction) -> bool:
        """Whether a kernel of an elementwise step alone is faster than the array module."""
        return False

    # --- what runs ---

    def generate(self, program: Program, products: bool = False, waits: bool = True) -> Compiled:
        """Make a program that has gone through the passes ready to run.

        It raises `GuardFailure` where a guard does not hold.  Small ``products`` may be done by
        kernels, and other steps that no pass has put in one: then the last bits may differ.  If
        it does not wait for kernels to be compiled, something else stands in for them.
        """
        run: Any = stepwise(program.inputs, unfused(program.steps), program.outputs)
        run.source, run.kernels, run.sources, run.memory = str(program), [], set(), 0
        run.refuses = False
        compiled: Compiled = run
        return compiled

    def control_flow(
        self,
        blocks: Sequence[BasicBlock | None],
        keeps: bool,
        shown: Sequence[tuple[int, Kind]],
        waits: bool,
        noted: int = 0,
    ) -> Any:
        """Make basic blocks ready to run without Python: see `backends.cpu.control_flow`.

        Raises
        ------
        NotImplementedError
            If that cannot be.
        """
        raise NotImplementedError("there is no control flow without Python")

    def log(self) -> Any:
        """A log, which notes which blocks have run, and what they have read."""
        raise NotImplementedError("there is no control flow without Python")

    def prepare(self) -> None:
        """Load what `generate` needs."""

    def takes_to_prepare(self) -> float:
        """About how many seconds `prepare` will take."""
        return 0.0

    def is_busy(self) -> bool:
        """Whether something is being compiled in the background."""
        return False

    def measures(self, sources: Iterable[str]) -> tuple[int, float]:
        """The bytes of machine code of such kernels in memory, and the seconds that they took."""
        return 0, 0.0


_PLAIN = Backend()
_backends: dict[Any, Backend] = {}


def register(backend: Backend) -> None:
    """Have a back end run the programs whose arrays are of its module."""
    _backends[backend.module] = backend


def backend_of(program: Program) -> Backend:
    """The back end that runs a program: the one for the array module of all its variables.

    One without kernels runs programs with arrays of several modules, or on several devices, and
    those of a module that no back end is for.
    """
    made = (out for step in program.steps for out in step.outs)
    kinds = {id(variable.kind): variable.kind for variable in (*program.inputs, *made)}
    places = {(kind.module, kind.device) for kind in kinds.values() if kind.module is not None}
    if len(places) > 1:
        return _PLAIN
    module = next(iter(places))[0] if places else np
    return _backends.get(module, _PLAIN)


def lay_out(program: Program) -> Program:
    """Apply the back end's `Backend.lay_out`."""
    return backend_of(program).lay_out(program)


def fuse_operations(program: Program) -> Program:
    """Apply the back end's `Backend.fuse_operations`."""
    return backend_of(program).fuse_operations(program)


def is_busy() -> bool:
    """Whether something is being compiled in the background."""
    return any(backend.is_busy() for backend in _backends.values())
