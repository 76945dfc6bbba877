"""Encodings of positions in a sequence: sinusoidal, rotary, and ALiBi."""

import math
from typing import Any

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import abs
from fdbr.ops.elementwise.trigonometric import cos, sin
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import concat, expand_dims, reshape, stack
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["alibi_bias", "rotary_embedding", "sinusoidal_embedding"]

_MOST_HEADS = 1 << 16  # bounds the list of slopes of `alibi_bias`


@public("fdbr.ops")
@where_it_lies
def sinusoidal_embedding(
    positions: ArrayLike, width: int, *, base: float = 10_000.0, interleaved: bool = True
) -> Array:
    """Sines and cosines of positions, with wavelengths from ``2 pi`` to ``2 pi * base``.

    Vaswani et al., *Attention is all you need*, NIPS 2017: element ``2 i`` is
    ``sin(position / base ** (2 i / width))``, and element ``2 i + 1`` the cosine of the same.

    Parameters
    ----------
    positions
        Numbers, of any shape: positions in a sequence, or time steps of a diffusion model.
    width
        The length of an encoding: an even number.
    base
        A positive number.
    interleaved
        Whether sines and cosines alternate; otherwise all sines come first.

    Returns
    -------
    array
        Shape ``positions.shape + (width,)``; float64 for integers, else the positions' dtype.

    Raises
    ------
    ValueError
        If ``width`` is not a positive even number, or ``base`` is not positive.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sinusoidal_embedding(np.array([0, 1]), 4).round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]])
    """
    name = "fdbr.ops.sinusoidal_embedding"
    angles = _angles(name, floating(positions), width, base)
    if interleaved:
        interleave = stack([sin(angles), cos(angles)], axis=-1)
        return reshape(interleave, (*angles.shape[:-1], 2 * angles.shape[-1]))
    return concat([sin(angles), cos(angles)], axis=-1)


@public("fdbr.ops")
@where_it_lies
def rotary_embedding(
    x: Any,
    positions: Any = None,
    /,
    *,
    base: float = 10_000.0,
    interleaved: bool = False,
    width: int | None = None,
    offset: int = 0,
) -> Any:
    """Rotate pairs of elements by angles proportional to the position in the sequence.

    Su et al., *RoFormer: enhanced transformer with rotary position embedding*, 2021.  Pair ``i`` of
    a vector at position ``p`` is rotated by ``p / base ** (2 i / width)``, so that the product of a
    rotated query and key depends on the difference of their positions alone.

    Parameters
    ----------
    x
        Queries or keys, shape ``(..., length, features)``.
    positions
        The positions, shape ``(..., length)``, which broadcasts to the axes of ``x`` before the
        last one; ``offset … offset + length - 1`` by default.
    base
        A positive number.
    interleaved
        Whether elements ``2 i`` and ``2 i + 1`` are a pair, as in RoFormer; otherwise element ``i``
        of the first half and of the second half, as in GPT-NeoX and Llama.
    width
        The number of features to rotate, from the first on; all by default.
    offset
        The position of the first vector, if ``positions`` are not given.

    Returns
    -------
    array
        The shape and dtype of ``x``.

    Raises
    ------
    ValueError
        If ``x`` has no sequence axis, or the number of features to rotate is odd or too large.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rotary_embedding(np.ones((2, 2))).round(4)
    array([[ 1.    ,  1.    ],
           [-0.3012,  1.3818]])
    """
    name = "fdbr.ops.rotary_embedding"
    x = floating(x)
    if x.ndim < 2:
        raise ValueError(f"{name}: x must have shape (…, length, features), got {describe(x)}")
    features = x.shape[-1]
    count = features if width is None else integer(name, "width", width, least=2)
    if count % 2 or count > features:
        raise ValueError(
            f"{name}: {count} features cannot be rotated in pairs in x {describe(x)}; give an even "
            f"number, at most {features}, as width"
        )
    if positions is None:
        positions = array_module(x).arange(x.shape[-2], dtype="float64") + offset
    else:
        positions = astype(asarray(positions), "float64")
        if not 0 < positions.ndim < x.ndim or positions.shape[-1] not in (1, x.shape[-2]):
            raise ValueError(
                f"{name}: positions must broadcast to {x.shape[:-1]}, got {describe(positions)}"
            )
    angles = _angles(name, positions, count, base)
    cosine, sine = astype(cos(angles), x.dtype), astype(sin(angles), x.dtype)
    rotated = _rotate(x[..., :count], cosine, sine, interleaved)
    return rotated if count == features else concat([rotated, x[..., count:]], axis=-1)


@public("fdbr.ops")
@where_it_lies
def alibi_bias(positions: Any, heads: int, others: Any = None) -> Any:
    """Attention biases that decrease linearly with distance, with a different slope for each head.

    ``-slope * |position - other|`` with slopes ``2 ** (-8 i / heads)``, ``i = 1 … heads``, if
    ``heads`` is a power of two; otherwise the slopes for the next smaller power of two, followed by
    every other slope for twice that number: Press, Smith & Lewis, *Train short, test long:
    attention with linear biases enables input length extrapolation*, ICLR 2022.

    Parameters
    ----------
    positions
        The positions of the queries, shape ``(..., queries)``.
    heads
        The number of heads.
    others
        The positions of the keys, shape ``(..., keys)``; those of the queries by default.

    Returns
    -------
    array
        Shape ``(..., heads, queries, keys)``, to be passed to attention as ``mask``; float64 for
        integers, else the positions' dtype.

    Raises
    ------
    ValueError
        If ``positions`` has no sequence axis, or ``heads`` is not an integer in 1 … 65,536.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.alibi_bias(np.arange(3), 2)[0]  # the first head's slope is 1/16
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]])
    """
    name = "fdbr.ops.alibi_bias"
    count = integer(name, "heads", heads, least=1)
    if count > _MOST_HEADS:
        raise ValueError(f"{name}: heads must be at most {_MOST_HEADS}, got {count}")
    positions = floating(positions)
    others = positions if others is None else floating(others)
    if positions.ndim < 1 or others.ndim < 1:
        raise ValueError(
            f"{name}: positions must have shape (..., length), got {describe(positions)} and "
            f"{describe(others)}"
        )
    power = 1 << (count.bit_length() - 1)
    derivatives = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    derivatives += [2.0 ** (-4 * i / power) for i in range(1, 2 * power, 2)][: count - power]
    slope = array_module(positions).asarray(derivatives, dtype=positions.dtype)[:, None, None]
    distance = positions[..., None, :, None] - others[..., None, None, :]
    return -slope * abs(distance)


def _rotate(x: Any, cosine: Any, sine: Any, interleaved: bool) -> Any:
    if interleaved:
        first, second = x[..., 0::2], x[..., 1::2]
        interleave = stack(
            [first * cosine - second * sine, second * cosine + first * sine], axis=-1
        )
        return reshape(interleave, (*interleave.shape[:-2], x.shape[-1]))
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _angles(name: str, positions: Any, width: Any, base: Any) -> Any:
    """Multiply positions by frequencies, along a new last axis."""
    width = integer(name, "width", width, least=0)
    if width % 2:
        raise ValueError(f"{name}: width must be even, got {width}")
    if not 0 < base < math.inf:
        raise ValueError(f"{name}: base must be a positive number, got {base!r}")
    xp = array_module(positions)
    half = xp.arange(width // 2, dtype=positions.dtype)
    return expand_dims(positions, axis=-1) * float(base) ** (half * (-2 / max(width, 1)))
