"""Learning-rate schedules: pure functions of the count of updates."""

from fdbr.train.optim.schedules.base import Schedule
from fdbr.train.optim.schedules.cosine import cosine_decay_restarts_schedule, cosine_decay_schedule
from fdbr.train.optim.schedules.cyclic import cyclic_schedule
from fdbr.train.optim.schedules.decay import exponential_decay, inverse_time_decay
from fdbr.train.optim.schedules.joining import (
    join_schedules,
    sgdr_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule,
)
from fdbr.train.optim.schedules.piecewise import (
    cosine_onecycle_schedule,
    linear_onecycle_schedule,
    piecewise_constant_schedule,
    piecewise_interpolate_schedule,
)
from fdbr.train.optim.schedules.polynomial import (
    constant_schedule,
    linear_schedule,
    polynomial_schedule,
)

__all__ = [
    "Schedule",
    "constant_schedule",
    "cosine_decay_restarts_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "cyclic_schedule",
    "exponential_decay",
    "inverse_time_decay",
    "join_schedules",
    "linear_onecycle_schedule",
    "linear_schedule",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial_schedule",
    "sgdr_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
