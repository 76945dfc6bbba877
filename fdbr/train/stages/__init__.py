"""Stages: functions from an iterator of reports to an iterator of reports, one file a family."""

from fdbr.train.stages.averages import average
from fdbr.train.stages.displays import progress
from fdbr.train.stages.ending import until
from fdbr.train.stages.evaluation import evaluate
from fdbr.train.stages.keeping import due, stateful
from fdbr.train.stages.logs import log
from fdbr.train.stages.piping import Stage, pipe

__all__ = ["Stage", "average", "due", "evaluate", "log", "pipe", "progress", "stateful", "until"]
