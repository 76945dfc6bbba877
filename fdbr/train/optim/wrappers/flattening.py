"""Many small parameters as a few vectors."""

from typing import Any

import numpy as np
import optree

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.pytrees.classes import NAMESPACE
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import in_dtypes_of
from fdbr.train.optim.masking import check_inner

__all__ = ["flatten"]


@public_factory("fdbr.train.optim")
def flatten(inner: Optimizer) -> Optimizer:
    """An optimizer of one vector for each dtype, in which all parameters stand.

    That saves time where there are very many small ones, and makes one block of them for rules
    that go by blocks.

    Parameters
    ----------
    inner
        An optimizer or transformation; it is given dicts from the names of dtypes to vectors.

    Returns
    -------
    Optimizer

    Raises
    ------
    TypeError
        If ``inner`` is no `Optimizer`.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> together = optim.flatten(optim.clip_by_block_norm(1.0))
    >>> params = {"w": np.zeros((1, 2)), "b": np.zeros(1), "steps": 3}
    >>> grads = {"w": np.array([[2.0, 4.0]]), "b": np.array([4.0]), "steps": None}
    >>> updates, state = together.update(grads, together.init(params), params)
    >>> round(float(optim.global_norm(updates)), 9), updates["steps"]
    (1.0, None)
    """
    check_inner("flatten", inner)

    def init(params: Any) -> Any:
        return inner.init(_vectors(params, tree.trainable(params)))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        own = None if params is None else _vectors(params, grads)
        grads = in_dtypes_of("flatten", params, grads)
        vectors, state = inner.update(_vectors(grads, grads), state, own, **extra)
        return _parts(vectors, grads), state

    return Optimizer(init, update)


def _vectors(values: Any, present: Any) -> dict[str, Any]:
    """The leaves of a tree where another one is not `None`, joined by their dtypes."""
    found: dict[str, list[Any]] = {}
    for leaf in tree.leaves(tree.map(lambda there, leaf: leaf, present, values)):
        array = ops.asarray(leaf)
        found.setdefault(_name(array), []).append(ops.reshape(array, (-1,)))
    return {name: lock(ops.concat(parts)) for name, parts in found.items()}


def _name(array: Any) -> str:
    return str(np.dtype(array.dtype).name)


def _parts(vectors: dict[str, Any], like: Any) -> Any:
    """The leaves of a tree from vectors that `_vectors` made of it."""
    starts = dict.fromkeys(vectors, 0)
    leaves, shape = optree.tree_flatten(like, none_is_leaf=True, namespace=NAMESPACE)
    found: list[Any] = []
    for leaf in leaves:
        if leaf is None:
            found.append(None)
            continue
        array = ops.asarray(leaf)
        name, size = _name(array), int(np.prod(array.shape))
        part = vectors[name][starts[name] : starts[name] + size]
        starts[name] += size
        part = ops.reshape(part, array.shape)
        found.append(float(part) if type(leaf) is float else lock(part))
    return optree.tree_unflatten(shape, found)
