"""The modules that implement operations for NumPy's arrays: importing them registers these."""

import fdbr.backends.cpu.library.conv.planner
import fdbr.backends.cpu.library.copies
import fdbr.backends.cpu.library.elementwise
import fdbr.backends.cpu.library.pool.planner
import fdbr.backends.cpu.library.recognition
import fdbr.backends.cpu.library.reductions
import fdbr.backends.cpu.library.rnn_step.planner
import fdbr.backends.cpu.library.scans
import fdbr.backends.cpu.library.select
import fdbr.backends.cpu.library.sums
import fdbr.backends.cpu.library.vectorized  # noqa: F401
