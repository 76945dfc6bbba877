"""Native forms: which steps have machine code, and which.

The native form of a step is a `Written`: a kernel's source, its operands and results, its number of
rows and their cost.  Kernels of fused steps, of small arrays and of single instructions look the
same to their callers.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import attrs

from fdbr.backends.cpu.codegen.join_kernels import write_joins
from fdbr.backends.cpu.codegen.loop_kernels import write_loop
from fdbr.backends.cpu.codegen.nest_kernels import write_nest
from fdbr.backends.cpu.codegen.small_kernels import write_small
from fdbr.backends.cpu.codegen.written import Written
from fdbr.compiler.ir.loops import LOOP
from fdbr.compiler.ir.program import Fused, Guard, Instruction, Nest, Small, Step, Variable
from fdbr.compiler.ir.reductions import join_of
from fdbr.compiler.passes.cse import Identities
from fdbr.core.primitive import Primitive

__all__ = ["NATIVE", "NativeForms"]

NATIVE: dict[Primitive, Callable[[Instruction], Written | None]] = {LOOP: write_loop}
"""Kernel generators for single instructions, by primitive; one may return `None`."""


class NativeForms:
    """The kernels of a program's steps.

    A kernel is generated once for all steps that differ only in their variables, such as those of
    the iterations of an unrolled loop.

    Parameters
    ----------
    passed_on
        The results that are read soon, and stay in the processor's cache.
    gapped
        The operands that are rows of larger arrays, and whether the rows are contiguous.
    """

    def __init__(self, passed_on: Container[Variable], gapped: Mapping[Variable, bool]) -> None:
        self._passed_on, self._gapped = passed_on, gapped
        self._identities = Identities()
        self._forms: dict[Step, Written | None] = {}
        self._written: dict[Any, tuple[list[Variable], Written]] = {}

    def of(self, step: Step) -> Written | None:
        """Return the kernel of a step; `None` if Python runs it."""
        if step not in self._forms:
            self._forms[step] = self._form(step)
        return self._forms[step]

    def _form(self, step: Step) -> Written | None:
        if isinstance(step, Fused | Small):
            numbers: dict[Variable, int] = {}
            key = self._key(step, numbers)
            if key not in self._written:
                self._written[key] = list(numbers), self._new(step)
            variables, written = self._written[key]
            return _renamed(written, dict(zip(variables, numbers, strict=True)))
        if isinstance(step, Guard) or step.primitive not in NATIVE:
            return None
        return NATIVE[step.primitive](step)

    def _new(self, step: Fused | Small) -> Written:
        if isinstance(step, Fused):
            if any(join_of(part) is not None for part in step.steps):
                return write_joins(step)
            return write_nest(step, self._passed_on, self._gapped)
        return write_small(step)

    def _key(self, step: Fused | Small, numbers: dict[Variable, int]) -> Any:
        """Return the key of a kernel, with variables numbered in order of appearance."""
        parts = [self._part(part, numbers) for part in step.steps]
        kinds = [(v.kind, v in self._passed_on, self._gapped.get(v)) for v in numbers]
        outs = tuple([numbers[v] for v in step.outs])
        if isinstance(step, Small):
            return tuple(parts), tuple(kinds), outs
        over = tuple([(numbers[v], numbers[old]) for v, old in step.over.items()])
        rows = step.kept if isinstance(step, Nest) else step.split
        return tuple(parts), tuple(kinds), outs, step.domain, rows, over

    def _part(self, step: Instruction, numbers: dict[Variable, int]) -> Any:
        value = self._identities.of_value
        operands = [
            numbers.setdefault(x, len(numbers)) if type(x) is Variable else (value(x),)
            for x in step.operands
        ]
        params = [(name, value(x)) for name, x in step.params.items()]
        outs = [numbers.setdefault(x, len(numbers)) for x in step.outs]
        return step.primitive, tuple(operands), tuple(params), tuple(outs)


def _renamed(written: Written, names: Mapping[Variable, Variable]) -> Written:
    """Return a kernel with other variables."""

    def renamed(values: Sequence[Any]) -> list[Any]:
        return [names[v] if type(v) is Variable else v for v in values]

    outputs = [
        attrs.evolve(o, variable=variable, over=over)
        for o, (variable, over) in ((o, renamed((o.variable, o.over))) for o in written.outputs)
    ]
    return attrs.evolve(written, inputs=tuple(renamed(written.inputs)), outputs=tuple(outputs))
