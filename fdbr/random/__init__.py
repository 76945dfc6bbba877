"""Random numbers from explicit keys.

Draws of floating numbers are float64 unless a dtype is given.  Layers are float32: draw their data
with ``dtype="float32"``, because float64 data in a float32 layer give float64 results.

A key is a read-only ``uint64`` array of shape ``(2,)``.  Every function here is pure: the
same key gives the same draws, always.  For draws that are independent of each other,
`split` a key, or `fold_in` a number; use no key twice.

The words are those of the Philox bit generator (Salmon et al., *Parallel random numbers: as
easy as 1, 2, 3*, SC 2011), the key being Philox's key.  Everything else is a pure transform
of `bits`, so draws of different dtypes under one key agree up to rounding.

Keys are small and live in host memory.  Every draw takes a keyword ``device``, ``"cpu"`` or the
number of a CUDA device; by default it lies where an argument lies on a GPU, or else where the key
does.  The words are the same everywhere.

Under `fdbr.vmap` keys may be batched, parameters too: the draws are bitwise those of each key
alone.

>>> import fdbr
>>> key = fdbr.random.key(0)
>>> first, second = fdbr.random.split(key)
>>> bool((fdbr.random.normal(first, (3,)) == fdbr.random.normal(first, (3,))).all())
True
"""

from fdbr.errors.names import missing_from
from fdbr.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    normal,
    truncated_normal,
    uniform,
)
from fdbr.random.discrete import bernoulli, categorical, randint
from fdbr.random.keys import bits, fold_in, key, split
from fdbr.random.orders import choice, permutation
from fdbr.random.shaped import (
    beta,
    binomial,
    chisquare,
    dirichlet,
    gamma,
    geometric,
    loggamma,
    multivariate_normal,
    pareto,
    poisson,
    rademacher,
    t,
)

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "multivariate_normal",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "split",
    "t",
    "truncated_normal",
    "uniform",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`
