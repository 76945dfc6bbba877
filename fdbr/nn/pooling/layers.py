"""Layers that pool: one number for each window of an array's spatial axes.

These layers have no parameters: their classes are called with the settings.  An integer as kernel
size applies to all axes after the first two of an array with at least four axes.  The layers of
`fdbr.nn.pooling.dimensions`, such as ``MaxPool2d``, apply it to a fixed number of last axes, so
that they also pool examples without a batch axis.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.settings import for_axes, setting
from fdbr.tree import frozen

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "Flatten",
    "FractionalMaxPool",
    "LPPool",
    "MaxPool",
    "Unflatten",
]


@public("fdbr.nn")
@frozen
class MaxPool(Layer):
    """The largest element of each window: `fdbr.ops.max_pool`.

    Attributes
    ----------
    kernel_size, stride, padding, dilation, ceil_mode, cover_all, return_indices
        As for `fdbr.ops.max_pool`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.MaxPool(3, stride=2, padding=1)(np.zeros((5, 2, 8, 8))).shape
    (5, 2, 4, 4)
    """

    _dimensions: ClassVar[int | None] = None

    kernel_size: int | Sequence[int] = setting()
    stride: int | Sequence[int] | None = setting(default=None)
    padding: Any = setting(default=0)
    dilation: int | Sequence[int] = setting(default=1)
    return_indices: bool = setting(default=False)
    ceil_mode: bool = setting(default=False)
    cover_all: bool = setting(default=False)

    def __call__(self, x: Any) -> Any:
        """Return the largest elements, and with ``return_indices`` their indices."""
        return ops.max_pool(
            x,
            for_axes(self, self.kernel_size, x),
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            cover_all=self.cover_all,
            return_indices=self.return_indices,
        )


@public("fdbr.nn")
@frozen
class AvgPool(Layer):
    """The mean of each window: `fdbr.ops.avg_pool`.

    Attributes
    ----------
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        As for `fdbr.ops.avg_pool`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.AvgPool(2)(np.zeros((5, 2, 8, 8))).shape
    (5, 2, 4, 4)
    """

    _dimensions: ClassVar[int | None] = None

    kernel_size: int | Sequence[int] = setting()
    stride: int | Sequence[int] | None = setting(default=None)
    padding: Any = setting(default=0)
    ceil_mode: bool = setting(default=False)
    count_include_pad: bool = setting(default=True)
    divisor_override: float | None = setting(default=None)

    def __call__(self, x: Any) -> Any:
        """Return the means."""
        return ops.avg_pool(
            x,
            for_axes(self, self.kernel_size, x),
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
            divisor_override=self.divisor_override,
        )


@public("fdbr.nn")
@frozen
class LPPool(Layer):
    """The norm of each window: `fdbr.ops.lp_pool`.

    Attributes
    ----------
    norm_type, kernel_size, stride, ceil_mode
        As for `fdbr.ops.lp_pool`.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.LPPool(2, (2,))(np.array([[[3.0, 4.0]]]))
    array([[[5.]]])
    """

    _dimensions: ClassVar[int | None] = None

    norm_type: float = setting()
    kernel_size: int | Sequence[int] = setting()
    stride: int | Sequence[int] | None = setting(default=None)
    ceil_mode: bool = setting(default=False)

    def __call__(self, x: Any) -> Any:
        """Return the norms."""
        return ops.lp_pool(
            x,
            self.norm_type,
            for_axes(self, self.kernel_size, x),
            self.stride,
            ceil_mode=self.ceil_mode,
        )


@public("fdbr.nn")
@frozen
class FractionalMaxPool(Layer):
    """The largest elements of windows at random positions: `fdbr.ops.fractional_max_pool`.

    A call without a key, as in inference, uses the positions of ``u = 1/2``.  (PyTorch draws random
    positions there, too.)

    Attributes
    ----------
    kernel_size, output_size, output_ratio, return_indices
        As for `fdbr.ops.fractional_max_pool`.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.FractionalMaxPool(2, output_ratio=0.75)
    >>> y, layer = layer.train(np.zeros((5, 2, 8, 8)), key=fdbr.random.key(0))
    >>> y.shape
    (5, 2, 6, 6)
    """

    _dimensions: ClassVar[int | None] = None

    kernel_size: int | Sequence[int] = setting()
    output_size: int | Sequence[int] | None = setting(default=None)
    output_ratio: float | Sequence[float] | None = setting(default=None)
    return_indices: bool = setting(default=False)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        """Return the largest elements, and with ``return_indices`` their indices."""
        kernel, samples = for_axes(self, self.kernel_size, x), None
        if key is None:
            axes = len(kernel) if isinstance(kernel, tuple) else x.ndim - 2
            samples = array_module(x).full((*x.shape[: x.ndim - axes], axes), 0.5)
        return ops.fractional_max_pool(
            x,
            kernel,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            samples=samples,
            key=key,
        )

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output with windows at random positions, and the layer itself.

        Parameters
        ----------
        x
            As for a call.
        key
            A random key.
        """
        return self(x, key=needed_key(type(self).__name__, key)), self


@public("fdbr.nn")
@frozen
class AdaptiveAvgPool(Layer):
    """The means of as many windows as asked for: `fdbr.ops.adaptive_avg_pool`.

    Attributes
    ----------
    output_size
        An integer, or one (or `None`) for each spatial axis; 1 pools globally.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.AdaptiveAvgPool(1)(np.zeros((5, 2, 8, 8))).shape
    (5, 2, 1, 1)
    """

    _dimensions: ClassVar[int | None] = None

    output_size: int | Sequence[int | None] = setting()

    def __call__(self, x: Any) -> Any:
        """Return the means."""
        return ops.adaptive_avg_pool(x, for_axes(self, self.output_size, x))


@public("fdbr.nn")
@frozen
class AdaptiveMaxPool(Layer):
    """The largest elements of as many windows as asked for: `fdbr.ops.adaptive_max_pool`.

    Attributes
    ----------
    output_size
        An integer, or one (or `None`) for each spatial axis; 1 pools globally.
    return_indices
        Whether to also return the indices of the largest elements.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.AdaptiveMaxPool((3, 2))(np.zeros((5, 2, 8, 8))).shape
    (5, 2, 3, 2)
    """

    _dimensions: ClassVar[int | None] = None

    output_size: int | Sequence[int | None] = setting()
    return_indices: bool = setting(default=False)

    def __call__(self, x: Any) -> Any:
        """Return the largest elements, and with ``return_indices`` their indices."""
        size = for_axes(self, self.output_size, x)
        return ops.adaptive_max_pool(x, size, return_indices=self.return_indices)


@public("fdbr.nn")
@frozen
class Flatten(Layer):
    """Some neighbouring axes as one: by default all after the first.

    Attributes
    ----------
    start_dim, end_dim
        The first and the last of them.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Flatten()(np.zeros((5, 2, 8, 8))).shape
    (5, 128)
    """

    start_dim: int = setting(default=1)
    end_dim: int = setting(default=-1)

    def __call__(self, x: Any) -> Any:
        """Return the same elements in another shape.

        Raises
        ------
        ValueError
            If ``x`` has no such axes, or the last comes before the first.
        """
        n = x.ndim
        if not all(-n <= axis < n for axis in (self.start_dim, self.end_dim)):
            raise ValueError(placed(f"fdbr.nn.{self!r}: x {describe(x)} has no such axes"))
        first, last = self.start_dim % n, self.end_dim % n
        if first > last:
            raise ValueError(
                placed(f"fdbr.nn.{self!r}: of x {describe(x)}, start_dim comes after end_dim")
            )
        shape = x.shape
        whole = math.prod(shape[first : last + 1])
        return ops.reshape(x, (*shape[:first], whole, *shape[last + 1 :]))


@public("fdbr.nn")
@frozen
class Unflatten(Layer):
    """Split one axis into several, the inverse of `Flatten`.

    Attributes
    ----------
    dim
        The axis.
    unflattened_size
        The lengths of the new axes; one may be -1.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Unflatten(1, (2, -1))(np.zeros((5, 12))).shape
    (5, 2, 6)
    """

    dim: int = setting()
    unflattened_size: Sequence[int] = setting()

    def __call__(self, x: Any) -> Any:
        """Return the same elements in another shape.

        Raises
        ------
        ValueError
            If ``x`` has no such axis, or the axis has another length.
        """
        sizes, n = tuple(self.unflattened_size), x.ndim
        given = math.prod(m for m in sizes if m != -1)
        exists = -n <= self.dim < n
        length = x.shape[self.dim] if exists else 0
        free = sizes.count(-1)
        fits = given > 0 and (length % given == 0 if free == 1 else free == 0 and length == given)
        if not (exists and fits):
            raise ValueError(
                placed(f"fdbr.nn.{self!r}: x {describe(x)} must have such an axis, of that length")
            )
        sizes = tuple(length // given if m == -1 else m for m in sizes)
        axis = self.dim % n
        return ops.reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
