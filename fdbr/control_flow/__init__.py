"""Loops: `scan`, `while_loop` and `fori_loop`."""

from fdbr.control_flow import lowering  # noqa: F401, which registers how scans are lowered
from fdbr.control_flow.scan import fori_loop, scan
from fdbr.control_flow.while_loop import while_loop

__all__ = ["fori_loop", "scan", "while_loop"]
