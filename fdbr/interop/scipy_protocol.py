"""SciPy's special functions on traced values: which op each of them is.

Those of them that are ufuncs come in by NumPy's protocol.  `scipy.special` is not imported for
that: the table is made when the first of its ufuncs meets a traced value.
"""

import sys
from typing import Any

import numpy as np

from fdbr.array import ufunc_sources
from fdbr.ops import special

_BELOW = {"_lambertw": special.lambertw, "_zeta": special.zeta, "_riemann_zeta": special.zeta}
"""Ufuncs that functions of SciPy call without converting what they are given."""


def _special_ufuncs() -> dict[Any, Any]:
    module = sys.modules.get("scipy.special")
    if module is None:
        return {}
    below = vars(sys.modules["scipy.special._ufuncs"])
    found = {getattr(module, name, None): getattr(special, name) for name in special.__all__}
    found |= {below.get(name): op for name, op in _BELOW.items()}
    return {ufunc: op for ufunc, op in found.items() if isinstance(ufunc, np.ufunc)}


ufunc_sources.append(_special_ufuncs)
