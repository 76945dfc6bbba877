"""Places in a sequence as numbers: waves of many lengths, and rotations by them."""

import math
from typing import Any

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import abs
from fdbr.ops.elementwise.trigonometric import cos, sin
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import concat, expand_dims, reshape, stack
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["alibi_bias", "rotary_embedding", "sinusoidal_embedding"]

_MOST_HEADS = 1 << 16  # of scores by distance, of which each has a slope


@where_it_lies
def sinusoidal_embedding(
    positions: ArrayLike, width: int, *, base: float = 10_000.0, interleaved: bool = True
) -> Array:
    """Sines and cosines of positions, of wavelengths from ``2 pi`` to ``2 pi * base``.

    Vaswani et al., *Attention is all you need*, NIPS 2017: element ``2 i`` is
    ``sin(position / base ** (2 i / width))``, and element ``2 i + 1`` the cosine of the same.

    Parameters
    ----------
    positions
        Numbers, of any shape: places in a sequence, or times of a diffusion.
    width
        How many numbers a position gets: an even number.
    base
        A positive number.
    interleaved
        Whether sines and cosines alternate; all sines come first otherwise.

    Returns
    -------
    array
        Shape ``positions.shape + (width,)``; float64 of integers, else of the positions' dtype.

    Raises
    ------
    ValueError
        If ``width`` is no positive even number, or ``base`` is not positive.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sinusoidal_embedding(np.array([0, 1]), 4).round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.84, 0.54, 0.01, 1.  ]])
    """
    name = "fdbr.ops.sinusoidal_embedding"
    angles = _angles(name, floating(positions), width, base)
    if interleaved:
        both = stack([sin(angles), cos(angles)], axis=-1)
        return reshape(both, (*angles.shape[:-1], 2 * angles.shape[-1]))
    return concat([sin(angles), cos(angles)], axis=-1)


@where_it_lies
def rotary_embedding(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    /,
    *,
    base: float = 10_000.0,
    interleaved: bool = False,
    width: int | None = None,
    offset: int = 0,
) -> Array:
    """Pairs of elements turned by angles that grow with the place in the sequence.

    Su et al., *RoFormer: enhanced transformer with rotary position embedding*, 2021.  Pair ``i`` of
    a vector at place ``p`` is turned by ``p / base ** (2 i / width)``, so that the product of a
    query and a key that are turned depends on how far apart they are, not on where.

    Parameters
    ----------
    x
        Queries or keys, shape ``(..., length, features)``.
    positions
        The places, shape ``(..., length)``, which broadcasts to the axes of ``x`` before the last
        one; ``offset … offset + length - 1`` by default.
    base
        A positive number.
    interleaved
        Whether elements ``2 i`` and ``2 i + 1`` are a pair, as in RoFormer; element ``i`` of the
        first half and that of the second otherwise, as in GPT-NeoX and Llama.
    width
        How many of the features are turned, the first ones; all by default.
    offset
        The place of the first vector, where no ``positions`` are given.

    Returns
    -------
    array
        Of the shape and dtype of ``x``.

    Raises
    ------
    ValueError
        If there is no axis of places, or the number of features to turn is odd or too large.

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
            f"{name}: {count} features cannot be turned in pairs in x {describe(x)}; give an even "
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
    turned = _turned(x[..., :count], cosine, sine, interleaved)
    return turned if count == features else concat([turned, x[..., count:]], axis=-1)


@where_it_lies
def alibi_bias(positions: ArrayLike, heads: int, others: ArrayLike | None = None) -> Array:
    """Scores that fall with the distance, in each head by a slope of its own: a mask of numbers.

    ``-slope * |position - other|`` with slopes ``2 ** (-8 i / heads)``, ``i = 1 … heads``, where
    ``heads`` is a power of two; else those of the next smaller power, and behind them every other
    one of twice as many: Press, Smith & Lewis, *Train short, test long: attention with linear
    biases enables input length extrapolation*, ICLR 2022.

    Parameters
    ----------
    positions
        The places of the queries, shape ``(..., queries)``.
    heads
        How many heads there are.
    others
        The places of the keys, shape ``(..., keys)``; those of the queries by default.

    Returns
    -------
    array
        Shape ``(..., heads, queries, keys)``, what attention takes as ``mask``; float64 of
        integers, else of the positions' dtype.

    Raises
    ------
    ValueError
        If there is no axis of places, or ``heads`` is not an integer in 1 … 65,536.

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
    slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    slopes += [2.0 ** (-4 * i / power) for i in range(1, 2 * power, 2)][: count - power]
    slope = array_module(positions).asarray(slopes, dtype=positions.dtype)[:, None, None]
    away = positions[..., None, :, None] - others[..., None, None, :]
    return -slope * abs(away)


def _turned(x: Any, cosine: Any, sine: Any, interleaved: bool) -> Any:
    if interleaved:
        one, two = x[..., 0::2], x[..., 1::2]
        both = stack([one * cosine - two * sine, two * cosine + one * sine], axis=-1)
        return reshape(both, (*both.shape[:-2], x.shape[-1]))
    half = x.shape[-1] // 2
    one, two = x[..., :half], x[..., half:]
    return concat([one * cosine - two * sine, two * cosine + one * sine], axis=-1)


def _angles(name: str, positions: Any, width: Any, base: Any) -> Any:
    """The product of positions and frequencies, along a new last axis."""
    width = integer(name, "width", width, least=0)
    if width % 2:
        raise ValueError(f"{name}: width must be even, got {width}")
    if not 0 < base < math.inf:
        raise ValueError(f"{name}: base must be a positive number, got {base!r}")
    xp = array_module(positions)
    half = xp.arange(width // 2, dtype=positions.dtype)
    return expand_dims(positions, axis=-1) * float(base) ** (half * (-2 / max(width, 1)))
