"""ONNX nodes of primitives that rearrange elements: shapes, indices and windows."""

import math
from typing import Any

import numpy as np

from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.nn.formats.onnx_graph import Graph, Unsupported
from fdbr.nn.formats.onnx_ops import writes
from fdbr.ops.indexing.keys import SLOT

__all__ = ["sliced"]

_END = np.iinfo(np.int64).max

# --- shapes -------------------------------------------------------------------------


def _reshaped(graph: Graph, name: str, shape: Any) -> str:
    return str(graph.emit("Reshape", [name, graph.integers(shape)], allowzero=1))


@writes("reshape")
def _reshape(graph: Graph, step: Instruction) -> str:
    return _reshaped(graph, graph.name(step.operands[0]), step.outs[0].kind.shape)


@writes("broadcast_to")
def _broadcast_to(graph: Graph, step: Instruction) -> str:
    shape = graph.integers(step.outs[0].kind.shape)
    return str(graph.emit("Expand", [graph.name(step.operands[0]), shape]))


@writes("permute")
def _permute(graph: Graph, step: Instruction) -> str:
    axes = [int(axis) for axis in step.params["axes"]]
    return str(graph.emit("Transpose", [graph.name(step.operands[0])], perm=axes))


@writes("matrix_transpose")
def _matrix_transpose(graph: Graph, step: Instruction) -> str:
    rank = len(kind_of(step.operands[0]).shape)
    axes = [*range(rank - 2), rank - 1, rank - 2]
    return str(graph.emit("Transpose", [graph.name(step.operands[0])], perm=axes))


@writes("concat", "stack")
def _concat(graph: Graph, step: Instruction) -> str:
    kind, axis = step.outs[0].kind, step.params["axis"] % len(step.outs[0].kind.shape)
    names = [graph.name(operand, kind.dtype) for operand in step.operands]
    if step.primitive.name == "stack":
        names = [graph.emit("Unsqueeze", [name, graph.integers([axis])]) for name in names]
    return str(graph.emit("Concat", names, axis=axis))


@writes("flip")
def _flip(graph: Graph, step: Instruction) -> str:
    rank = len(kind_of(step.operands[0]).shape)
    key = [slice(None, None, -1 if i in step.params["axes"] else 1) for i in range(rank)]
    return sliced(graph, graph.name(step.operands[0]), kind_of(step.operands[0]).shape, key)


@writes("roll")
def _roll(graph: Graph, step: Instruction) -> str:
    name, shape = graph.name(step.operands[0]), kind_of(step.operands[0]).shape
    for shift, axis in zip(step.params["shift"], step.params["axis"], strict=True):
        first = -shift % max(shape[axis], 1)
        if first:
            full = [slice(None)] * len(shape)
            parts = [
                sliced(graph, name, shape, [*full[:axis], part, *full[axis + 1 :]])
                for part in (slice(first, None), slice(0, first))
            ]
            name = graph.emit("Concat", parts, axis=axis)
    return name


@writes("window_products")
def _window_products(graph: Graph, step: Instruction) -> str:
    name, kind = graph.name(step.operands[0]), kind_of(step.operands[0])
    rows = (slice(None),) * (len(kind.shape) - 2)
    parts = [
        graph.emit(
            "MatMul",
            [graph.constant(weights), sliced(graph, name, kind.shape, [*rows, slice(low, high)])],
        )
        for _, _, low, high, weights in step.params["windows"].blocks(kind.dtype.char)
    ]
    return str(graph.emit("Concat", parts, axis=len(rows)) if len(parts) > 1 else parts[0])


@writes("window_sums")
def _sums_around(graph: Graph, step: Instruction) -> str:
    name, kind = graph.name(step.operands[0]), kind_of(step.operands[0])
    axis, low, high = (int(step.params[key]) for key in ("axis", "low", "high"))
    rank, length = len(kind.shape), kind.shape[axis]
    pads = [low if i == axis else 0 for i in range(rank)]
    pads += [high if i == axis else 0 for i in range(rank)]
    wide = graph.emit("Pad", [name, graph.integers(pads)])
    shape = [length + low + high if i == axis else n for i, n in enumerate(kind.shape)]
    every = [slice(None)] * rank
    parts = [
        sliced(graph, wide, shape, [*every[:axis], slice(i, i + length), *every[axis + 1 :]])
        for i in range(low + high + 1)
    ]
    return str(graph.emit("Sum", parts) if len(parts) > 1 else parts[0])


@writes("pad_zeros")
def _pad_zeros(graph: Graph, step: Instruction) -> str:
    widths = step.params["widths"]
    if any(width < 0 for pair in widths for width in pair):
        raise Unsupported("padding of a negative width")
    pads = graph.integers([low for low, _ in widths] + [high for _, high in widths])
    return str(graph.emit("Pad", [graph.name(step.operands[0]), pads]))


@writes("triangle")
def _triangle(graph: Graph, step: Instruction) -> str:
    names = [graph.name(step.operands[0]), graph.constant(np.int64(step.params["k"]))]
    return str(graph.emit("Trilu", names, upper=int(step.params["upper"])))


# --- reading ------------------------------------------------------------------------


def _spread(key: Any, rank: int) -> list[Any]:
    """Expand an indexing key to one part for each axis and each new axis."""
    parts = list(key) if isinstance(key, tuple | list) else [key]
    missing = rank - sum(part is not None and part is not Ellipsis for part in parts)
    ellipsis = next((i for i, part in enumerate(parts) if part is Ellipsis), None)
    if ellipsis is None:
        return parts + [slice(None)] * missing
    return parts[:ellipsis] + [slice(None)] * missing + parts[ellipsis + 1 :]


def sliced(graph: Graph, name: str, shape: Any, key: Any) -> str:
    """Index a value by slices, integers and new axes; returns its name."""
    parts = _spread(key, len(shape))
    starts, ends, axes, steps = [], [], [], []
    lost, new, axis, new_axis = [], [], 0, 0
    for part in parts:
        if part is None:
            new.append(new_axis)
            new_axis += 1
            continue
        n = shape[axis]
        if isinstance(part, slice):
            start, stop, step = part.indices(n)
            if (start, stop, step) != (0, n, 1):
                starts.append(start)
                ends.append(stop if stop >= 0 else -_END)
                axes.append(axis)
                steps.append(step)
            new_axis += 1
        else:
            index = int(part) % n
            starts.append(index)
            ends.append(index + 1)
            axes.append(axis)
            steps.append(1)
            lost.append(axis)
        axis += 1
    if axes:
        name = graph.emit("Slice", [name, *map(graph.integers, (starts, ends, axes, steps))])
    if lost:
        name = graph.emit("Squeeze", [name, graph.integers(lost)])
    if new:
        name = graph.emit("Unsqueeze", [name, graph.integers(new)])
    return name


@writes("slice")
def _slice(graph: Graph, step: Instruction) -> str:
    shape = kind_of(step.operands[0]).shape
    return sliced(graph, graph.name(step.operands[0]), shape, step.params["key"])


@writes("rows_at")
def _rows_at(graph: Graph, step: Instruction) -> str:
    return str(graph.emit("Gather", [graph.name(operand) for operand in step.operands], axis=0))


@writes("gather")
def _gather(graph: Graph, step: Instruction) -> str:
    x, *indices = step.operands
    kind = kind_of(x)
    parts = _spread(step.params["key"], len(kind.shape))
    axes = [i for i, part in enumerate(parts) if part is SLOT]
    if any(part is not SLOT and not isinstance(part, slice) for part in parts):
        raise Unsupported("an index array beside integers or new axes in one key")
    if any(kind_of(index).dtype.kind not in "iu" for index in indices):
        raise Unsupported("an index array that is a mask")
    plain = [slice(None) if part is SLOT else part for part in parts]
    name = sliced(graph, graph.name(x), kind.shape, plain)
    if len(axes) == 1:
        return str(graph.emit("Gather", [name, graph.name(indices[0])], axis=axes[0]))
    if axes != list(range(len(axes))):
        raise Unsupported("several index arrays that are not the first of their key")
    return str(graph.emit("GatherND", [name, _columns(graph, indices)]))


def _columns(graph: Graph, indices: Any) -> str:
    """Stack index arrays along a new last axis."""
    shape = np.broadcast_shapes(*(kind_of(index).shape for index in indices))
    wide = graph.integers((*shape, 1))
    columns = []
    for index in indices:
        own = (1,) * (len(shape) - len(kind_of(index).shape)) + kind_of(index).shape + (1,)
        column = _reshaped(graph, graph.name(index, np.int64), own)
        columns.append(graph.emit("Expand", [column, wide]))
    return str(graph.emit("Concat", columns, axis=-1))


@writes("replace", "increase")
def _replace(graph: Graph, step: Instruction) -> str:
    """Write, or add, values at the positions of index arrays."""
    x, values, *indices = step.operands
    key, dtype = step.params["key"], step.outs[0].kind.dtype
    if any(part is not SLOT for part in key):
        raise Unsupported("writing at index arrays beside slices, integers or new axes in one key")
    if any(kind_of(index).dtype.kind not in "iu" for index in indices):
        raise Unsupported("writing at an index array that is a mask")
    shape = np.broadcast_shapes(*(kind_of(index).shape for index in indices))
    whole = graph.integers((*shape, *kind_of(x).shape[len(indices) :]))
    updates = graph.emit("Expand", [graph.name(values, dtype), whole])
    names = [graph.name(x, dtype), _columns(graph, indices), updates]
    how = "add" if step.primitive.name == "increase" else "none"
    return str(graph.emit("ScatterND", names, reduction=how))


@writes("pick")
def _pick(graph: Graph, step: Instruction) -> str:
    names = [graph.name(step.operands[0]), graph.name(step.operands[1], np.int64)]
    return str(graph.emit("GatherElements", names, axis=int(step.params["axis"])))


@writes("top_indices", "argsort")
def _top_indices(graph: Graph, step: Instruction) -> str:
    axis = int(step.params["axis"])
    count = step.outs[0].kind.shape[axis]
    names = [graph.name(step.operands[0]), graph.integers([count])]
    largest = int(step.primitive.name == "top_indices")
    found: str = graph.emit("TopK", names, 2, axis=axis, largest=largest, sorted=1)[1]
    return graph.cast(found, step.outs[0].kind.dtype)


# --- windows ------------------------------------------------------------------------


def _settings(geometry: Any) -> dict[str, Any]:
    pads = [low for low, _ in geometry.padding] + [high for _, high in geometry.padding]
    return {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.stride),
        "pads": pads,
        "dilations": list(geometry.dilation),
    }


def _with_one_batch_axis(graph: Graph, step: Instruction, write: Any) -> str:
    """Apply a node to images with any number of batch axes, which ONNX restricts to one."""
    kind, out = kind_of(step.operands[0]), step.outs[0].kind
    rank = len(step.params["geometry"].kernel) + 1
    name = graph.name(step.operands[0], out.dtype)
    lead = kind.shape[:-rank]
    if len(lead) == 1:
        return str(write(name))
    name = _reshaped(graph, name, (math.prod(lead), *kind.shape[-rank:]))
    return _reshaped(graph, write(name), out.shape)


@writes("conv", "conv_biased")
def _conv(graph: Graph, step: Instruction) -> str:
    rest = [graph.name(operand, step.outs[0].kind.dtype) for operand in step.operands[1:]]
    settings = {**_settings(step.params["geometry"]), "group": int(step.params["groups"])}
    return _with_one_batch_axis(
        graph, step, lambda name: graph.emit("Conv", [name, *rest], **settings)
    )


@writes("conv_input")
def _conv_input(graph: Graph, step: Instruction) -> str:
    weight = graph.name(step.operands[1], step.outs[0].kind.dtype)
    geometry = step.params["geometry"]
    settings = {**_settings(geometry), "group": int(step.params["groups"])}
    spatial = len(geometry.kernel)
    counts = kind_of(step.operands[0]).shape[-spatial:]
    axes = zip(
        step.params["size"], counts, geometry.stride, geometry.extents(), geometry.padding,
        strict=True,
    )  # fmt: skip
    more = [size - ((n - 1) * s + extent - sum(pad)) for size, n, s, extent, pad in axes]
    if any(not 0 <= m < max(s, d) for m, s, d in zip(more, geometry.stride, geometry.dilation,
                                                      strict=True)):  # fmt: skip
        raise Unsupported(f"a transposed convolution to size {tuple(step.params['size'])}")
    settings["output_padding"] = more
    return _with_one_batch_axis(
        graph, step, lambda name: graph.emit("ConvTranspose", [name, weight], **settings)
    )


@writes("max_windows", "sum_windows")
def _windows(graph: Graph, step: Instruction) -> str:
    geometry = step.params["geometry"]
    settings = _settings(geometry)
    if any(max(pair) >= k for pair, k in zip(geometry.padding, geometry.kernel, strict=True)):
        raise Unsupported("windows with as much padding as they are wide")
    if step.primitive.name == "max_windows":
        return _with_one_batch_axis(
            graph, step, lambda name: graph.emit("MaxPool", [name], **settings)
        )
    if any(d != 1 for d in settings.pop("dilations")):
        raise Unsupported("sums over dilated windows")
    count = graph.constant(math.prod(geometry.kernel), step.outs[0].kind.dtype)

    def write(name: str) -> str:
        mean = graph.emit("AveragePool", [name], count_include_pad=1, **settings)
        return str(graph.emit("Mul", [mean, count]))

    return _with_one_batch_axis(graph, step, write)


def _one_at_each_position(graph: Graph, step: Instruction) -> str:
    """Return one-hot kernels, one for each position of the kernel."""
    kernel = step.params["geometry"].kernel
    count = math.prod(kernel)
    return graph.constant(np.eye(count).reshape(count, 1, *kernel), step.outs[0].kind.dtype)


@writes("unfold_windows")
def _columns_of_windows(graph: Graph, step: Instruction) -> str:
    """Write the columns of windows as a convolution with one-hot kernels."""
    geometry, kind = step.params["geometry"], kind_of(step.operands[0])
    size = kind.shape[-len(geometry.kernel) :]
    lead = math.prod(kind.shape[: -len(size)])
    name = _reshaped(graph, graph.name(step.operands[0]), (lead, 1, *size))
    kernels = _one_at_each_position(graph, step)
    name = graph.emit("Conv", [name, kernels], **_settings(geometry))
    return _reshaped(graph, name, step.outs[0].kind.shape)


@writes("fold_windows")
def _windows_of_columns(graph: Graph, step: Instruction) -> str:
    geometry, kind = step.params["geometry"], kind_of(step.operands[0])
    rank, whole = len(geometry.kernel), geometry.padded(tuple(step.params["size"]))
    counts = kind.shape[-rank:]
    columns = (math.prod(kind.shape[: -2 * rank]), math.prod(geometry.kernel), *counts)
    name = _reshaped(graph, graph.name(step.operands[0]), columns)
    settings = _settings(geometry) | {"pads": [0] * (2 * rank)}
    kernels = _one_at_each_position(graph, step)
    name = graph.emit("ConvTranspose", [name, kernels], **settings)
    reached = [(n - 1) * s + e for n, s, e in zip(
        counts, geometry.stride, geometry.extents(), strict=True)]  # fmt: skip
    ends = [n - r for n, r in zip(whole, reached, strict=True)]  # no window has come there
    name = graph.emit("Pad", [name, graph.integers([0] * (rank + 4) + ends)])
    inside = (slice(None), slice(None), *geometry.interior(tuple(step.params["size"])))
    name = sliced(graph, name, (columns[0], 1, *whole), inside)
    return _reshaped(graph, name, step.outs[0].kind.shape)
