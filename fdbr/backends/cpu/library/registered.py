"""Loads the modules that register the CPU's implementations of operations."""

# ruff: noqa: F401
import fdbr.backends.cpu.library.fft
import fdbr.backends.cpu.library.gather_scatter.flat_index
import fdbr.backends.cpu.library.iota
import fdbr.backends.cpu.library.joins
import fdbr.backends.cpu.library.philox
import fdbr.backends.cpu.library.products
import fdbr.backends.cpu.library.small_linalg.operations
import fdbr.backends.cpu.library.sort.searching
import fdbr.backends.cpu.library.sort.sets
import fdbr.backends.cpu.library.sort.sorting
import fdbr.backends.cpu.library.special
import fdbr.backends.cpu.library.triangles
import fdbr.backends.cpu.library.views
