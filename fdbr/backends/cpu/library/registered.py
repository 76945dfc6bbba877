"""The modules that implement operations for NumPy's arrays: importing them registers these."""

# ruff: noqa: F401
import numpy as np

import fdbr.backends.cpu.library.activations
import fdbr.backends.cpu.library.adam
import fdbr.backends.cpu.library.attention
import fdbr.backends.cpu.library.conv.planner
import fdbr.backends.cpu.library.copies
import fdbr.backends.cpu.library.elementwise
import fdbr.backends.cpu.library.fft
import fdbr.backends.cpu.library.gather_scatter.flat_index
import fdbr.backends.cpu.library.iota
import fdbr.backends.cpu.library.joins
import fdbr.backends.cpu.library.labels
import fdbr.backends.cpu.library.norms
import fdbr.backends.cpu.library.philox
import fdbr.backends.cpu.library.pool.planner
import fdbr.backends.cpu.library.products
import fdbr.backends.cpu.library.recognition
import fdbr.backends.cpu.library.reductions
import fdbr.backends.cpu.library.rnn_step.planner
import fdbr.backends.cpu.library.row_iteration
import fdbr.backends.cpu.library.rows
import fdbr.backends.cpu.library.scans
import fdbr.backends.cpu.library.select
import fdbr.backends.cpu.library.small_linalg.operations
import fdbr.backends.cpu.library.softmax
import fdbr.backends.cpu.library.sort.searching
import fdbr.backends.cpu.library.sort.sets
import fdbr.backends.cpu.library.sort.sorting
import fdbr.backends.cpu.library.special
import fdbr.backends.cpu.library.sums
import fdbr.backends.cpu.library.suppression
import fdbr.backends.cpu.library.triangles
import fdbr.backends.cpu.library.vectorized
import fdbr.backends.cpu.library.views
from fdbr.core import loading

loading.finish(np)
