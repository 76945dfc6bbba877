"""Cases of the functions of `fdbr.ops.special` that stand in no other namespace.

They are many, and elementwise all of them, so their tests are fewer than those of `CASES`.
A row names a function and its arguments: bounds between which one is drawn and differentiated,
or a constant, of which the derivative is not known or which is whole.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp
from scipy import sparse

from fdbr import ops
from fdbr.ops import special
from ops.cases import Case, jitted_if_asked
from ops.seeds import seeded

P = (0.25, 0.75)  # a probability
X = (0.5, 3)
NEAR_0 = (-1, 1)

ROWS: tuple[tuple[Any, ...], ...] = (
    # Bessel functions
    *((name, (-2, 2)) for name in ("j0", "j1")),
    *((name, X) for name in ("y0", "y1", "k0", "k1", "k0e", "k1e")),
    *((name, order, X) for name in ("jv", "yv", "iv", "kv", "kve") for order in (0, 1.5)),
    *((name, 1.5, X) for name in ("hankel1", "hankel2", "hankel1e", "hankel2e")),
    *((name, 1.5, X) for name in ("jve", "yve", "ive")),
    *((name, n, X) for name in ("yn", "kn") for n in (0, 2)),
    *((f"spherical_{kind}", n, X) for kind in ("jn", "yn", "in", "kn") for n in (0, 2)),
    *((name, (-2, 2)) for name in ("ber", "bei", "berp", "beip")),
    *((name, X) for name in ("ker", "kei", "kerp", "keip", "kelvin")),
    *((name, 1.5, X) for name in ("struve", "modstruve")),
    ("besselpoly", X, 1.0, 1.5),
    *((name, X) for name in ("iti0k0", "itj0y0", "it2i0k0", "it2j0y0")),
    *((name, X) for name in ("itstruve0", "itmodstruve0", "it2struve0")),
    *((name, X) for name in ("airy", "airye")),
    ("itairy", (0.25, 0.5)),
    # gamma and beta
    ("rgamma", (-2, 3)),
    *((name, X) for name in ("loggamma",)),
    ("poch", X, X),
    ("binom", (3, 5), X),
    ("multigammaln", (2, 4), 3),
    *((name, X, P) for name in ("gammaincinv", "gammainccinv")),
    ("betaincc", X, X, P),
    *((name, X, X, P) for name in ("betaincinv", "betainccinv")),
    ("btdtria", P, X, P),
    ("btdtrib", X, P, P),
    # elliptic integrals
    *((name, (-1, 0.75)) for name in ("ellipk", "ellipe")),
    ("ellipkm1", X),
    *((name, (-4, 4), (-1, 0.75)) for name in ("ellipkinc", "ellipeinc")),
    ("ellipj", (-2, 2), (0.125, 0.75)),
    ("elliprc", X, X),
    ("elliprc", X, (-3, -0.5)),
    *((name, X, X, X) for name in ("elliprd", "elliprf", "elliprg")),
    ("elliprj", X, X, X, X),
    ("agm", X, X),
    # integrals
    *((name, X) for name in ("expi", "exp1", "sici", "shichi", "spence")),
    *(("expn", n, X) for n in (0, 1, 3)),
    *((name, NEAR_0) for name in ("dawsn", "erfi", "wofz", "fresnel")),
    *((name, X) for name in ("modfresnelp", "modfresnelm")),
    ("voigt_profile", NEAR_0, X, X),
    ("owens_t", NEAR_0, NEAR_0),
    ("ndtri_exp", (-3, -0.125)),
    # powers
    *((name, NEAR_0) for name in ("exprel", "exp10", "cosm1", "sindg", "cosdg", "tandg")),
    ("cotdg", X),
    ("powm1", X, NEAR_0),
    ("boxcox", X, NEAR_0),
    ("boxcox1p", X, NEAR_0),
    ("inv_boxcox", P, NEAR_0),
    ("inv_boxcox1p", P, NEAR_0),
    ("tklmbda", (-0.5, 0.5), X),
    ("radian", X, X, X),
    ("huber", (1.25, 1.5), NEAR_0),
    ("huber", (0.5, 1), (2, 3)),
    ("pseudo_huber", X, NEAR_0),
    *((name, NEAR_0) for name in ("log_expit", "softplus")),
    ("lambertw", X),
    ("wrightomega", X),
    # hypergeometric functions and polynomials
    ("hyp0f1", 1.5, NEAR_0),
    ("hyp1f1", 0.5, 1.5, NEAR_0),
    ("hyp2f1", 0.5, 1.5, 2.5, (-0.5, 0.5)),
    ("hyperu", 0.5, 1.5, X),
    ("wright_bessel", 1.0, 1.5, X),
    ("log_wright_bessel", 1.0, 1.5, X),
    *(
        (f"eval_{name}", n, (0.125, 0.875))
        for name in (
            *("chebyc", "chebys", "chebyt", "chebyu", "hermite", "hermitenorm", "laguerre"),
            *("legendre", "sh_chebyt", "sh_chebyu", "sh_legendre"),
        )
        for n in (0, 3)
    ),
    *((f"eval_{name}", 3, 1.5, P) for name in ("gegenbauer", "genlaguerre")),
    *((f"eval_{name}", 3, 2.5, 1.5, P) for name in ("jacobi", "sh_jacobi")),
    ("lpmv", 1, 2.5, (-0.5, 0.5)),
    # differential equations
    *((name, 1.5, NEAR_0) for name in ("pbdv", "pbvv", "pbwa")),
    *((f"mathieu_{kind}", 2, 1.5, X) for kind in ("cem", "sem")),
    *((f"mathieu_mod{kind}", 2, 1.5, X) for kind in ("cem1", "cem2", "sem1", "sem2")),
    *((name, 1, 2, 1.5, P) for name in ("pro_ang1", "obl_ang1", "obl_rad1")),
    *((name, 0, 1, 1.5, (1.5, 3)) for name in ("pro_rad1", "pro_rad2")),
    ("obl_rad2", 0, 1, 1.5, X),
    ("pro_ang1_cv", 1, 2, 1.5, sp.pro_cv(1, 2, 1.5), P),
    *((f"{name}_cv", 1, 2, 1.5, sp.obl_cv(1, 2, 1.5), P) for name in ("obl_ang1", "obl_rad1")),
    ("pro_rad1_cv", 0, 1, 1.5, sp.pro_cv(0, 1, 1.5), (1.5, 3)),
    ("pro_rad2_cv", 0, 1, 1.5, sp.pro_cv(0, 1, 1.5), (1.5, 3)),
    ("obl_rad2_cv", 0, 1, 1.5, sp.obl_cv(0, 1, 1.5), X),
    # distributions
    *((name, 2, 5, P) for name in ("bdtr", "bdtrc", "bdtri", "nbdtr", "nbdtrc", "nbdtri")),
    ("bdtrik", P, (5.5, 5.5), P),
    ("bdtrin", (2.5, 2.5), P, P),
    ("nbdtrik", (0.5, 0.75), (2.5, 2.5), (0.25, 0.5)),
    ("nbdtrin", (2.5, 2.5), P, P),
    *((name, 2.5, X) for name in ("pdtr", "pdtrc")),
    ("pdtri", 2, P),
    ("pdtrik", (0.625, 0.75), (1, 2)),
    *((name, X, X, X) for name in ("gdtr", "gdtrc")),
    ("gdtria", P, X, X),
    ("gdtrib", X, P, X),
    ("gdtrix", X, X, P),
    *((name, X, X) for name in ("chdtr", "chdtrc")),
    ("chdtri", X, P),
    ("chdtriv", P, X),
    *((name, X, X, X) for name in ("fdtr", "fdtrc")),
    ("fdtri", X, X, P),
    ("fdtridfd", (1, 2), (0.5, 0.5), (1, 1)),
    ("stdtr", X, X),
    ("stdtr", X, (-3, -0.5)),
    ("stdtrit", X, P),
    ("stdtridf", (0.75, 0.75), (1, 1)),
    ("chndtr", X, 2.5, X),
    ("chndtrix", P, 2.5, X),
    ("chndtrinc", (2, 3), 2.5, (0.125, 0.25)),
    ("ncfdtr", 2.5, 3.5, X, X),
    ("ncfdtri", 2.5, 3.5, X, P),
    ("nctdtr", 2.5, NEAR_0, NEAR_0),
    ("nctdtrit", 2.5, NEAR_0, P),
    ("nctdtrinc", 2.5, P, NEAR_0),
    ("nrdtrimn", P, X, X),
    ("nrdtrisd", X, (0.625, 0.875), (4, 5)),
    ("kolmogorov", X),
    ("kolmogi", P),
    ("smirnov", 4, (0.375, 0.375)),
    ("smirnovi", 4, P),
)


def of_one_number(f: Callable[..., Any], arguments: Any, real: Any, imag: Any) -> Any:
    """A function of the drawn arguments alone, whose result is one real array."""

    def function(*drawn: Any) -> Any:
        rest = iter(drawn)
        out = f(*(next(rest) if isinstance(a, tuple) else a for a in arguments))
        total = 0.0
        for i, part in enumerate(out if isinstance(out, tuple) else (out,)):
            both = real(part) + 0.5 * imag(part) if part.dtype.kind == "c" else part
            total = total + (i + 1) * both
        return total

    return function


def case(name: str, arguments: Any) -> Case:
    shapes = ((2, 1), (2,), (), ())
    bounds = [a for a in arguments if isinstance(a, tuple)]
    return Case(
        f"special.{name}",
        f"{name} {arguments}",
        jitted_if_asked(of_one_number(getattr(special, name), arguments, ops.real, ops.imag)),
        seeded(*zip(shapes[: len(bounds)], bounds, strict=True), count=1),
        of_one_number(getattr(sp, name), arguments, np.real, np.imag),
    )


SPECIAL = [case(name, arguments) for name, *arguments in ROWS]

_MATRIX = sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
SPARSE = [
    Case(
        "sparse.matmul",
        f"sparse.matmul {columns}",
        lambda data, x: ops.sparse.SparseArray(data, ops.sparse.sparse_array(_MATRIX).pattern) @ x,
        seeded(((3,), X), ((3, *columns), X), count=1),
        lambda data, x: sparse.csr_array((data, _MATRIX.indices, _MATRIX.indptr), (2, 3)) @ x,
    )
    for columns in ((), (2,))
]
