"""Initial weights of convolutions that interpolate."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, lock
from fdbr.errors.public import explaining, public
from fdbr.tree import frozen, static

__all__ = ["LinearFilter", "downsampling_conv_filter", "upsampling_deconv_filter"]


@public("fdbr.nn.initializers")
@frozen
class LinearFilter:
    """Kernels that interpolate linearly along each axis, one for each channel.

    Attributes
    ----------
    upsampling
        Whether the kernels interpolate, for a transposed convolution; otherwise they average,
        with sum 1.
    """

    upsampling: bool = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape, ``(channels, channels, *kernel)`` or ``(channels, 1,
        *kernel)``.

        Channels are not mixed: between two different ones the weights are 0.  The key is not used
        and may be `None`.

        Raises
        ------
        ValueError
            If the shape is another one, or the kernel is not as long on all axes.
        """
        shape = tuple(shape)
        kernel = shape[2:]
        if not kernel or len(set(kernel)) != 1 or 0 in shape or shape[1] not in (1, shape[0]):
            raise ValueError(
                "fdbr.nn.initializers: a filter that samples has shape (channels, channels, "
                "*kernel) or (channels, 1, *kernel), with a kernel of one length on all axes; got "
                f"{shape}"
            )
        factor = (kernel[0] + 1) // 2
        middle = factor - 1 if kernel[0] % 2 else factor - 0.5
        line = 1 - np.abs(np.arange(kernel[0]) - middle) / factor
        whole = np.ones(())
        for _ in kernel:
            whole = whole[..., None] * line
        if not self.upsampling:
            whole = whole / whole.sum()
        own = np.eye(*shape[:2]) if shape[1] > 1 else np.ones(shape[:2])
        weight = own.reshape((*shape[:2], *(1,) * len(kernel))) * whole
        return lock(array_module(key).array(weight, dtype=dtype))


@public("fdbr.nn.initializers")
def upsampling_deconv_filter() -> LinearFilter:
    """Return an initializer of transposed convolutions that upsample images linearly.

    The stride that goes with them is ``(kernel + 1) // 2``: Long, Shelhamer & Darrell, *Fully
    convolutional networks for semantic segmentation*, CVPR 2015.

    >>> upsampling_deconv_filter()(None, (1, 1, 4))
    array([[[0.25, 0.75, 0.75, 0.25]]], dtype=float32)
    """
    return LinearFilter(True)


@public("fdbr.nn.initializers")
def downsampling_conv_filter() -> LinearFilter:
    """Return an initializer of convolutions that downsample images by weighted means.

    They are those of `upsampling_deconv_filter`, divided by their sum, and so is the stride.

    >>> downsampling_conv_filter()(None, (1, 1, 3))
    array([[[0.25, 0.5 , 0.25]]], dtype=float32)
    """
    return LinearFilter(False)
