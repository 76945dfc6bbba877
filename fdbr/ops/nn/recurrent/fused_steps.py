"""Steps of recurrent networks as fused kernels, for large sequences in NumPy arrays.

One kernel computes a step: the product with the state, the gates, and what the backward pass
needs.  Without a kernel the operations loop over steps with functions of the array module.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.codegen.math.arithmetic import maximum
from fdbr.backends.cpu.codegen.math.exponential import expit, tanh
from fdbr.backends.cpu.library.rnn_step.rnn_step import PACKED, STATE, Step, stepping
from fdbr.ops.nn.recurrent.sequence_rules import is_given
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.pytrees.typing import Array

__all__ = ["gru_by_kernel", "lstm_by_kernel", "rnn_by_kernel", "transposed_by_kernel"]

_STEPS = 16  # a kernel replaces many calls for each step, so it pays from `LEAST` / 16 bytes on


def _is_large(x: Any) -> bool:
    return type(x) is np.ndarray and x.ndim == 2 and x.nbytes * _STEPS >= kernels.LEAST


def _packed(x: Any, parts: int = 1) -> list[tuple[Any, str]]:
    x = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
    return [(part, PACKED) for part in parts_of(x, parts)]


def _split_weight(weight: Array, parts: int) -> Array:
    return weight.reshape(parts, len(weight) // parts, weight.shape[1])


def _run_steps(step: Step | None, h: Array, outs: Array, steps: Steps) -> bool:
    """Run the steps; the outputs of each step are the state of the next."""
    if step is None:
        return False
    for rows, count in steps:
        step(rows.start, count)
        h[:count] = outs[rows]
    return True


# --- forward --------------------------------------------------------------------------


def _rnn(s: Any, x: Any) -> Any:
    return tanh(s + x)


def _rectified_rnn(s: Any, x: Any) -> Any:
    return maximum(s + x, 0)


def rnn_by_kernel(
    inputs: Array, h: Array, weight: Array, outs: Array, steps: Steps, rectified: bool
) -> bool:
    """Write the outputs, and the last states to ``h``; return whether there is a kernel."""
    if not _is_large(inputs):
        return False
    function = _rectified_rnn if rectified else _rnn
    operands = _packed(inputs), _packed(outs), weight[None], (h, STATE)
    return _run_steps(stepping(function, function, *operands), h, outs, steps)


def _lstm(i: Any, f: Any, g: Any, o: Any, *inputs: Any) -> Any:
    by_i, by_f, by_g, by_o, c = inputs
    i, f, g, o = expit(i + by_i), expit(f + by_f), tanh(g + by_g), expit(o + by_o)
    c = f * c + i * g
    return i, f, g, o, c, c, o * tanh(c)


def lstm_by_kernel(
    inputs: Array,
    h: Array,
    c: Array,
    weight: Array,
    gates: Array,
    cells: Array,
    outs: Array,
    steps: Steps,
) -> bool:
    """Write gates, memories and outputs, and the last states to ``h`` and ``c``, if possible."""
    if not _is_large(inputs):
        return False
    read = [*_packed(inputs, 4), (c, STATE)]
    write = [*_packed(gates, 4), *_packed(cells), (c, STATE), *_packed(outs)]
    step = stepping(_lstm, _lstm, read, write, _split_weight(weight, 4), (h, STATE))
    return _run_steps(step, h, outs, steps)


def _gru(r: Any, z: Any, n: Any, *inputs: Any) -> Any:
    by_r, by_z, by_n, h, *bias = inputs
    r, z, hidden = expit(r + by_r), expit(z + by_z), n + bias[0] if bias else n
    n = tanh(r * hidden + by_n)
    return r, z, n, hidden, z * (h - n) + n


def gru_by_kernel(
    inputs: Array,
    h: Array,
    weight: Array,
    bias: Any,
    gates: Array,
    hidden: Array,
    outs: Array,
    steps: Steps,
) -> bool:
    """Write gates, the terms that ``r`` multiplies, outputs and last states, if possible."""
    if not _is_large(inputs):
        return False
    read = [*_packed(inputs, 3), (h, STATE), *([(bias, "0")] if is_given(bias) else [])]
    write = [*_packed(gates, 3), *_packed(hidden), *_packed(outs)]
    step = stepping(_gru, _gru, read, write, _split_weight(weight, 3), (h, STATE))
    return _run_steps(step, h, outs, steps)


# --- backward -------------------------------------------------------------------------


def transposed_by_kernel(
    cotangents: Sequence[Any],
    k: Array,
    f: Any,
    a: Any,
    weight: Array,
    ct_h: Array,
    ct_c: Array,
    sums: Array,
    cells: Array,
    outs: Array,
    steps: Steps,
) -> bool:
    """Write the results of `transposed_recurrence`, and the last states to ``ct_h`` and ``ct_c``.

    ``cotangents`` are those of the sums, the memories and the outputs.
    """
    if not _is_large(k):
        return False
    has_memory, parts = is_given(a), k.shape[-1] // outs.shape[-1]
    ct_s, ct_c_step, ct_h_step = cotangents
    has = has_memory, is_given(ct_h_step), is_given(ct_c_step), is_given(ct_s), parts
    read = [(ct_h, STATE), *(_packed(ct_h_step) if is_given(ct_h_step) else [])]
    write = [*_packed(sums, parts), *_packed(outs)]
    if has_memory:
        read += [
            (ct_c, STATE),
            *_packed(a),
            *_packed(f),
            *(_packed(ct_c_step) if is_given(ct_c_step) else []),
        ]
        write += [*_packed(cells), (ct_c, STATE)]
    read += [*_packed(k, parts), *(_packed(ct_s, parts) if is_given(ct_s) else [])]
    first = stepping(("back", *has), functools.partial(_transposed_step, *has), read, write)
    adds_state = is_given(f) and not has_memory
    read_state = [*_packed(f), *_packed(outs)] if adds_state else []
    finish = _add_to_state if adds_state else _replace_state
    second = stepping(finish, finish, read_state, [(ct_h, STATE)], weight.T[None], (sums, PACKED))
    if first is None or second is None:
        return False
    for rows, count in steps.reverse_order:
        first(rows.start, count)
        second(rows.start, count)
    return True


def _transposed_step(
    has_memory: bool, ct_h_step: bool, ct_c_step: bool, ct_s: bool, parts: int, *arrays: Any
) -> Any:
    """Compute the cotangents of a step's sums, output and memory, and of the kept memory."""
    y, *inputs = arrays
    rest = iter(inputs)
    if ct_h_step:
        y = y + next(rest)
    x = y
    if has_memory:
        ct_c, a, f = next(rest), next(rest), next(rest)
        x = a * y + ct_c
        if ct_c_step:
            x = x + next(rest)
    k = [next(rest) for _ in range(parts)]
    sums = [factor * x for factor in k[:-1]] + [k[-1] * y]
    if ct_s:
        sums = [s + next(rest) for s in sums]
    return (*sums, y, x, f * x) if has_memory else (*sums, y)


def _replace_state(s: Any) -> Any:
    return s


def _add_to_state(s: Any, f: Any, y: Any) -> Any:
    return s + f * y
