"""Training: data, the loop, what happens around it, and optimizers.

The loop `fit` is a generator of frozen reports.  Stages turn an iterator of reports into
another one; `pipe` puts them together.
"""

from fdbr.train import optim
from fdbr.train.data import Batches
from fdbr.train.idx import mnist, read_idx
from fdbr.train.loop import Position, Report, fit
from fdbr.train.snapshots import load, save
from fdbr.train.stages import average, evaluate, log, pipe, progress
from fdbr.train.triggers import Trigger, every

__all__ = [
    "Batches",
    "Position",
    "Report",
    "Trigger",
    "average",
    "evaluate",
    "every",
    "fit",
    "load",
    "log",
    "mnist",
    "optim",
    "pipe",
    "progress",
    "read_idx",
    "save",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
