"""Training: data, the loop, what happens around it, and optimizers.

The loop `fit` is a generator of frozen reports.  Stages turn an iterator of reports into
another one; `pipe` puts them together.
"""

from fdbr.train import optim, sweeps
from fdbr.train.data import Batches
from fdbr.train.idx import mnist, read_idx
from fdbr.train.loop.fit import fit
from fdbr.train.loop.positions import Position
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots import load, save
from fdbr.train.stages import average, due, evaluate, log, pipe, progress, stateful
from fdbr.train.sweeps import (
    Results,
    SweepReport,
    configure,
    grid,
    load_config,
    optuna_search,
    random_search,
    results,
    save_config,
    sweep,
)
from fdbr.train.triggers.base import Trigger
from fdbr.train.triggers.intervals import every

__all__ = [
    "Batches",
    "Position",
    "Report",
    "Results",
    "SweepReport",
    "Trigger",
    "average",
    "configure",
    "due",
    "evaluate",
    "every",
    "fit",
    "grid",
    "load",
    "load_config",
    "log",
    "mnist",
    "optim",
    "optuna_search",
    "pipe",
    "progress",
    "random_search",
    "read_idx",
    "results",
    "save",
    "save_config",
    "stateful",
    "sweep",
    "sweeps",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
