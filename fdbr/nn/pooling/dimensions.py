"""Layers that pool in one, two or three dimensions: integers are for the last axes of that number.

What stands before these axes is a batch of any number of axes, or none.
"""

from typing import ClassVar

from fdbr.errors.public import public
from fdbr.nn.pooling.layers import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    FractionalMaxPool,
    LPPool,
    MaxPool,
)
from fdbr.nn.pooling.resampling import MaxUnpool
from fdbr.tree import frozen

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool1d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


@public("fdbr.nn")
@frozen
class MaxPool1d(MaxPool):
    """`MaxPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class MaxPool2d(MaxPool):
    """`MaxPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.MaxPool2d(2)(fdbr.ops.ones((3, 4, 4))).shape
    (3, 2, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class MaxPool3d(MaxPool):
    """`MaxPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class AvgPool1d(AvgPool):
    """`AvgPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class AvgPool2d(AvgPool):
    """`AvgPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.AvgPool2d(2)(fdbr.ops.ones((3, 4, 4))).shape
    (3, 2, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class AvgPool3d(AvgPool):
    """`AvgPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class FractionalMaxPool1d(FractionalMaxPool):
    """`FractionalMaxPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class FractionalMaxPool2d(FractionalMaxPool):
    """`FractionalMaxPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.FractionalMaxPool2d(2, (3, 2))(fdbr.ops.ones((3, 4, 4))).shape
    (3, 3, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class FractionalMaxPool3d(FractionalMaxPool):
    """`FractionalMaxPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class LPPool1d(LPPool):
    """`LPPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class LPPool2d(LPPool):
    """`LPPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.LPPool2d(2, 2)(fdbr.ops.ones((3, 4, 4))).shape
    (3, 2, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class LPPool3d(LPPool):
    """`LPPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class AdaptiveAvgPool1d(AdaptiveAvgPool):
    """`AdaptiveAvgPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class AdaptiveAvgPool2d(AdaptiveAvgPool):
    """`AdaptiveAvgPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.AdaptiveAvgPool2d(2)(fdbr.ops.ones((3, 4, 4))).shape
    (3, 2, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class AdaptiveAvgPool3d(AdaptiveAvgPool):
    """`AdaptiveAvgPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class AdaptiveMaxPool1d(AdaptiveMaxPool):
    """`AdaptiveMaxPool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class AdaptiveMaxPool2d(AdaptiveMaxPool):
    """`AdaptiveMaxPool` over the last two axes.

    >>> import fdbr
    >>> fdbr.nn.AdaptiveMaxPool2d(2)(fdbr.ops.ones((3, 4, 4))).shape
    (3, 2, 2)
    """

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class AdaptiveMaxPool3d(AdaptiveMaxPool):
    """`AdaptiveMaxPool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3


@public("fdbr.nn")
@frozen
class MaxUnpool1d(MaxUnpool):
    """`MaxUnpool` over the last axis."""

    _dimensions: ClassVar[int | None] = 1


@public("fdbr.nn")
@frozen
class MaxUnpool2d(MaxUnpool):
    """`MaxUnpool` over the last two axes."""

    _dimensions: ClassVar[int | None] = 2


@public("fdbr.nn")
@frozen
class MaxUnpool3d(MaxUnpool):
    """`MaxUnpool` over the last three axes."""

    _dimensions: ClassVar[int | None] = 3
