"""Gated recurrent units that reset the state before its product, over whole sequences."""

from typing import Any

from fdbr.ops.elementwise.logistic import sigmoid
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.recurrent.reset_recurrences import ct_weight, transposed_reset_recurrence
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, is_given, over_sequences
from fdbr.ops.nn.recurrent.stages import (
    PACKED,
    STATE,
    Stage,
    in_parts,
    run_steps,
    weight_in_parts,
)
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat

__all__ = ["reset_sequence"]


def _vjp(ct: Any, out: Any, h: Any, weight: Any, steps: Any) -> Any:
    ct_h, ct_gates, ct_h_end = (0 if x is None else x for x in ct)
    outs, gates, _ = out
    (r, z, n), axis = parts_of(gates, 3), gates.ndim - 1
    d_r, d_z, d_n = r * (1 - r), z * (1 - z), 1 - n * n
    old = previous(outs, h, steps)
    s = ct_gates * concat([d_r, d_z, d_n], axis=axis) if is_given(ct_gates) else 0
    k = concat([(n - old) * d_z, z * d_n], axis=axis)
    sources = s, 0, ct_h, ct_h_end, k, 1 - z, r, old * d_r
    return list(transposed_reset_recurrence(*sources, weight, steps=steps))


def _weight_vjp(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    old = previous(out[0], h, steps)
    return ct_weight(shared[0], old, parts_of(out[1], 3)[0] * old)


def _gates(*arrays: Any) -> Any:
    r, z, x_r, x_z, h = arrays
    r, z = sigmoid(r + x_r), sigmoid(z + x_z)
    return r, z, r * h


def _output(n: Any, x_n: Any, z: Any, h: Any) -> Any:
    n = tanh(n + x_n)
    return n, h + z * (n - h)


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[3],
    weight=_weight_vjp,
)
def _reset_sequence(xp: Any, inputs: Any, h: Any, weight: Any, *, steps: Steps) -> Any:
    """Compute the outputs and the gates of all steps, and the last states."""
    size, dtype = h.shape[-1], inputs.dtype
    gates = xp.empty(inputs.shape, dtype=dtype)
    outs = xp.empty((*inputs.shape[:-1], size), dtype=dtype)
    resets = xp.empty(outs.shape, dtype=dtype)
    h = xp.array(h)
    (x_r, x_z, x_n), (r, z, n) = in_parts(inputs, 3), in_parts(gates, 3)
    gate_weight, reset_weight = weight[..., : 2 * size, :], weight[..., 2 * size :, :]
    first = [x_r, x_z, (h, STATE)], [r, z, *in_parts(resets)]
    second = [x_n, z, (h, STATE)], [n, *in_parts(outs)]
    stages = [
        Stage(_gates, (), *first, weight_in_parts(gate_weight, 2), (h, STATE)),
        Stage(_output, (), *second, weight_in_parts(reset_weight, 1), (resets, PACKED)),
    ]
    run_steps(inputs, stages, steps, (outs, h))
    return outs, gates, h


@in_one_dtype
def reset_sequence(inputs: Any, h: Any, weight: Any, *, steps: Steps) -> tuple[Any, Any]:
    """Compute the outputs of all steps, and the last output of each sequence.

    ``inputs`` are the contributions of the inputs to the gates, for all elements.
    """
    outs, _, h = _reset_sequence(inputs, h, weight, steps=steps)
    return outs, h
