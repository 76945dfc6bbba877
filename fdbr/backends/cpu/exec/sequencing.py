"""The choice and order of steps that run in sequences."""

import math
from collections.abc import Container, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.small_kernels import is_plain_loop, loop_weight
from fdbr.backends.cpu.codegen.written import Written, fits_word
from fdbr.backends.cpu.exec.native_copies import ordered_look
from fdbr.backends.cpu.exec.native_forms import NativeForms
from fdbr.backends.cpu.exec.views import Look, looked
from fdbr.backends.cpu.library.matmul.blas import is_blas_product, vector_parts
from fdbr.backends.cpu.library.matmul.matmuls import is_threaded
from fdbr.backends.cpu.library.matmul.small import is_small_product, write_product
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import Loop, is_guarded, loop_of
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Program,
    Small,
    Step,
    Variable,
    has_effect,
    is_variable,
    kind_of,
)
from fdbr.compiler.ir.reductions import fold_of
from fdbr.compiler.passes.rules.views import view_of
from fdbr.core.expr import FLOATS

__all__ = ["Natives", "Run", "data_inputs", "gathered", "is_look", "reduction"]

_LONG = 50_000_000  # additions of a sequence after which Python checks for signals
_FEW = 3  # simple steps that pay for a sequence; Python runs fewer as fast
_ASKED: dict[Any, str] = {bool: "b", int: "i", float: "f"}


@attrs.frozen(eq=False)
class Run:
    """Consecutive steps that run in one sequence.

    Attributes
    ----------
    roots
        The values in whose memory the steps work.
    """

    steps: tuple[Step, ...]
    roots: list[Variable] = attrs.field(factory=list)

    @property
    def reads(self) -> list[Variable]:
        """The variables that the steps read, and the roots of their views."""
        return [*self.roots, *(v for step in self.steps for v in step.reads)]

    @property
    def outs(self) -> list[Variable]:
        """The results of the steps."""
        return [v for step in self.steps for v in step.outs]


class Natives:
    """The native forms of a program's steps, as far as they are known before memory planning.

    Parameters
    ----------
    products
        Whether kernels may compute steps that no pass has fused, above all matrix products.
    passed_on
        The results that are read soon after they are computed.
    """

    def __init__(self, program: Program, products: bool, passed_on: Container[Variable]) -> None:
        self.products = products
        self.passed_on = passed_on
        self.gapped = _gapped(program.steps)
        self.uses: dict[Any, int] = {}
        self._forms = NativeForms(passed_on, self.gapped)
        self._loops: dict[Loop, bool] = {}
        for step in program.steps:
            for variable in step.reads:
                self.uses[variable] = self.uses.get(variable, 0) + 1

    def form(self, step: Step) -> Written | None:
        """Return the kernel of a step; `None` if it has none."""
        return self._forms.of(step)

    def is_native(self, step: Step, made: Container[Variable], whole: bool = False) -> bool:
        """Return whether a step can be part of a sequence that has already computed some values.

        Large products are better left to several threads, except if the ``whole`` program must be
        a sequence.
        """
        if isinstance(step, Guard):
            return _is_check(step, made)
        if isinstance(step, Fused):
            size = math.prod(step.domain)
            return step.row_count == 1 or size * sum(map(cost, step.steps)) < TUNING.program_thread
        if isinstance(step, Small):
            return True
        if has_effect(step):
            return False
        loop = loop_of(step)
        if loop is not None and self.form(step) is None:
            return self._is_native_loop(step, loop)
        if (form := self.form(step)) is not None:
            alone = form.interruptible or any(out.kind.is_number for out in step.outs)
            return not alone and (form.rows == 1 or form.rows * form.weight < TUNING.program_thread)
        if is_look(step):
            return True
        return self.products and self._is_simple(step, whole)

    def _is_native_loop(self, step: Instruction, loop: Loop) -> bool:
        """Return whether machine code runs all iterations of a loop."""
        if loop not in self._loops:
            kinds = [kind_of(value) for value in (*step.operands, *step.outs)]
            kinds += [kind_of(value) for value in (*loop.body.inputs, *loop.body.outputs)]
            made: set[Variable] = set()
            same = zip(step.operands, loop.body.inputs[: loop.carried], step.outs, strict=False)
            found = not loop.is_open  # a sequence has a fixed number of iterations
            found = found and all(len({kind_of(x).dtype for x in three}) == 1 for three in same)
            found = found and all(kind.dtype in CODES and kind.size for kind in kinds)
            found = found and all(map(_is_plain_data, loop.data, data_inputs(loop)))
            found = found and all(map(fits_word, (*step.operands, *loop.body.outputs)))
            for inner in loop.body.steps if found else ():
                if not self.is_native(inner, made, whole=True):
                    found = False
                    break
                made.update(inner.outs)
            self._loops[loop] = found
        return self._loops[loop]

    def _is_simple(self, step: Instruction, whole: bool) -> bool:
        """Return whether an unfused step can have a kernel of its own."""
        if self.is_small_product(step):
            weight = write_product(step).weight * write_product(step).rows
            return weight < 8 * TUNING.program_thread
        if is_blas_product(step):
            return whole or not is_threaded(step) or _is_divided(step)
        if loop_weight((step,)) >= TUNING.program_thread:
            return False
        return is_plain_loop(step) or reduction(step) is not None

    def is_small_product(self, step: Step) -> bool:
        """Return whether a kernel computes a matrix product."""
        if not isinstance(step, Instruction) or not self.products:
            return False
        if step.primitive not in (op.MATMUL, op.MATMUL_TRANSPOSED):
            return False
        kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
        same = all(kind.is_array and kind.dtype == kinds[-1].dtype for kind in kinds)
        if not same or min(len(kind.shape) for kind in kinds) < 2:
            return False
        second = step.operands[1]
        return is_small_product(step, self.uses.get(second, 0) if is_variable(second) else 1)


def _is_divided(step: Instruction) -> bool:
    """Return whether the BLAS computes a matrix's product with a vector in parts, on one thread."""
    *lead, rows, columns = step.outs[0].kind.shape
    depth, size = kind_of(step.operands[0]).shape[-1], rows * columns
    return min(rows, columns) == 1 == math.prod(lead) and vector_parts(size, depth) > 0


def _gapped(steps: Sequence[Step]) -> dict[Variable, bool]:
    """Return the values that are rows of larger arrays, including those in loops.

    The flag says whether the elements of a row are contiguous.
    """
    looks: dict[Variable, Look] = {}
    found: dict[Variable, bool] = {}
    for step in steps:
        if is_look(step):
            assert isinstance(step, Instruction)
            x, out = step.operands[0], step.outs[0]
            look = looked(looks.get(x) or ordered_look(kind_of(x).shape), step)
            if look is not None:
                looks[out] = look
                if look.is_gapped() or look.is_stepped():
                    found[out] = look.is_gapped()
        elif (loop := loop_of(step)) is not None:
            for program in loop.programs:
                found |= _gapped(program.steps)
    return found


def reduction(step: Instruction) -> Fused | None:
    """Return the kernel of a reduction over leading, trailing or all axes; `None` for others."""
    found, out = fold_of(step), step.outs[0].kind
    if found is None or out.dtype not in FLOATS or not is_numpy_array(step.operands[0]):
        return None
    (_, axes), domain = found, step.operands[0].kind.shape
    rank = len(domain)
    if out.is_number or not rank:
        return None
    if axes == tuple(range(rank - len(axes), rank)) and len(axes) < rank:
        return Fused((step,), domain, rank - len(axes), step.outs)
    if axes == tuple(range(len(axes))) and axes:
        return Fused((step,), domain, len(axes), step.outs)
    return None


def is_numpy_array(operand: Any) -> bool:
    """Return whether an operand is a variable that holds a NumPy array."""
    return is_variable(operand) and operand.kind.is_array


def data_inputs(loop: Loop) -> Sequence[Variable]:
    """Return the inputs of a loop body that are constants which differ between iterations."""
    first = loop.carried + len(loop.rows)
    return loop.body.inputs[first : first + len(loop.data)]


def _is_plain_data(values: Sequence[Any], variable: Variable) -> bool:
    """Return whether the values of iterations are numbers, or arrays of numbers, of one aval."""
    try:
        array = np.array(list(values), variable.kind.dtype)
    except (TypeError, ValueError, OverflowError):
        return False
    return array.shape == (len(values), *variable.kind.shape)


def is_look(step: Step) -> bool:
    """Return whether the result of a step is a view of its operand."""
    if not isinstance(step, Instruction) or step.primitive not in op.VIEWS:
        return False
    operand, out = step.operands[0], step.outs[0]
    if type(operand) is not Variable or not operand.kind.is_array or not out.kind.size:
        return False
    if (
        out.kind.is_number
        or operand.kind.dtype not in CODES
        or operand.kind.dtype != out.kind.dtype
    ):
        return False
    if step.primitive is not op.SLICE:
        return True
    return view_of(operand.kind.shape, step.params["key"]) is not None


def _is_check(guard: Guard, made: Container[Variable]) -> bool:
    asked, operand = _ASKED.get(guard.question), guard.operand
    if asked is None or type(operand) is not Variable or operand not in made:
        return False
    kind = operand.kind
    return not kind.is_number and kind.size == 1 and kind.dtype.kind == asked


def gathered(program: Program, natives: Natives) -> list[Step | Run]:
    """Return the steps of a program, grouped into sequences as far as possible.

    Steps that Python runs come before a sequence unless they read its results.
    """
    found: list[Step | Run] = []
    waiting: list[Step] = []
    made: set[Variable] = set()
    weight, guarded, begun = 0, False, False

    def flush() -> None:
        nonlocal weight, guarded
        found.extend([Run(tuple(waiting))] if _pays(waiting, natives) else waiting)
        waiting.clear()
        made.clear()
        weight, guarded = 0, False

    for step in program.steps:
        native = natives.is_native(step, made)
        if isinstance(step, Fused) and step.over and not begun:
            flush()
            begun = True
        if native:
            if weight > _LONG:
                flush()
            waiting.append(step)
            made.update(step.outs)
            guarded |= is_guarded(step)
            weight += _weight(step)
            continue
        over = isinstance(step, Fused) and bool(step.over)
        ends = guarded or over or is_guarded(step) or has_effect(step)
        if ends or not made.isdisjoint(step.reads):
            flush()
        found.append(step)
    flush()
    return found


def _weight(step: Step) -> int:
    if isinstance(step, Guard) or is_look(step):
        return 0
    loop = loop_of(step)
    if loop is not None:
        return loop.length * sum(map(_weight, loop.body.steps))
    return loop_weight((step,) if isinstance(step, Instruction) else step.steps)


def _pays(steps: Sequence[Step], natives: Natives) -> bool:
    """Return whether a sequence is faster than Python."""
    real = [step for step in steps if not is_look(step) and not isinstance(step, Guard)]
    return len(real) >= _FEW or any(
        isinstance(step, Fused | Small) or loop_of(step) or natives.form(step) is not None
        for step in real
    )
