"""Pack, pad and transpose sequences of different lengths."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.ops.declare import linear
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, result_type
from fdbr.ops.shape.creation import arrays as in_one_module
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, concat, moveaxis, reshape, swapaxes
from fdbr.pytrees.typing import Array

__all__ = ["Packed", "pack", "pad_sequence", "transpose_sequence", "unpack"]


def _batch_reorder(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    rows, *source = values
    return moveaxis(apply(moveaxis(rows, 0, 1), *source), 1, 0)


@linear(
    rows=lambda ct, source, destination: _reorder(ct, destination, source),
    batch=_batch_reorder,
    fresh=True,
)
def _reorder(xp: Any, rows: Array, source: Array, destination: Array) -> Array:
    """Permute rows; ``destination`` is the inverse permutation, for the vjp."""
    return xp.take(rows, source, axis=0)


class Packed(NamedTuple):
    """Sequences of different lengths packed into one array, ordered by time step.

    Attributes
    ----------
    data
        All elements of all sequences: those of the first time step, then of the second, ...  At
        each step the longest sequences come first.
    sizes
        The number of sequences at each time step.
    order
        The indices of the sequences, the longest first.
    lengths
        The lengths of the sequences, in the given order.
    """

    data: Any
    sizes: tuple[int, ...]
    order: Any
    lengths: tuple[int, ...]


def sequences(where: str, xs: Any, name: str = "xs") -> list[Any]:
    """Convert a list of sequences to arrays, and check them."""
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


def _packing(lengths: Sequence[int]) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Return the order of sequences, the permutation to packed elements, its inverse, and sizes."""
    count = np.asarray(lengths)
    order = np.argsort(-count, kind="stable")
    starts = (np.cumsum(count) - count)[order]
    times = np.arange(count.max())[:, None]
    is_running = times < count[order]
    source = (starts + times)[is_running]
    destination = np.empty_like(source)
    destination[source] = np.arange(len(source))
    return order, source, destination, tuple(is_running.sum(axis=1).tolist())


def pack(where: str, xs: Any) -> Packed:
    """Pack a list of sequences into one array, without padding."""
    arrays = sequences(where, xs)
    lengths = tuple(len(x) for x in arrays)
    for i, length in enumerate(lengths):
        if not length:
            raise ValueError(
                placed(
                    f"{where}: xs[{i}] is an empty sequence, {describe(arrays[i])}; leave it out"
                )
            )
    order, source, destination, sizes = _packing(lengths)
    rows = concat(arrays, axis=0)
    return Packed(
        _reorder(rows, beside(source, rows), beside(destination, rows)), sizes, order, lengths
    )


def unpack(packed: Packed) -> list[Any]:
    """Split a packed array into its sequences, in the given order."""
    _, source, destination, _ = _packing(packed.lengths)
    data = packed.data
    rows = _reorder(data, beside(destination, data), beside(source, data))
    ends = np.cumsum(packed.lengths).tolist()
    return [rows[end - length : end] for end, length in zip(ends, packed.lengths, strict=True)]


@public("fdbr.ops")
def pad_sequence(
    sequences: Sequence[Array],
    /,
    *,
    batch_first: bool = False,
    padding_value: float = 0.0,
    length: int | None = None,
) -> Array:
    """Pad sequences of different lengths to one length, and stack them.

    Parameters
    ----------
    sequences
        A list of arrays ``(length, ...)``, of any lengths.
    batch_first
        Whether the result has shape ``(sequences, time, ...)``, as in Chainer; by default it is
        ``(time, sequences, ...)``, as in PyTorch.
    padding_value
        The value of padding.
    length
        The length after padding; by default that of the longest sequence.

    Returns
    -------
    array
        An array with one more axis.

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
    shape, dtype = arrays[0].shape[1:], result_type(*arrays)
    parts = []
    for x in arrays:
        parts.append(x)
        if len(x) < to:
            value = astype(in_one_module(x, padding_value)[1], dtype)
            parts.append(broadcast_to(value, (to - len(x), *shape)))
    out = reshape(concat(parts, axis=0), (len(arrays), to, *shape))
    return out if batch_first else swapaxes(out, 0, 1)


_arrays = sequences  # public functions have a parameter of this name


@public("fdbr.ops")
def transpose_sequence(sequences: Sequence[Array], /) -> tuple[Any, ...]:
    """Transpose sequences: one array for each time step, with the elements of all sequences.

    Parameters
    ----------
    sequences
        A list of arrays ``(length, ...)``, none longer than the one before it.

    Returns
    -------
    tuple
        For each time step an array of the elements of the sequences long enough.  Transposing
        twice gives the sequences back.

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
    _, source, destination, sizes = _packing(lengths)
    rows = concat(arrays, axis=0)
    data = _reorder(rows, beside(source, rows), beside(destination, rows))
    ends = np.cumsum(sizes).tolist()
    return tuple(data[end - size : end] for end, size in zip(ends, sizes, strict=True))
