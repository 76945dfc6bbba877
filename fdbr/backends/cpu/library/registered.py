"""Loads the modules that register the CPU's implementations of operations."""

# ruff: noqa: F401
import fdbr.backends.cpu.library.iota
import fdbr.backends.cpu.library.joins
import fdbr.backends.cpu.library.triangles
import fdbr.backends.cpu.library.views
