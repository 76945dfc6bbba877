"""Trees in files, snapshots of runs, and the way back from them."""

from fdbr.train.snapshots.folder import Snapshot, snapshots
from fdbr.train.snapshots.reading import load
from fdbr.train.snapshots.resuming import resume
from fdbr.train.snapshots.stage import snapshot
from fdbr.train.snapshots.writing import save

__all__ = ["Snapshot", "load", "resume", "save", "snapshot", "snapshots"]
