"""Activations, on feature maps."""

from benchmarks.layers.functions import both, row
from benchmarks.layers.rows import MAPS

__all__ = ["ACTIVATIONS"]

NAMES = (
    "relu relu6 elu selu celu leaky_relu silu mish sigmoid tanh hardswish hardsigmoid hardtanh "
    "hardshrink softshrink softplus softsign tanhshrink logsigmoid"
).split()

ACTIVATIONS = [
    *(both(name, MAPS) for name in NAMES),
    both("glu", MAPS, dim=1),
    row(
        "gelu tanh",
        MAPS,
        lambda fdbr, x: fdbr.ops.gelu(x, approximate="tanh"),
        lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    row(
        "softmax over channels",
        MAPS,
        lambda fdbr, x: fdbr.ops.softmax(x, axis=1),
        lambda torch, x: torch.softmax(x, 1),
    ),
]
