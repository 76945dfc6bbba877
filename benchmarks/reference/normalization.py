"""Layers of normalisation, in training and in inference."""

from collections.abc import Iterator
from typing import Any

import torch

FLOAT = {"dtype": torch.float64}


def stirred(layer: Any) -> Any:
    """The layer, with parameters that are not 0 and 1."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += torch.randn(parameter.shape, **FLOAT)
    return layer


def _arrays(layer: Any, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}{name}": value.clone()
        for name, value in layer.state_dict().items()
        if value is not None
    }


def steps(layer: Any, *shape: int) -> dict[str, Any]:
    """Two steps of training, the second with gradients, and a call in inference with them."""
    parts = _arrays(layer, "before ")
    parts["first"] = first = torch.randn(shape, **FLOAT)
    parts["x"] = x = (torch.randn(shape, **FLOAT) + 1).requires_grad_()
    layer.train()
    parts["ct"] = ct = torch.randn(layer(first).shape, **FLOAT)
    for mode in ("train", "eval"):
        getattr(layer, mode)()
        y = layer(x)
        moving = [x, *layer.parameters()]
        names = ["x", *(name for name, _ in layer.named_parameters())]
        derivatives = torch.autograd.grad(y, moving, ct)
        parts[f"{mode} y"] = y
        parts |= {f"{mode} grad {n}": g for n, g in zip(names, derivatives, strict=True)}
    return parts | {f"after {name}": value for name, value in layer.named_buffers()}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each layer at a few settings."""
    torch.manual_seed(0)
    nn = torch.nn
    for name, layer, shape in (
        ("BatchNorm", nn.BatchNorm1d(3, **FLOAT), (4, 3)),
        ("BatchNorm momentum=0.3 eps=0.1", nn.BatchNorm1d(2, 0.1, 0.3, **FLOAT), (2, 2, 3)),
        ("BatchNorm momentum=None", nn.BatchNorm2d(2, momentum=None, **FLOAT), (2, 2, 3, 1)),
        ("BatchNorm affine=False", nn.BatchNorm3d(2, affine=False, **FLOAT), (1, 2, 2, 1, 3)),
        (
            "BatchNorm track_running_stats=False",
            nn.BatchNorm1d(3, track_running_stats=False, **FLOAT),
            (4, 3),
        ),
        ("LayerNorm", nn.LayerNorm(4, **FLOAT), (2, 4)),
        ("LayerNorm (2, 3) bias=False", nn.LayerNorm((2, 3), bias=False, **FLOAT), (2, 2, 3)),
        ("RMSNorm", nn.RMSNorm(4, **FLOAT), (2, 4)),
        ("GroupNorm", nn.GroupNorm(2, 4, **FLOAT), (2, 4, 3)),
        ("InstanceNorm", nn.InstanceNorm1d(2, **FLOAT), (2, 2, 3)),
        (
            "InstanceNorm affine=True track_running_stats=True",
            nn.InstanceNorm2d(2, affine=True, track_running_stats=True, **FLOAT),
            (2, 2, 3, 2),
        ),
    ):
        yield name, steps(stirred(layer), *shape)
    yield "PReLU", steps(stirred(nn.PReLU(3, **FLOAT)), 2, 3, 2)
