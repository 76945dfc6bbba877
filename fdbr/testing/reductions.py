"""Whether what a reduction is declared by is what a reduction needs."""

from typing import Any

import numpy as np

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare.user_reductions import Combine
from fdbr.testing.comparing import assert_allclose

__all__ = ["check_reduction"]


@public("fdbr.testing")
def check_reduction(
    reduce: Any, *operands: Any, rtol: float | None = None, atol: float | None = None, **params: Any
) -> None:
    """Check that a reduction joins elements in whatever order, and that its identity is one.

    Whoever joins by halves, or on several threads, relies on that.  The states of the operands'
    elements are joined in pairs and triples; all parts of the results must agree.

    Parameters
    ----------
    reduce
        What `fdbr.ops.declare.reduction` has made.
    operands
        Arrays as it takes them, of a few elements.
    rtol, atol
        Tolerances, as `assert_allclose` takes them.
    params
        Keywords of the function that maps the operands.

    Raises
    ------
    AssertionError
        If ``combine`` is not associative, not commutative, or changed by ``identity``; the message
        says which, and names the worst element.
    TypeError
        If ``reduce`` is no reduction.

    >>> import numpy as np
    >>> from fdbr.ops.declare import reduction
    >>> check_reduction(reduction(lambda x: x, combine=lambda a, b: a + b - a * b), np.eye(2) / 3)
    >>> check_reduction(reduction(lambda x: x, combine=lambda a, b: (a + b) / 2), np.eye(2))
    Traceback (most recent call last):
        ...
    AssertionError: <lambda>: combine is not associative, combine(combine(a, b), c) is not
    combine(a, combine(b, c)): element [2] is 0.5, not 0.25: they differ by 0.25, and 1.25e-11
    is allowed (2 of 4 elements differ)
    """
    declared = getattr(reduce, "declared", None)
    if declared is None:
        raise TypeError(
            "fdbr.testing.check_reduction: reduce must be made by fdbr.ops.declare.reduction, not "
            f"{describe(reduce)}"
        )
    a = tuple([x.reshape(-1) for x in declared.states(operands, params)])
    b, c = (tuple([np.roll(x, shift) for x in a]) for shift in (1, 3))
    combine = Combine(declared.combine, declared.name)

    def compare(found: Any, wanted: Any, law: str) -> None:
        for i, (mine, other) in enumerate(zip(found, wanted, strict=True)):
            try:
                assert_allclose(mine, other, rtol, atol)
            except AssertionError as error:
                part = f"part {i}, " if len(a) > 1 else ""
                raise AssertionError(f"{declared.name}: {law}: {part}{error}") from None

    law = "combine is not commutative, combine(a, b) is not combine(b, a)"
    compare(combine(a, b), combine(b, a), law)
    law = "combine is not associative, combine(combine(a, b), c) is not combine(a, combine(b, c))"
    compare(combine(combine(a, b), c), combine(a, combine(b, c)), law)
    if declared.identity is not None:
        identity = declared.identities(a, "of the check")
        same = tuple([np.full_like(x, e) for x, e in zip(a, identity, strict=True)])
        compare(combine(same, a), a, "identity is none, combine(identity, a) is not a")
