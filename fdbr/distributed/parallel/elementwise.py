"""Optimizers that can work on parts of arrays, found by trying."""

from typing import Any

import numpy as np

from fdbr import tree
from fdbr.distributed.parallel.parameters import Shard, shards
from fdbr.distributed.parallel.parts import own_part
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.train.optim.arithmetic import in_parts
from fdbr.train.optim.base import Optimizer

__all__ = ["check_divisible"]

_HALVES = 2
_SCALES = (1.0, 1e6)  # of gradients: the second is clipped by what clips


def check_divisible(optimizer: Optimizer, params: Any) -> None:
    """Raise if updates of halves are other ones than the halves of updates, on small arrays.

    Norms, which are summed over ranks, are those of the whole.
    """
    small = _small(params)
    lengths: list[Any] = []

    def noted(number: Any) -> Any:
        lengths.append(number)
        return number

    try:
        whole = _updates(optimizer, small, noted)
        halves = [_half(optimizer, small, lengths, i) for i in range(_HALVES)]
    except Exception as error:
        raise ValueError(f"{_TEXT}; tried on parts of arrays it raises: {error}") from error
    for leaves in zip(tree.leaves(whole), *map(tree.leaves, halves), strict=True):
        wanted = np.ravel(leaves[0])
        found = np.concatenate(leaves[1:])[: wanted.size]
        if not np.allclose(found, wanted, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ValueError(_TEXT)


_TEXT = (
    "fdbr.distributed.sharded: the optimizer needs whole arrays (their shapes, rows, order or "
    "other elements), so it cannot work on parts of them; use one that works element by element "
    "or by norms, such as adam, sgd, lamb or clip_by_global_norm, or "
    "average_gradients with this one"
)


def _half(optimizer: Optimizer, small: Any, lengths: list[Any], which: int) -> Any:
    known = iter(lengths)
    cut = [tree.map(lambda leaf: own_part(leaf, which, _HALVES), one) for one in small]
    return _updates(optimizer, cut, lambda number: next(known))


def _updates(optimizer: Optimizer, given: Any, add: Any) -> Any:
    params, *gradients = given
    state = optimizer.init(params)
    found = []
    with in_parts(add):
        for grads in gradients:
            updates, state = optimizer.update(grads, state, params)
            found.append(updates)
    return found


def _small(params: Any) -> list[Any]:
    """Small parameters of the same structure and numbers of axes, and gradients."""
    trained = tree.trainable(params)
    leaves, structure = shards(trained)
    shapes = []
    large = False
    for leaf in leaves:
        shape = tuple(getattr(leaf, "shape", ()))
        # What factors large matrices shall see one.
        limit = 3 if large or len(shape) < 2 or min(shape[-2:]) < 128 else 130
        large = large or limit > 3
        shapes.append((*(min(n, 2) for n in shape[:-2]), *(min(n, limit) for n in shape[-2:])))
    made = []
    for iteration, scale in enumerate((1.0, *_SCALES)):
        values = [
            _numbers(shape, leaf, index + 7 * iteration) * scale
            for index, (shape, leaf) in enumerate(zip(shapes, leaves, strict=True))
        ]
        made.append(tree.unflatten(structure, values))
    return made


def _numbers(shape: tuple[int, ...], leaf: Any, start: int) -> Any:
    count = np.arange(1.0, int(np.prod(shape)) + 1)
    numbers = (np.cos(count * 1.7 + start) + 0.1).reshape(shape)
    dtype = getattr(leaf.values if isinstance(leaf, Shard) else leaf, "dtype", None)
    return numbers * (1 + 0.5j) if dtype is not None and dtype_kind(dtype) == "c" else numbers
