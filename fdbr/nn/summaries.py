"""A table of a model's layers: outputs, parameters, operations and memory."""

import functools
import html
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.ir.program import Instruction, Program, Step, kind_of
from fdbr.control_flow.scan_rules import SCAN
from fdbr.core.effects import without_effects
from fdbr.debug.tables import byte_text
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.classes import fields_of

__all__ = ["LayerSummary", "Summary", "summary"]


@public("fdbr.nn")
@attrs.frozen
class LayerSummary:
    """The row of a layer in a `summary`; counts include the layers within.

    Attributes
    ----------
    path
        The path in the model, such as ``blocks[0].conv``; empty for the model itself.
    name
        The name of the layer's class.
    depth
        The number of layers around it.
    output_shapes, output_dtypes
        The shapes and dtypes of the outputs of the last call.
    parameters, buffers
        How many numbers are trained, and how many are in buffers.
    operations
        The multiply-adds of products and convolutions in all calls; others are not counted.
    memory
        The bytes of the outputs in all calls.
    calls
        How often the layer was called.
    """

    path: str
    name: str
    depth: int
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    parameters: int
    buffers: int
    operations: int
    memory: int
    calls: int


@public("fdbr.nn")
@attrs.frozen
class Summary:
    """A table of layers, which prints as one.

    Attributes
    ----------
    layers
        A `LayerSummary` for the model, followed by one for each layer within, outermost first.
    input_memory, parameter_memory
        The bytes of the inputs, and of all arrays of the model.
    """

    layers: tuple[LayerSummary, ...]
    input_memory: int
    parameter_memory: int

    @property
    def parameters(self) -> int:
        """The number of numbers that are trained."""
        return self.layers[0].parameters

    @property
    def buffers(self) -> int:
        """The number of numbers that are not trained, such as running statistics."""
        return self.layers[0].buffers

    @property
    def operations(self) -> int:
        """The multiply-adds of products and convolutions in one call."""
        return self.layers[0].operations

    @property
    def output_memory(self) -> int:
        """The bytes of the outputs of all layers in which no other one was called."""
        total = 0
        for number, layer in enumerate(self.layers):
            inner = itertools.takewhile(
                lambda other, depth=layer.depth: other.depth > depth,  # type: ignore[misc]
                self.layers[number + 1 :],
            )
            total += 0 if any(other.calls for other in inner) else layer.memory
        return total

    def __iter__(self) -> Iterator[LayerSummary]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, path: str) -> LayerSummary:
        """Return the row of the layer at a path."""
        for layer in self.layers:
            if layer.path == path:
                return layer
        known = ", ".join(repr(layer.path) for layer in self.layers[:20])
        raise KeyError(f"fdbr.nn.summary: there is no layer at {path!r}; there are {known}")

    def __str__(self) -> str:
        heads = ("layer", "output", "parameters", "multiply-adds", "memory")
        rows = [_texts(layer) for layer in self.layers]
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        lines = [_line(row, widths) for row in (heads, *rows)]
        rule = "-" * max(map(len, lines))
        others = f" and {self.buffers:,} in buffers" * bool(self.buffers)
        totals = [
            f"{self.parameters:,} parameters{others}, {byte_text(self.parameter_memory)}",
            f"{self.operations:,} multiply-adds",
            f"{byte_text(self.input_memory)} of inputs, "
            f"{byte_text(self.output_memory)} of outputs of layers",
        ]
        return "\n".join([lines[0], rule, *lines[1:], rule, *totals])

    def _repr_html_(self) -> str:
        """Return the table as a notebook shows it."""
        return f"<pre>{html.escape(str(self))}</pre>"


def _texts(layer: LayerSummary) -> tuple[str, ...]:
    step = layer.path.rpartition(".")[2]
    head = "  " * layer.depth + (f"{step}: " if step else "") + layer.name
    outs = zip(layer.output_dtypes, layer.output_shapes, strict=True)
    shapes = [f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in outs]
    text = ", ".join(shapes[:2]) + ", …" * (len(shapes) > 2) if layer.calls else "not called"
    times = f" ({layer.calls} calls)" if layer.calls > 1 else ""
    operations = f"{layer.operations:,}" if layer.operations else ""
    memory = byte_text(layer.memory) if layer.memory else ""
    parameters = f"{layer.parameters:,}" if layer.parameters else ""
    return head, text + times, parameters, operations, memory


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        text.ljust(width) if i < 2 else text.rjust(width)
        for i, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


@public("fdbr.nn")
def summary(model: Any, *inputs: Any) -> Summary:
    """Tabulate the layers of a model: outputs, parameters, operations and memory.

    The model is called once, as for inference.

    Parameters
    ----------
    model
        A model.
    inputs
        The arguments of the call.  A shape, a tuple of integers, means zeros of that shape and of
        the dtype of the model's first parameter.

    Returns
    -------
    Summary
        A value with a row for each layer, which prints as a table; ``table["blocks[0].conv"]`` is
        the row of one.

    Raises
    ------
    TypeError
        If the model cannot be called, or is not made of `frozen` classes.
    Exception
        Any error that the call raises, for example for inputs that do not fit.

    >>> import fdbr
    >>> from fdbr import nn, ops
    >>> first, last = fdbr.random.split(fdbr.random.key(0))
    >>> net = nn.Sequential(nn.Linear.init(first, 4, 8), ops.relu, nn.Linear.init(last, 8, 2))
    >>> print(nn.summary(net, (5, 4)))
    layer                output        parameters  multiply-adds  memory
    --------------------------------------------------------------------
    Sequential           float32[5,2]          58            240    40 B
      layers[0]: Linear  float32[5,8]          40            160   160 B
      layers[1]: Lambda  float32[5,8]                              160 B
      layers[2]: Linear  float32[5,2]          18             80    40 B
    --------------------------------------------------------------------
    58 parameters, 232 B
    240 multiply-adds
    80 B of inputs, 360 B of outputs of layers
    >>> nn.summary(net, (5, 4)).operations
    240
    """
    if not _is_layer(model):
        raise TypeError(
            f"fdbr.nn.summary: model must be a model of layers that can be called, not "
            f"{describe(model)}"
        )
    given = tuple(_example(model, value) for value in inputs)
    recorder = _Recorder()
    watched = _watched(model, (), recorder)
    leaves, structure = tree.flatten(given)
    token = _recording.set(recorder)
    try:
        with without_effects():
            capture(
                lambda traced: tree.leaves(watched(*tree.unflatten(structure, traced))),
                model,
                leaves,
                kind=recorder.trace,
            )
    finally:
        _recording.reset(token)
    rows = [recorder.row(path, layer) for path, layer in recorder.layers]
    return Summary(tuple(rows), _bytes(given), _bytes(model))


def _is_layer(value: Any) -> bool:
    return fields_of(type(value)) is not None and callable(value)


def _example(model: Any, value: Any) -> Any:
    """Return an example input; a shape becomes zeros."""
    if not isinstance(value, tuple) or not all(type(n) is int for n in value):
        return value
    trained = tree.leaves(tree.trainable(model))
    dtypes = [leaf.dtype for leaf in trained if hasattr(leaf, "dtype")]
    return np.zeros(value, dtypes[0] if dtypes else np.float32)


def _bytes(values: Any) -> int:
    arrays = [leaf for leaf in tree.leaves(values) if hasattr(leaf, "dtype")]
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in arrays)


# --- watching calls -----------------------------------------------------------------

_Path = tuple[str, ...]


@attrs.define
class _Call:
    """The calls of one layer."""

    outs: list[Any] = attrs.Factory(list)
    operations: int = 0
    memory: int = 0
    count: int = 0


class _Recorder:
    """The layers of a model, and the outputs of their calls."""

    def __init__(self) -> None:
        self.layers: list[tuple[_Path, Any]] = []
        self.calls: dict[_Path, _Call] = {}
        self.steps: list[Step] = []

    def trace(self, origin: Any, known: Any) -> CaptureTrace:
        trace = CaptureTrace(origin, known)
        self.steps = trace.steps
        return trace

    def note(self, path: _Path, call: Callable[[], Any]) -> Any:
        """Make a call, and record its outputs and operations."""
        begin = len(self.steps)
        out = call()
        found = self.calls.setdefault(path, _Call())
        found.outs = [leaf for leaf in tree.leaves(out) if hasattr(leaf, "dtype")]
        found.operations += _operations(self.steps[begin:])
        found.memory += _bytes(found.outs)
        found.count += 1
        return out

    def row(self, path: _Path, layer: Any) -> LayerSummary:
        found = self.calls.get(path, _Call())
        trained = tree.size(tree.trainable(layer))
        return LayerSummary(
            path="".join(path).removeprefix("."),
            name=type(layer).__name__,
            depth=len(path),
            output_shapes=tuple(tuple(leaf.shape) for leaf in found.outs),
            output_dtypes=tuple(str(leaf.dtype) for leaf in found.outs),
            parameters=trained,
            buffers=tree.size(layer) - trained,
            operations=found.operations,
            memory=found.memory,
            calls=found.count,
        )


_recording: ContextVar[_Recorder | None] = ContextVar("recording", default=None)
_PATH = "path_in_summary"


def _watched(value: Any, path: _Path, recorder: _Recorder, step: str = "") -> Any:
    """Copy a model, or a part, so that its layers record their calls."""
    fields = fields_of(type(value))
    if fields is not None:
        kind: Any = type(value)
        if callable(value):
            path = (*path, step) if step else path
            step = ""
            recorder.layers.append((path, value))
            kind = _watching(kind)
        made = kind.__new__(kind)
        for name in (*fields[0], *fields[1]):
            part = getattr(value, name)
            if name in fields[0]:
                part = _watched(part, path, recorder, f"{step}.{name}")
            object.__setattr__(made, name, part)
        if callable(value):
            object.__setattr__(made, _PATH, path)
        return made
    if type(value) in (tuple, list):
        return type(value)(
            _watched(part, path, recorder, f"{step}[{i}]") for i, part in enumerate(value)
        )
    if type(value) is dict:
        return {k: _watched(v, path, recorder, f"{step}[{k!r}]") for k, v in value.items()}
    return value


@functools.cache
def _watching(kind: Any) -> Any:
    """Return a subclass that records its calls while a summary is made.

    The path is a field, so that copies of a layer with other weights keep it.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = functools.partial(super(made, self).__call__, *args, **kwargs)
        recorder, path = _recording.get(), getattr(self, _PATH, None)
        return run() if recorder is None or path is None else recorder.note(path, run)

    members = {
        "__call__": call,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__annotations__": {_PATH: Any},
        _PATH: tree.static(default=None),
    }
    made: Any = tree.frozen(type(kind.__name__, (kind,), members), init=False, eq=False)
    return made


# --- counting -----------------------------------------------------------------------


def _operations(steps: Sequence[Step]) -> int:
    return sum(_count(step) for step in steps if isinstance(step, Instruction))


def _count(step: Instruction) -> int:
    """Return the multiply-adds of a step."""
    name = step.primitive.name
    if step.primitive is SCAN:
        scan = step.params["scan"]
        body: Program = scan.body.program
        return int(scan.length) * _operations(body.steps)
    shapes = [kind_of(operand).shape for operand in step.operands]
    if name in ("conv", "conv_biased"):
        return _size(step.outs[0].kind.shape) * _size(shapes[1][1:])
    if name == "conv_input":
        return _size(shapes[0]) * _size(shapes[1][1:])
    if name in ("matmul", "matmul_transposed", "affine"):
        return _size(step.outs[0].kind.shape) * (shapes[0][-1] if shapes[0] else 1)
    if name == "contract":
        labels = zip(step.params["of_x"] + step.params["of_y"], shapes[0] + shapes[1], strict=True)
        return _size(tuple(dict(labels).values()))
    return 0


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)
