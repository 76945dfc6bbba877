"""Updates that keep something true: no NaN in gradients, no parameter below zero."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.transforms.clipping import refuse_complex
from fdbr.tree import frozen

__all__ = ["ZeroNansState", "keep_params_nonnegative", "zero_nans"]


@public("fdbr.train.optim")
@frozen
class ZeroNansState:
    """The state of `zero_nans`.

    Attributes
    ----------
    found_nan
        A tree of the parameters' shape: for each leaf, whether its last gradient had a NaN; `None`
        for what is not trained.
    """

    found_nan: Any


@public_factory("fdbr.train.optim")
def zero_nans() -> Optimizer:
    """Put 0 in the place of each NaN; the state tells which leaves had one.

    `apply_if_finite` skips the whole update instead, which is nearly always better: a NaN is a
    sign that the other numbers are wrong, too.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> params = np.zeros(2)
    >>> updates, state = optim.zero_nans().update(
    ...     np.array([1.0, np.nan]), optim.zero_nans().init(params), params
    ... )
    >>> updates, bool(state.found_nan)
    (array([1., 0.]), True)
    """

    def init(p: Any) -> tuple[Any]:
        return (ops.any(ops.isnan(ops.zeros_like(ops.asarray(p)))),)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        missing = ops.isnan(ops.asarray(g))
        return ops.where(missing, 0, g), (ops.any(missing),)

    return leafwise("zero_nans", update, init, state=ZeroNansState, fits="any")


@public_factory("fdbr.train.optim")
def keep_params_nonnegative() -> Optimizer:
    """Stop parameters at zero; it belongs at the end of a chain.

    Formula: ``update = -parameter`` where ``parameter + update < 0``.  Parameters that are negative
    already become zero.

    Raises
    ------
    TypeError
        By ``update``, if there are no parameters, or one is complex.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> kept = optim.keep_params_nonnegative()
    >>> kept.update(np.array([-2.0, 0.5]), optim.EmptyState(), np.array([1.0, 1.0]))[0]
    array([-1. ,  0.5])
    """

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        refuse_complex("keep_params_nonnegative", g)
        return ops.where(p + g < 0, -p, g), own

    return leafwise("keep_params_nonnegative", update, needs_params=True)
