"""Special functions: those of SciPy, with derivatives of all orders."""

from fdbr.ops.special.bessel import i0, i0e, i1, i1e
from fdbr.ops.special.entropies import entr, kl_div, rel_entr, xlog1py, xlogy
from fdbr.ops.special.errors import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri
from fdbr.ops.special.gammas import beta, betaln, digamma, gamma, gammaln, polygamma, zeta
from fdbr.ops.special.incomplete import betainc, gammainc, gammaincc
from fdbr.ops.special.others import cbrt, expit, logit, sinc

__all__ = [
    "beta",
    "betainc",
    "betaln",
    "cbrt",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "expit",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "logit",
    "ndtr",
    "ndtri",
    "polygamma",
    "rel_entr",
    "sinc",
    "xlog1py",
    "xlogy",
    "zeta",
]
