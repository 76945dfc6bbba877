"""Layers that make arrays finer or coarser.

These layers have no parameters: their classes are called with the settings.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.nn.settings import for_axes, setting
from fdbr.tree import frozen

__all__ = ["ChannelShuffle", "MaxUnpool", "PixelShuffle", "PixelUnshuffle", "Upsample"]


@public("fdbr.nn")
@frozen
class Upsample(Layer):
    """Resample arrays to a finer or coarser grid: `fdbr.ops.interpolate`.

    Attributes
    ----------
    size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        As for `fdbr.ops.interpolate`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Upsample(scale_factor=2, mode="bilinear")(np.zeros((5, 2, 8, 8))).shape
    (5, 2, 16, 16)
    """

    size: int | Sequence[int] | None = setting(default=None)
    scale_factor: float | Sequence[float] | None = setting(default=None)
    mode: str = setting(default="nearest")
    align_corners: bool | None = setting(default=None)
    recompute_scale_factor: bool | None = setting(default=None)
    antialias: bool = setting(default=False)

    def __call__(self, x: Any) -> Any:
        """Return the resampled array."""
        return ops.interpolate(
            x,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
            self.antialias,
        )


@public("fdbr.nn")
@frozen
class PixelShuffle(Layer):
    """Rearrange channels into pixels: `fdbr.ops.pixel_shuffle`.

    Attributes
    ----------
    upscale_factor, mode
        As for `fdbr.ops.pixel_shuffle`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.PixelShuffle(2)(np.zeros((5, 8, 3, 3))).shape
    (5, 2, 6, 6)
    """

    upscale_factor: int | Sequence[int] = setting()
    mode: str = setting(default="CRD")

    def __call__(self, x: Any) -> Any:
        """Return the array with fewer channels, and more pixels."""
        return ops.pixel_shuffle(x, self.upscale_factor, mode=self.mode)


@public("fdbr.nn")
@frozen
class PixelUnshuffle(Layer):
    """Rearrange pixels into channels: `fdbr.ops.pixel_unshuffle`.

    Attributes
    ----------
    downscale_factor, mode
        As for `fdbr.ops.pixel_unshuffle`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.PixelUnshuffle(2)(np.zeros((5, 2, 6, 6))).shape
    (5, 8, 3, 3)
    """

    downscale_factor: int | Sequence[int] = setting()
    mode: str = setting(default="CRD")

    def __call__(self, x: Any) -> Any:
        """Return the array with more channels, and fewer pixels."""
        return ops.pixel_unshuffle(x, self.downscale_factor, mode=self.mode)


@public("fdbr.nn")
@frozen
class ChannelShuffle(Layer):
    """Interleave the channels of several groups: `fdbr.ops.channel_shuffle`.

    Attributes
    ----------
    groups
        The number of groups.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.ChannelShuffle(2)(np.arange(4.0).reshape(1, 4))
    array([[0., 2., 1., 3.]])
    """

    groups: int = setting()

    def __call__(self, x: Any) -> Any:
        """Return the array with its channels in another order."""
        return ops.channel_shuffle(x, self.groups)


@public("fdbr.nn")
@frozen
class MaxUnpool(Layer):
    """Put elements back to the indices where `MaxPool` found them: `fdbr.ops.max_unpool`.

    Attributes
    ----------
    kernel_size, stride, padding, cover_all
        As for `fdbr.ops.max_unpool`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> y, at = nn.MaxPool1d(2, return_indices=True)(np.array([[[1.0, 3.0, 2.0, 0.0]]]))
    >>> nn.MaxUnpool1d(2)(y, at)
    array([[[0., 3., 2., 0.]]])
    """

    _dimensions: ClassVar[int | None] = None

    kernel_size: int | Sequence[int] = setting()
    stride: int | Sequence[int] | None = setting(default=None)
    padding: Any = setting(default=0)
    cover_all: bool = setting(default=False)

    def __call__(self, x: Any, indices: Any = None, output_size: Any = None) -> Any:
        """Return the larger array, of the lengths that pooling had, or of ``output_size``."""
        return ops.max_unpool(
            x,
            indices,
            for_axes(self, self.kernel_size, x),
            self.stride,
            self.padding,
            output_size,
            cover_all=self.cover_all,
        )

    def train(
        self, x: Any, indices: Any = None, output_size: Any = None, *, key: Any = None
    ) -> tuple[Any, Self]:
        """Return the output, and the layer itself.

        Parameters
        ----------
        x, indices, output_size
            As for a call.
        key
            Ignored.
        """
        return self(x, indices, output_size), self
