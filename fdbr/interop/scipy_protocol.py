"""SciPy's special functions on traced values: which op each of them is.

Those of them that are ufuncs come in by NumPy's protocol.  `scipy.special` is not imported for
that: the table is made when the first of its ufuncs meets a traced value.
"""

import sys
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.array import ufunc_sources
from fdbr.ops import special

_RENAMED = {"log_expit": ops.log_sigmoid}


def _special_ufuncs() -> dict[Any, Any]:
    module = sys.modules.get("scipy.special")
    if module is None:
        return {}
    named = {name: getattr(ops, name) for name in special.__all__} | _RENAMED
    found = {getattr(module, name, None): op for name, op in named.items()}
    return {ufunc: op for ufunc, op in found.items() if isinstance(ufunc, np.ufunc)}


ufunc_sources.append(_special_ufuncs)
