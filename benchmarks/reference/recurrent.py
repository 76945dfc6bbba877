"""Recurrent cells, and layers of them over arrays and packed sequences."""

from collections.abc import Iterator
from typing import Any

import torch

_DTYPE = torch.float64


def _drawn(*shape: int) -> Any:
    return torch.randn(shape, dtype=_DTYPE, requires_grad=True)


def _recorded(module: Any, given: dict[str, Any], outs: dict[str, Any]) -> dict[str, Any]:
    """Inputs, weights, outputs, cotangents and gradients: few arrays, for each costs space."""
    weights = dict(module.named_parameters())
    cts = [torch.randn_like(out) for out in outs.values()]
    moving = [*given.values(), *weights.values()]
    derivatives = torch.autograd.grad(list(outs.values()), moving, cts)
    named = (given | weights | outs).items()
    form = [f"{name}:{'x'.join(map(str, part.shape))}" for name, part in named]
    arrays = [*moving, *outs.values()], [*derivatives, *cts]
    values, others = (torch.cat([part.detach().reshape(-1) for part in parts]) for parts in arrays)
    return {"form": ",".join(form), "values": values, "gradients and cotangents": others}


def _cells() -> Iterator[tuple[str, dict[str, Any]]]:
    nn = torch.nn
    for name, options in (
        ("RNNCell", {}),
        ("RNNCell", {"nonlinearity": "relu"}),
        ("LSTMCell", {}),
        ("LSTMCell", {"bias": False}),
        ("GRUCell", {}),
        ("GRUCell", {"bias": False}),
    ):
        torch.manual_seed(1)
        cell = getattr(nn, name)(3, 2, dtype=_DTYPE, **options)
        given = {"x": _drawn(4, 3), "h": _drawn(4, 2)}
        if name == "LSTMCell":
            given["c"] = _drawn(4, 2)
            state: Any = given["h"], given["c"]
            outs = dict(zip(("new h", "new c"), cell(given["x"], state), strict=True))
        else:
            outs = {"new h": cell(given["x"], given["h"])}
        yield _title(name, options), _recorded(cell, given, outs)


def _title(name: str, options: dict[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


def _layers() -> Iterator[tuple[str, dict[str, Any]]]:
    two: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
    settings: Any = (
        ("RNN", two, ()),
        ("RNN", {"nonlinearity": "relu", "num_layers": 2}, (2, 4, 1)),
        ("LSTM", two, ()),
        ("LSTM", {**two, "batch_first": True}, ()),
        ("LSTM", {**two, "proj_size": 1}, ()),
        ("LSTM", two, (2, 4, 1, 4)),
        ("LSTM", {"bias": False}, (1, 3)),
        ("GRU", two, ()),
        ("GRU", two, (3, 1, 2)),
    )
    for name, options, lengths in settings:
        torch.manual_seed(2)
        layer = getattr(torch.nn, name)(3, 2, dtype=_DTYPE, **options)
        count = len(lengths) or 3
        rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        given = {"h": _drawn(rows, count, options.get("proj_size", 2))}
        state: Any = given["h"]
        if name == "LSTM":
            given["c"] = _drawn(rows, count, 2)
            state = given["h"], given["c"]
        if lengths:
            xs = {f"x {i}": _drawn(n, 3) for i, n in enumerate(lengths)}
            packed = torch.nn.utils.rnn.pack_sequence(list(xs.values()), enforce_sorted=False)
            y, end = layer(packed, state)
            ys = torch.nn.utils.rnn.unpack_sequence(y)
            outs = {f"y {i}": y for i, y in enumerate(ys)}
        else:
            shape = (3, 4, 3) if options.get("batch_first") else (4, 3, 3)
            xs = {"x": _drawn(*shape)}
            y, end = layer(xs["x"], state)
            outs = {"y": y}
        ends = end if name == "LSTM" else (end,)
        outs |= dict(zip(("new h", "new c"), ends, strict=False))
        title = _title(name, options) + (f" of lengths {lengths}" if lengths else "")
        yield title, _recorded(layer, {**xs, **given}, outs)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Cells, and layers of them."""
    yield from _cells()
    yield from _layers()
