"""Gradients of single examples, clipped and added up: for differential privacy."""

from typing import Any

import numpy as np

from fdbr import ops, random, tree
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_short
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import Parameters, check_state
from fdbr.train.optim.numbers import check_positive
from fdbr.train.optim.transforms.adding import check_noise_key, noise_like
from fdbr.tree import frozen

__all__ = [
    "DifferentiallyPrivateAggregateState",
    "differentially_private_aggregate",
    "per_example_global_norm_clip",
]


@public("fdbr.train.optim")
def per_example_global_norm_clip(grads: Any, l2_norm_clip: float) -> tuple[Any, Any]:
    """Clip the gradient of each example and return the sums (Abadi et al. 2016).

    It is a function of gradients, not a gradient transformation: it has no ``init`` and ``update``
    and cannot be a part of a `chain`.  `differentially_private_aggregate` is the transformation.

    Parameters
    ----------
    grads
        A tree of arrays with the examples along their first axis, as
        ``fdbr.vmap(fdbr.grad(loss), (None, 0))(params, batch)`` returns it.
    l2_norm_clip
        The largest norm of the gradient of one example, all leaves together; a number ≥ 0.

    Returns
    -------
    tree, int
        The sums over the examples, and the number of examples that were clipped.

    Raises
    ------
    ValueError
        If the leaves have not the same number of examples, or ``l2_norm_clip`` is negative.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> sums, count = optim.per_example_global_norm_clip([np.array([[3.0, 4.0], [0.3, 0.4]])], 1.0)
    >>> sums[0], int(count)
    (array([0.9, 1.2]), 1)
    """
    check_positive("per_example_global_norm_clip", or_zero=True, l2_norm_clip=l2_norm_clip)
    leaves, structure = tree.flatten(grads)
    sums, count, _ = _clipped_sums("per_example_global_norm_clip", leaves, l2_norm_clip)
    return tree.unflatten(structure, list(map(lock, sums))), count


@public("fdbr.train.optim")
@frozen
class DifferentiallyPrivateAggregateState:
    """The state of `differentially_private_aggregate`.

    Attributes
    ----------
    rng_key
        The key of the next noise.
    """

    rng_key: Any


@public_factory("fdbr.train.optim")
def differentially_private_aggregate(
    l2_norm_clip: float, noise_multiplier: float, key: Any
) -> Optimizer:
    """Aggregate gradients of single examples with differential privacy: DP-SGD (Abadi et al. 2016).

    Formula, with ``g[i]`` the gradient of example ``i`` and ``norm`` over all leaves::

        update = (sum(g[i] * min(1, l2_norm_clip / norm(g[i]))) + noise) / number of examples

    The noise is Gaussian, of standard deviation ``l2_norm_clip * noise_multiplier``, independent
    for each element.  It is the first transformation of a `chain`: the gradients that it takes
    have one more axis than the updates.

    Parameters
    ----------
    l2_norm_clip
        The largest norm of the gradient of one example, all leaves together; a number ≥ 0.
    noise_multiplier
        The ratio of the standard deviation to ``l2_norm_clip``; a number ≥ 0.
    key
        A key of `fdbr.random`.  The noise of each step and of each leaf follows from it.  The state
        holds the next key, so that a resumed run has the noise of an uninterrupted one.

    Returns
    -------
    Optimizer
        Its ``update(grads, state, params=None)`` takes gradients of single examples, with the
        examples along the first axis of every leaf: ``fdbr.vmap(fdbr.grad(loss), (None, 0))(params,
        batch)``.  The updates have the shapes and dtypes of the parameters.

    Raises
    ------
    ValueError
        If a number is negative; by ``update``, if the leaves have not the same number of examples,
        there is no example, or the gradient of one example has not the shape of its parameter.
    TypeError
        If ``key`` is not a key.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> private = optim.differentially_private_aggregate(1.0, 0.0, fdbr.random.key(0))
    >>> optimizer = optim.chain(private, optim.sgd(0.1))
    >>> params = np.zeros(2)
    >>> grads = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    array([-0.045, -0.06 ])
    """
    name = "differentially_private_aggregate"
    check_positive(name, or_zero=True, l2_norm_clip=l2_norm_clip, noise_multiplier=noise_multiplier)
    check_noise_key(name, key)

    def init(params: Any) -> DifferentiallyPrivateAggregateState:
        return DifferentiallyPrivateAggregateState(key)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(name, state, DifferentiallyPrivateAggregateState)
        parameters = Parameters(name, params, grads)
        found = parameters.beside("gradients", grads)
        places = [index for index, g in enumerate(found) if g is not None]
        rng_key, own = random.split(state.rng_key)
        new = DifferentiallyPrivateAggregateState(rng_key)
        if not places:
            return parameters.unflatten(found), new
        sums, _, count = _clipped_sums(name, [found[index] for index in places], l2_norm_clip)
        if not count:
            raise ValueError(
                f"fdbr.train.optim.{name}: the gradients have no example; leave out empty batches"
            )
        deviation = l2_norm_clip * noise_multiplier
        for index, total in zip(places, sums, strict=True):
            noise = noise_like(random.fold_in(own, index), total)
            found[index] = lock((total + deviation * noise) / count)
        if params is not None:
            found = parameters.gradients(parameters.unflatten(found))
        else:
            given = parameters.leaves
            for index in places:
                if is_short(given[index]):
                    found[index] = lock(ops.astype(found[index], given[index].dtype))
        return parameters.unflatten(found), new

    return Optimizer(init, update)


def _clipped_sums(function: str, leaves: list[Any], longest: Any) -> tuple[list[Any], Any, int]:
    """Return the sums of clipped rows, how many rows were clipped, and how many rows there are.

    Sums of 16-bit gradients are float32, and sums of integers are float64.
    """
    sizes = {leaf.shape[0] if getattr(leaf, "shape", ()) else None for leaf in leaves}
    count = sizes.pop() if len(sizes) == 1 else None
    if count is None:
        raise ValueError(
            f"fdbr.train.optim.{function}: the gradients must have the examples along the first "
            "axis of every leaf, as fdbr.vmap(fdbr.grad(loss), (None, 0))(params, batch) returns "
            f"them, got {', '.join(map(describe, leaves)) or 'none'}"
        )
    wide = [_wide(leaf) for leaf in leaves]
    rows = [ops.reshape(leaf, (count, int(np.prod(leaf.shape[1:])))) for leaf in wide]
    lengths = [ops.linalg.vector_norm(row, axis=1) for row in rows]
    norms = ops.linalg.vector_norm(ops.stack(lengths), axis=0)
    long = norms > longest
    factors = ops.where(long, longest / ops.where(long, norms, 1.0), 1.0)
    sums = [ops.tensordot(ops.astype(factors, leaf.dtype), leaf, axes=1) for leaf in wide]
    return sums, ops.sum(long), count


def _wide(leaf: Any) -> Any:
    if is_short(leaf):
        return ops.astype(leaf, "float32")
    return leaf if dtype_kind(leaf.dtype) in "fc" else ops.astype(leaf, "float64")
