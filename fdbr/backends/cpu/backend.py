"""The CPU as passes see it: which steps its kernels can compute, and their costs."""

from collections.abc import Iterable

import numpy as np

from fdbr.backends.cpu.codegen import element_code, formulas, step_graph
from fdbr.backends.cpu.codegen.small_kernels import is_small
from fdbr.backends.cpu.exec.memory.buffer_assignment import is_large
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library import registered  # noqa: F401  # registers the CPU's operations
from fdbr.backends.cpu.library.conv.batch_last_layout import lay_batch_last
from fdbr.backends.cpu.library.conv.window_fusion import fuse_windows
from fdbr.backends.cpu.library.dispatch import VALUES
from fdbr.backends.cpu.runtime import compiling
from fdbr.compiler.backend import Backend, Compiled, register
from fdbr.compiler.ir.program import Instruction, Kind, Program, Step, Variable, kind_of
from fdbr.core.expr import FLOATS
from fdbr.core.primitive import Primitive

__all__ = ["CPU"]

_TYPES = frozenset({np.ndarray, np.float32, np.float64, np.bool_, np.int64, float, int})
_SLOW = 8  # cost of an operation, in additions, from which on a kernel for it alone pays


class _Cpu(Backend):
    """The back end of NumPy arrays: NumPy, and kernels compiled by LLVM."""

    def holds(self, kind: Kind) -> bool:
        return kind.type in _TYPES and kind.dtype in formulas.CODES

    def is_elementwise(self, step: Instruction) -> bool:
        return formulas.is_elementwise(step)

    def is_total(self, step: Instruction) -> bool:
        return formulas.is_total(step)

    def is_by_row(self, step: Instruction) -> bool:
        if step.primitive not in step_graph.BY_ROW:
            return False
        x, taken, labels, out = (kind_of(o).dtype for o in (*step.operands, *step.outs))
        return x == taken == out and x in FLOATS and formulas.CODES.get(labels) in ("i4", "i8")

    def can_fold(self, kind: Kind) -> bool:
        return kind.dtype in FLOATS

    def can_join(self, step: Instruction) -> bool:
        return formulas.joining_formulas(step) is not None

    def is_small(self, step: Step) -> bool:
        return is_small(step)

    def is_large(self, variable: Variable) -> bool:
        return is_large(variable)

    def has_own(self, primitive: Primitive) -> bool:
        return primitive in VALUES or primitive.host is not primitive.value

    def lay_out(self, program: Program) -> Program:
        return lay_batch_last(program)

    def fuse_operations(self, program: Program) -> Program:
        return fuse_windows(program)

    def cost(self, step: Instruction) -> int:
        return element_code.cost(step)

    def pays_alone(self, step: Instruction) -> bool:
        found = formulas.formula_of(step)
        return found is not None and found.is_composed and found.cost >= _SLOW

    def generate(self, program: Program, products: bool = False) -> Compiled:
        compiled: Compiled = generate(program, products)  # type: ignore[assignment]
        return compiled

    def measures(self, sources: Iterable[str]) -> tuple[int, float]:
        return compiling.measures(sources)


CPU = _Cpu(np)
register(CPU)
