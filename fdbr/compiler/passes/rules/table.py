"""The table of rewrite rules, and what a rule can know about a program.

A rule is a function ``rule(step, facts)``.  It returns `None` if it does not match; otherwise the
replacement of the step: `Same` for an existing operand, an instruction with the step's outputs, or
several instructions, the last of which has the step's outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Kind, Variable
from fdbr.core.primitive import Primitive

__all__ = ["Facts", "Rule", "Same", "applied", "between", "instead", "rule", "rules_for"]


@attrs.frozen(slots=True)
class Same:
    """The replacement of a step by an operand with the same value.

    It is used only if the operand has the aval of the step's result.
    """

    operand: Any


Found = Same | Instruction | Sequence[Instruction] | None
Rule = Callable[[Instruction, "Facts"], Found]

_rules: dict[Any, list[Rule]] = {}  # by primitives, and by names of declaration kinds


def rule(*primitives: Primitive, kind: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for primitives, or for all primitives of a declaration kind."""

    def enter(function: Rule) -> Rule:
        for key in (*primitives, kind) if kind else primitives:
            _rules.setdefault(key, []).append(function)
        return function

    return enter


def rules_for(primitive: Primitive) -> list[Rule]:
    """Return the rules for a primitive, in the order in which they are tried."""
    return [*_rules.get(primitive, ()), *_rules.get(primitive.kind, ())]


def applied(step: Instruction, primitive: Primitive, *operands: Any, **params: Any) -> Instruction:
    """Return an instruction that computes the step's result by another primitive."""
    return Instruction(primitive, operands, params, step.outs, False, step.remat)


def instead(step: Instruction, *operands: Any) -> Instruction:
    """Return the step with other operands."""
    return Instruction(step.primitive, operands, step.params, step.outs, step.several, step.remat)


def between(
    step: Instruction, kind: Kind, primitive: Primitive, *operands: Any, **params: Any
) -> tuple[Variable, Instruction]:
    """Return a new variable, and the instruction that defines it, for an intermediate result."""
    variable = Variable(kind)
    made = Instruction(primitive, operands, params, (variable,), False, step.remat)
    return variable, made


class Facts:
    """Facts that rules can look up: the definitions of variables, and the values of constants.

    Attributes
    ----------
    makers
        The instruction that defines each variable.
    waits
        Whether a rule did not match only because an operand has other readers.
    """

    __slots__ = ("_elements", "_reads", "makers", "waits")

    def __init__(self, reads: Mapping[Variable, int]) -> None:
        self.makers: dict[Variable, Instruction] = {}
        self.waits = False
        self._reads = reads
        self._elements: dict[int, tuple[Any, Any]] = {}

    def made_by(self, operand: Any, *primitives: Primitive) -> Instruction | None:
        """Return the instruction that defines an operand, if it applies one of the primitives."""
        if type(operand) is not Variable:
            return None
        maker = self.makers.get(operand)
        return maker if maker is not None and maker.primitive in primitives else None

    def only_made_by(self, operand: Any, *primitives: Primitive) -> Instruction | None:
        """Return `made_by` if the operand has no other readers, so that it becomes unused."""
        maker = self.made_by(operand, *primitives)
        if maker is None or self._reads.get(operand) == 1:
            return maker
        self.waits = True
        return None

    def element(self, operand: Any) -> Any:
        """Return the element that all elements of a constant equal, as a scalar of its dtype.

        It is a Python number for a constant that is one, and `None` if elements differ.
        """
        kind = type(operand)
        if kind is Variable:
            maker = self.made_by(operand, op.FULL_LIKE)
            return None if maker is None else _filling(maker)
        if kind is not np.ndarray:
            return operand if kind in _NUMBERS or isinstance(operand, np.generic) else None
        known = self._elements.get(id(operand))
        if known is None:  # stores the operand too, so that its id is not reused
            known = self._elements[id(operand)] = operand, _common_element(operand)
        return known[1]

    def number(self, operand: Any) -> Any:
        """Return the common element as a Python number, if there is one and it is real."""
        element = self.element(operand)
        if element is None or type(element) in (bool, int, float):
            return element
        return element.item() if getattr(element, "dtype", np.dtype("O")).kind in "biuf" else None


_NUMBERS = frozenset({bool, int, float, complex})


def _filling(maker: Instruction) -> Any:
    kind = maker.outs[0].kind
    value = maker.params["value"]
    if kind.type is not np.ndarray or not kind.size or np.ndim(value):
        return None
    return np.asarray(value).astype(kind.dtype)[()]


def _common_element(array: Any) -> Any:
    """Return the element that all elements of an array equal bitwise; else `None`."""
    if array.size == 0 or array.dtype.kind not in "biufc":
        return None
    first = array[(0,) * array.ndim]
    if not any(array.strides) or array.size == 1:
        return first
    if array.dtype.kind == "c":
        return None  # the signs of both parts of zeros would have to be compared
    if array[(-1,) * array.ndim] != first or not (array == first).all():
        return None
    if first == 0 and array.dtype.kind == "f" and (np.signbit(array) != np.signbit(first)).any():
        return None
    return first
