"""Stages: functions from an iterator of reports to an iterator of reports, one file a family."""

from fdbr.train.stages.averages import average, micro_average
from fdbr.train.stages.checks import check_finite
from fdbr.train.stages.displays import progress, table
from fdbr.train.stages.ending import until
from fdbr.train.stages.evaluation import evaluate
from fdbr.train.stages.events import tensorboard
from fdbr.train.stages.keeping import due, stateful
from fdbr.train.stages.logs import log
from fdbr.train.stages.observing import draw_tape, observe
from fdbr.train.stages.piping import Stage, pipe
from fdbr.train.stages.plots import plot, plot_statistics
from fdbr.train.stages.statistics import parameter_statistics, statistics

__all__ = [
    "Stage",
    "average",
    "check_finite",
    "draw_tape",
    "due",
    "evaluate",
    "log",
    "micro_average",
    "observe",
    "parameter_statistics",
    "pipe",
    "plot",
    "plot_statistics",
    "progress",
    "stateful",
    "statistics",
    "table",
    "tensorboard",
    "until",
]
