"""The fully connected layer."""

from collections.abc import Iterator
from typing import Any

import torch


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """With and without a bias, over batches of some shapes."""
    for shape in ((3,), (4, 3), (2, 5, 3)):
        for bias in (False, True):
            torch.manual_seed(len(shape))
            layer = torch.nn.Linear(3, 2, bias=bias, dtype=torch.float64)
            x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
            y = layer(x)
            ct = torch.randn(y.shape, dtype=torch.float64)
            parts = {"x": x, "y": y, "ct": ct, "weight": layer.weight}
            parts |= {"bias": layer.bias} if bias else {}
            moving = [x, *layer.parameters()]
            names = ["x", *(name for name, _ in layer.named_parameters())]
            derivatives = torch.autograd.grad(y, moving, ct)
            parts |= {f"grad {n}": g for n, g in zip(names, derivatives, strict=True)}
            yield f"{'x'.join(map(str, shape))} {'with' if bias else 'without'} bias", parts
