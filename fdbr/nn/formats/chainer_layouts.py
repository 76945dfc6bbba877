"""Conversions of the layers whose weights Chainer splits or lays out differently.

A layout converts a layer's arrays by path to Chainer's arrays by name, and back.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

__all__ = ["Layout", "layout_of"]

Arrays = dict[str, Any]


@attrs.frozen
class Layout:
    """How a layer's arrays are converted to Chainer's, ``there``, and ``back``.

    ``back`` is also given the layer's present arrays.
    """

    there: Callable[[Arrays], Arrays]
    back: Callable[[Arrays, Arrays], Arrays]


def layout_of(node: Any) -> Layout | None:
    """Return the layout of a layer; `None` if Chainer stores its arrays unchanged."""
    kind = type(node)
    if not kind.__module__.startswith("fdbr.nn."):
        return None
    if kind.__name__ == "GRUCell" and not node.reset_first:
        return None  # Chainer has only n-step links of this kind
    if kind.__name__ == "DepthwiseConv":
        return _depthwise(node.multiplier)
    if getattr(node, "weight_hr", None) is not None:
        return None  # nor any link with a projected state
    return _LAYOUTS.get(kind.__name__)


def _dropping(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if array is not None}


# --- recurrent cells ----------------------------------------------------------------


def _interleaved(array: Any) -> Any:
    """Reorder the rows of stacked gates i, f, g, o to Chainer's order.

    Chainer's rows are ordered unit by unit: g, i, f and o of each.
    """
    i, f, g, o = np.split(array, 4)
    return np.stack([g, i, f, o], axis=1).reshape(array.shape)


def _apart(array: Any) -> Any:
    """Invert `_interleaved`."""
    rows = array.reshape(-1, 4, *array.shape[1:])
    return np.concatenate([rows[:, 1], rows[:, 2], rows[:, 0], rows[:, 3]])


def _sum(*biases: Any) -> Any:
    known = [bias for bias in biases if bias is not None]
    return sum(known[1:], known[0]) if known else None


def _one_bias(own: Arrays, bias: Any) -> Arrays:
    """Return the bias as the first of the two biases; the second one is zero."""
    found: Arrays = {}
    for name in ("bias_ih", "bias_hh"):
        if own.get(name) is not None:
            found[name] = np.zeros_like(bias) if found else bias
    return found


def _lstm_there(own: Arrays) -> Arrays:
    bias = _sum(own.get("bias_ih"), own.get("bias_hh"))
    return _dropping(
        {
            "upward/W": _interleaved(own["weight_ih"]),
            "upward/b": None if bias is None else _interleaved(bias),
            "lateral/W": _interleaved(own["weight_hh"]),
            **{f"peep_{k}/W": own.get(f"weight_c{k}") for k in "ifo"},
        }
    )


def _lstm_back(found: Arrays, own: Arrays) -> Arrays:
    arrays = {
        "weight_ih": _apart(found["upward/W"]),
        "weight_hh": _apart(found["lateral/W"]),
        **{f"weight_c{k}": found.get(f"peep_{k}/W") for k in "ifo"},
    }
    if "upward/b" in found:
        arrays |= _one_bias(own, _apart(found["upward/b"]))
    return _dropping(arrays)


_GATES = ("_r", "_z", "")


def _gru_there(own: Arrays) -> Arrays:
    found: Arrays = {}
    for letter, end in (("W", "ih"), ("U", "hh")):
        for part, here in (("W", "weight"), ("b", "bias")):
            array = own.get(f"{here}_{end}")
            if array is not None:
                blocks = zip(_GATES, np.split(array, 3), strict=True)
                found |= {f"{letter}{gate}/{part}": block for gate, block in blocks}
    return found


def _gru_back(found: Arrays, own: Arrays) -> Arrays:
    arrays = {}
    for letter, end in (("W", "ih"), ("U", "hh")):
        for part, here in (("W", "weight"), ("b", "bias")):
            if f"{letter}/{part}" in found:
                blocks = [found[f"{letter}{gate}/{part}"] for gate in _GATES]
                arrays[f"{here}_{end}"] = np.concatenate(blocks)
    return arrays


def _mgu_there(own: Arrays) -> Arrays:
    rows = [np.concatenate(pair, axis=1) for pair in zip(
        np.split(own["weight_hh"], 2), np.split(own["weight_ih"], 2), strict=True)]  # fmt: skip
    found = {"W_f/W": rows[0], "W_h/W": rows[1]}
    bias = _sum(own.get("bias_ih"), own.get("bias_hh"))
    if bias is not None:
        found["W_f/b"], found["W_h/b"] = np.split(bias, 2)
    return found


def _mgu_back(found: Arrays, own: Arrays) -> Arrays:
    size = found["W_f/W"].shape[0]
    whole = np.concatenate([found["W_f/W"], found["W_h/W"]])
    arrays = {"weight_hh": whole[:, :size], "weight_ih": whole[:, size:]}
    if "W_f/b" in found:
        arrays |= _one_bias(own, np.concatenate([found["W_f/b"], found["W_h/b"]]))
    return arrays


# --- networks of several steps ------------------------------------------------------


def _steps_there(own: Arrays) -> Arrays:
    """Return the arrays of Chainer's n-step networks: ``0/w0``, ``0/b0``, ... for each gate."""
    found: Arrays = {}
    for path, array in own.items():
        cell, _, name = path.removeprefix("cells[").partition("].")
        if name not in _N_STEP:
            found[path] = array
            continue
        gates = _gates(own, cell)
        letter, first = _N_STEP[name]
        for number, block in enumerate(np.split(array, gates)):
            found[f"{cell}/{letter}{number + first * gates}"] = block
    return found


_N_STEP = {"weight_ih": ("w", 0), "weight_hh": ("w", 1), "bias_ih": ("b", 0), "bias_hh": ("b", 1)}


def _gates(own: Arrays, cell: str) -> int:
    rows, columns = own[f"cells[{cell}].weight_hh"].shape
    return int(rows // columns)


def _steps_back(found: Arrays, own: Arrays) -> Arrays:
    arrays = {}
    for path in own:
        cell, _, name = path.removeprefix("cells[").partition("].")
        if name not in _N_STEP:
            arrays[path] = found[path]
            continue
        gates = _gates(own, cell)
        letter, first = _N_STEP[name]
        blocks = [found[f"{cell}/{letter}{first * gates + n}"] for n in range(gates)]
        arrays[path] = np.concatenate(blocks)
    return arrays


# --- others -------------------------------------------------------------------------


def _prelu_there(own: Arrays) -> Arrays:
    """Return Chainer's weight, a scalar if all channels share one."""
    weight = own["weight"]
    return {"W": weight.reshape(()) if weight.shape == (1,) else weight}


def _prelu_back(found: Arrays, own: Arrays) -> Arrays:
    return {"weight": found["W"].reshape(own["weight"].shape)}


def _bilinear_there(own: Arrays) -> Arrays:
    """Return Chainer's arrays: the outputs are the last axis, and linear terms are transposed."""
    names = {"weight1": "V1", "weight2": "V2"}
    found = {"W": np.moveaxis(own["weight"], 0, -1)}
    found |= {there: own[here].T for here, there in names.items() if here in own}
    return found | ({"b": own["bias"]} if "bias" in own else {})


def _bilinear_back(found: Arrays, own: Arrays) -> Arrays:
    names = {"weight1": "V1", "weight2": "V2"}
    arrays = {"weight": np.moveaxis(found["W"], -1, 0)}
    arrays |= {here: found[there].T for here, there in names.items() if here in own}
    return arrays | ({"bias": found["b"]} if "bias" in own else {})


def _depthwise(multiplier: int) -> Layout:
    """Return the layout of a depthwise convolution, whose first two axes Chainer exchanges.

    The biases belong to the output channels, in the same order in both.
    """

    def there(own: Arrays) -> Arrays:
        weight = own["weight"]
        apart = weight.reshape((-1, multiplier, *weight.shape[2:]))
        return _dropping({"W": apart.swapaxes(0, 1), "b": own.get("bias")})

    def back(found: Arrays, own: Arrays) -> Arrays:
        weight = found["W"].swapaxes(0, 1)
        weight = weight.reshape((-1, 1, *weight.shape[2:]))
        return _dropping({"weight": weight, "bias": found.get("b")})

    return Layout(there, back)


_LSTM = Layout(_lstm_there, _lstm_back)
_STEPS = Layout(_steps_there, _steps_back)

_LAYOUTS: Mapping[str, Layout] = {
    "LSTMCell": _LSTM,
    "PeepholeLSTMCell": _LSTM,
    "ZoneoutLSTMCell": _LSTM,
    "GRUCell": Layout(_gru_there, _gru_back),
    "MGUCell": Layout(_mgu_there, _mgu_back),
    "LSTM": _STEPS,
    "GRU": _STEPS,
    "RNN": _STEPS,
    "PReLU": Layout(_prelu_there, _prelu_back),
    "Bilinear": Layout(_bilinear_there, _bilinear_back),
}
