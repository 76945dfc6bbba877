"""Formulas of elementwise operations, obtained by tracing their value functions on nodes.

`codegen.math.functions` is an array module whose arrays are expressions.  A value function applied
to them yields what a kernel must compute for each element, so no operation is described here twice.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.scalar_functions import MODULE
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.core.expr import FLOATS, INTEGERS, Graph, InexpressibleError, Node, every
from fdbr.ops.declare.user_reductions import Combine

__all__ = ["CODES", "Formula", "formula_of", "is_elementwise", "is_total", "joining_formulas"]

CODES = {
    np.dtype(np.float32): "f4",
    np.dtype(np.float64): "f8",
    np.dtype(np.bool_): "b1",
    np.dtype(np.int32): "i4",
    np.dtype(np.int64): "i8",
}
"""The dtypes that kernels know, and what they are called there."""

_LONG = 600  # nodes; a longer formula takes LLVM longer to compile than it saves
_MOST = 4096  # formulas in the cache
_SLOW = {"div": 32, "sqrt": 32, "scalar": 160}  # the cost of slow operations, in additions
_FEW = 4  # operations that cost no more than the memory access beside them
_WHOLE = frozenset({"reduced", "columns"})  # operations that are not elementwise
_UNSUITED = AttributeError, TypeError, ValueError, IndexError, KeyError, ArithmeticError


class Formula:
    """Describe the expression that an operation computes for each element.

    Attributes
    ----------
    root
        The node of the result.
    nodes
        All nodes in topological order.
    condition
        The node that must be true for the formula to hold; `None` if it always holds.
    operands
        The dtypes to which operands are converted; `None` for those that are constants.
    cost
        The approximate cost of one element, in additions.
    """

    __slots__ = ("condition", "cost", "nodes", "operands", "root")

    def __init__(self, root: Node, operands: Sequence[Any]) -> None:
        self.root, self.nodes, self.operands = root, every([root]), operands
        conditions = root.graph.conditions
        self.condition = functools.reduce(operator.and_, conditions) if conditions else None
        if len(self.nodes) > _LONG or any(node.op in _WHOLE for node in self.nodes):
            raise InexpressibleError("what is no short function of each element")
        parts = [node.op for node in self.nodes if node.args]
        self.cost = max(1, sum(_SLOW.get(op, 1) for op in parts) // _FEW)

    @property
    def is_composed(self) -> bool:
        """Return whether the formula has more than one operation."""
        return sum(bool(node.args) for node in self.nodes) > 1


def is_elementwise(step: Instruction) -> bool:
    """Return whether a kernel can do a step on arrays or scalars element by element."""
    return not step.outs[0].kind.is_number and formula_of(step) is not None


def is_total(step: Instruction) -> bool:
    """Return whether a kernel can do a step for all values of its operands."""
    found = formula_of(step) if is_elementwise(step) else None
    return found is not None and found.condition is None


def formula_of(step: Instruction) -> Formula | None:
    """Return the formula of a step, or `None` if it has none."""
    if step.several or len(step.outs) != 1 or not step.primitive.facts.elementwise:
        return None
    out = step.outs[0].kind
    if out.dtype not in CODES:
        return None
    try:
        keys = tuple([_key(operand) for operand in step.operands])
        return _formula(step.primitive, keys, tuple(step.params.items()), out.dtype)
    except (InexpressibleError, TypeError):  # TypeError: a keyword that is not hashable
        return None


def _key(operand: Any) -> Any:
    """Return what a formula depends on: an operand's dtype, or a number and its type."""
    kind = kind_of(operand)
    if kind.dtype not in CODES:
        raise InexpressibleError(f"numbers of dtype {kind.dtype}")
    if type(operand) is Variable or kind.size != 1:
        return kind.dtype, kind.type if kind.is_number else None, None
    number = operand if kind.is_number else operand.reshape(())[()]
    return kind.dtype, kind.type, (repr(number), _Number(number))


def joining_formulas(step: Instruction) -> tuple[Formula, ...] | None:
    """Return the formulas by which a step combines two states of a reduction, or `None`.

    They take the parts of the first state, then those of the second.
    """
    dtypes = tuple([kind_of(operand).dtype for operand in step.operands])
    if any(dtype not in CODES for dtype in dtypes):
        return None
    combine = step.params["combine"]
    if dtypes not in combine.found:
        combine.found[dtypes] = _joining(combine, dtypes)
    found: tuple[Formula, ...] | None = combine.found[dtypes]
    return found


def _joining(combine: Combine, dtypes: tuple[Any, ...]) -> tuple[Formula, ...] | None:
    graph, count = Graph(MODULE), len(dtypes)
    nodes = [graph.node("operand", dtype, (), (i, True)) for i, dtype in enumerate(2 * dtypes)]
    try:
        with np.errstate(all="ignore"):
            found: Any = (
                combine.function(tuple(nodes[:count]), tuple(nodes[count:]))
                if count > 1
                else (combine.function(*nodes),)
            )
        return tuple(
            [
                Formula(_as_node(graph, part, dtype), 2 * dtypes)
                for part, dtype in zip(found, dtypes, strict=True)
            ]
        )
    except (InexpressibleError, *_UNSUITED):
        return None


class _Number:
    """Hold a number in a cache key; its text, stored beside it, tells 0.0 from -0.0."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Number

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(_MOST)
def _formula(primitive: Any, keys: Any, params: Any, dtype: Any) -> Formula | None:
    try:
        return _followed(primitive.value, keys, dict(params), dtype, None)
    except InexpressibleError:
        pass
    if dtype not in FLOATS or any(kind in FLOATS for kind, _, _ in keys):
        return None
    try:  # integers are converted to the floating dtype first
        return _followed(primitive.value, keys, dict(params), dtype, dtype)
    except InexpressibleError:
        return None


def _followed(value: Any, keys: Any, params: dict[str, Any], dtype: Any, to: Any) -> Formula:
    """Return the formula of a value function, with numbers in dtype ``to`` if that is given."""
    common = to or _common(keys)
    graph = Graph(MODULE, guarded=True)
    given: list[Any] = []
    operands: list[Any] = []
    for i, (own, kind, number) in enumerate(keys):
        if number is not None:
            given.append(number[1].value)
            operands.append(None)
            continue
        operands.append(to or (own if kind is None else common))
        given.append(graph.node("operand", operands[-1], (), (i, True)))
    try:
        with np.errstate(all="ignore"):
            root = value(MODULE, *given, **params)
    except _UNSUITED as error:
        raise InexpressibleError(str(error)) from error
    return Formula(_as_node(graph, root, dtype), operands)


def _as_node(graph: Graph, root: Any, dtype: Any) -> Node:
    """Return a result, which may be a number, as a node."""
    if not isinstance(root, Node) and type(root) in (bool, int, float, np.float32, np.float64):
        root = graph.constant(root, dtype)
    if not isinstance(root, Node) or root.dtype != dtype:
        raise InexpressibleError("a result of another dtype")
    return root


def _common(keys: Any) -> Any:
    """Return the dtype to which Python scalars are promoted, of which only the type is known."""
    numbers = (bool, int, float)
    kinds = [kind(0) if kind in numbers else own for own, kind, _ in keys]
    dtype = np.result_type(*kinds)
    if dtype in INTEGERS and dtype.itemsize < 8 and any(kind is int for _, kind, _ in keys):
        raise InexpressibleError("an integer that may not fit")
    return dtype
