"""Loops: `scan`, `while_loop` and `fori_loop`."""

from fdbr.loops import lowering  # noqa: F401, which tells compilers what scans are
from fdbr.loops.scanning import fori_loop, scan
from fdbr.loops.while_loops import while_loop

__all__ = ["fori_loop", "scan", "while_loop"]
