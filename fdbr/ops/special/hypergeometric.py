"""Hypergeometric functions, differentiated by their argument (https://dlmf.nist.gov/15.5, 13.3).

>>> import fdbr
>>> from fdbr.ops import special
>>> special.hyp2f1(1.0, 1.0, 2.0, 0.0), float(fdbr.grad(special.hyp2f1, 3)(1.0, 1.0, 2.0, 0.0))
(1.0, 0.5)
"""

from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.special.library import scipy_function

__all__ = ["hyp0f1", "hyp1f1", "hyp2f1", "hyperu", "log_wright_bessel", "wright_bessel"]

hyp0f1 = scipy_function(
    *("hyp0f1", "v z", "The confluent hypergeometric limit function 0F1."),
    z=lambda v, z: hyp0f1(v + 1.0, z) / v,
)
hyp1f1 = scipy_function(
    *("hyp1f1", "a b x", "Kummer's confluent hypergeometric function 1F1."),
    x=lambda a, b, x: a / b * hyp1f1(a + 1.0, b + 1.0, x),
)
hyp2f1 = scipy_function(
    *("hyp2f1", "a b c z", "Gauss's hypergeometric function 2F1."),
    z=lambda a, b, c, z: a * b / c * hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
)
hyperu = scipy_function(
    *("hyperu", "a b x", "Tricomi's confluent hypergeometric function U."),
    x=lambda a, b, x: -a * hyperu(a + 1.0, b + 1.0, x),
)
wright_bessel = scipy_function(
    *("wright_bessel", "a b x", "Wright's generalised Bessel function."),
    x=lambda a, b, x: wright_bessel(a, a + b, x),
)
log_wright_bessel = scipy_function(
    *("log_wright_bessel", "a b x", "The logarithm of `wright_bessel`."),
    x=lambda a, b, x, out: exp(log_wright_bessel(a, a + b, x) - out),
)
