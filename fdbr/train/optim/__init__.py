"""Optimizers: pairs of pure functions, and the gradient transformations they are chains of."""

from fdbr.train.optim.adam import (
    ScaleByAdamState,
    adam,
    scale_by_adam,
)
from fdbr.train.optim.apply import (
    apply_updates,
)
from fdbr.train.optim.base import (
    EmptyState,
    GradientTransformation,
    Optimizer,
    chain,
    identity,
)
from fdbr.train.optim.leafwise import (
    LeafwiseState,
    leafwise,
)
from fdbr.train.optim.momentum import (
    TraceState,
    momentum_sgd,
    sgd,
    trace,
)
from fdbr.train.optim.scale import (
    ScaleByScheduleState,
    scale,
    scale_by_learning_rate,
    scale_by_schedule,
)
from fdbr.train.optim.schedules import (
    Schedule,
    constant_schedule,
    cosine_decay_restarts_schedule,
    cosine_decay_schedule,
    cosine_onecycle_schedule,
    cyclic_schedule,
    exponential_decay,
    inverse_time_decay,
    join_schedules,
    linear_onecycle_schedule,
    linear_schedule,
    piecewise_constant_schedule,
    piecewise_interpolate_schedule,
    polynomial_schedule,
    sgdr_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule,
)

__all__ = [
    "EmptyState",
    "GradientTransformation",
    "LeafwiseState",
    "Optimizer",
    "ScaleByAdamState",
    "ScaleByScheduleState",
    "Schedule",
    "TraceState",
    "adam",
    "apply_updates",
    "chain",
    "constant_schedule",
    "cosine_decay_restarts_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "cyclic_schedule",
    "exponential_decay",
    "identity",
    "inverse_time_decay",
    "join_schedules",
    "leafwise",
    "linear_onecycle_schedule",
    "linear_schedule",
    "momentum_sgd",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial_schedule",
    "scale",
    "scale_by_adam",
    "scale_by_learning_rate",
    "scale_by_schedule",
    "sgd",
    "sgdr_schedule",
    "trace",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
