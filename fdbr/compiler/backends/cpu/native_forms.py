"""Steps as machine code: the one place that says which have it, and what it is.

A step with a native form is a `Written`: a kernel's source, what it reads and writes, how many
rows it has and what they cost.  Kernels of elementwise steps, of small arrays and single
instructions are all the same to what calls them, and to NumPy, which does the same until they
are compiled.
"""

from collections.abc import Callable, Container, Mapping
from types import MappingProxyType

from fdbr.compiler.backends.cpu.fused_kernels import write
from fdbr.compiler.backends.cpu.loop_kernels import write_loop
from fdbr.compiler.backends.cpu.small_kernels import write_small
from fdbr.compiler.backends.cpu.written import Written
from fdbr.compiler.ir.loops import LOOP
from fdbr.compiler.ir.program import Fused, Guard, Instruction, Small, Step, Variable
from fdbr.core import Primitive

__all__ = ["NATIVE", "native_form", "parts_of"]

NATIVE: dict[Primitive, Callable[[Instruction], Written | None]] = {LOOP: write_loop}
"""Writers of kernels of single instructions, by primitives; a writer may decline."""


def native_form(
    step: Step,
    passed_on: Container[Variable] = (),
    gapped: Mapping[Variable, bool] = MappingProxyType({}),
) -> Written | None:
    """The kernel of a step; `None` if Python runs it.

    Results that are ``passed_on`` are read soon, and stay in the processor's own memory.  Those
    that are ``gapped`` are rows of larger arrays, whose elements may follow one another.
    """
    if isinstance(step, Fused):
        return write(step, passed_on, gapped)
    if isinstance(step, Small):
        return write_small(step)
    if isinstance(step, Guard) or step.primitive not in NATIVE:
        return None
    return NATIVE[step.primitive](step)


def parts_of(step: Step) -> tuple[Instruction, ...]:
    """The instructions that a kernel does."""
    assert not isinstance(step, Guard)
    return (step,) if isinstance(step, Instruction) else step.steps
