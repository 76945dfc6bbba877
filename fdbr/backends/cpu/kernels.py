"""Kernels for eager mode: loops over large arrays, compiled to machine code.

NumPy makes a pass over memory for each function, on one thread.  A kernel computes a whole
operation for an element, or for a row, in one pass: with vectors, and on all threads.

- `fdbr.core.expr`: expressions of what is computed for each element
- `codegen.math.functions`: the array module of such expressions
- `codegen.math.incomplete`: functions whose formulas hold for some operands only, and are NaN
  elsewhere
- `codegen`: from expressions to LLVM's language, with vectors
- `runtime`: machine code, its cache on disk, and threads
- `library`: convolutions, pooling, recurrences, reductions and small linear algebra
"""

from fdbr.backends.cpu.codegen.eager_kernels import converted, elementwise
from fdbr.backends.cpu.codegen.math import functions, incomplete
from fdbr.backends.cpu.library.reduce.reduce import reduced, stages

__all__ = ["converted", "elementwise", "functions", "incomplete", "reduced", "stages"]
