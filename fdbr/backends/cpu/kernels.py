"""Kernels: loops over large arrays, compiled to machine code.

NumPy makes a pass over memory for each function, on one thread.  A kernel does all that an
operation does to an element, or to a row, at once: with vectors, and on all threads.

- `expressions`: what is computed for each element
- `functions`: the array module of such expressions
- `incomplete`: functions that are NaN where their formulas do not hold
- `loops`, `folds`: LLVM's language for them, without and with reductions
- `machine`: from there to machine code, which is kept on disk
- `pool`: threads
- `calling`, `reducing`: all of it for arrays
- `windows`, `pooling`: convolutions, and the largest elements of windows
- `stepping`: steps of recurrences, with their products
- `values`, `lanes`, `rows`: kernels of matrices, side by side or one after the other
- `eliminating`, `factoring`, `by_rows`, `lapack`, `matrices`: linear algebra
"""

from fdbr.backends.cpu.codegen.eager_kernels import LEAST, converted, elementwise
from fdbr.backends.cpu.codegen.math import functions, incomplete
from fdbr.backends.cpu.library.reduce.reduce import reduced, stages

__all__ = ["LEAST", "converted", "elementwise", "functions", "incomplete", "reduced", "stages"]
