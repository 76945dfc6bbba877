"""A small convolutional net: its state dict in files, and what it gives."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_KEEP = torch.onnx.TrainingMode.PRESERVE


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """The files of ``torch.save``, whole and of a larger checkpoint, new and old."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 2),
        torch.nn.BatchNorm2d(3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 2),
    )
    net.train()
    net(torch.randn(5, 2, 3, 3))
    net.eval()
    x = torch.randn(4, 2, 3, 3)
    state = net.state_dict()
    yield "net", {"x": x, "y": net(x).detach()}
    yield "state", dict(state)
    yield "zip", _file(state)
    yield "old", _file(state, _use_new_zipfile_serialization=False)
    yield "checkpoint", _file({"epoch": 3, "rate": 0.5, "done": [True, None], "state_dict": state})
    yield "parameters", _file(dict(net.named_parameters()))
    yield "half", _file({k: v.bfloat16() if v.ndim else v for k, v in state.items()})
    table = torch.arange(12.0).reshape(3, 4)
    yield "views", _file({"weight": table.T[1:, :2].T, "bias": table[1, 1:3]})
    yield "module", _file(net)
    buffer = io.BytesIO()
    torch.onnx.export(net, (x,), buffer, dynamo=False, do_constant_folding=False, training=_KEEP)
    yield "onnx", {"file": np.frombuffer(buffer.getvalue(), np.uint8)}


def _file(value: Any, **options: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return {"file": np.frombuffer(buffer.getvalue(), np.uint8)}
