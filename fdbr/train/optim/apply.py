"""The step from updates to new parameters."""

from typing import Any

import numpy as np
import optree

from fdbr import ops
from fdbr.core.array_modules import lock, where_it_lies
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.train.optim.fitting import Parameters

__all__ = ["apply_updates"]


@public("fdbr.train.optim")
def apply_updates(params: Any, updates: Any) -> Any:
    """The parameters plus their updates.

    Parameters
    ----------
    params
        A tree of parameters.
    updates
        A tree of the same structure.  If an update is `None`, the parameter stays the very object
        it is.  If a parameter is `None`, its update is ignored, as in Optax.

    Returns
    -------
    tree
        New parameters, read-only, each of the shape and dtype that it had.

    Raises
    ------
    ValueError
        If the structures or shapes differ, an integer parameter has an update that is not of its
        dtype, or a real one has a complex update.

    >>> apply_updates({"w": 1.0, "steps": 3}, {"w": 0.5, "steps": None})
    {'w': 1.5, 'steps': 3}
    """
    if params is None:
        return None
    parameters = Parameters("apply_updates", params)
    try:
        found = parameters.beside("updates", updates)
    except ValueError:
        found = parameters.beside("updates", _without_params_of_none(params, updates))
    new = []
    for index, (leaf, step) in enumerate(zip(parameters.leaves, found)):  # noqa: B905
        if type(leaf) is type(step) is np.ndarray and _alike(leaf, step):  # the usual case
            total = leaf + step
            new.append(lock(total))
        else:
            new.append(leaf if step is None else lock(_sum(parameters, index, leaf, step)))
    return parameters.unflatten(new)


def _without_params_of_none(params: Any, updates: Any) -> Any:
    """Return the updates with `None` wherever a parameter is `None`; others as they are."""
    try:
        return optree.tree_map(
            lambda p, step: None if p is None else step,
            params,
            updates,
            none_is_leaf=True,
            namespace=NAMESPACE,
        )
    except ValueError:  # the structures differ elsewhere, which the caller reports
        return updates


def _alike(leaf: Any, step: Any) -> bool:
    return leaf.dtype is step.dtype and leaf.shape == step.shape


@where_it_lies
def _plus(leaf: Any, step: Any) -> Any:
    return leaf + step


def _sum(parameters: Parameters, index: int, leaf: Any, step: Any) -> Any:
    try:
        total = _plus(leaf, step)
    except ValueError as error:
        if getattr(step, "shape", ()) == getattr(leaf, "shape", ()):
            raise
        raise parameters.misfit("updates", index, step) from error
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:  # a Python number
        if isinstance(leaf, int) and (isinstance(leaf, bool) or not isinstance(step, int)):
            raise parameters.misfit("updates", index, step)
        if np.iscomplexobj(total) and not isinstance(leaf, complex):
            raise parameters.misfit("updates", index, step)
        return total
    if total.shape != leaf.shape:
        raise parameters.misfit("updates", index, step)
    if total.dtype is dtype or total.dtype == dtype:
        return total
    kinds = dtype_kind(dtype), dtype_kind(total.dtype)
    if kinds[0] not in "fc" or kinds == ("f", "c"):
        raise parameters.misfit("updates", index, step)
    return ops.astype(total, dtype)
