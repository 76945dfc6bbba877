"""Activation functions, at settings that PyTorch's users give by name."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

_ONE: dict[str, Callable[[Any], Any]] = {
    "celu": lambda x: F.celu(x, alpha=0.7),
    "elu": lambda x: F.elu(x, alpha=0.7),
    "gelu": F.gelu,
    "gelu none": lambda x: F.gelu(x, approximate="none"),
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": lambda x: F.glu(x, dim=1),
    "hard_shrink": lambda x: F.hardshrink(x, lambd=0.8),
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "hard_tanh": lambda x: F.hardtanh(x, min_val=-0.5, max_val=2.0),
    "leaky_relu": F.leaky_relu,
    "leaky_relu slope": lambda x: F.leaky_relu(x, negative_slope=0.3),
    "log_sigmoid": F.logsigmoid,
    "log_softmax": lambda x: F.log_softmax(x, dim=0),
    "mish": F.mish,
    "relu6": lambda x: F.relu6(4 * x),
    "rrelu": F.rrelu,
    "selu": F.selu,
    "silu": F.silu,
    "softmin": lambda x: F.softmin(x, dim=1),
    "softplus": F.softplus,
    "softplus beta": lambda x: F.softplus(x, beta=3.0, threshold=2.0),
    "soft_shrink": lambda x: F.softshrink(x, lambd=0.8),
    "softsign": F.softsign,
    "tanh_shrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.3, 7.0),
    "normalize": F.normalize,
    "normalize p": lambda x: F.normalize(x, p=1.0, dim=0, eps=20.0),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 4),
    "local_response_norm settings": lambda x: F.local_response_norm(
        x[None], 3, alpha=0.4, beta=0.5, k=2.0
    ),
}


def recorded(function: Any, *inputs: Any) -> dict[str, Any]:
    """The output, and the gradients along a random cotangent."""
    y = function(*inputs)
    ct = torch.randn(y.shape, dtype=torch.float64)
    derivatives = torch.autograd.grad(y, inputs, ct)
    names = ["x", "y2", "z", "w"][: len(inputs)]
    parts = {"y": y, "ct": ct, **dict(zip(names, inputs, strict=True))}
    return parts | {f"grad {n}": g for n, g in zip(names, derivatives, strict=True)}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each of them on one matrix."""
    torch.manual_seed(0)

    def normal(*shape: int) -> Any:
        return (2 * torch.randn(shape, dtype=torch.float64)).requires_grad_()

    for name, function in _ONE.items():
        yield name, recorded(function, normal(3, 4))
    yield "prelu", recorded(F.prelu, normal(2, 3, 2), normal(3))
    yield "bilinear", recorded(F.bilinear, normal(2, 3), normal(2, 2), normal(4, 3, 2), normal(4))
