"""Steps of recurrent networks as kernels, of NumPy's arrays that are large together.

A step is one kernel: the product with the state, the gates, and what is kept.  Where there is none
the loops of the operations go through it with the functions of their array module.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.codegen.math.arithmetic import maximum
from fdbr.backends.cpu.codegen.math.exponential import expit, tanh
from fdbr.backends.cpu.library.rnn_step.rnn_step import PACKED, STATE, Step, stepping
from fdbr.ops.nn.recurrent.sequence_rules import there
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.pytrees.typing import Array

__all__ = ["gru_by_kernel", "lstm_by_kernel", "rnn_by_kernel", "transposed_by_kernel"]

_STEPS = 16  # times as small as other arrays are those for which kernels pay


def _is_large(x: Any) -> bool:
    return type(x) is np.ndarray and x.ndim == 2 and x.nbytes * _STEPS >= kernels.LEAST


def _packed(x: Any, parts: int = 1) -> list[tuple[Any, str]]:
    x = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
    return [(part, PACKED) for part in parts_of(x, parts)]


def _in_parts(weight: Array, parts: int) -> Array:
    return weight.reshape(parts, len(weight) // parts, weight.shape[1])


def _go(step: Step | None, h: Array, outs: Array, steps: Steps) -> bool:
    """Go through the steps, of which each has the outputs of the one before as its state."""
    if step is None:
        return False
    for rows, count in steps:
        step(rows.start, count)
        h[:count] = outs[rows]
    return True


# --- there ----------------------------------------------------------------------------


def _rnn(s: Any, x: Any) -> Any:
    return tanh(s + x)


def _rectified_rnn(s: Any, x: Any) -> Any:
    return maximum(s + x, 0)


def rnn_by_kernel(
    inputs: Array, h: Array, weight: Array, outs: Array, steps: Steps, rectified: bool
) -> bool:
    """Write the outputs, and the last states to ``h``; whether there is a kernel."""
    if not _is_large(inputs):
        return False
    function = _rectified_rnn if rectified else _rnn
    given = _packed(inputs), _packed(outs), weight[None], (h, STATE)
    return _go(stepping(function, function, *given), h, outs, steps)


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
    """Write the gates, memories and outputs, and the last states to ``h`` and ``c``."""
    if not _is_large(inputs):
        return False
    read = [*_packed(inputs, 4), (c, STATE)]
    write = [*_packed(gates, 4), *_packed(cells), (c, STATE), *_packed(outs)]
    step = stepping(_lstm, _lstm, read, write, _in_parts(weight, 4), (h, STATE))
    return _go(step, h, outs, steps)


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
    """Write the gates, what ``r`` is multiplied by and the outputs, and the last states."""
    if not _is_large(inputs):
        return False
    read = [*_packed(inputs, 3), (h, STATE), *([(bias, "0")] if there(bias) else [])]
    write = [*_packed(gates, 3), *_packed(hidden), *_packed(outs)]
    step = stepping(_gru, _gru, read, write, _in_parts(weight, 3), (h, STATE))
    return _go(step, h, outs, steps)


# --- and back -------------------------------------------------------------------------


def transposed_by_kernel(
    given: Sequence[Any],
    k: Array,
    f: Any,
    a: Any,
    weight: Array,
    later: Array,
    kept: Array,
    sums: Array,
    cells: Array,
    outs: Array,
    steps: Steps,
) -> bool:
    """Write what `transposed_recurrence` gives, and the last states to ``later`` and ``kept``.

    ``given`` are the cotangents of the sums, the memories and the outputs.
    """
    if not _is_large(k):
        return False
    memory, parts = there(a), k.shape[-1] // outs.shape[-1]
    by_s, by_c, by_h = given
    has = memory, there(by_h), there(by_c), there(by_s), parts
    read = [(later, STATE), *(_packed(by_h) if there(by_h) else [])]
    write = [*_packed(sums, parts), *_packed(outs)]
    if memory:
        read += [(kept, STATE), *_packed(a), *_packed(f), *(_packed(by_c) if there(by_c) else [])]
        write += [*_packed(cells), (kept, STATE)]
    read += [*_packed(k, parts), *(_packed(by_s, parts) if there(by_s) else [])]
    first = stepping(("back", *has), functools.partial(_back, *has), read, write)
    straight = there(f) and not memory
    added = [*_packed(f), *_packed(outs)] if straight else []
    function = _more if straight else _alone
    second = stepping(function, function, added, [(later, STATE)], weight.T[None], (sums, PACKED))
    if first is None or second is None:
        return False
    for rows, count in steps.turned:
        first(rows.start, count)
        second(rows.start, count)
    return True


def _back(memory: bool, by_h: bool, by_c: bool, by_s: bool, parts: int, *given: Any) -> Any:
    """The cotangents of a step's sums, output and memory, and of what is kept in that."""
    y, *more = given
    rest = iter(more)
    if by_h:
        y = y + next(rest)
    x = y
    if memory:
        kept, a, f = next(rest), next(rest), next(rest)
        x = a * y + kept
        if by_c:
            x = x + next(rest)
    k = [next(rest) for _ in range(parts)]
    sums = [factor * x for factor in k[:-1]] + [k[-1] * y]
    if by_s:
        sums = [s + next(rest) for s in sums]
    return (*sums, y, x, f * x) if memory else (*sums, y)


def _alone(s: Any) -> Any:
    return s


def _more(s: Any, f: Any, y: Any) -> Any:
    return s + f * y
