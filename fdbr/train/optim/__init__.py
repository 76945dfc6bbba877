"""Optimizers: pairs of pure functions, and the gradient transformations they are chains of."""

from fdbr.train.optim.adam import AdamState, adam, scale_by_adam
from fdbr.train.optim.apply import apply_updates
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.momentum import TraceState, momentum_sgd, trace
from fdbr.train.optim.scale import LearningRateState, scale, scale_by_learning_rate, sgd

__all__ = [
    "AdamState",
    "LearningRateState",
    "Optimizer",
    "TraceState",
    "adam",
    "apply_updates",
    "chain",
    "momentum_sgd",
    "scale",
    "scale_by_adam",
    "scale_by_learning_rate",
    "sgd",
    "trace",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
