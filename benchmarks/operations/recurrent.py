"""Recurrent cells, and layers of them over sequences."""

from typing import Any

from benchmarks.operations.program import Draw, Program

__all__ = ["PROGRAMS"]

_STEPS = 16  # of the longest sequence


def _cell(gates: int, states: int = 1) -> Any:
    """An input, states, weights and biases."""

    def draw(d: Draw) -> Any:
        rows, size = d.shape(2)
        weights = (d.normal(gates * size, size) / size**0.5 for _ in range(2))
        biases = (d.normal(gates * size) for _ in range(2))
        return *(d.normal(rows, size) for _ in range(1 + states)), *weights, *biases

    return draw


def _sequences(gates: int) -> Any:
    """Weights, biases, and eight sequences of different lengths."""

    def draw(d: Draw) -> Any:
        rows, size = d.shape(2)
        weights = [d.normal(gates * size, size) / size**0.5 for _ in range(2)]
        biases = [d.normal(gates * size) for _ in range(2)]
        lengths = [max(1, rows // 8 - i) for i in range(8)]
        return *weights, *biases, *(d.normal(min(n, _STEPS), size) for n in lengths)

    return draw


def _theirs(t: Any, name: str, states: int, arrays: Any) -> Any:
    """PyTorch's layer, as it is called by `torch.nn`: on packed sequences."""
    weights, xs = arrays[:4], arrays[4:]
    packed = t.nn.utils.rnn.pack_sequence(list(xs), enforce_sorted=False)
    zeros = t.zeros(1, len(xs), weights[1].shape[1])
    state = (zeros, zeros) if states == 2 else zeros
    # has biases, layers, dropout, in training, bidirectional
    settings = (True, 1, 0.0, True, False)
    return getattr(t, name)(packed.data, packed.batch_sizes, state, list(weights), *settings)[0]


def _ours(o: Any, name: str, states: int, arrays: Any) -> Any:
    """The elements of all sequences by time, as PyTorch gives them."""
    by_x, by_h, b, d, *xs = arrays
    outs = getattr(o, name)(*[None] * states, [(by_x, by_h)], [(b, d)], xs)
    return o.concat(o.transpose_sequence(outs[-1]))


def _n_step(name: str, theirs: str, gates: int, states: int = 1) -> Program:
    return Program(
        name,
        _sequences(gates),
        lambda o, *arrays: _ours(o, name, states, arrays),
        lambda t, *arrays: _theirs(t, theirs, states, arrays),
    )


def _padded(d: Draw) -> Any:
    rows, size = d.shape(2)
    return d.normal(rows, size), d.normal(max(1, rows // 2), size)


PROGRAMS = [
    Program(
        "lstm_cell",
        _cell(4, 2),
        lambda o, x, h, c, *w: o.lstm_cell(x, (h, c), *w)[0],
        lambda t, x, h, c, *w: t.lstm_cell(x, (h, c), *w)[0],
    ),
    *(
        Program(
            name,
            _cell(gates),
            lambda o, *arrays, name=name: getattr(o, name)(*arrays),
            lambda t, *arrays, name=name: getattr(t, name)(*arrays),
        )
        for name, gates in (("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1))
    ),
    _n_step("n_step_lstm", "lstm", 4, 2),
    _n_step("n_step_gru", "gru", 3),
    _n_step("n_step_rnn", "rnn_tanh", 1),
    Program(
        "pad_sequence",
        _padded,
        lambda o, x, y: o.pad_sequence([x, y]),
        lambda t, x, y: t.nn.utils.rnn.pad_sequence([x, y]),
    ),
]
