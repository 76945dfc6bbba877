"""Checks of derivatives, for fdbr's own tests and for anybody's.

`check_grads` compares the derivatives of a function, in every mode and order, with differences
of its values, and batches with loops.  `gradient_property` makes a hypothesis test of it, for
which there are strategies of arrays, trees and keys: they need hypothesis, which is imported
when one of them is called.
"""

from fdbr.testing.checking import check_grads
from fdbr.testing.comparing import assert_allclose
from fdbr.testing.numeric import numerical_grad
from fdbr.testing.properties import gradient_property
from fdbr.testing.reductions import check_reduction
from fdbr.testing.strategies import arrays, broadcastable, keys, trees

__all__ = [
    "arrays",
    "assert_allclose",
    "broadcastable",
    "check_grads",
    "check_reduction",
    "gradient_property",
    "keys",
    "numerical_grad",
    "trees",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
