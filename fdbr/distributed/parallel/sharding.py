"""Whole layers to parts, and back."""

from typing import Any

import attrs

from fdbr import nn, tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.parallel.tensor import TensorAttention, TensorEmbed, TensorLinear
from fdbr.errors.public import public

__all__ = ["shard", "unshard"]


@public("fdbr.distributed")
def shard(layer: Any, comm: Communicator, *, split: str | None = None, whole: bool = False) -> Any:
    """Cut this rank's part out of a layer that all ranks have.

    Parameters
    ----------
    layer
        A `fdbr.nn.Linear`, `fdbr.nn.Embed` or `fdbr.nn.MultiHeadAttention`.
    comm
        The ranks.
    split, whole
        Of a `fdbr.nn.Linear`: as of `TensorLinear`.

    Returns
    -------
    Layer
        A `TensorLinear`, `TensorEmbed` or `TensorAttention`.

    Raises
    ------
    TypeError
        If the layer is another one.
    ValueError
        If it cannot be divided among so many ranks.

    See Also
    --------
    unshard : the way back.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 3, 4)
    >>> def f(comm):
    ...     part = distributed.shard(layer, comm, split="column")
    ...     return part.weight.shape, distributed.unshard(part).weight.shape
    >>> distributed.run_in_threads(f, 2)
    [((2, 3), (4, 3)), ((2, 3), (4, 3))]
    """
    comm = communicator_of("shard", comm)
    if type(layer) is nn.Linear:
        if split is None:
            raise ValueError(
                "fdbr.distributed.shard: say how a Linear is to be divided: split='column', or "
                "split='row' for the one that follows"
            )
        return TensorLinear.of(layer, comm, split=split, whole=whole)
    if split is not None or whole:
        raise ValueError(
            "fdbr.distributed.shard: split and whole are for a Linear alone, not for "
            f"{type(layer).__name__}"
        )
    if type(layer) is nn.Embed:
        return TensorEmbed.of(layer, comm)
    if type(layer) is nn.MultiHeadAttention:
        return TensorAttention.of(layer, comm)
    raise TypeError(
        "fdbr.distributed.shard: layer must be a Linear, an Embed or a MultiHeadAttention, not "
        f"{type(layer).__name__}; of a model, replace its layers one by one"
    )


@public("fdbr.distributed")
def unshard(model: Any) -> Any:
    """Put the parts of all ranks together: the model with whole layers, on all ranks.

    All ranks call it with the same model.  A snapshot of the result can be read without ranks, or
    divided among another number of them.

    Parameters
    ----------
    model
        A tree of layers, some of which are `TensorLinear`, `TensorEmbed` or `TensorAttention`.

    Returns
    -------
    tree
        The same, with `fdbr.nn.Linear`, `fdbr.nn.Embed` and `fdbr.nn.MultiHeadAttention`.

    See Also
    --------
    shard : the other direction, with an example.

    >>> from fdbr import distributed
    >>> distributed.unshard({"rate": 0.1})
    {'rate': 0.1}
    """
    if isinstance(model, TensorLinear | TensorEmbed | TensorAttention):
        return model.unshard()
    if type(model) is tuple or type(model) is list:
        parts = [unshard(part) for part in model]
        same = all(new is old for new, old in zip(parts, model, strict=True))
        return model if same else type(model)(parts)
    if type(model) is dict:
        return {name: unshard(part) for name, part in model.items()}
    if isinstance(model, nn.Layer) and attrs.has(type(model)):
        new = {}
        for name in attrs.fields_dict(type(model)):  # type: ignore[arg-type]
            value = getattr(model, name)
            made = unshard(value)
            if made is not value:
                new[name] = made
        return tree.replace(model, **new) if new else model
    return model
