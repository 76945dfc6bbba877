"""Cases of recurrent cells, of layers of them over sequences, and of lists of sequences."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.ops.nn.recurrent.recurrences import linear_recurrence, transposed_recurrence
from fdbr.ops.nn.recurrent.reset_recurrences import reset_recurrence, transposed_reset_recurrence
from fdbr.ops.nn.recurrent.reset_sequence import reset_sequence
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import real
from ops.cases import CASES, case
from ops.seeds import seeded, several

_FIRST = len(CASES)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(c: Any, x: Any) -> Any:
    i, f, g, o = np.split(x, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def joined(out: Any) -> Any:
    return ops.concat([ops.reshape(part, -1) for part in out])


def flat(out: Any) -> Any:
    return np.concatenate([np.reshape(part, -1) for part in out])


case(
    "lstm",
    several((2, 1), (2, 4)),
    lambda c, x: flat(lstm(c, x)),
    lambda c, x: joined(ops.lstm(c, x)),
)
case(
    "lstm",
    several((3, 1), (2, 4)),
    lambda c, x: flat((np.append(lstm(c[:2], x)[0], c[2:]), lstm(c[:2], x)[1])),
    lambda c, x: joined(ops.lstm(c, x)),
    "a sequence that has ended",
)
case(
    "lstm",
    several((1, 2, 1), (1, 8, 1)),
    lambda c, x: flat(lstm(c[..., 0], x.reshape(1, 2, 4)[..., [1, 2, 0, 3]].mT.reshape(1, 8))),
    lambda c, x: joined(ops.lstm(c, x, interleaved=True)),
    "interleaved",
)


def slstm(c1: Any, c2: Any, x1: Any, x2: Any) -> Any:
    a, i, f, o = np.moveaxis(x1.reshape(*c1.shape, 4), -1, 0)
    b, j, g, p = np.moveaxis(x2.reshape(*c1.shape, 4), -1, 0)
    new = sigmoid(i) * np.tanh(a) + sigmoid(j) * np.tanh(b)
    c = new + sigmoid(f) * c1 + sigmoid(g) * c2
    return c, sigmoid(o + p) * np.tanh(c)


case(
    "slstm",
    several((1, 2), (1, 2), (1, 8), (1, 8)),
    lambda *args: flat(slstm(*args)),
    lambda *args: joined(ops.slstm(*args)),
)


def tree_lstm(*cs: Any) -> Any:
    *cs, x = cs
    a, i, o, *forget = np.split(x, 3 + len(cs), axis=-1)
    c = sigmoid(i) * np.tanh(a) + sum(sigmoid(f) * c for f, c in zip(forget, cs, strict=True))
    return c, sigmoid(o) * np.tanh(c)


for setting, shapes in (("", [(1, 2)] * 2), ("leaf", []), ("one child", [(2, 1)])):
    rows, size = shapes[0] if shapes else (1, 2)
    case(
        "tree_lstm",
        several(*shapes, (rows, (3 + len(shapes)) * size)),
        lambda *args: flat(tree_lstm(*args)),
        lambda *args: joined(ops.tree_lstm(*args)),
        setting,
    )


# --- cells --------------------------------------------------------------------------


def lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any = 0.0, d: Any = 0.0) -> Any:
    c, h = lstm(c, x @ w.T + b + h @ u.T + d)
    return h, c


def gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = 0.0, d: Any = 0.0) -> Any:
    (xr, xz, xn), (hr, hz, hn) = np.split(x @ w.T + b, 3, -1), np.split(h @ u.T + d, 3, -1)
    z, n = sigmoid(xz + hz), np.tanh(xn + sigmoid(xr + hr) * hn)
    return (1 - z) * n + z * h


def reset_first(x: Any, h: Any, w: Any, u: Any, b: Any) -> Any:
    xr, xz, xn = np.split(x @ w.T, 3, -1)
    (ur, uz, un), (br, bz, bn) = np.split(u, 3), np.split(b, 3)
    r, z = sigmoid(xr + h @ ur.T + br), sigmoid(xz + h @ uz.T + bz)
    return (1 - z) * h + z * np.tanh(xn + (r * h) @ un.T + bn)


def mgu_cell(x: Any, h: Any, w: Any, u: Any, b: Any = 0.0, d: Any = 0.0) -> Any:
    (xf, xn), (uf, un) = np.split(x @ w.T + b + d, 2, -1), np.split(u, 2)
    f = sigmoid(xf + h @ uf.T)
    return (1 - f) * h + f * np.tanh(xn + (f * h) @ un.T)


def simple(activation: Any) -> Any:
    return lambda x, h, w, u, b=0.0, d=0.0: activation(x @ w.T + b + h @ u.T + d)


case(
    "lstm_cell",
    several((2, 1), (2, 1), (2, 1), (4, 1), (4, 1), (4,), (4,)),
    lambda *args: flat(lstm_cell(*args)),
    lambda x, h, c, *weights: joined(ops.lstm_cell(x, (h, c), *weights)),
)
for op, gates, reference in (
    ("gru_cell", 3, gru_cell),
    ("mgu_cell", 2, mgu_cell),
    ("rnn_tanh_cell", 1, simple(np.tanh)),
):
    case(
        op,
        several((2, 1), (2, 1), (gates, 1), (gates, 1), (gates,), (gates,)),
        reference,
        getattr(ops, op),
    )
case(
    "gru_cell",
    several((1, 1), (1, 1), (3, 1), (3, 1), (3,)),
    reset_first,
    lambda x, h, w, u, b: ops.gru_cell(x, h, w, u, None, b, reset_first=True),
    "reset first",
)
case(
    "rnn_relu_cell",
    several((1, 1), (1, 2), (2, 1), (2, 2), (2,)),
    lambda x, h, w, u, b: (x + 16) @ (abs(w) + 1).T + abs(h) @ abs(u).T + b,
    lambda x, h, w, u, b: ops.rnn_relu_cell(x + 16, ops.abs(h), ops.abs(w) + 1, ops.abs(u), b),
    "linear part",
)


# --- sequences ----------------------------------------------------------------------


def over(step: Any, states: Any, xs: Any) -> Any:
    """One layer over each sequence by itself: the last states, and the outputs."""
    ends, ys = [], []
    for i, x in enumerate(xs):
        state, rows = tuple(part[i] for part in states), []
        for row in x:
            state = step(row, *state)
            rows.append(state[0])
        ends.append(state)
        ys.append(np.stack(rows))
    return [np.stack(parts) for parts in zip(*ends, strict=True)], ys


def two_ways(step: Any, back: Any, states: Any, xs: Any) -> Any:
    """The same there and back."""
    ends, ys = over(step, [part[0] for part in states], xs)
    others, zs = over(back, [part[1] for part in states], [x[::-1] for x in xs])
    both = [np.stack(pair) for pair in zip(ends, others, strict=True)]
    return both, [np.concatenate([y, z[::-1]], -1) for y, z in zip(ys, zs, strict=True)]


def _lstm_reference(h: Any, c: Any, w: Any, u: Any, *xs: Any) -> Any:
    (hy, cy), ys = over(lambda x, h, c: lstm_cell(x, h, c, w, u), (h[0], c[0]), xs)
    return flat([hy, cy, *ys])


def _lstm_steps(h: Any, c: Any, w: Any, u: Any, *xs: Any) -> Any:
    hy, cy, ys = ops.n_step_lstm(h, c, [(w, u)], None, list(xs))
    return joined([hy, cy, *ys])


case(
    "n_step_lstm",
    several((1, 2, 1), (1, 2, 1), (4, 1), (4, 1), (1, 1), (2, 1)),
    _lstm_reference,
    _lstm_steps,
)


def _gru_reference(h: Any, w: Any, u: Any, v: Any, t: Any, *xs: Any) -> Any:
    there, back = (lambda x, h: (gru_cell(x, h, w, u),)), (lambda x, h: (gru_cell(x, h, v, t),))
    (hy,), ys = two_ways(there, back, (h,), xs)
    return flat([hy, *ys])


def _gru_steps(h: Any, w: Any, u: Any, v: Any, t: Any, *xs: Any) -> Any:
    hy, ys = ops.n_step_gru(h, [(w, u), (v, t)], None, list(xs), bidirectional=True)
    return joined([hy, *ys])


case(
    "n_step_gru",
    several((2, 2, 1), (3, 1), (3, 1), (3, 1), (3, 1), (2, 1), (1, 1)),
    _gru_reference,
    _gru_steps,
    "both directions",
)


def _from_states(h: Any, w: Any, u: Any, *xs: Any) -> Any:
    (hy,), ys = over(lambda x, h: (np.maximum(x @ w.T + h @ u.T, 0),), (h[0],), xs)
    return flat([hy, *ys])


def _relu_steps(h: Any, w: Any, u: Any, *xs: Any) -> Any:
    hy, ys = ops.n_step_rnn(h, [(w, u)], None, list(xs), activation="relu")
    return joined([hy, *ys])


case(
    "n_step_rnn",
    seeded(*((shape, (0.25, 2)) for shape in ((1, 2, 1), (1, 1), (1, 1), (1, 1), (2, 1)))),
    _from_states,
    _relu_steps,
    "the linear part of relu",
)


def _rnn_reference(w: Any, u: Any, b: Any, v: Any, t: Any, *xs: Any) -> Any:
    zeros = (np.zeros((len(xs), 1)),)
    one = over(lambda x, h: (np.tanh(x @ w.T + b + h @ u.T),), zeros, xs)
    two = over(lambda x, h: (np.tanh(x @ v.T + h @ t.T),), zeros, one[1])
    return flat([*one[0], *two[0], *two[1]])


def _rnn_steps(w: Any, u: Any, b: Any, v: Any, t: Any, *xs: Any) -> Any:
    biases = [(b, None), (None, None)]
    hy, ys = ops.n_step_rnn(None, [(w, u), (v, t)], biases, list(xs))
    return joined([hy, *ys])


case(
    "n_step_rnn",
    several((1, 1), (1, 1), (1,), (1, 1), (1, 1), (2, 1), (1, 1)),
    _rnn_reference,
    _rnn_steps,
    "two layers",
)


# --- whole sequences ----------------------------------------------------------------
#
# What is only run within derivatives of the others, and what no function over lists has.

FORWARD, BACKWARD = Steps((2, 1)), Steps((2, 1), reverse=True)


def rows_of(steps: Steps) -> Any:
    """The rows of packed arrays at each step, and those of the state."""
    return [(np.arange(rows.start, rows.stop), slice(count)) for rows, count in steps]


def _reset_reference(steps: Steps, inputs: Any, h: Any, w: Any) -> Any:
    outs, h = np.zeros((len(inputs), h.shape[-1])), h.copy()
    for rows, live in rows_of(steps):
        h[live] = outs[rows] = reset_first(inputs[rows], h[live], np.eye(3), w, np.zeros(3))
    return flat([outs, h])


def _recurred(steps: Steps, *args: Any) -> Any:
    """The recurrence of a memory and an output, by its formulas."""
    u, v, w, h, c, k, f, a, weight, hr = args
    sums, cells, outs, h, c = 0 * u, 0 * v, 0 * w, h.copy(), c.copy()
    for rows, live in rows_of(steps):
        sums[rows] = h[live] @ weight.T + u[rows]
        parts = np.split(k[rows] * sums[rows], 4, -1)
        c[live] = cells[rows] = f[rows] * c[live] + sum(parts[:3]) + v[rows]
        h[live] = outs[rows] = (a[rows] * c[live] + parts[3]) @ hr.T + w[rows]
    return flat([sums, cells, outs, h, c])


def _recurred_without(steps: Steps, u: Any, w: Any, h: Any, k: Any, f: Any, weight: Any) -> Any:
    sums, outs, h = 0 * u, 0 * w, h.copy()
    for rows, live in rows_of(steps):
        sums[rows] = h[live] @ weight.T + u[rows]
        h[live] = outs[rows] = f[rows] * h[live] + (k[rows] * sums[rows]).sum(-1, keepdims=True)
        h[live] = outs[rows] = outs[rows] + w[rows]
    return flat([sums, outs, h])


def _recurred_with_reset(steps: Steps, *args: Any) -> Any:
    u, y, w, h, k, f, q, j, weight = args
    sums, resets, outs, h = 0 * u, 0 * y, 0 * w, h.copy()
    for rows, live in rows_of(steps):
        sums[rows, :2] = h[live] @ weight[:2].T + u[rows, :2]
        resets[rows] = q[rows] * h[live] + j[rows] * sums[rows, :1] + y[rows]
        sums[rows, 2:] = resets[rows] @ weight[2:].T + u[rows, 2:]
        change = (k[rows] * sums[rows, 1:]).sum(-1, keepdims=True)
        h[live] = outs[rows] = f[rows] * h[live] + change + w[rows]
    return flat([sums, resets, outs, h])


def transposed(function: Any, sources: int) -> Any:
    """The transpose of a function that is linear in its first arguments, by its matrix."""

    def apply(steps: Steps, *args: Any) -> Any:
        cts, others = args[:sources], args[sources:]
        sizes = np.cumsum([ct.size for ct in cts])
        split = lambda row: [
            part.reshape(ct.shape) for part, ct in zip(np.split(row, sizes), cts, strict=False)
        ]
        matrix = [function(steps, *split(row), *others) for row in np.eye(sizes[-1])]
        return np.stack(matrix) @ flat(cts)

    return apply


def applied(operation: Any, steps: Steps, *args: Any) -> Any:
    """An operation that takes operands of one dtype."""
    return joined(in_one_dtype(operation)(*real("n_step_lstm", *args), steps=steps))


def without_a_memory(u: Any, w: Any, h: Any, k: Any, f: Any, weight: Any, *, steps: Steps) -> Any:
    return linear_recurrence(u, 0, w, h, 0, k, f, 0, weight, 0, steps=steps)


_SOURCES = (3, 4), (3, 1), (3, 1), (2, 1), (2, 1)
_COEFFICIENTS = (3, 4), (3, 1), (3, 1), (4, 1), (1, 1)
_RESETS = (3, 3), (3, 1), (3, 1), (2, 1), (3, 2), (3, 1), (3, 1), (3, 1), (3, 1)
for op, operation, shapes, reference, steps in (
    ("gru_cell", reset_sequence, [(3, 3), (2, 1), (3, 1)], _reset_reference, FORWARD),
    ("n_step_lstm", linear_recurrence, [*_SOURCES, *_COEFFICIENTS], _recurred, BACKWARD),
    (
        "n_step_lstm",
        transposed_recurrence,
        [*_SOURCES, *_COEFFICIENTS],
        transposed(_recurred, 5),
        FORWARD,
    ),
    ("gru_cell", reset_recurrence, _RESETS, _recurred_with_reset, FORWARD),
    (
        "gru_cell",
        transposed_reset_recurrence,
        _RESETS,
        transposed(_recurred_with_reset, 4),
        BACKWARD,
    ),
    (
        "n_step_gru",
        without_a_memory,
        [(3, 3), (3, 1), (2, 1), (3, 3), (3, 1), (3, 1)],
        _recurred_without,
        FORWARD,
    ),
):
    case(
        op,
        seeded(*((shape, (-2, 2)) for shape in shapes), count=1),
        lambda *args, f=reference, steps=steps: f(steps, *args),
        lambda *args, f=operation, steps=steps: applied(f, steps, *args),
        operation.__name__,
    )


def _padded(x: Any, y: Any) -> Any:
    return np.stack([x, np.concatenate([y, np.full((1, *y.shape[1:]), 0.5)])], axis=1)


case(
    "pad_sequence",
    several((2, 2), (1, 2)),
    _padded,
    lambda x, y: ops.pad_sequence([x, y], padding_value=0.5),
)
case(
    "pad_sequence",
    several((2,), (0,)),
    lambda x, y: np.stack([np.append(x, 0), np.zeros(3)]),
    lambda x, y: ops.pad_sequence([x, y], batch_first=True, length=3),
    "longer",
)
case(
    "transpose_sequence",
    several((2, 2), (1, 2), (1, 2)),
    lambda x, y, z: np.concatenate([x[:1], y, z, 2 * x[1:]]),
    lambda x, y, z: ops.concat(
        [part * (i + 1) for i, part in enumerate(ops.transpose_sequence([x, y, z]))]
    ),
)

OWN = CASES[_FIRST:]
