"""Export of models to ONNX, and import of their parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.ir.loops import LOWERED, Loop, loop_of
from fdbr.compiler.ir.program import Guard, Instruction, Program, Variable, is_variable, kind_of
from fdbr.compiler.passes.dce import dce
from fdbr.core import devices
from fdbr.core.array_modules import is_array
from fdbr.core.effects import without_effects
from fdbr.core.tracer import Tracer
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public
from fdbr.nn.formats import onnx_shapes
from fdbr.nn.formats.naming import Entry, filled, host, without_prefix
from fdbr.nn.formats.onnx_batches import SIZES, for_any_batch, resized
from fdbr.nn.formats.onnx_graph import Graph, Unsupported
from fdbr.nn.formats.onnx_ops import WRITERS
from fdbr.nn.formats.torch_state import torch_entries

__all__ = ["export_onnx", "load_onnx"]

_OPSET = 18
_LARGEST = 2**31 - 2**20  # bytes; protobuf takes no more


@public("fdbr.nn")
def export_onnx(model: Any, inputs: Any, path: str | Path, *, dynamic_batch: bool = False) -> None:
    """Write a model as a program of ONNX, which other runtimes run.

    The model is called once, as for inference; its operations become nodes (of operation set 18),
    its parameters initializers under their names in `save_torch_state`.  Shapes are those of the
    given inputs.  The package onnx is needed: ``pip install 'fdbr[onnx]'``.

    Parameters
    ----------
    model
        A model, or a function of arrays.
    inputs
        An array, or a tuple of the arguments of a call; their values do not matter.  They are
        called ``input``, or ``input_0``, ``input_1`` and so on where there are several; the
        results ``output``, or ``output_0`` and so on.
    path
        The file, which is written whole or not at all.
    dynamic_batch
        Whether the first axis of all inputs is a batch axis of any length.  The model is then
        called for batches of several sizes.

    Raises
    ------
    ImportError
        If onnx is not installed.
    OSError
        If the file cannot be written.
    TypeError
        If the model is not a function, or an input is not an array.
    ValueError
        If an operation has no counterpart in ONNX; the message names it.  Or if the model branches
        on values of arrays.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 3, 2)
    >>> fdbr.nn.export_onnx(layer, np.ones((5, 3), "float32"), "a.onnx")  # doctest: +SKIP
    """
    if not callable(model):
        raise TypeError(
            f"fdbr.nn.export_onnx: model must be a model or a function, not {describe(model)}"
        )
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    for leaf in tree.leaves(given):
        if isinstance(leaf, Tracer) or not is_array(leaf):
            raise TypeError(f"fdbr.nn.export_onnx: inputs must be arrays, got {describe(leaf)}")
    onnx = devices.optional("nn.export_onnx", "onnx", "onnx")
    parameters = [e for e in torch_entries(model) if is_array(e.leaf)]
    calls = [resized(given, size) for size in SIZES] if dynamic_batch else [given]
    positions = [entry.number for entry in parameters]
    try:
        programs = [_captured(model, call, positions) for call in calls]
        found = [
            _model(Graph(onnx, shared=not dynamic_batch), program, parameters, name_of(model))
            for program in programs
        ]
        made = for_any_batch(onnx, found) if dynamic_batch else found[0]
    except Unsupported as error:
        raise ValueError(
            f"fdbr.nn.export_onnx: {name_of(model)} cannot be written, as ONNX has no {error}; "
            "export a part without it, or compute it by other operations"
        ) from None
    with replacing(Path(path)) as written:
        written.write_bytes(made.SerializeToString())


def _captured(model: Any, given: tuple[Any, ...], positions: Sequence[int]) -> Program:
    """Capture a call as a program whose inputs are the parameters and the arguments' leaves."""
    leaves, structure = tree.flatten(model)
    values, form = tree.flatten(given)

    def run(traced: list[Any]) -> list[Any]:
        own = list(leaves)
        for position, leaf in zip(positions, traced, strict=False):
            own[position] = leaf
        called = tree.unflatten(structure, own)
        return tree.leaves(called(*tree.unflatten(form, traced[len(positions) :])))

    with without_effects():
        found = capture(run, model, [*(leaves[i] for i in positions), *values])
    return dce(found.program)


def _model(graph: Graph, program: Program, parameters: Sequence[Entry], title: str) -> Any:
    helper = graph.onnx.helper
    read = {v for step in program.steps for v in step.reads} | set(program.outputs)
    for variable, entry in zip(program.inputs, parameters, strict=False):
        if variable in read:
            name = entry.names[0] if entry.names else f"buffer_{entry.number}"
            array = np.ascontiguousarray(host("export_onnx", name, entry.leaf))
            array = array.reshape(variable.kind.shape)
            graph.names[variable] = graph.initializer(name, array)
    moving = program.inputs[len(parameters) :]
    heads = [graph.fresh(name) for name in _numbered("input", len(moving))]
    graph.names.update(zip(moving, heads, strict=True))
    _write(graph, program)
    ends = [graph.fresh(name) for name in _numbered("output", len(program.outputs))]
    for end, output in zip(ends, program.outputs, strict=True):
        graph.nodes.append(helper.make_node("Identity", [graph.name(output)], [end]))
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            title,
            [graph.info(n, v.kind) for n, v in zip(heads, moving, strict=True)],
            [graph.info(n, kind_of(v)) for n, v in zip(ends, program.outputs, strict=True)],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="fdbr",
    )
    made.ir_version = 9
    if made.ByteSize() > _LARGEST:
        raise Unsupported("file of more than 2 GB")
    graph.onnx.checker.check_model(made)
    return made


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


# --- steps --------------------------------------------------------------------------


def _write(graph: Graph, program: Program) -> None:
    for step in program.steps:
        if isinstance(step, Guard):
            raise Unsupported(
                f"way to decide by values ({step.question.__name__}() of a traced value of kind "
                f"{kind_of(step.operand)})"
            )
        assert isinstance(step, Instruction)
        _write_step(graph, step)


def _write_step(graph: Graph, step: Instruction) -> None:
    name = step.primitive.name
    loop = loop_of(step)
    if loop is not None:
        return _unrolled(graph, step, loop)
    writer = WRITERS.get(name)
    found = NotImplemented if writer is None else writer(graph, step)
    if found is NotImplemented:
        return _taken_apart(graph, step)
    names = found if isinstance(found, list) else [found]
    graph.names.update(zip(step.outs, names, strict=True))
    return None


def _taken_apart(graph: Graph, step: Instruction) -> None:
    """Write a step as the simpler steps it consists of."""
    lower = LOWERED.get(step.primitive)
    if lower is not None:
        steps = lower(step)
        for part in steps or ():
            _write_step(graph, part)
        if steps is not None:
            return
    examples = [
        np.zeros(kind.shape, kind.dtype) if is_variable(operand) else operand
        for operand, kind in ((operand, kind_of(operand)) for operand in step.operands)
    ]

    def value(traced: list[Any]) -> list[Any]:
        out = step.primitive.value(np, *traced, **step.params)
        return list(out) if isinstance(out, tuple) else [out]

    try:
        with np.errstate(all="ignore"):
            program = capture(value, step.primitive.value, examples).program
    except Exception as error:  # it writes to memory, or cannot take traced values
        raise Unsupported(f"counterpart of {step.primitive.name}") from error
    if any(getattr(part, "primitive", None) is step.primitive for part in program.steps):
        raise Unsupported(f"counterpart of {step.primitive.name}")
    _inline(graph, program, step.operands, step.outs)


def _inline(
    graph: Graph, program: Program, operands: Sequence[Any], outs: Sequence[Variable]
) -> None:
    """Write a program whose inputs are operands, and whose outputs are variables."""
    for variable, operand in zip(program.inputs, operands, strict=True):
        graph.names[variable] = graph.name(operand, variable.kind.dtype)
    _write(graph, program)
    for out, output in zip(outs, program.outputs, strict=True):
        graph.names[out] = graph.name(output, out.kind.dtype)


def _unrolled(graph: Graph, step: Instruction, loop: Loop) -> None:
    """Write the iterations of a loop one after the other."""
    if loop.is_open:
        raise Unsupported("loop whose length depends on values")
    first, second = loop.carried, loop.carried + len(loop.rows)
    arrays, kept = step.operands[first:second], loop.carried + loop.lasts
    body = loop.body
    names = [graph.name(operand, v.kind.dtype)
             for operand, v in zip(step.operands[:first], body.inputs, strict=False)]  # fmt: skip
    rest = [graph.name(operand) for operand in step.operands[second:]]
    stacks: list[list[str]] = [[] for _ in body.outputs[kept:]]
    results: list[str] = names
    for iteration in range(loop.length):
        rows = [
            onnx_shapes.sliced(
                graph, graph.name(array), kind_of(array).shape, (start + iteration * by,)
            )
            for array, (start, by) in zip(arrays, loop.rows, strict=True)
        ]
        data = [graph.constant(values[iteration]) for values in loop.data]
        given = [*results[:first], *rows, *data, *rest]
        graph.names.update(zip(body.inputs, given, strict=True))
        _write(graph, body)
        results = [graph.name(output) for output in body.outputs]
        for stack, name in zip(stacks, results[kept:], strict=True):
            stack.append(graph.emit("Unsqueeze", [name, graph.integers([0])]))
    whole = [graph.emit("Concat", stack, axis=0) for stack in stacks]
    graph.names.update(zip(step.outs, [*results[:kept], *whole], strict=True))


# --- reading ------------------------------------------------------------------------


@public("fdbr.nn")
def load_onnx(model: Any, path: str | Path, *, prefix: str = "", strict: bool = True) -> Any:
    """Return a model with the parameters of a file of ONNX: its initializers.

    Names are those of `load_torch_state`, which PyTorch's exporter keeps, too.  The file's program
    is ignored.  The package onnx is needed: ``pip install 'fdbr[onnx]'``.

    Parameters
    ----------
    model
        The model into which weights are loaded: only its arrays are replaced.
    path
        The file.
    prefix
        The beginning of the names to load, such as ``"module."`` or ``"backbone."``.  Names without
        it are left out.
    strict
        Whether names that are missing or unexpected are an error, or a warning: exporters that fold
        constants invent names.

    Returns
    -------
    model
        Its arrays are read-only, of the array module and the dtype of the model's.

    Raises
    ------
    ImportError
        If onnx is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it is damaged, or not a file of ONNX; or if its names or shapes are not those of the
        model: the message lists what is missing, unexpected and misshapen.

    Warns
    -----
    RuntimeWarning
        Without ``strict``, if names are missing or unexpected: the warning lists them.
    """
    onnx = devices.optional("nn.load_onnx", "onnx", "onnx")
    content = Path(path).read_bytes()
    try:
        found = onnx.load_model_from_string(content)
        given = {tensor.name: _array(onnx, tensor) for tensor in found.graph.initializer}
    except Exception as error:  # protobuf's exception classes differ between its versions
        raise ValueError(
            f"fdbr.nn.load_onnx: {path} is no file of ONNX, or is damaged: {error}"
        ) from error
    given = without_prefix(given, prefix)
    return filled("load_onnx", model, torch_entries(model), given, strict=strict)


def _array(onnx: Any, tensor: Any) -> Any:
    if onnx.external_data_helper.uses_external_data(tensor):
        raise ValueError(f"{tensor.name} lies in another file; save it as one file")
    return onnx.numpy_helper.to_array(tensor)
