"""Scripted research loops: configurations, sweeps over them, and tables of what came of them."""

from fdbr.train.sweeps.configurations import configure, load_config, save_config
from fdbr.train.sweeps.results import Results, results
from fdbr.train.sweeps.searches import optuna_search
from fdbr.train.sweeps.spaces import choice, grid, integers, log_uniform, random_search, uniform
from fdbr.train.sweeps.sweep import SweepReport, sweep

__all__ = [
    "Results",
    "SweepReport",
    "choice",
    "configure",
    "grid",
    "integers",
    "load_config",
    "log_uniform",
    "optuna_search",
    "random_search",
    "results",
    "save_config",
    "sweep",
    "uniform",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
