"""A preconditioner for each axis: Shampoo."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_short
from fdbr.train.optim.arithmetic import square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.tree import frozen

__all__ = ["ScaleByShampooState", "scale_by_shampoo", "shampoo"]


@public("fdbr.train.optim")
@frozen
class ScaleByShampooState:
    """The state of `scale_by_shampoo`.

    Attributes
    ----------
    count
        The number of updates made.
    statistics
        For each parameter a list, with a matrix for each axis, or a vector for a long one.
    roots
        Their inverse roots, as of the last time they were computed.
    """

    count: int
    statistics: Any
    roots: Any


@public_factory("fdbr.train.optim")
def scale_by_shampoo(
    eps: float = 1e-4, update_period: int = 1, max_preconditioner_dim: int = 1024
) -> Optimizer:
    """Multiply each axis of gradients by the inverse root of their products (Gupta et al. 2018).

    Formula, of a matrix, with ``left`` and ``right`` at first ``eps`` times the identity::

        left = left + gradient @ gradient.T
        right = right + gradient.T @ gradient
        update = left**(-1/4) @ gradient @ right**(-1/4)

    Of an array of ``k`` axes, the sum of products along each other axis is taken to the power
    ``-1 / (2 * k)``.

    Parameters
    ----------
    eps
        A number > 0.
    update_period
        The number of updates after which the roots are computed anew, which is what takes long.
    max_preconditioner_dim
        The greatest length of an axis that has a whole matrix; longer ones have its diagonal.

    Raises
    ------
    ValueError
        If an argument is out of range.

    >>> import numpy as np
    >>> transformation = scale_by_shampoo(1e-12)
    >>> g = np.diag([4.0, 0.5])
    >>> transformation.update(g, transformation.init(g))[0].round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    check_positive(
        "scale_by_shampoo", eps=eps, update_period=update_period, longest=max_preconditioner_dim
    )

    eps = float(eps)

    def init(p: Any) -> Any:
        shape = getattr(p, "shape", ())
        p = ops.astype(p, "float32") if is_short(p) else p  # sums of products need the room
        first = ops.reshape(ops.sum(zeros(p)), (1,))
        matrices = [
            eps * ops.eye(n, dtype=getattr(p, "dtype", None), device=getattr(p, "device", None))
            if n <= max_preconditioner_dim
            else eps + ops.repeat(first, n)
            for n in shape
        ]
        return matrices, [matrix + 0 for matrix in matrices]  # which the first update replaces

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        if not getattr(g, "size", 1):
            return g, own  # no products, and no greatest of their roots
        statistics = [_added(total, g, axis) for axis, total in enumerate(own[0])]
        if update_period == 1 or t % update_period == 1:  # else a second trace of a jitted step
            roots = [_root(total, g.ndim) for total in statistics]
        else:
            roots = own[1]
        change = g
        for axis, root in enumerate(roots):
            change = _times(root, change, axis)
        return change, (statistics, roots)

    return leafwise("scale_by_shampoo", update, init, state=ScaleByShampooState, fits="any")


def _rows(g: Any, axis: int) -> Any:
    """The array as a matrix, whose rows lie along an axis."""
    return ops.reshape(ops.moveaxis(g, axis, 0), (g.shape[axis], -1))


def _added(total: Any, g: Any, axis: int) -> Any:
    rows = _rows(g, axis)
    return total + (rows @ ops.conj(rows).T if total.ndim == 2 else ops.sum(square(rows), axis=1))


def _root(total: Any, axes: int) -> Any:
    """The inverse root of a matrix, or of the diagonal of one."""
    power = -1 / (2 * axes)
    if total.ndim == 1:
        return total**power
    values, vectors = ops.linalg.eigh(total)
    least = ops.max(values) * 1e-30
    return (vectors * ops.maximum(values, least) ** power) @ ops.conj(vectors).T


def _times(root: Any, g: Any, axis: int) -> Any:
    rows = _rows(g, axis)
    product = root @ rows if root.ndim == 2 else root[:, None] * rows
    shape = (g.shape[axis], *g.shape[:axis], *g.shape[axis + 1 :])
    return ops.moveaxis(ops.reshape(product, shape), 0, axis)


@public_factory("fdbr.train.optim")
def shampoo(
    learning_rate: LearningRate,
    eps: float = 1e-4,
    update_period: int = 1,
    max_preconditioner_dim: int = 1024,
) -> Optimizer:
    """Shampoo (Gupta, Koren & Singer, ICML 2018).

    It is `scale_by_shampoo`, whose other arguments these are, then the learning rate.

    >>> import numpy as np
    >>> optimizer, g = shampoo(0.1, 1e-12), np.diag([4.0, 0.5])
    >>> np.diag(optimizer.update(g, optimizer.init(g))[0]).round(3)
    array([-0.1, -0.1])
    """
    return chain(
        scale_by_shampoo(eps, update_period, max_preconditioner_dim),
        scale_by_learning_rate(learning_rate),
    )
