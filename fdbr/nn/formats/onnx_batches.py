"""ONNX programs for any batch size, made from programs for some sizes.

These programs have the same nodes, and differ only in some constants, mostly shapes.  Each such
constant is computed as ``a * size + c`` from the size of the batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module
from fdbr.nn.formats.onnx_graph import Unsupported

__all__ = ["SIZES", "for_any_batch", "resized"]

SIZES = (2, 3, 5)
"""The sizes of batches for which programs are made."""


def resized(inputs: Any, size: int) -> Any:
    """Return inputs with ``size`` examples, which repeat the given ones."""

    def again(array: Any) -> Any:
        if not array.shape or not array.shape[0]:
            raise ValueError(
                "fdbr.nn.export_onnx: for batches of any size, each input must have a first axis, "
                "of at least one example"
            )
        return array[array_module(array).arange(size) % array.shape[0]]

    return tree.map(again, inputs)


def for_any_batch(onnx: Any, models: Sequence[Any]) -> Any:
    """Make a program for any batch size from those for the batch sizes `SIZES`."""
    model = models[0]
    graph = model.graph
    source = _Source(onnx, graph)
    nodes: list[Any] = []
    if len({len(one.graph.node) for one in models}) > 1:
        raise Unsupported("program for batches of any size: the steps depend on the size")
    for same in zip(*(one.graph.node for one in models), strict=True):
        if all(node == same[0] for node in same):
            nodes.append(same[0])
        elif all(node.op_type == "Constant" and node.output == same[0].output for node in same):
            nodes += source.computed(same)
        else:
            raise Unsupported(
                f"program for batches of any size: {same[0].op_type} depends on the size"
            )
    del graph.node[:]
    graph.node.extend([*source.heads, *nodes])
    for ends in ("input", "output"):
        for infos in zip(*(getattr(one.graph, ends) for one in models), strict=True):
            _generalise(infos)
    onnx.checker.check_model(model)
    return model


class _Source:
    """Nodes that compute the size of the batch, and numbers that depend on it."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self.onnx = onnx
        self.casts: dict[Any, str] = {}
        first = self.constant("batch_axis", np.array(0, np.int64))
        self.heads = [
            first,
            onnx.helper.make_node("Shape", [graph.input[0].name], ["batch_shape"]),
            onnx.helper.make_node("Gather", ["batch_shape", "batch_axis"], ["batch_size"], axis=0),
        ]

    def constant(self, name: str, array: Any) -> Any:
        tensor = self.onnx.numpy_helper.from_array(array)
        return self.onnx.helper.make_node("Constant", [], [name], value=tensor)

    def size(self, dtype: Any) -> str:
        """Return the name of the batch size in a dtype."""
        if dtype == np.int64:
            return "batch_size"
        if dtype not in self.casts:
            name = self.casts[dtype] = f"batch_size_{dtype.name}"
            code = self.onnx.helper.np_dtype_to_tensor_dtype(dtype)
            node = self.onnx.helper.make_node("Cast", ["batch_size"], [name], to=code)
            self.heads.append(node)
        return self.casts[dtype]

    def computed(self, constants: Sequence[Any]) -> list[Any]:
        """Return the nodes that compute a constant that depends on the batch size."""
        arrays = [self.onnx.numpy_helper.to_array(node.attribute[0].t) for node in constants]
        first = arrays[0]
        name = constants[0].output[0]
        if any(array.dtype != first.dtype or array.ndim != first.ndim for array in arrays):
            raise Unsupported("program for batches of any size: the shape of a constant depends")
        if all(array.shape == first.shape for array in arrays):
            return self.linear(name, arrays)
        # A value that is the same for each example is stored once and expanded.
        axes = [i for i, n in enumerate(first.shape) if any(a.shape[i] != n for a in arrays)]
        one = first[tuple(slice(0, 1) if i in axes else slice(None) for i in range(first.ndim))]
        if any(a.size == 0 or (a != one).any() for a in arrays):
            raise Unsupported("program for batches of any size: a constant depends on the size")
        shape = self.linear(f"{name}_shape", [np.array(array.shape) for array in arrays])
        value = self.constant(f"{name}_value", np.ascontiguousarray(one))
        inputs = [f"{name}_value", f"{name}_shape"]
        return [*shape, value, self.onnx.helper.make_node("Expand", inputs, [name])]

    def linear(self, name: str, arrays: Sequence[Any]) -> list[Any]:
        """Return the nodes for ``a * size + c``."""
        wide = [array.astype(np.float64) for array in arrays]
        dtype = arrays[0].dtype
        rate = (wide[1] - wide[0]) / (SIZES[1] - SIZES[0])
        start = wide[0] - rate * SIZES[0]
        fits = all((start + rate * n == w).all() for n, w in zip(SIZES, wide, strict=True))
        if not fits or dtype.kind not in "iuf":
            raise Unsupported("program for batches of any size: a constant depends on the size")
        helper, size = self.onnx.helper, self.size(dtype)
        return [
            self.constant(f"{name}_rate", rate.astype(dtype)),
            self.constant(f"{name}_start", start.astype(dtype)),
            helper.make_node("Mul", [f"{name}_rate", size], [f"{name}_part"]),
            helper.make_node("Add", [f"{name}_part", f"{name}_start"], [name]),
        ]


def _generalise(infos: Sequence[Any]) -> None:
    """Name the lengths of an input or output that depend on the batch size."""
    dims = [info.type.tensor_type.shape.dim for info in infos]
    for lengths in zip(*dims, strict=True):
        values = [length.dim_value for length in lengths]
        if len(set(values)) > 1:
            whole = values == list(SIZES)
            lengths[0].dim_param = "batch" if whole else f"length_of_{values[0]}_for_{SIZES[0]}"
