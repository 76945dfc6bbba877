"""Elman recurrent networks over whole sequences."""

from typing import Any

from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, over_sequences
from fdbr.ops.nn.recurrent.stages import STATE, Stage, in_parts, run_steps, weight_in_parts
from fdbr.ops.nn.recurrent.steps import Steps, previous

__all__ = ["rnn_sequence"]


def _vjp(ct: Any, out: Any, weight: Any, steps: Any, rectified: bool) -> Any:
    ct_h, ct_h_end = (0 if x is None else x for x in ct)
    h = out[0]
    k = astype(h > 0, h.dtype) if rectified else 1 - h * h
    sources = 0, 0, ct_h, ct_h_end, 0
    return list(transposed_recurrence(*sources, k, 0, 0, weight, 0, steps=steps))


def _step(rectified: bool, s: Any, x: Any) -> Any:
    return relu(s + x) if rectified else tanh(s + x)


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[2],
    weight=lambda shared, out, h, steps: weight_cotangent(shared[0], previous(out[0], h, steps)),
)
def _rnn_sequence(
    xp: Any, inputs: Any, h: Any, weight: Any, *, steps: Steps, rectified: bool
) -> Any:
    """Compute the outputs of all steps, and the last states."""
    outs = xp.empty(inputs.shape, dtype=inputs.dtype)
    h = xp.array(h)
    product = weight_in_parts(weight, 1), (h, STATE)
    stage = Stage(_step, (rectified,), in_parts(inputs), in_parts(outs), *product)
    run_steps(inputs, [stage], steps, (outs, h))
    return outs, h


@in_one_dtype
def rnn_sequence(
    inputs: Any, h: Any, weight: Any, *, steps: Steps, rectified: bool
) -> tuple[Any, Any]:
    """Compute the outputs of all steps, and the last output of each sequence.

    ``inputs`` are added to the state's contribution, for all elements; ``rectified`` chooses `relu`
    instead of `tanh`.
    """
    outs: tuple[Any, Any] = _rnn_sequence(inputs, h, weight, steps=steps, rectified=rectified)
    return outs
