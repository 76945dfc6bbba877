"""Training: data, the loop, what happens around it, and optimizers.

The loop `fit` is a generator of frozen reports.  Stages turn an iterator of reports into
another one; `pipe` puts them together.
"""

from fdbr.train import optim, sweeps
from fdbr.train.data import (
    Batches,
    BucketSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StratifiedSampler,
    Stream,
    WeightedSampler,
    collate_padded,
    collate_ragged,
    collate_stack,
    concatenate,
    folds,
    gather,
    map_examples,
    mnist,
    prefetch,
    read_idx,
    split,
    split_n,
    subset,
    zip_examples,
)
from fdbr.train.loop.fit import fit
from fdbr.train.loop.positions import Position
from fdbr.train.loop.reports import Report
from fdbr.train.loop.zipping import zip
from fdbr.train.snapshots import Snapshot, load, resume, save, snapshot, snapshots
from fdbr.train.stages import average, due, evaluate, log, pipe, progress, stateful, until
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
from fdbr.train.triggers.intervals import at, every, once, within
from fdbr.train.triggers.metrics import best, early_stopping

__all__ = [
    "Batches",
    "BucketSampler",
    "Position",
    "RandomSampler",
    "Report",
    "Snapshot",
    "Results",
    "Sampler",
    "SequentialSampler",
    "StratifiedSampler",
    "Stream",
    "SweepReport",
    "Trigger",
    "WeightedSampler",
    "at",
    "average",
    "best",
    "collate_padded",
    "collate_ragged",
    "collate_stack",
    "concatenate",
    "configure",
    "due",
    "early_stopping",
    "evaluate",
    "every",
    "fit",
    "folds",
    "gather",
    "grid",
    "load",
    "load_config",
    "log",
    "map_examples",
    "mnist",
    "once",
    "optim",
    "optuna_search",
    "pipe",
    "prefetch",
    "progress",
    "random_search",
    "read_idx",
    "results",
    "resume",
    "save",
    "snapshot",
    "snapshots",
    "save_config",
    "split",
    "split_n",
    "stateful",
    "subset",
    "sweep",
    "sweeps",
    "until",
    "within",
    "zip",
    "zip_examples",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
