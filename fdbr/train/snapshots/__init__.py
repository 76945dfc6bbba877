"""Trees in files, and snapshots of runs."""

from fdbr.train.snapshots.reading import load
from fdbr.train.snapshots.writing import save

__all__ = ["load", "save"]
