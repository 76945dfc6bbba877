"""The array module of kernels: functions of nodes, under the names of NumPy's and SciPy's.

Polynomials replace the C library's functions, which a loop would call one by one.  The comment at
each one names its source.
"""

from types import ModuleType as _Module

from fdbr.backends.cpu.codegen.math.angles import *
from fdbr.backends.cpu.codegen.math.arithmetic import *
from fdbr.backends.cpu.codegen.math.bessel import *
from fdbr.backends.cpu.codegen.math.exponential import *
from fdbr.backends.cpu.codegen.math.gammas import *
from fdbr.backends.cpu.codegen.math.hyperbolic import *
from fdbr.backends.cpu.codegen.math.normal import *
from fdbr.backends.cpu.codegen.math.remainders import *
from fdbr.backends.cpu.codegen.math.trigonometric import *

__all__ = [
    name
    for name, member in list(globals().items())
    if name[0] != "_" and not isinstance(member, _Module)
]

of_nodes = True  # what tells this module from those of arrays
