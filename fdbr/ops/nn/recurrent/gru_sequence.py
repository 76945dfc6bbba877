"""Gated recurrent units over whole sequences."""

from typing import Any

from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, is_given, over_sequences
from fdbr.ops.nn.recurrent.stages import EACH, STATE, Stage, in_parts, run_steps, weight_in_parts
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import gru_derivatives, gru_sources, gru_unit, parts_of
from fdbr.ops.reductions.reduce import sum as sum_over
from fdbr.ops.shape.manipulation import concat

__all__ = ["gru_sequence"]


def _vjp(ct: Any, out: Any, h: Any, weight: Any, steps: Any) -> Any:
    """Compute the cotangents of inputs, of products with states, and of first states."""
    ct_h, ct_gates, ct_hidden, ct_h_end = (0 if x is None else x for x in ct)
    outs, gates, hidden, _ = out
    each, axis = parts_of(gates, 3), gates.ndim - 1
    derivatives, k, new = gru_derivatives(*each, previous(outs, h, steps), hidden)
    s: Any = 0
    ct_n_pre: Any = 0
    if is_given(ct_gates):
        sums, ct_n_pre = gru_sources(each, derivatives, hidden, parts_of(ct_gates, 3))
        s = concat(sums, axis=axis)
    if is_given(ct_hidden):
        s = s + concat([0 * ct_hidden, 0 * ct_hidden, ct_hidden], axis=axis)
    sources = s, 0, ct_h, ct_h_end, 0
    sums, back, first = transposed_recurrence(
        *sources, concat(k, axis=axis), each[1], 0, weight, 0, steps=steps
    )
    ct_inputs = concat([sums[..., : -new.shape[-1]], new * back + ct_n_pre], axis=axis)
    return [ct_inputs, sums, first]


def _step(has_bias: bool, *arrays: Any) -> Any:
    sums, inputs, (h, *bias) = list(arrays[:3]), arrays[3:6], arrays[6:]
    if has_bias:
        sums[2] = sums[2] + bias[0]
    new, *gates = gru_unit(*inputs, *sums, h)
    return *gates, sums[2], new


def _weight_vjp(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_cotangent(shared[1], previous(out[0], h, steps))


def _bias_vjp(shared: Any, out: Any) -> Any:
    return sum_over(shared[1][..., -out[0].shape[-1] :], axis=-2, keepdims=True)


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight", "bias"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[2],
    weight=_weight_vjp,
    bias=_bias_vjp,
)
def _gru_sequence(xp: Any, inputs: Any, h: Any, weight: Any, bias: Any, *, steps: Steps) -> Any:
    """Compute outputs and gates of all steps, the terms that ``r`` multiplies, and last states."""
    size, dtype, has_bias = h.shape[-1], inputs.dtype, is_given(bias)
    gates = xp.empty(inputs.shape, dtype=dtype)
    outs = xp.empty((*inputs.shape[:-1], size), dtype=dtype)
    hidden = xp.empty(outs.shape, dtype=dtype)
    h = xp.array(h)
    read = [*in_parts(inputs, 3), (h, STATE), *([(bias, EACH)] if has_bias else [])]
    write = [*in_parts(gates, 3), *in_parts(hidden), *in_parts(outs)]
    stage = Stage(_step, (has_bias,), read, write, weight_in_parts(weight, 3), (h, STATE))
    run_steps(inputs, [stage], steps, (outs, h))
    return outs, gates, hidden, h


@in_one_dtype
def gru_sequence(inputs: Any, h: Any, weight: Any, bias: Any, *, steps: Steps) -> tuple[Any, Any]:
    """Compute the outputs of all steps, and the last output of each sequence.

    ``inputs`` are the contributions of the inputs to the gates, for all elements; ``bias``, of
    shape (1, size) or 0, is added to the state's contribution to ``n``, before the reset gate.
    """
    outs, _, _, h = _gru_sequence(inputs, h, weight, bias, steps=steps)
    return outs, h
