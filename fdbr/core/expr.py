"""Expressions: what a kernel computes for each element, as a graph.

A `Node` behaves like a NumPy array: it has a dtype and operators, and belongs to an array module.
So NumPy code that is applied to nodes builds the graph of what a kernel has to compute.  A node
represents a matrix, and its methods reduce along rows.  Code that nodes cannot express raises
`InexpressibleError`.
"""

import functools
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

__all__ = ["FLOATS", "INTEGERS", "Graph", "InexpressibleError", "Node", "every"]

FLOATS = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}
"""The floating dtypes of kernels, with the integers of the same width."""

INTEGERS = frozenset(FLOATS.values())
"""The dtypes of integers in kernels."""

_BOOL = np.dtype(np.bool_)
_EXACT = frozenset({_BOOL, np.dtype(np.float32)})  # dtypes that float32 represents exactly
_DOUBLE = np.dtype(np.float64)
_FEW = 6  # the highest power that products compute without losing digits
_MOST = 64  # the highest power of float32 numbers, computed in float64


class InexpressibleError(Exception):
    """Raised by a function that nodes cannot express."""


@functools.cache
def _kind_of_nodes(module: Any) -> "type[Node]":
    return type("Node", (Node,), {"__slots__": ()})


class Graph:
    """The nodes of one kernel; equal nodes are one object.

    Attributes
    ----------
    module
        The array module of nodes.
    kind
        The class of the nodes, by which dispatch finds the array module.
    conditions
        Conditions that must hold for all elements, or else NumPy computes instead; `None` if
        there is no such fallback.
    """

    def __init__(self, module: Any, guarded: bool = False) -> None:
        self.module = module
        self.kind = _kind_of_nodes(module)
        self.nodes: dict[Any, Node] = {}
        self.conditions: list[Node] | None = [] if guarded else None

    def require(self, condition: "Node") -> None:
        """Require a condition for all elements; where it fails, NumPy computes instead."""
        if self.conditions is None:
            raise InexpressibleError("a formula that does not hold for all numbers")
        if not any(known is condition for known in self.conditions):
            self.conditions.append(condition)

    def node(
        self, op: str, dtype: Any, args: tuple["Node", ...] = (), detail: Any = None
    ) -> "Node":
        """Return the node of an operation on other nodes."""
        key = op, dtype, tuple(map(id, args)), detail
        found = self.nodes.get(key)
        if found is None:
            found = self.nodes[key] = self.kind(self, op, dtype, args, detail)
        return found

    def constant(self, value: Any, dtype: Any) -> "Node":
        """Return the node of a number in a dtype."""
        number = dtype.type(value)
        return self.node("constant", dtype, (), (number.item(), bool(np.signbit(number))))


class Node:
    """One value in a kernel, with the operators of an array.

    Attributes
    ----------
    op, args, detail
        The operation, its operands, and its further parameters.
    dtype, itemsize
        The dtype of the elements, and how many bytes one takes.
    level
        How many row reductions it depends on, each of the result of the one before.
    varies
        Whether it has an element for each column, rather than one for the whole row.
    single
        Whether it depends on float32 numbers alone, though its own dtype may be float64.
    """

    __slots__ = (
        *("args", "detail", "dtype", "graph", "itemsize", "level", "op", "single", "varies"),
    )

    level: int
    varies: bool
    single: bool
    ndim = 2
    size = 1 << 30  # claims to be large, so that code takes its branch for large arrays

    def __init__(
        self, graph: Graph, op: str, dtype: Any, args: tuple["Node", ...], detail: Any
    ) -> None:
        self.graph, self.op, self.dtype, self.args, self.detail = graph, op, dtype, args, detail
        self.itemsize = dtype.itemsize
        self.level = max((arg.level for arg in args), default=0)
        self.varies = any(arg.varies for arg in args)
        self.single = all(arg.single for arg in args)
        if op == "operand":
            self.single = dtype in _EXACT
            self.varies = detail[1]
        elif op == "reduced":
            self.level, self.varies = self.level + 1, False
        elif op == "is_column":
            self.varies = True

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return self.graph.module

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply the module of nodes' function of the same name."""
        if method != "__call__":
            raise InexpressibleError(f"{ufunc.__name__}.{method}")
        return self.__array_function__(ufunc, (), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = getattr(self.graph.module, function.__name__, None)
        if own is None or kwargs or not all(isinstance(x, _ELEMENTS) for x in args):
            raise InexpressibleError(f"{function.__name__} of NumPy's")
        return own(*args)

    def __bool__(self) -> bool:
        raise InexpressibleError("a decision by values")

    def __getitem__(self, key: Any) -> "Node":
        if key != ():
            raise InexpressibleError("elements one by one")
        return self

    def __iter__(self) -> Any:
        raise InexpressibleError("elements one by one")

    def __hash__(self) -> int:
        return id(self)

    # --- operators (those of two operands are made below)

    if TYPE_CHECKING:

        def _of_two(self, other: Any) -> "Node":
            raise NotImplementedError

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _of_two
        __truediv__ = __rtruediv__ = __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = _of_two
        __xor__ = _of_two
        __eq__ = __ne__ = _of_two  # type: ignore[assignment]

    def __neg__(self) -> "Node":
        if self.dtype in INTEGERS:
            return joined("sub", 0, self)
        return self.graph.node("neg", _floating(self.dtype), (self,))

    def __pos__(self) -> "Node":
        return self

    def __abs__(self) -> "Node":
        if self.dtype in INTEGERS:
            return self.graph.node("select", self.dtype, (self < 0, -self, self))
        if self.op == "abs":
            return self
        return self.graph.node("abs", _floating(self.dtype), (self,))

    def __invert__(self) -> "Node":
        if self.dtype in INTEGERS:
            return joined("sub", -1, self)
        if self.dtype != _BOOL:
            raise InexpressibleError("~ of numbers")
        return self.graph.node("not", _BOOL, (self,))

    def __pow__(self, exponent: Any) -> "Node":
        """Compute a power by products, in float64 if the base is float32 and the power high."""
        if type(exponent) is not int or not 0 < abs(exponent) <= _MOST:
            raise InexpressibleError("powers")
        if abs(exponent) > _FEW and not self.single:
            raise InexpressibleError("a power that loses digits")
        if abs(exponent) > _FEW and self.dtype != _DOUBLE:
            return (self.astype(_DOUBLE) ** exponent).astype(self.dtype)
        if exponent < 0:
            return 1 / self**-exponent
        out = self
        for bit in f"{exponent:b}"[1:]:
            out = out * out
            out = out * self if bit == "1" else out
        return out

    # --- as arrays have them

    def sum(self, axis: Any = None, keepdims: bool = False) -> "Node":
        """The sum of each row."""
        return self.reduced("sum", axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> "Node":
        """The product of each row."""
        return self.reduced("prod", axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> "Node":
        """The mean of each row."""
        total = self.reduced("sum", axis, keepdims)
        return total / self.graph.node("columns", self.dtype)

    def max(self, axis: Any = None, keepdims: bool = False) -> "Node":
        """The largest element of each row."""
        return self.reduced("max", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> "Node":
        """The smallest element of each row."""
        return self.reduced("min", axis, keepdims)

    def reduced(self, how: str, axis: Any, keepdims: bool) -> "Node":
        """Reduce each row to one element."""
        if axis not in (1, -1, (1,), (-1,)) or not keepdims or self.dtype not in FLOATS:
            raise InexpressibleError("reductions of something else than rows")
        return self.graph.node("reduced", self.dtype, (self,), how)

    def astype(self, dtype: Any, copy: bool = True) -> "Node":
        """The elements in another dtype."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype == _BOOL:
            return joined("ne", self, 0)
        if dtype in INTEGERS and self.dtype in FLOATS:
            raise InexpressibleError("conversions of floating numbers to integers")
        if dtype not in FLOATS and dtype not in INTEGERS:
            raise InexpressibleError(f"numbers of dtype {dtype}")
        return self.graph.node("number" if self.dtype in INTEGERS else "cast", dtype, (self,))

    def any(self) -> Any:
        """Return whether an element is true, which a graph without values cannot know."""
        raise InexpressibleError("a decision by values")

    all = any


_EXPENSIVE = frozenset({"div", "sqrt"})


def cost(outs: Sequence[Node], found: Container[Node] = ()) -> int:
    """Estimate the cost of an element in additions, without values shared by a row.

    Nodes in ``found`` are known already.
    """
    return sum(8 if each.op in _EXPENSIVE else 1 for each in every(outs, found) if each.varies)


def every(outs: Sequence[Node], found: Container[Node] = ()) -> list[Node]:
    """Return the nodes that ``outs`` depend on in topological order, but not those in ``found``."""
    seen: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(outs)]
    while stack:
        node, ready = stack.pop()
        if ready:
            seen[node] = None
        elif node not in seen and node not in found:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args)]
    return list(seen)


def _floating(dtype: Any) -> Any:
    if dtype not in FLOATS:
        raise InexpressibleError("arithmetic of integers")
    return dtype


def brought(graph: Graph, values: tuple[Any, ...]) -> list[Node]:
    """Return operands in their common dtype; Python's numbers are weak."""
    kinds = [value.dtype if isinstance(value, Node | np.generic) else value for value in values]
    dtype = np.result_type(*kinds)
    if dtype not in FLOATS and dtype not in INTEGERS and dtype != _BOOL:
        raise InexpressibleError(f"arithmetic of dtype {dtype}")
    return [
        value.astype(dtype) if isinstance(value, Node) else graph.constant(value, dtype)
        for value in values
    ]


def joined(op: str, *values: Any) -> Node:
    """Return the node of an operation on nodes and numbers, in their common dtype."""
    graph = next((value.graph for value in values if isinstance(value, Node)), None)
    if graph is None:
        raise InexpressibleError("an operation on numbers alone")
    nodes = brought(graph, values)
    dtype = nodes[0].dtype
    if dtype == _BOOL and op not in _LOGIC:
        raise InexpressibleError("arithmetic of truth values")
    if dtype in FLOATS and op in ("and", "or", "xor"):
        raise InexpressibleError("bits of floating numbers")
    if dtype in INTEGERS:
        if op == "div":
            return joined(op, *(node.astype(_DOUBLE) for node in nodes))
        if op in ("maximum", "minimum"):
            test = graph.node("gt" if op == "maximum" else "lt", _BOOL, tuple(nodes))
            return graph.node("select", dtype, (test, *nodes))
        if op not in _COMPARISONS and op not in _ON_INTEGERS:
            raise InexpressibleError("arithmetic of integers")
        op = _ON_INTEGERS.get(op, op)
    return graph.node(op, _BOOL if op in _COMPARISONS else dtype, tuple(nodes))


_ELEMENTS = (Node, np.generic, int, float)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_LOGIC = frozenset({"and", "or", "xor", "eq", "ne"})
_ON_INTEGERS = {op: f"i{op}" for op in ("add", "sub", "mul", "and", "or", "xor")}


def _operator(op: str, turned: bool = False) -> Any:
    def apply(self: Node, other: Any) -> Any:
        if not isinstance(other, _ELEMENTS):
            return NotImplemented
        return joined(op, other, self) if turned else joined(op, self, other)

    return apply


for _name, _op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
    setattr(Node, f"__{_name}__", _operator(_op))
    setattr(Node, f"__r{_name}__", _operator(_op, turned=True))
for _op in _COMPARISONS | {"and", "or", "xor"}:
    setattr(Node, f"__{_op}__", _operator(_op))
