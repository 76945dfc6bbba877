"""The functions of `scipy.special`, under its names, with derivatives of all orders.

Those that are used most stand in `fdbr.ops` itself too.  SciPy's own functions on traced values
lead here, where NumPy's protocol tells of them.

A function is differentiated by every argument for which a derivative is known.  By the others
(the order of a Bessel function, the degrees of freedom of noncentral distributions) it refuses
to be differentiated with an error, and gives no zeros.
"""

from types import ModuleType as _Module

from fdbr.errors.names import missing_from as _missing_from
from fdbr.ops.elementwise.arithmetic import round
from fdbr.ops.elementwise.exponential import exp2, expm1, log1p
from fdbr.ops.special.airy_functions import *
from fdbr.ops.special.bessel import *
from fdbr.ops.special.carlson import *
from fdbr.ops.special.distributions import *
from fdbr.ops.special.elliptic import *
from fdbr.ops.special.empirical import *
from fdbr.ops.special.entropies import *
from fdbr.ops.special.errors import *
from fdbr.ops.special.exponential_integrals import *
from fdbr.ops.special.faddeeva import *
from fdbr.ops.special.gammas import *
from fdbr.ops.special.hypergeometric import *
from fdbr.ops.special.incomplete import *
from fdbr.ops.special.inverses import *
from fdbr.ops.special.kelvin import *
from fdbr.ops.special.noncentral import *
from fdbr.ops.special.oscillators import *
from fdbr.ops.special.others import *
from fdbr.ops.special.polynomials import *
from fdbr.ops.special.powers import *

__all__ = [
    name
    for name, member in list(globals().items())
    if name[0] != "_" and not isinstance(member, _Module)
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=_missing_from(__name__))  # type checkers see no `__getattr__`
