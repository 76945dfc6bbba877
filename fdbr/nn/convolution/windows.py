"""Layers that unfold arrays into windows, and fold them back."""

from collections.abc import Sequence
from typing import Any

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.nn.settings import refuse_either, setting
from fdbr.tree import frozen

__all__ = ["Fold", "Unfold"]


@public("fdbr.nn")
@frozen
class Unfold(Layer):
    """The elements of each window as a column: `fdbr.ops.unfold`.

    Attributes
    ----------
    kernel_size, dilation, padding, stride
        As for `fdbr.ops.unfold`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Unfold((2, 3))(np.zeros((5, 2, 8, 8))).shape
    (5, 12, 42)
    """

    kernel_size: int | Sequence[int] = setting()
    dilation: int | Sequence[int] = setting(default=1)
    padding: Any = setting(default=0)
    stride: int | Sequence[int] = setting(default=1)

    def __call__(self, x: Any) -> Any:
        """Return the columns, of shape ``(..., C * prod(kernel_size), windows)``."""
        if not isinstance(self.kernel_size, tuple):
            refuse_either("Unfold", self.kernel_size, x)
        return ops.unfold(
            x,
            self.kernel_size,
            dilation=self.dilation,
            padding=self.padding,
            stride=self.stride,
        )


@public("fdbr.nn")
@frozen
class Fold(Layer):
    """The transpose of `Unfold`, which adds each column to its window: `fdbr.ops.fold`.

    Attributes
    ----------
    output_size, kernel_size, dilation, padding, stride
        As for `fdbr.ops.fold`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Fold((8, 8), (2, 3))(np.zeros((5, 12, 42))).shape
    (5, 2, 8, 8)
    """

    output_size: int | Sequence[int] = setting()
    kernel_size: int | Sequence[int] = setting()
    dilation: int | Sequence[int] = setting(default=1)
    padding: Any = setting(default=0)
    stride: int | Sequence[int] = setting(default=1)

    def __call__(self, x: Any) -> Any:
        """Return the array, of shape ``(..., C, *output_size)``."""
        return ops.fold(
            x,
            self.output_size,
            self.kernel_size,
            dilation=self.dilation,
            padding=self.padding,
            stride=self.stride,
        )
