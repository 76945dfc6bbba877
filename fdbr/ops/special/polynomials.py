"""Orthogonal polynomials, and the functions that continue them to real degrees.

They are differentiated by their argument.  A derivative is a polynomial of the same family, or
of Gegenbauer's or Jacobi's, of one degree less (https://dlmf.nist.gov/18.9).

>>> import fdbr
>>> from fdbr.ops import special
>>> special.eval_legendre(2, 0.5), float(fdbr.grad(special.eval_legendre, 1)(2, 0.5))
(-0.125, 1.5)
"""

from typing import Any

from fdbr.errors.checks import number_types
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.special.library import one_less, scipy_function

__all__ = [
    "eval_chebyc",
    "eval_chebys",
    "eval_chebyt",
    "eval_chebyu",
    "eval_gegenbauer",
    "eval_genlaguerre",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_jacobi",
    "eval_laguerre",
    "eval_legendre",
    "eval_sh_chebyt",
    "eval_sh_chebyu",
    "eval_sh_jacobi",
    "eval_sh_legendre",
    "lpmv",
]


def _gegenbauer(n: Any, alpha: float, x: Any, factor: float) -> Any:
    zero, below = one_less(n)
    return where(zero, 0, factor * eval_gegenbauer(below, alpha, x))


eval_gegenbauer = scipy_function(
    *("eval_gegenbauer", "n alpha x", "Gegenbauer's polynomial of degree ``n``."),
    x=lambda n, alpha, x: 2 * alpha * _gegenbauer(n, alpha + 1.0, x, 1.0),
)
eval_legendre = scipy_function(
    *("eval_legendre", "n x", "Legendre's polynomial of degree ``n``."),
    x=lambda n, x: _gegenbauer(n, 1.5, x, 1.0),
)
eval_sh_legendre = scipy_function(
    *("eval_sh_legendre", "n x", "Legendre's polynomial of ``2 * x - 1``."),
    x=lambda n, x: _gegenbauer(n, 1.5, 2 * x - 1, 2.0),
)


def _chebyu(n: Any, x: Any, factor: float) -> Any:
    zero, below = one_less(n)
    return where(zero, 0, factor * n * eval_chebyu(below, x))


eval_chebyt = scipy_function(
    *("eval_chebyt", "n x", "Chebyshev's polynomial of the first kind."),
    x=lambda n, x: _chebyu(n, x, 1.0),
)
eval_chebyu = scipy_function(
    *("eval_chebyu", "n x", "Chebyshev's polynomial of the second kind."),
    x=lambda n, x: _gegenbauer(n, 2.0, x, 2.0),
)
eval_chebyc = scipy_function(
    *("eval_chebyc", "n x", "``2 * eval_chebyt(n, x / 2)``."),
    x=lambda n, x: _chebyu(n, 0.5 * x, 1.0),
)
eval_chebys = scipy_function(
    *("eval_chebys", "n x", "``eval_chebyu(n, x / 2)``."),
    x=lambda n, x: _gegenbauer(n, 2.0, 0.5 * x, 1.0),
)
eval_sh_chebyt = scipy_function(
    *("eval_sh_chebyt", "n x", "``eval_chebyt(n, 2 * x - 1)``."),
    x=lambda n, x: _chebyu(n, 2 * x - 1, 2.0),
)
eval_sh_chebyu = scipy_function(
    *("eval_sh_chebyu", "n x", "``eval_chebyu(n, 2 * x - 1)``."),
    x=lambda n, x: _gegenbauer(n, 2.0, 2 * x - 1, 4.0),
)


def _jacobi_derivative(n: Any, alpha: Any, beta: Any, x: Any) -> Any:
    zero, below = one_less(n)
    slope = 0.5 * (n + alpha + beta + 1) * eval_jacobi(below, alpha + 1.0, beta + 1.0, x)
    return where(zero, 0, slope)


def _sh_jacobi_derivative(n: Any, p: Any, q: Any, x: Any) -> Any:
    zero, below = one_less(n)
    return where(zero, 0, n * eval_sh_jacobi(below, p + 2.0, q + 1.0, x))


eval_jacobi = scipy_function(
    *("eval_jacobi", "n alpha beta x", "Jacobi's polynomial of degree ``n``."), x=_jacobi_derivative
)
eval_sh_jacobi = scipy_function(
    *("eval_sh_jacobi", "n p q x", "Jacobi's polynomial on [0, 1], with leading coefficient 1."),
    x=_sh_jacobi_derivative,
)


def _genlaguerre_derivative(n: Any, alpha: Any, x: Any) -> Any:
    zero, below = one_less(n)
    return where(zero, 0, -eval_genlaguerre(below, alpha + 1.0, x))


eval_genlaguerre = scipy_function(
    *("eval_genlaguerre", "n alpha x", "Laguerre's generalised polynomial of degree ``n``."),
    x=_genlaguerre_derivative,
)
eval_laguerre = scipy_function(
    *("eval_laguerre", "n x", "Laguerre's polynomial of degree ``n``."),
    x=lambda n, x: _genlaguerre_derivative(n, 0.0, x),
)


def _hermite_derivative(f: Any, factor: int) -> Any:
    def slope(n: Any, x: Any) -> Any:
        zero, below = one_less(n)
        below = below if type(below) in number_types else astype(below, "int64")
        return where(zero, 0, factor * n * f()(below, x))

    return slope


eval_hermite = scipy_function(
    *("eval_hermite", "n x", "Hermite's polynomial of the physicists, of integer degree ``n``."),
    x=_hermite_derivative(lambda: eval_hermite, 2),
)
eval_hermitenorm = scipy_function(
    *("eval_hermitenorm", "n x", "Hermite's polynomial of probability, of integer degree ``n``."),
    x=_hermite_derivative(lambda: eval_hermitenorm, 1),
)
lpmv = scipy_function(
    *("lpmv", "m v x", "Legendre's associated function of integer order and real degree."),
    x=lambda m, v, x, out: (v * x * out - (v + m) * lpmv(m, v - 1.0, x)) / (x * x - 1),
)
