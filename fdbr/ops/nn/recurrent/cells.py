"""Recurrent cells: one step of a recurrent network.

The product of a cell's weights with its input does not depend on the state, so it is computed for
all time steps at once; a `Kind` separates it from the step.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.elementwise.logistic import sigmoid
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.recurrent.gru_sequence import gru_sequence
from fdbr.ops.nn.recurrent.lstm_sequence import lstm_sequence
from fdbr.ops.nn.recurrent.reset_sequence import reset_sequence
from fdbr.ops.nn.recurrent.rnn_sequence import rnn_sequence
from fdbr.ops.nn.recurrent.steps import Steps
from fdbr.ops.nn.recurrent.units import gru_gates, lstm_gates, parts_of, real
from fdbr.ops.products import linear
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import concat, reshape

__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "RELU",
    "TANH",
    "Kind",
    "Weights",
    "check_weights",
    "gru_cell",
    "lstm_cell",
    "mgu_cell",
    "rnn_relu_cell",
    "rnn_tanh_cell",
]


class Weights(NamedTuple):
    """The arrays of a cell, laid out as in PyTorch; biases and the projection may be `None`."""

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    weight_hr: Any = None


class Kind(NamedTuple):
    """A type of cell, such as LSTM or GRU.

    ``project(weights, x)`` computes the contribution of the input to the gates, and
    ``advance(weights, state, inputs)`` the next state from it.  A state is a tuple, whose first
    array is the output.  ``over(weights, data, state, steps)`` computes the outputs and the last
    state over packed sequences.  ``gates`` and ``states`` are their numbers.
    """

    gates: int
    states: int
    project: Callable[[Weights, Any], Any]
    advance: Callable[[Weights, Any, Any], tuple[Any, ...]]
    over: Callable[[Weights, Any, Any, Steps], tuple[Any, tuple[Any, ...]]]


def _project_with_both_biases(weights: Weights, x: Any) -> Any:
    """Compute the contribution of the input to the gates, with both biases."""
    bias_ih, bias_hh = weights.bias_ih, weights.bias_hh
    bias = bias_ih if bias_hh is None else bias_hh if bias_ih is None else bias_ih + bias_hh
    return linear(x, weights.weight_ih, bias)


def _project_with_input_bias(weights: Weights, x: Any) -> Any:
    return linear(x, weights.weight_ih, weights.bias_ih)


def _elman(activation: Callable[[Any], Any]) -> Kind:
    def advance(weights: Weights, state: Any, inputs: Any) -> tuple[Any, ...]:
        return (activation(inputs + linear(state[0], weights.weight_hh)),)

    def over(weights: Weights, data: Any, state: Any, steps: Steps) -> tuple[Any, Any]:
        inputs, rectified = _project_with_both_biases(weights, data), activation is relu
        out, end = rnn_sequence(inputs, *state, weights.weight_hh, steps=steps, rectified=rectified)
        return out, (end,)

    return Kind(1, 1, _project_with_both_biases, advance, over)


def _lstm_step(weights: Weights, state: Any, inputs: Any) -> tuple[Any, ...]:
    h, c = state
    c, h = lstm_gates(inputs + linear(h, weights.weight_hh), c)
    return (h if weights.weight_hr is None else linear(h, weights.weight_hr)), c


def _lstm_over(weights: Weights, data: Any, state: Any, steps: Steps) -> tuple[Any, Any]:
    hr = 0 if weights.weight_hr is None else weights.weight_hr
    inputs = _project_with_both_biases(weights, data)
    out, *end = lstm_sequence(inputs, *state, weights.weight_hh, hr, steps=steps)
    return out, tuple(end)


def _gru_step(weights: Weights, state: Any, inputs: Any) -> tuple[Any, ...]:
    (h,) = state
    return (gru_gates(inputs, linear(h, weights.weight_hh, weights.bias_hh), h),)


def _gru_over(weights: Weights, data: Any, state: Any, steps: Steps) -> tuple[Any, Any]:
    bias, bias_hh, size = weights.bias_ih, weights.bias_hh, state[0].shape[-1]
    inner: Any = 0
    if bias_hh is not None:  # biases outside the reset gate are added for all steps at once
        inner = reshape(bias_hh[2 * size :], (1, size))
        outer = concat([bias_hh[: 2 * size], zeros_like(bias_hh[2 * size :])])
        bias = outer if bias is None else bias + outer
    inputs = linear(data, weights.weight_ih, bias)
    out, end = gru_sequence(inputs, *state, weights.weight_hh, inner, steps=steps)
    return out, (end,)


def reset_first(weights: Weights, state: Any, inputs: Any) -> tuple[Any, ...]:
    """Compute a step of a gated recurrent unit as in Chainer's links."""
    (h,) = state
    size = h.shape[-1]
    weight, bias = weights.weight_hh, weights.bias_hh
    front, back = (bias[: 2 * size], bias[2 * size :]) if bias is not None else (None, None)
    r, z = parts_of(sigmoid(inputs[..., : 2 * size] + linear(h, weight[: 2 * size], front)), 2)
    n = tanh(inputs[..., 2 * size :] + linear(r * h, weight[2 * size :], back))
    return (h + z * (n - h),)


def _mgu_step(weights: Weights, state: Any, inputs: Any) -> tuple[Any, ...]:
    (h,) = state
    size, weight = h.shape[-1], weights.weight_hh
    f = sigmoid(inputs[..., :size] + linear(h, weight[:size]))
    n = tanh(inputs[..., size:] + linear(f * h, weight[size:]))
    return (h + f * (n - h),)


def _reset_over(weights: Weights, data: Any, state: Any, steps: Steps) -> tuple[Any, Any]:
    out, end = reset_sequence(
        _project_with_both_biases(weights, data), *state, weights.weight_hh, steps=steps
    )
    return out, (end,)


def _mgu_over(weights: Weights, data: Any, state: Any, steps: Steps) -> tuple[Any, Any]:
    """Compute a minimal gated unit as a gated recurrent unit with two equal gates."""
    size, inputs = state[0].shape[-1], _project_with_both_biases(weights, data)
    inputs_twice = concat([inputs[..., :size], inputs], axis=-1)
    weight = concat([weights.weight_hh[:size], weights.weight_hh])
    out, end = reset_sequence(inputs_twice, *state, weight, steps=steps)
    return out, (end,)


TANH = _elman(tanh)
RELU = _elman(relu)
LSTM = Kind(4, 2, _project_with_both_biases, _lstm_step, _lstm_over)
GRU = Kind(3, 1, _project_with_input_bias, _gru_step, _gru_over)
GRU_RESET_FIRST = Kind(3, 1, _project_with_input_bias, reset_first, _reset_over)
MGU = Kind(2, 1, _project_with_both_biases, _mgu_step, _mgu_over)


def check_weights(where: str, kind: Kind, weights: Weights) -> tuple[int, int, int]:
    """Check the weights; return the widths of inputs, outputs and memory."""
    ih, hh, *biases, hr = weights
    if getattr(ih, "ndim", 0) != 2 or getattr(hh, "ndim", 0) != 2 or len(ih) != len(hh):
        raise ValueError(
            f"{where}: weight_ih and weight_hh must have shapes ({kind.gates} * size, inputs) and "
            f"({kind.gates} * size, size), got {describe(ih)} and {describe(hh)}"
        )
    size, rest = divmod(len(ih), kind.gates)
    if rest or hh.shape[1] != (size if hr is None else len(hr)):
        raise ValueError(
            f"{where}: weight_hh {describe(hh)} must have {kind.gates} rows for each of its "
            "columns, one for each gate and element of the state"
        )
    for name, bias in zip(("bias_ih", "bias_hh"), biases, strict=True):
        if bias is not None and getattr(bias, "shape", None) != (len(ih),):
            raise ValueError(f"{where}: {name} must have shape ({len(ih)},), got {describe(bias)}")
    return ih.shape[1], hh.shape[1], size


def check_step(where: str, widths: tuple[int, int, int], state: Sequence[Any], x: Any) -> None:
    """Raise if an input or a state does not fit the weights."""
    inputs, size, memory = widths
    if not x.ndim or x.shape[-1] != inputs:
        raise ValueError(f"{where}: x must have shape (..., {inputs}), got {describe(x)}")
    for name, part, width in zip("hc", state, (size, memory), strict=False):
        if getattr(part, "shape", None) != (*x.shape[:-1], width):
            shape = ", ".join(map(str, (*x.shape[:-1], width)))
            raise ValueError(
                f"{where}: {name} of the state must have shape ({shape}) beside x {describe(x)}, "
                f"got {describe(part)}"
            )


def _apply_cell(
    name: str, kind: Kind, x: Any, state: Sequence[Any], arrays: Any
) -> tuple[Any, ...]:
    where = f"fdbr.ops.{name}"
    weights = Weights(*(None if w is None else real(name, w)[0] for w in arrays))
    widths = check_weights(where, kind, weights)
    x, *state = real(name, x, *state)
    check_step(where, widths, state, x)
    return kind.advance(weights, tuple(state), kind.project(weights, x))


@public("fdbr.ops")
def lstm_cell(
    x: Array,
    state: Any,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array = None,
    bias_hh: Array = None,
) -> Any:
    """One step of long short-term memory.

    With ``i, f, g, o`` the four parts of ``weight_ih @ x + bias_ih + weight_hh @ h + bias_hh``,
    ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h' = sigmoid(o) * tanh(c')``:
    Hochreiter & Schmidhuber, Neural Computation 1997, with the forget gates of Gers et al.

    Parameters
    ----------
    x
        Shape ``(..., inputs)``.
    state
        The pair ``(h, c)``, each of shape ``(..., size)``.
    weight_ih, weight_hh
        Shapes ``(4 * size, inputs)`` and ``(4 * size, size)``, as in PyTorch.
    bias_ih, bias_hh
        Shape ``(4 * size,)``; none by default.

    Returns
    -------
    tuple
        The new ``(h, c)``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> state = np.zeros(1), np.ones(1)
    >>> h, c = ops.lstm_cell(np.ones(3), state, np.zeros((4, 3)), np.zeros((4, 1)))
    >>> c
    array([0.5])
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"fdbr.ops.lstm_cell: state must be a pair (h, c), got {describe(state)}")
    return _apply_cell("lstm_cell", LSTM, x, state, (weight_ih, weight_hh, bias_ih, bias_hh))


@public("fdbr.ops")
def gru_cell(
    x: Array,
    h: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array = None,
    bias_hh: Array = None,
    *,
    reset_first: bool = False,
) -> Any:
    """One step of a gated recurrent unit.

    Of the inputs ``xr, xz, xn = weight_ih @ x + bias_ih`` and the state
    ``hr, hz, hn = weight_hh @ h + bias_hh`` the gates are ``r = sigmoid(xr + hr)`` and
    ``z = sigmoid(xz + hz)``, and with ``n = tanh(xn + r * hn)`` the new state is
    ``(1 - z) * n + z * h``, as in PyTorch and cuDNN: Cho et al., EMNLP 2014.

    Parameters
    ----------
    x
        Shape ``(..., inputs)``.
    h
        Shape ``(..., size)``.
    weight_ih, weight_hh
        Shapes ``(3 * size, inputs)`` and ``(3 * size, size)``.
    bias_ih, bias_hh
        Shape ``(3 * size,)``; none by default.
    reset_first
        Whether the state is reset before its product with the weights, and ``z`` weights the new
        part, as in Chainer's GRU (not in its n-step GRU): with
        ``n = tanh(xn + weight_hn @ (r * h) + bias_hn)`` it is ``(1 - z) * h + z * n``.

    Returns
    -------
    array
        The new state.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.gru_cell(np.ones(3), np.ones(1), np.zeros((3, 3)), np.zeros((3, 1)))
    array([0.5])
    """
    kind = GRU_RESET_FIRST if reset_first else GRU
    return _apply_cell("gru_cell", kind, x, [h], (weight_ih, weight_hh, bias_ih, bias_hh))[0]


@public("fdbr.ops")
def mgu_cell(
    x: Array,
    h: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array = None,
    bias_hh: Array = None,
) -> Any:
    """One step of a minimal gated unit, which has a single gate.

    With ``f = sigmoid(xf + weight_hf @ h)`` and ``n = tanh(xn + weight_hn @ (f * h))``, where
    ``xf, xn = weight_ih @ x + bias_ih + bias_hh``, the new state is ``(1 - f) * h + f * n``:
    Zhou et al., *Minimal gated unit for recurrent neural networks*, 2016.

    Parameters
    ----------
    x
        Shape ``(..., inputs)``.
    h
        Shape ``(..., size)``.
    weight_ih, weight_hh
        Shapes ``(2 * size, inputs)`` and ``(2 * size, size)``.
    bias_ih, bias_hh
        Shape ``(2 * size,)``; none by default.

    Returns
    -------
    array
        The new state.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mgu_cell(np.ones(3), np.ones(1), np.zeros((2, 3)), np.zeros((2, 1)))
    array([0.5])
    """
    return _apply_cell("mgu_cell", MGU, x, [h], (weight_ih, weight_hh, bias_ih, bias_hh))[0]


@public("fdbr.ops")
def rnn_tanh_cell(
    x: Array,
    h: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array = None,
    bias_hh: Array = None,
) -> Any:
    """One step of Elman's recurrent network.

    ``tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)``: Elman, Cognitive Science 1990.

    Parameters
    ----------
    x
        Shape ``(..., inputs)``.
    h
        Shape ``(..., size)``.
    weight_ih, weight_hh
        Shapes ``(size, inputs)`` and ``(size, size)``.
    bias_ih, bias_hh
        Shape ``(size,)``; none by default.

    Returns
    -------
    array
        The new state.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rnn_tanh_cell(np.ones(3), np.ones(1), np.zeros((1, 3)), np.zeros((1, 1)))
    array([0.])
    """
    return _apply_cell("rnn_tanh_cell", TANH, x, [h], (weight_ih, weight_hh, bias_ih, bias_hh))[0]


@public("fdbr.ops")
def rnn_relu_cell(
    x: Array,
    h: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array = None,
    bias_hh: Array = None,
) -> Any:
    """One step of a recurrent network of rectified linear units.

    ``relu(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)``; see `rnn_tanh_cell`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rnn_relu_cell(np.ones(3), np.ones(1), np.ones((1, 3)), np.ones((1, 1)))
    array([4.])
    """
    return _apply_cell("rnn_relu_cell", RELU, x, [h], (weight_ih, weight_hh, bias_ih, bias_hh))[0]
