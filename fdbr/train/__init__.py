"""Training: data, the loop, what happens around it, and optimizers.

The loop `fit` is a generator of frozen reports.  Stages turn an iterator of reports into
another one; `pipe` puts them together.
"""

from fdbr.train import optim
from fdbr.train.data import Batches
from fdbr.train.idx import mnist, read_idx
from fdbr.train.loop.fit import fit
from fdbr.train.loop.positions import Position
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots import Snapshot, load, resume, save, snapshot, snapshots
from fdbr.train.stages import average, due, evaluate, log, pipe, progress, stateful
from fdbr.train.triggers.base import Trigger
from fdbr.train.triggers.intervals import every

__all__ = [
    "Batches",
    "Position",
    "Report",
    "Snapshot",
    "Trigger",
    "average",
    "due",
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
    "resume",
    "save",
    "snapshot",
    "snapshots",
    "stateful",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
