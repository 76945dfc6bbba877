"""A builder of ONNX graphs: nodes, and the names of values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Kind, Variable, is_variable, kind_of
from fdbr.core.array_modules import to_numpy

__all__ = ["Graph", "Unsupported"]


class Unsupported(Exception):
    """ONNX has no counterpart of something; the message names it."""


class Graph:
    """Nodes, constants and initializers.

    Parameters
    ----------
    onnx
        The library.
    shared
        Whether equal constants are written once.
    """

    def __init__(self, onnx: Any, shared: bool = True) -> None:
        self.onnx, self._shared = onnx, shared
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Variable, str] = {}
        self._constants: dict[Any, str] = {}
        self._kept: list[Any] = []  # so that ids of constants stay theirs
        self._casts: dict[tuple[str, Any], str] = {}
        self._taken: set[str] = set()

    def fresh(self, hint: str) -> str:
        """Return an unused name."""
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}_{number}"
        self._taken.add(name)
        return name

    def code(self, dtype: Any) -> int:
        """Return ONNX's number of a dtype."""
        try:
            code: int = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        except (KeyError, ValueError) as error:
            raise Unsupported(f"arrays of dtype {dtype}") from error
        return code

    def emit(self, kind: str, inputs: Sequence[str], outs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns the name of its result, or the names of several."""
        names = [self.fresh(kind.lower()) for _ in range(outs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outs == 1 else names

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant for an array or number."""
        array = np.asarray(to_numpy(value))
        array = np.asarray(array if dtype is None else array.astype(dtype))
        key = (id(value) if array.size > 8 else array.tobytes(), array.dtype, array.shape)
        if key not in self._constants or (array.size <= 8 and not self._shared):
            self.code(array.dtype)
            self._kept.append(value)
            tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array))
            tensor.dims[:] = array.shape
            self._constants[key] = self.emit("Constant", [], value=tensor)
        return self._constants[key]

    def integers(self, values: Sequence[int]) -> str:
        """Return the name of a constant list of integers, such as a shape."""
        return self.constant(np.array(list(values), np.int64))

    def name(self, operand: Any, dtype: Any = None) -> str:
        """Return the name of an operand, cast to a dtype."""
        if not is_variable(operand):
            return self.constant(operand, dtype)
        name = self.names[operand]
        if dtype is None or np.dtype(dtype) == operand.kind.dtype:
            return name
        return self.cast(name, dtype)

    def cast(self, name: str, dtype: Any) -> str:
        """Return the name of a value cast to a dtype."""
        key = name, np.dtype(dtype)
        if key not in self._casts:
            self._casts[key] = self.emit("Cast", [name], to=self.code(dtype))
        return self._casts[key]

    def initializer(self, hint: str, array: Any) -> str:
        """Add an initializer; returns its name."""
        name = self.fresh(hint)
        self.code(array.dtype)
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def info(self, name: str, kind: Kind) -> Any:
        """Return the description of an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self.code(kind.dtype), kind.shape)


def dtypes(operands: Sequence[Any]) -> Any:
    """Return the common dtype of operands; Python numbers are weakly typed."""
    kinds = [kind_of(operand) for operand in operands]
    strong = [kind.dtype for kind in kinds if not kind.is_number]
    weak = [kind.type(0) for kind in kinds if kind.is_number]
    return np.result_type(*strong, *weak)
