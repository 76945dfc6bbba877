"""Long short-term memory over whole sequences."""

from typing import Any

from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, is_given, over_sequences
from fdbr.ops.nn.recurrent.stages import (
    STATE,
    Stage,
    in_parts,
    projection,
    run_steps,
    weight_in_parts,
)
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import lstm_derivatives, lstm_unit, parts_of
from fdbr.ops.shape.manipulation import concat

__all__ = ["lstm_sequence"]


def _vjp(ct: Any, out: Any, c: Any, weight: Any, hr: Any, steps: Any) -> Any:
    ct_h, ct_c, ct_gates, ct_h_end, ct_c_end = (0 if x is None else x for x in ct)
    _, cells, gates, _, _ = out
    axis, each = gates.ndim - 1, parts_of(gates, 4)
    derivatives, k, a = lstm_derivatives(*each, previous(cells, c, steps), tanh(cells))
    s = ct_gates * concat(derivatives, axis=axis) if is_given(ct_gates) else 0
    sources = s, ct_c, ct_h, ct_h_end, ct_c_end
    k = concat(k, axis=axis)
    return list(transposed_recurrence(*sources, k, each[1], a, weight, hr, steps=steps))


def _step(*arrays: Any) -> Any:
    sums, inputs, c = arrays[:4], arrays[4:8], arrays[8]
    new, h, *gates = lstm_unit(*(s + x for s, x in zip(sums, inputs, strict=True)), c)
    return *gates, new, new, h


def _weight_vjp(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_cotangent(shared[0], previous(out[0], h, steps))


def _projection_vjp(shared: Any, out: Any) -> Any:
    cells = out[1]
    return weight_cotangent(shared[2], out[2][..., -cells.shape[-1] :] * tanh(cells))


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight", "hr"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[3],
    c=lambda shared: shared[4],
    weight=_weight_vjp,
    hr=_projection_vjp,
)
def _lstm_sequence(
    xp: Any,
    inputs: Any,
    h: Any,
    c: Any,
    weight: Any,
    hr: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the outputs, memories and gates of all steps, and the last states."""
    lead, dtype = inputs.shape[:-1], inputs.dtype
    gates, cells = xp.empty(inputs.shape, dtype=dtype), xp.empty((*lead, c.shape[-1]), dtype=dtype)
    outs = xp.empty((*lead, h.shape[-1]), dtype=dtype)
    h, c = xp.array(h), xp.array(c)
    unprojected = xp.empty(cells.shape, dtype=dtype) if is_given(hr) else outs
    read = [*in_parts(inputs, 4), (c, STATE)]
    write = [*in_parts(gates, 4), *in_parts(cells), (c, STATE), *in_parts(unprojected)]
    stages = [Stage(_step, (), read, write, weight_in_parts(weight, 4), (h, STATE))]
    if is_given(hr):
        stages.append(projection(unprojected, hr, outs))
    run_steps(inputs, stages, steps, (outs, h))
    return outs, cells, gates, h, c


@in_one_dtype
def lstm_sequence(
    inputs: Any, h: Any, c: Any, weight: Any, hr: Any, *, steps: Steps
) -> tuple[Any, Any, Any]:
    """Compute the outputs of all steps, and the last output and memory of each sequence.

    ``inputs`` are the contributions of the inputs to the gates, for all elements; ``hr`` is the
    weight of a projection, or 0.
    """
    outs, _, _, h, c = _lstm_sequence(inputs, h, c, weight, hr, steps=steps)
    return outs, h, c
