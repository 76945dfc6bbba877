"""Batch normalisation by the statistics of all ranks, and buffers that agree."""

import math
from collections.abc import Callable
from typing import Any, Self

import attrs
import numpy as np
import optree

from fdbr import nn, ops, tree
from fdbr.distributed.arguments import communicator_of, op_of
from fdbr.distributed.collectives import all_reduce
from fdbr.distributed.communicator import Communicator
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.normalization.batches import averaged
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import is_inexact, outside_buffers, settle
from fdbr.tree import frozen, static

__all__ = ["SyncBatchNorm", "all_reduce_buffers", "sync_batch_norm"]


@public("fdbr.distributed")
@frozen
class SyncBatchNorm(nn.BatchNorm):
    """Batch normalisation whose statistics are those of the batches of all ranks together.

    In training, mean and variance are taken over the elements of all ranks, however many each has:
    the result is that of `fdbr.nn.BatchNorm` on the whole batch, and so is the derivative, in which
    all ranks take part.  A rank whose share of the batch is empty, of shape ``(0, C, ...)``, calls
    it too.  Running statistics are the same on all ranks, to the last bit.

    `sync_batch_norm` makes it of the layers of a model.

    Attributes
    ----------
    weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, axis
        As of `fdbr.nn.BatchNorm`.
    comm
        The ranks.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import distributed
    >>> layer = fdbr.nn.BatchNorm.init(None, 1)
    >>> def f(comm):
    ...     own = distributed.sync_batch_norm(layer, comm)
    ...     y, own = own.train(np.array([[1.0 + 2 * comm.rank]], np.float32))
    ...     return y.round(3).item(), own.running_mean
    >>> distributed.run_in_threads(f, 2)
    [(-1.0, array([0.2], dtype=float32)), (1.0, array([0.2], dtype=float32))]
    """

    comm: Communicator = static(kw_only=True, repr=False)

    @classmethod
    def init(  # type: ignore[override]
        cls, key: Any, num_features: int, *, comm: Communicator, **options: Any
    ) -> Self:
        """A layer with weight 1, bias 0, and running statistics 0 and 1.

        Parameters
        ----------
        key, num_features
            As for `fdbr.nn.BatchNorm.init`.
        comm
            The ranks.
        options
            As for `fdbr.nn.BatchNorm.init`: ``eps``, ``momentum``, ``axis`` and the others.

        Raises
        ------
        TypeError, ValueError
            As of `fdbr.nn.BatchNorm.init`.
        """
        comm = communicator_of("SyncBatchNorm.init", comm)
        made: Self = _synced(nn.BatchNorm.init(key, num_features, **options), comm, cls)
        return made

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """The array normalised by the statistics of all ranks, and the layer that averaged them in.

        Raises
        ------
        ValueError
            If ``x`` does not have as many channels.
        """
        self._check(x)
        x = ops.asarray(x)
        if x.dtype.kind not in "fV":
            raise TypeError(
                placed(
                    f"fdbr.distributed.SyncBatchNorm: x must be real floating, not {describe(x)}"
                )
            )
        wide = np.dtype(np.float64) if x.dtype == np.float64 else np.dtype(np.float32)
        place = self.axis % x.ndim
        axes = tuple(axis for axis in range(x.ndim) if axis != place)
        along = tuple(-1 if axis == place else 1 for axis in range(x.ndim))
        own = ops.astype(x, wide)
        count = math.prod(x.shape) // max(x.shape[place], 1)
        # Sums of single precision are added, and divided, in double.
        total, count = all_reduce((_double(ops.sum(own, axis=axes)), float(count)), self.comm)
        count = ops.maximum(count, 1.0)
        mean = ops.astype(total / count, wide)
        away = own - ops.reshape(mean, along)
        squares = all_reduce(_double(ops.sum(away * away, axis=axes)), self.comm)
        variance = ops.astype(squares / count, wide)
        out, _, _ = ops.batch_norm(
            away,
            _cast(self.weight, wide),
            _cast(self.bias, wide),
            mean=ops.zeros_like(variance),
            variance=variance,
            axis=place,
            eps=self.eps,
        )
        out = ops.astype(out, x.dtype)
        if self.running_mean is None:
            return out, self
        unbiased = squares / ops.maximum(count - 1.0, 1.0)
        new = {"running_mean": (mean, 1.0), "running_var": (unbiased, 1.0)}
        return out, averaged(self, new)


def _double(sums: Any) -> Any:
    return ops.astype(sums, np.float64)


def _cast(parameter: Any, dtype: Any) -> Any:
    return None if parameter is None else ops.astype(parameter, dtype)


@public("fdbr.distributed")
def sync_batch_norm(model: Any, comm: Communicator | None) -> Any:
    """A model whose batch normalisation takes the statistics of all ranks; or of one again.

    Parameters
    ----------
    model
        A tree of layers.
    comm
        The ranks: each `fdbr.nn.BatchNorm` in it, of just that class, becomes a `SyncBatchNorm`.
        With `None`, each `SyncBatchNorm` becomes a `fdbr.nn.BatchNorm`.

    Returns
    -------
    tree
        The model with other layers, and the same arrays.

    Raises
    ------
    TypeError
        If ``comm`` is no communicator.

    >>> import fdbr
    >>> from fdbr import distributed, nn
    >>> model = nn.Sequential(nn.Linear.init(fdbr.random.key(0), 3, 2), nn.BatchNorm.init(None, 2))
    >>> synced = distributed.sync_batch_norm(model, distributed.serial())
    >>> type(synced.layers[1]).__name__
    'SyncBatchNorm'
    >>> distributed.sync_batch_norm(synced, None) == model
    True
    """
    if comm is not None:
        comm = communicator_of("sync_batch_norm", comm)

    def other(layer: Any) -> Any:
        if comm is None:
            return _local(layer) if type(layer) is SyncBatchNorm else layer
        if type(layer) in (nn.BatchNorm, SyncBatchNorm):
            return _synced(layer, comm, SyncBatchNorm)
        return layer

    return _mapped(other, model)


def _mapped(other: Callable[[Any], Any], model: Any) -> Any:
    """A tree with other layers in the place of batch normalisation."""
    settle()
    return optree.tree_map(
        lambda node: other(node) if isinstance(node, nn.BatchNorm) else node,
        model,
        is_leaf=lambda node: isinstance(node, nn.BatchNorm),
        none_is_leaf=True,
        namespace=NAMESPACE,
    )


_FIELDS = tuple(field.name for field in attrs.fields(nn.BatchNorm))  # type: ignore[arg-type]


def _synced(layer: Any, comm: Communicator, cls: Any) -> Any:
    return cls(**{name: getattr(layer, name) for name in _FIELDS}, comm=comm)


def _local(layer: Any) -> nn.BatchNorm:
    return nn.BatchNorm(**{name: getattr(layer, name) for name in _FIELDS})


@public("fdbr.distributed")
def all_reduce_buffers(model: Any, comm: Communicator, op: str = "mean") -> Any:
    """A model whose running statistics, and other buffers, are those of all ranks.

    It is for layers whose ranks continue by themselves, such as `fdbr.nn.BatchNorm`: call it before
    the model is evaluated or saved.  `SyncBatchNorm` does not need it.

    Parameters
    ----------
    model
        A tree of layers.
    comm
        The ranks.
    op
        What is taken over the ranks: ``"mean"``, ``"sum"``, ``"max"`` or ``"min"``.

    Returns
    -------
    tree
        The model with other floating arrays in its `fdbr.buffer` fields; everything else, integers
        among it, stays as it is.

    Raises
    ------
    MismatchError
        If ranks have other models.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> def f(comm):
    ...     layer = fdbr.nn.BatchNorm.init(None, 1)
    ...     layer = fdbr.tree.replace(layer, running_mean=layer.running_mean + comm.rank)
    ...     return distributed.all_reduce_buffers(layer, comm).running_mean
    >>> distributed.run_in_threads(f, 2)
    [array([0.5], dtype=float32), array([0.5], dtype=float32)]
    """
    comm = communicator_of("all_reduce_buffers", comm)
    op = op_of("all_reduce_buffers", op)
    leaves, structure = tree.flatten(model)
    chosen = [
        i
        for i, outside in enumerate(outside_buffers(structure))
        if not outside and is_inexact(leaves[i])
    ]
    for i, value in zip(chosen, all_reduce([leaves[i] for i in chosen], comm, op), strict=True):
        leaves[i] = value
    return tree.unflatten(structure, leaves)
