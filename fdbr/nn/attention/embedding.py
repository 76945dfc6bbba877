"""Embedding tables, for integers and for positions in a sequence."""

from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.ops.dtypes import is_traced
from fdbr.tree import buffer, frozen, static

__all__ = ["Embed", "PositionalEmbedding", "SinusoidalEmbedding"]


@public("fdbr.nn")
@frozen
class Embed(Layer):
    """A table of vectors, one for each of the integers ``0 … num_embeddings - 1``.

    Attributes
    ----------
    weight
        Shape ``(num_embeddings, features)``, as in PyTorch.
    padding_idx
        The row that is not trained, as in PyTorch; a negative number counts from the end.
    ignore_label
        An integer, in the table or not, that gives zeros, as in Chainer (-1, mostly).

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Embed.init(fdbr.random.key(0), 10, 4, ignore_label=-1)
    >>> layer(np.array([[1, 2, -1]])).shape
    (1, 3, 4)
    """

    weight: Any
    padding_idx: int | None = static(default=None)
    ignore_label: int | None = static(default=None)

    @classmethod
    def init(
        cls,
        key: Any,
        num_embeddings: int,
        features: int,
        *,
        padding_idx: int | None = None,
        ignore_label: int | None = None,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a table of fresh vectors.

        Parameters
        ----------
        key
            A random key.
        num_embeddings
            The number of rows of the table.
        features
            The length of each row.
        padding_idx
            A row of zeros, which is not trained.
        ignore_label
            An integer that gives zeros.
        weight_init
            ``init(key, shape, dtype)``; by default normal numbers of variance 1.
        dtype
            The dtype of the table.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or ``padding_idx`` is out of range.
        """
        where = "fdbr.nn.Embed.init"
        count = integer(where, "num_embeddings", num_embeddings, least=1)
        shape = count, integer(where, "features", features, least=1)
        weight = (weight_init or initializers.normal(1.0))(key, shape, dtype)
        if padding_idx is not None:
            padding_idx = integer(where, "padding_idx", padding_idx)
            if not -count <= padding_idx < count:
                raise ValueError(
                    f"{where}: padding_idx {padding_idx} is no row of a table of {count}; for an "
                    "integer outside it that gives zeros, give it as ignore_label"
                )
            padding_idx %= count
            xp = array_module(weight)
            weight = lock(weight * (xp.arange(count) != padding_idx)[:, None].astype(dtype))
        if ignore_label is not None:
            ignore_label = integer(where, "ignore_label", ignore_label)
        return cls(weight, padding_idx, ignore_label)

    def __call__(self, x: Any) -> Any:
        """Look up the rows for integers ``x``; the result has shape ``x.shape + (features,)``.

        Raises
        ------
        TypeError, ValueError
            If ``x`` does not hold integers, or one is out of range.
        """
        return ops.embed(
            self.weight, x, padding_idx=self.padding_idx, ignore_label=self.ignore_label
        )

    def attend(self, x: Any) -> Any:
        """Return the dot product of each vector with each row: logits with tied embeddings.

        Parameters
        ----------
        x
            Shape ``(..., features)``.

        Returns
        -------
        array
            Shape ``(..., num_embeddings)``.

        Raises
        ------
        ValueError
            If ``x`` has another last length.
        """
        return ops.linear(x, self.weight)


@public("fdbr.nn")
@frozen
class PositionalEmbedding(Layer):
    """A trained vector for each position in a sequence, which is added to the input.

    Attributes
    ----------
    weight
        Shape ``(length, features)``.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.PositionalEmbedding.init(fdbr.random.key(0), 10, 4)
    >>> layer(np.zeros((2, 7, 4), "float32")).shape
    (2, 7, 4)
    """

    weight: Any

    @classmethod
    def init(
        cls,
        key: Any,
        length: int,
        features: int,
        *,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a table of fresh vectors.

        Parameters
        ----------
        key
            A random key.
        length
            The number of positions.
        features
            The length of each vector.
        weight_init
            ``init(key, shape, dtype)``; by default normal numbers of standard deviation 0.02.
        dtype
            The dtype of the table.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        shape = _sizes("PositionalEmbedding", length, features)
        return cls((weight_init or initializers.normal(0.02))(key, shape, dtype))

    def __call__(self, x: Any, *, offset: Any = 0) -> Any:
        """Add the vectors of its positions to ``x``, of shape ``(..., length, features)``.

        Parameters
        ----------
        x
            Vectors, at most as many as the table has rows.
        offset
            The position of the first vector, an integer.

        Raises
        ------
        ValueError
            If a position is beyond the table, or the vectors have another length.
        """
        return _placed_at(self, x, self.weight, offset)


@public("fdbr.nn")
@frozen
class SinusoidalEmbedding(Layer):
    """Sines and cosines of each position in a sequence, which are added to the input.

    Vaswani et al., *Attention is all you need*, NIPS 2017; see `ops.sinusoidal_embedding`.

    Attributes
    ----------
    table
        Shape ``(length, features)``; it is not trained.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.SinusoidalEmbedding.init(None, 10, 4)
    >>> layer(np.zeros((1, 4), "float32"), offset=3).round(2)
    array([[ 0.14, -0.99,  0.03,  1.  ]], dtype=float32)
    """

    table: Any = buffer()

    @classmethod
    def init(
        cls,
        key: Any,
        length: int,
        features: int,
        *,
        base: float = 10_000.0,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with the computed table.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        length
            The number of positions.
        features
            The length of each vector: an even number.
        base
            A positive number: the longest wavelength is ``2 pi * base`` positions.
        dtype
            The dtype of the table.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or ``features`` is odd.
        """
        length, features = _sizes("SinusoidalEmbedding", length, features)
        positions = array_module(key).arange(length, dtype="float64")
        table = ops.sinusoidal_embedding(positions, features, base=base)
        return cls(lock(table.astype(dtype)))

    def __call__(self, x: Any, *, offset: Any = 0) -> Any:
        """Add the vectors of its positions to ``x``, of shape ``(..., length, features)``.

        Parameters
        ----------
        x
            Vectors, at most as many as the table has rows.
        offset
            The position of the first vector, an integer.

        Raises
        ------
        ValueError
            If a position is beyond the table, or the vectors have another length.
        """
        return _placed_at(self, x, self.table, offset)


def _sizes(name: str, length: Any, features: Any) -> tuple[int, int]:
    where = f"fdbr.nn.{name}.init"
    return (
        integer(where, "length", length, least=1),
        integer(where, "features", features, least=1),
    )


def _placed_at(layer: Any, x: Any, table: Any, offset: Any) -> Any:
    shape: Any = getattr(x, "shape", ())
    if len(shape) < 2 or shape[-1] != table.shape[1]:
        raise ValueError(
            placed(
                f"fdbr.nn.{type(layer).__name__} of {describe(table)}: x must have shape "
                f"(..., length, {table.shape[1]}), got {describe(x)}"
            )
        )
    length, count = shape[-2], table.shape[0]
    if not is_traced(offset):
        offset = integer(f"fdbr.nn.{type(layer).__name__}", "offset", offset)
    else:
        return x + ops.embed(table, array_module(x).arange(length) + offset)
    if offset < 0 or offset + length > count:
        raise ValueError(
            placed(
                f"fdbr.nn.{type(layer).__name__}: places {offset} … {offset + length - 1} of x "
                f"{describe(x)} are not all in the table of {count} places; give shorter pieces, "
                "or build the layer for longer ones"
            )
        )
    return x + table[offset : offset + length]
