"""The array module of kernels: functions of nodes, under the names of NumPy's and SciPy's.

Polynomials stand in for the C library's functions, which a loop would call one by one.  Where they
come from, each says.
"""

from types import ModuleType as _Module

from fdbr.kernels.arithmetic import *
from fdbr.kernels.bessel import *
from fdbr.kernels.exponential import *
from fdbr.kernels.gammas import *
from fdbr.kernels.hyperbolic import *
from fdbr.kernels.normal import *
from fdbr.kernels.remainders import *
from fdbr.kernels.trigonometric import *
from fdbr.kernels.turns import *

__all__ = [
    name
    for name, member in list(globals().items())
    if name[0] != "_" and not isinstance(member, _Module)
]

of_nodes = True  # what tells this module from those of arrays
