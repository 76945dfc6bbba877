"""Sequences of different lengths: lists of arrays, and what they are packed into."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.ops.declare import linear
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype
from fdbr.ops.shape.creation import arrays as in_one_module
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, concat, moveaxis, reshape, swapaxes
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["Packed", "pack", "pad_sequence", "transpose_sequence", "unpack"]


def _batch_reordered(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    rows, *places = values
    return moveaxis(apply(moveaxis(rows, 0, 1), *places), 1, 0)


@linear(
    rows=lambda ct, places, back: _reordered(ct, back, places),
    batch=_batch_reordered,
    fresh=True,
)
def _reordered(xp: Any, rows: ArrayLike, places: ArrayLike, back: ArrayLike) -> Array:
    """The rows in another order, of which ``back`` is the inverse."""
    return xp.take(rows, places, axis=0)


class Packed(NamedTuple):
    """Sequences of different lengths as one array, one time after the other.

    Attributes
    ----------
    data
        All elements of all sequences: those of the first time, then of the second, ...  At each
        time the longest sequences come first.
    sizes
        How many sequences there are at each time.
    order
        Which sequence each of them is.
    lengths
        The lengths of the sequences, in their own order.
    """

    data: Any
    sizes: tuple[int, ...]
    order: Any
    lengths: tuple[int, ...]


def sequences(where: str, xs: Any, name: str = "xs") -> list[Any]:
    """A list of sequences as arrays, or an error that says which is none."""
    if not isinstance(xs, list | tuple):
        raise TypeError(placed(f"{where}: {name} must be a list of arrays, got {describe(xs)}"))
    if not xs:
        raise ValueError(placed(f"{where}: {name} has no sequence; give one at least"))
    arrays = [asarray(x) for x in xs]
    for i, x in enumerate(arrays):
        if not x.ndim:
            raise ValueError(placed(f"{where}: {name}[{i}] {describe(x)} has no axis of time"))
        if x.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                placed(
                    f"{where}: the elements of all sequences must have one shape: {name}[0] is "
                    f"{describe(arrays[0])}, and {name}[{i}] {describe(x)}"
                )
            )
    return arrays


def _places(lengths: Sequence[int]) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """The order of the sequences, where each packed element comes from and goes to, the sizes."""
    count = np.asarray(lengths)
    order = np.argsort(-count, kind="stable")
    starts = (np.cumsum(count) - count)[order]
    times = np.arange(count.max())[:, None]
    alive = times < count[order]
    places = (starts + times)[alive]
    back = np.empty_like(places)
    back[places] = np.arange(len(places))
    return order, places, back, tuple(alive.sum(axis=1).tolist())


def pack(where: str, xs: Any) -> Packed:
    """The sequences of a list as one array, without any padding."""
    arrays = sequences(where, xs)
    lengths = tuple(len(x) for x in arrays)
    for i, length in enumerate(lengths):
        if not length:
            raise ValueError(
                placed(
                    f"{where}: xs[{i}] is an empty sequence, {describe(arrays[i])}; leave it out"
                )
            )
    order, places, back, sizes = _places(lengths)
    rows = concat(arrays, axis=0)
    return Packed(_reordered(rows, beside(places, rows), beside(back, rows)), sizes, order, lengths)


def unpack(packed: Packed) -> list[Any]:
    """The sequences of which an array was packed, in their own order."""
    _, places, back, _ = _places(packed.lengths)
    data = packed.data
    rows = _reordered(data, beside(back, data), beside(places, data))
    ends = np.cumsum(packed.lengths).tolist()
    return [rows[end - length : end] for end, length in zip(ends, packed.lengths, strict=True)]


def pad_sequence(
    sequences: Sequence[Array],
    /,
    *,
    batch_first: bool = False,
    padding_value: float = 0.0,
    length: int | None = None,
) -> Array:
    """Sequences of different lengths as one array, filled up to one length.

    Parameters
    ----------
    sequences
        A list of arrays ``(length, ...)``, of any lengths.
    batch_first
        Whether the result has shape ``(sequences, time, ...)``, as Chainer's has; as in PyTorch,
        it is ``(time, sequences, ...)`` by default.
    padding_value
        The value of the elements that are filled up.
    length
        The length that all are filled up to; by default that of the longest.

    Returns
    -------
    array
        An array of one more dimension.

    Raises
    ------
    ValueError
        If there is no sequence, their elements differ in shape, or one is longer than ``length``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.pad_sequence([np.array([1.0, 2.0]), np.array([3.0])], batch_first=True)
    array([[1., 2.],
           [3., 0.]])
    """
    where = "fdbr.ops.pad_sequence"
    arrays = _arrays(where, sequences, "sequences")
    longest = max(len(x) for x in arrays)
    to = longest if length is None else integer(where, "length", length, least=0)
    if to < longest:
        raise ValueError(placed(f"{where}: length is {to}, and a sequence has {longest} elements"))
    shape = arrays[0].shape[1:]
    parts = []
    for x in arrays:
        parts.append(x)
        if len(x) < to:
            value = astype(in_one_module(x, padding_value)[1], x.dtype)
            parts.append(broadcast_to(value, (to - len(x), *shape)))
    out = reshape(concat(parts, axis=0), (len(arrays), to, *shape))
    return out if batch_first else swapaxes(out, 0, 1)


_arrays = sequences  # which the parameters of the public functions hide


def transpose_sequence(sequences: Sequence[Array], /) -> tuple[Any, ...]:
    """The elements of sequences by time: what comes first, second, ... in all of them.

    Parameters
    ----------
    sequences
        A list of arrays ``(length, ...)``, none longer than the one before it.

    Returns
    -------
    tuple
        For each time an array of the elements of the sequences that are so long.  To transpose
        it gives the sequences back.

    Raises
    ------
    ValueError
        If there is no sequence, their elements differ in shape, or one is longer than the one
        before it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.transpose_sequence([np.array([1.0, 2.0]), np.array([3.0])])
    (array([1., 3.]), array([2.]))
    """
    where = "fdbr.ops.transpose_sequence"
    arrays = _arrays(where, sequences, "sequences")
    lengths = [len(x) for x in arrays]
    if lengths != sorted(lengths, reverse=True):
        raise ValueError(
            f"{where}: the lengths {lengths} must not increase; sort the sequences by length, the "
            "longest first"
        )
    if not lengths[0]:
        return ()
    _, places, back, sizes = _places(lengths)
    rows = concat(arrays, axis=0)
    data = _reordered(rows, beside(places, rows), beside(back, rows))
    ends = np.cumsum(sizes).tolist()
    return tuple(data[end - size : end] for end, size in zip(ends, sizes, strict=True))
