"""SciPy's special functions on traced values: which op each of them is.

Those of them that are ufuncs come in by NumPy's protocol.  `scipy.special` is not imported for
that: the table is made when the first of its ufuncs meets a traced value.
"""

import math
import sys
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer_methods import ufunc_sources


def _below() -> dict[str, Any]:
    """Return the ufuncs that functions of SciPy call without converting their arguments."""
    special = ops.special
    return {
        "_lambertw": special.lambertw,
        "_zeta": special.zeta,
        "_riemann_zeta": special.zeta,
        "_beta_ppf": lambda q, a, b: special.betaincinv(a, b, q),
        "_binom_cdf": lambda k, n, p: special.betaincc(k + 1, n - k, p),
        "_binom_sf": lambda k, n, p: special.betainc(k + 1, n - k, p),
        "_cosine_cdf": lambda x: (math.pi + x + ops.sin(x)) / (2 * math.pi),
        "_nbinom_cdf": lambda k, n, p: special.betainc(n, k + 1, p),
        "_nbinom_sf": lambda k, n, p: special.betaincc(n, k + 1, p),
        "_ncf_cdf": lambda x, dfn, dfd, nc: special.ncfdtr(dfn, dfd, nc, x),
        "_ncf_sf": lambda x, dfn, dfd, nc: 1 - special.ncfdtr(dfn, dfd, nc, x),
        "_nct_cdf": lambda x, df, nc: special.nctdtr(df, nc, x),
        "_nct_sf": lambda x, df, nc: 1 - special.nctdtr(df, nc, x),
        "_skewnorm_cdf": lambda x, loc, scale, shape: (
            special.ndtr((x - loc) / scale) - 2 * special.owens_t((x - loc) / scale, shape)
        ),
    }


def _special_ufuncs() -> dict[Any, Any]:
    module = sys.modules.get("scipy.special")
    if module is None:
        return {}
    special = ops.special
    below = vars(sys.modules["scipy.special._ufuncs"])
    found = {getattr(module, name, None): getattr(special, name) for name in special.__all__}
    found |= {below.get(name): op for name, op in _below().items()}
    return {ufunc: op for ufunc, op in found.items() if isinstance(ufunc, np.ufunc)}


ufunc_sources.append(_special_ufuncs)
