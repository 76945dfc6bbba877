"""Stacks of recurrent layers over sequences of different lengths, without padding.

Sequences are packed by time step, the longest first, so that the sequences still running are the
first rows of a state; one product computes the inputs' contributions for all elements.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.nn.noise.dropout import dropout as apply_dropout
from fdbr.ops.nn.recurrent.cells import GRU, LSTM, RELU, TANH, Kind, Weights, check_weights
from fdbr.ops.nn.recurrent.padded import padded
from fdbr.ops.nn.recurrent.sequences import pack, unpack
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import real
from fdbr.ops.philox import random_words
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import concat, reshape, stack
from fdbr.pytrees.typing import Array, ArrayLike, Key

__all__ = ["check_layers", "check_rate", "n_step", "n_step_gru", "n_step_lstm", "n_step_rnn"]

_SPLIT = 1  # the number of `fdbr.random.split`, so that keys are equal to those it makes


def n_step(
    where: str,
    kind: Kind,
    layers: Sequence[Weights],
    directions: int,
    xs: Any,
    states: Sequence[Any] | None,
    rate: float = 0.0,
    key: Any = None,
) -> tuple[list[Any], tuple[Any, ...]]:
    """Compute the outputs of a stack of layers for a list of sequences, and the last states.

    ``layers`` has the weights of each layer in each direction, in order; states have the shape
    ``(len(layers), sequences, size)``.
    """
    packed = pack(where, xs)
    data = _real(where, packed.data)
    inputs = layers[0].weight_ih.shape[1]
    if data.ndim != 2 or data.shape[1] != inputs:
        raise ValueError(
            placed(
                f"{where}: the sequences must have shape (length, {inputs}), got xs[0] "
                f"{describe(asarray(xs[0]))}"
            )
        )
    first = _first_states(where, kind, layers, data, len(packed.lengths), states)
    order = packed.order
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))

    def over(number: int, data: Any, reverse: bool) -> tuple[Any, Any]:
        begin = tuple(_rows(part[number], order) for part in first)
        steps = Steps(packed.sizes, reverse=reverse)
        outs, end = kind.over(layers[number], data, begin, steps)
        return outs, tuple(_rows(part, inverse) for part in end)

    data, ends = _through_layers(over, len(layers), directions, data, rate, key)
    return unpack(packed._replace(data=data)), ends


def n_step_padded(
    where: str,
    kind: Kind,
    layers: Sequence[Weights],
    directions: int,
    x: Any,
    lengths: Any,
    states: Sequence[Any] | None,
    rate: float = 0.0,
    key: Any = None,
) -> tuple[Any, tuple[Any, ...]]:
    """Compute the same as `n_step` for an array ``(time, sequences, inputs)`` with padding."""
    data, inputs = _real(where, x), layers[0].weight_ih.shape[1]
    if data.ndim != 3 or data.shape[2] != inputs or not data.shape[0]:
        raise ValueError(
            placed(
                f"{where}: beside lengths, xs must have shape (time, sequences, {inputs}), got "
                f"{describe(data)}"
            )
        )
    time, count = data.shape[:2]
    layout = padded(where, lengths, time, (count,))
    data = layout.zeroed(data)
    first = _first_states(where, kind, layers, data, count, states)

    def run(weights: Weights, x: Any, state: Any) -> Any:
        rows = reshape(x, (time * count, x.shape[-1]))
        outs, ends = kind.over(weights, rows, state, Steps((count,) * time))
        return reshape(outs, (time, count, outs.shape[-1])), ends

    def over(number: int, data: Any, reverse: bool) -> tuple[Any, Any]:
        begin = tuple(part[number] for part in first)
        return layout.over(run, kind, layers[number], data, begin, reverse)

    return _through_layers(over, len(layers), directions, data, rate, key)


def _through_layers(
    over: Callable[[int, Any, bool], tuple[Any, Any]],
    count: int,
    directions: int,
    data: Any,
    rate: float,
    key: Any,
) -> tuple[Any, tuple[Any, ...]]:
    """Return the outputs of the last layer, and the last states of all layers.

    ``over(number, data, reverse)`` runs one of ``count`` layers, in one direction.
    """
    depth = count // directions
    keys: Any = _keys(key, depth) if rate else None
    last = []
    for layer in range(depth):
        if layer and rate:
            data = apply_dropout(data, rate, key=keys[layer - 1])
        columns = []
        for direction in range(directions):
            outs, end = over(layer * directions + direction, data, bool(direction))
            columns.append(outs)
            last.append(end)
        data = columns[0] if directions == 1 else concat(columns, axis=-1)
    return data, tuple(stack(parts, axis=0) for parts in zip(*last, strict=True))


def _real(where: str, x: Any) -> Any:
    data = floating(x)
    if data.dtype.kind == "c":
        raise TypeError(placed(f"{where}: the sequences must be real, got {describe(data)}"))
    return data


def _rows(x: Any, indices: Any) -> Any:
    return rows_at(x, beside(indices, x))


def _keys(key: Any, count: int) -> Any:
    return random_words(key, 0, shape=(count, 2), use=_SPLIT)


def widths_of(kind: Kind, weights: Weights) -> tuple[int, ...]:
    """Return the widths of the parts of a state."""
    return (weights.weight_hh.shape[1], weights.weight_hh.shape[0] // kind.gates)[: kind.states]


def _first_states(
    where: str, kind: Kind, layers: Any, data: Any, count: int, states: Sequence[Any] | None
) -> list[Any]:
    """Check the first states, or make zeros."""
    widths = widths_of(kind, layers[0])
    if states is None:
        xp = array_module(data)
        return [xp.zeros((len(layers), count, width), dtype=data.dtype) for width in widths]
    check_states(where, states, widths, (len(layers), count))
    return [floating(part) for part in states]


def check_states(
    where: str, states: Sequence[Any], widths: tuple[int, ...], before: tuple[int, ...]
) -> None:
    """Raise if states do not have the expected shapes."""
    if len(states) != len(widths):
        names = ("h", "c")[: len(widths)]
        raise TypeError(
            placed(f"{where}: the state must be ({', '.join(names)}), got {len(states)} arrays")
        )
    for name, part, width in zip("hc", states, widths, strict=False):
        if getattr(part, "shape", None) != (*before, width):
            shape = ", ".join(map(str, (*before, width)))
            raise ValueError(
                placed(
                    f"{where}: {name} of the state must have shape ({shape}), for {before[0]} "
                    f"layers and directions, got {describe(part)}"
                )
            )


def check_layers(where: str, kind: Kind, layers: Sequence[Weights], directions: int) -> None:
    """Raise if the weights of layers do not fit each other."""
    for number, weights in enumerate(layers):
        layer = number // directions
        inputs, out, _ = check_weights(f"{where}: layer {layer}", kind, weights)
        if not layer:
            before = layers[0].weight_ih.shape[1]
        else:
            before = directions * layers[0].weight_hh.shape[1]
        if inputs != before or out != layers[0].weight_hh.shape[1]:
            raise ValueError(
                placed(
                    f"{where}: weight_ih of layer {layer} must have {before} columns, got "
                    f"{describe(weights.weight_ih)}; and all layers must have outputs of one width"
                )
            )


def check_rate(where: str, rate: Any, key: Any) -> float:
    """Check a dropout rate and return it as a float."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ValueError(
            placed(f"{where}: dropout must be a number in [0, 1), got {describe(rate)}")
        )
    if rate and key is None:
        raise TypeError(
            placed(f"{where}: dropout needs a key; make one with fdbr.random.key(seed)")
        )
    return float(rate)


# --- public functions -----------------------------------------------------------------


def _run(
    name: str,
    kind: Kind,
    ws: Any,
    bs: Any,
    states: Any,
    xs: Any,
    lengths: Any,
    bidirectional: bool,
    rate: Any,
    key: Any,
) -> Any:
    where = f"fdbr.ops.{name}"
    layers = _layers(name, where, ws, bs)
    directions = 2 if bidirectional else 1
    if len(layers) % directions:
        raise ValueError(placed(f"{where}: with two directions there are two ws for each layer"))
    check_layers(where, kind, layers, directions)
    rate = check_rate(where, rate, key)
    given = None if all(part is None for part in states) else states
    if given is not None and any(part is None for part in given):
        raise TypeError(placed(f"{where}: give hx and cx, or none of them"))
    if lengths is None:
        ys, ends = n_step(where, kind, layers, directions, xs, given, rate, key)
    else:
        ys, ends = n_step_padded(where, kind, layers, directions, xs, lengths, given, rate, key)
    return (*ends, ys)


def _layers(name: str, where: str, ws: Any, bs: Any) -> list[Weights]:
    pairs = _pairs(where, "ws", ws)
    biases = [(None, None)] * len(pairs) if bs is None else _pairs(where, "bs", bs)
    if len(biases) != len(pairs) or not pairs:
        raise ValueError(
            placed(
                f"{where}: ws and bs must have a pair for each layer, got {len(pairs)} and "
                f"{len(biases)}"
            )
        )
    return [
        Weights(*(None if w is None else real(name, w)[0] for w in (*pair, *bias)))
        for pair, bias in zip(pairs, biases, strict=True)
    ]


def _pairs(where: str, name: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(placed(f"{where}: {name} must be a list of pairs, got {describe(value)}"))
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(
                placed(
                    f"{where}: {name} must have pairs, by input and by state, got {describe(pair)}"
                )
            )
    return list(value)


@public("fdbr.ops")
def n_step_lstm(
    hx: ArrayLike,
    cx: ArrayLike,
    ws: Sequence[Any],
    bs: Sequence[Any] | None,
    xs: Sequence[Any],
    /,
    *,
    lengths: ArrayLike | None = None,
    bidirectional: bool = False,
    dropout: float = 0.0,
    key: Key | None = None,
) -> Array:
    """Layers of long short-term memory over sequences of different lengths.

    Nothing is computed for padding: the cost is proportional to the number of elements.
    `fdbr.nn.LSTM` is the layer with weights.

    Parameters
    ----------
    hx, cx
        The first states, shape ``(layers, sequences, size)``, or both `None` for zeros; with two
        directions ``(2 * layers, sequences, size)``, in the order of ``ws``.
    ws
        For each layer, and within it for each direction, the pair ``(weight_ih, weight_hh)`` of
        `lstm_cell`.
    bs
        The pairs ``(bias_ih, bias_hh)`` in the same order, or `None`.
    xs
        A list of sequences of shape ``(length, inputs)``, in any order; or with ``lengths`` a
        padded array ``(time, sequences, inputs)``.
    lengths
        The lengths of padded sequences: integers of shape ``(sequences,)``, from 1 to ``time``.
        They may be traced, so that one trace of `fdbr.jit` serves all lengths.
    bidirectional
        Whether each layer has a second cell, which runs from the last element to the first.
    dropout
        The dropout rate between layers.
    key
        A key of `fdbr.random`, required for dropout.

    Returns
    -------
    tuple
        The last ``h`` and ``c``, with the shapes of the first states, and the list of the outputs
        of the last layer, each of shape ``(length, size)``, or ``(length, 2 * size)`` with two
        directions.  With ``lengths`` the outputs are an array ``(time, sequences, size)``, with
        zeros in padding, and the last states are the states at the lengths.

    Raises
    ------
    ValueError
        If there is no sequence, one is empty, or the shapes do not fit; if a length is not from 1
        to ``time``; if ``dropout`` is not in [0, 1).

    >>> import numpy as np
    >>> from fdbr import ops
    >>> xs = [np.ones((3, 2)), np.ones((1, 2))]
    >>> h, c, ys = ops.n_step_lstm(None, None, [(np.ones((4, 2)), np.ones((4, 1)))], None, xs)
    >>> h.shape, [y.shape for y in ys]
    ((1, 2, 1), [(3, 1), (1, 1)])
    """
    return _run("n_step_lstm", LSTM, ws, bs, (hx, cx), xs, lengths, bidirectional, dropout, key)


@public("fdbr.ops")
def n_step_gru(
    hx: ArrayLike,
    ws: Sequence[Any],
    bs: Sequence[Any] | None,
    xs: Sequence[Any],
    /,
    *,
    lengths: ArrayLike | None = None,
    bidirectional: bool = False,
    dropout: float = 0.0,
    key: Key | None = None,
) -> Array:
    """Layers of gated recurrent units over sequences of different lengths.

    The parameters are those of `n_step_lstm` without ``cx``, and the weights those of `gru_cell`.

    Returns
    -------
    tuple
        The last states, and the list of the outputs.

    Raises
    ------
    ValueError
        As for `n_step_lstm`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> xs = [np.ones((3, 2)), np.ones((1, 2))]
    >>> h, ys = ops.n_step_gru(None, [(np.ones((3, 2)), np.ones((3, 1)))], None, xs)
    >>> h.shape, [y.shape for y in ys]
    ((1, 2, 1), [(3, 1), (1, 1)])
    """
    return _run("n_step_gru", GRU, ws, bs, (hx,), xs, lengths, bidirectional, dropout, key)


@public("fdbr.ops")
def n_step_rnn(
    hx: ArrayLike,
    ws: Sequence[Any],
    bs: Sequence[Any] | None,
    xs: Sequence[Any],
    /,
    *,
    lengths: ArrayLike | None = None,
    activation: str = "tanh",
    bidirectional: bool = False,
    dropout: float = 0.0,
    key: Key | None = None,
) -> Array:
    """Layers of Elman's recurrent network over sequences of different lengths.

    The parameters are those of `n_step_lstm` without ``cx``, the weights those of
    `rnn_tanh_cell`, and ``activation`` is ``"tanh"`` or ``"relu"``.

    Returns
    -------
    tuple
        The last states, and the list of the outputs.

    Raises
    ------
    ValueError
        As for `n_step_lstm`, and if ``activation`` is neither of these.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> xs = [np.ones((3, 2)), np.ones((1, 2))]
    >>> h, ys = ops.n_step_rnn(None, [(np.ones((1, 2)), np.ones((1, 1)))], None, xs)
    >>> h.shape, [y.shape for y in ys]
    ((1, 2, 1), [(3, 1), (1, 1)])
    """
    if activation not in ("tanh", "relu"):
        raise ValueError(
            placed(f'fdbr.ops.n_step_rnn: activation must be "tanh" or "relu": {activation!r}')
        )
    kind = TANH if activation == "tanh" else RELU
    return _run("n_step_rnn", kind, ws, bs, (hx,), xs, lengths, bidirectional, dropout, key)
