"""Caches of attention: immutable keys and values of the positions so far."""

from typing import Any, Self

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_traced
from fdbr.ops.nn.attention.weights import combine_masks
from fdbr.tree import buffer, frozen

__all__ = ["KeyValueCache"]


@public("fdbr.nn")
@frozen
class KeyValueCache:
    """The keys and values of the positions so far, for decoding position by position.

    An attention layer that is called with a cache returns its output and a new cache that also
    holds the new keys and values; the given cache is not changed.  The outputs equal those of the
    whole sequence with ``causal=True``.

    Attributes
    ----------
    keys, values
        Shape ``(*batch, heads, length, width)``; elements from ``position`` on have no meaning.
    position
        The number of positions filled, an integer.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.MultiHeadAttention.init(fdbr.random.key(0), 8, 2)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (1, 5, 8), "float32")
    >>> cache = fdbr.nn.KeyValueCache.init(1, 10, 2, 4)
    >>> first, cache = layer(x[:, :3], cache=cache)
    >>> rest, cache = layer(x[:, 3:], cache=cache)
    >>> bool(np.allclose(rest, layer(x, causal=True)[:, 3:], atol=1e-6)), int(cache.position)
    (True, 5)
    """

    keys: Any = buffer()
    values: Any = buffer()
    position: Any = buffer()

    @classmethod
    def init(
        cls,
        batch: int | tuple[int, ...],
        length: int,
        heads: int,
        width: int,
        *,
        value_width: int | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return an empty cache.

        Parameters
        ----------
        batch
            The batch size or shape; ``()`` for a single sequence without a batch axis.
        length
            The number of positions that the cache can hold.
        heads
            The number of heads of keys and values.
        width
            The width of a key, and of a value where ``value_width`` is not given.
        value_width
            The width of a value.
        dtype
            The dtype of keys and values.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        where = "fdbr.nn.KeyValueCache.init"
        lead = batch if isinstance(batch, tuple) else (batch,)
        lead = tuple(integer(where, "batch", n, least=0) for n in lead)
        positions = integer(where, "length", length, least=1)
        shape = *lead, integer(where, "heads", heads, least=1), positions
        width = integer(where, "width", width, least=1)
        other = width if value_width is None else integer(where, "value_width", value_width, 1)
        keys, values = (lock(np.zeros((*shape, n), dtype)) for n in (width, other))
        return cls(keys, values, lock(np.zeros((), np.int64)))

    def update(self, keys: Any, values: Any) -> Self:
        """Return the cache with keys and values appended.

        Parameters
        ----------
        keys, values
            Shape ``(*batch, heads, count, width)``.

        Raises
        ------
        ValueError
            If the shapes do not fit, or too few positions are left.
        """
        for name, new, old in (("keys", keys, self.keys), ("values", values, self.values)):
            if _others(new.shape) != _others(old.shape):
                raise ValueError(
                    placed(
                        f"fdbr.nn.KeyValueCache: {name} of {describe(old)} cannot take in "
                        f"{describe(new)}; all axes but the last but one must be the same"
                    )
                )
        length, count = self.keys.shape[-2], keys.shape[-2]
        taken = self.known_position()
        if count > length or (taken is not None and taken + count > length):
            raise ValueError(
                placed(
                    f"fdbr.nn.KeyValueCache: {count} more places do not fit behind the {taken} "
                    f"that are taken of {length}; build the cache with a greater length"
                )
            )
        xp = array_module(self.keys)
        where = self.position + xp.arange(count) if taken is None else slice(taken, taken + count)
        return tree.replace(
            self,
            keys=ops.at(self.keys)[..., where, :].set(ops.astype(keys, self.keys.dtype)),
            values=ops.at(self.values)[..., where, :].set(ops.astype(values, self.values.dtype)),
            position=self.position + count,
        )

    def known_position(self) -> int | None:
        """Return the position as a number, or `None` if it is traced, as in `fdbr.jit`."""
        return None if is_traced(self.position) else int(self.position)

    def attend(
        self,
        query: Any,
        keys: Any,
        values: Any,
        *,
        mask: Any = None,
        scale: float | None = None,
        window: int | None = None,
    ) -> tuple[Any, Self]:
        """Attend from the next positions to themselves and all before; returns also the next cache.

        Parameters
        ----------
        query
            Shape ``(*batch, query heads, count, width)``; keys and values may have fewer heads.
        keys, values
            Shape ``(*batch, heads, count, width)``, of the same positions.
        mask
            An array that broadcasts to ``(*batch, query heads, count, length)``, with a column for
            each position of the cache: as in `ops.scaled_dot_product_attention`.
        scale
            As in `ops.scaled_dot_product_attention`.
        window
            How many positions before its own a query sees; all by default.

        Returns
        -------
        tuple
            An array like ``query`` with the width of the values, and the cache of all positions.

        Raises
        ------
        ValueError
            If the shapes do not fit, or too few positions are left.
        """
        cache, count = self.update(keys, values), query.shape[-2]
        length, end = self.keys.shape[-2], cache.known_position()
        if mask is not None:
            mask = ops.asarray(mask)
            if mask.shape[-1:] not in ((1,), (length,)):
                raise ValueError(
                    placed(
                        "fdbr.nn.KeyValueCache: mask must have a column for each of the "
                        f"{length} places of the cache, got {describe(mask)}"
                    )
                )
        if end is not None:  # positions that are not filled yet are left out
            mask = mask if mask is None or mask.shape[-1] == 1 else mask[..., :end]
        causal = end == count and window is None
        keys, values = cache.keys[..., :end, :], cache.values[..., :end, :]
        if not causal and (end is None or count > 1 or window is not None):
            xp = array_module(self.keys)
            position = xp.arange(count)[:, None] + self.position
            others = xp.arange(keys.shape[-2])
            past = others <= position
            past = past if window is None else past & (others >= position - window)
            mask = combine_masks(mask, past)
        grouped = query.ndim > 2 and query.shape[-3] != keys.shape[-3]
        seen = ops.scaled_dot_product_attention(
            query, keys, values, mask, causal=causal, scale=scale, enable_gqa=grouped
        )
        return seen, cache


def _others(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1])
