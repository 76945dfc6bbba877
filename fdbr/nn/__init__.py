"""Frozen layers and initializers.

A layer is built by ``Layer.init(key, ...)``, called as ``y = layer(x)``, and in training as
``y, layer = layer.train(x, key=key)``, which returns its successor.
"""

from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.nn.sequential import Lambda, Sequential

__all__ = ["Lambda", "Layer", "Linear", "Sequential", "initializers"]
__dir__ = __all__.copy  # `dir` shows the public names alone
