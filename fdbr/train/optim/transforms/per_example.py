"""Gradients of single examples, shortened and added up: for differential privacy."""

from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.optim.numbers import check_positive

__all__ = ["per_example_global_norm_clip"]


@public("fdbr.train.optim")
def per_example_global_norm_clip(grads: Any, l2_norm_clip: float) -> tuple[Any, Any]:
    """The sum of gradients of single examples, each shortened to a norm (Abadi et al. 2016).

    Parameters
    ----------
    grads
        A tree of arrays whose first axis is that of the examples, as
        ``fdbr.vmap(fdbr.grad(loss), (None, 0))(params, batch)`` gives it.
    l2_norm_clip
        The largest norm of the gradients of one example, all leaves together; a number ≥ 0.

    Returns
    -------
    tree, int
        The sums over the examples, and the number of examples that were shortened.

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
    leaves = tree.leaves(grads)
    sizes = {leaf.shape[0] if getattr(leaf, "shape", ()) else None for leaf in leaves}
    if len(sizes) != 1 or None in sizes:
        raise ValueError(
            "fdbr.train.optim.per_example_global_norm_clip: the leaves must have one first axis, "
            f"that of the examples, got {', '.join(map(describe, leaves)) or 'none'}"
        )
    rows = [ops.reshape(leaf, (leaf.shape[0], -1)) for leaf in leaves]
    norms = ops.linalg.vector_norm(
        ops.stack([ops.linalg.vector_norm(row, axis=1) for row in rows]), axis=0
    )
    long = norms > l2_norm_clip
    factors = ops.where(long, l2_norm_clip / ops.where(long, norms, 1.0), 1.0)

    def summed(leaf: Any) -> Any:
        return lock(ops.tensordot(ops.astype(factors, leaf.dtype), leaf, axes=1))

    return tree.map(summed, grads), ops.sum(long)
