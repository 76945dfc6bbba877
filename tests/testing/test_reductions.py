"""`check_reduction` finds what is no reduction."""

import numpy as np
import pytest
from ops.declared import first_largest, log_sum, product, variance

from fdbr import ops
from fdbr.ops.declare import reduction
from fdbr.testing import check_reduction

X = np.linspace(-1.0, 2.0, 7)


def test_reductions_pass():
    for reduce in (log_sum, product, variance):
        check_reduction(reduce, X)
    check_reduction(first_largest, X.round(), np.arange(7))
    check_reduction(reduction(lambda x, *, p: abs(x) ** p, combine=ops.add, identity=0), X, p=3)


WRONG = {
    "combine is not commutative": reduction(lambda x: (x, x), combine=lambda a, b: (a[0], b[1])),
    "combine is not associative": reduction(lambda x: x, combine=lambda a, b: a * a + b * b),
    r"part 1, element \[\d\] is": reduction(
        lambda x: (x, x), combine=lambda a, b: (a[0] + b[0], abs(a[1] - b[1]))
    ),
    "identity is none": reduction(lambda x: x, combine=lambda a, b: a * b, identity=0),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_none_is_named(message):
    with pytest.raises(AssertionError, match=message):
        check_reduction(WRONG[message], X)


def test_what_was_not_declared_is_refused():
    with pytest.raises(TypeError, match=r"check_reduction: reduce must be made by .*function"):
        check_reduction(ops.sum, X)
