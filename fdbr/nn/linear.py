"""The fully connected layer."""

from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.parameters import weight_and_bias
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike, Key
from fdbr.tree import frozen

__all__ = ["Linear"]


@public("fdbr.nn")
@frozen
class Linear(Layer):
    """The fully connected layer: ``y = x @ weight.T + bias``.

    Attributes
    ----------
    weight
        Shape ``(out_features, in_features)``, as in PyTorch.
    bias
        Shape ``(out_features,)``, or `None`.

    >>> import fdbr
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 3, 2)
    >>> layer(fdbr.random.normal(fdbr.random.key(1), (5, 3), "float32")).shape
    (5, 2)
    >>> layer.weight.shape
    (2, 3)
    """

    weight: Array
    bias: Array | None

    @classmethod
    def init(
        cls,
        key: Key,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
        dtype: DTypeLike = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_features, out_features
            The lengths of the last axes of the input and the output.
        bias
            Whether the layer has a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
        dtype
            The dtype of the parameters.

        Returns
        -------
        Linear
            The layer.

        Raises
        ------
        TypeError, ValueError
            If a number of features is not a positive integer.
        """
        where = "fdbr.nn.Linear.init"
        sizes = (
            integer(where, "out_features", out_features, least=1),
            integer(where, "in_features", in_features, least=1),
        )
        return cls(*weight_and_bias(key, sizes, sizes[0], bias, weight_init, bias_init, dtype))

    def __call__(self, x: ArrayLike) -> Array:
        """Return the output of shape ``(..., out_features)`` for ``x`` of shape ``(...,
        in_features)``.

        Raises
        ------
        ValueError
            If ``x`` has another last length.
        """
        try:
            return ops.linear(x, self.weight, self.bias)
        except ValueError as error:
            raise ValueError(placed(self._misfit(x))) from error

    def _misfit(self, x: Any) -> str:
        return (
            f"fdbr.nn.Linear with weight {describe(self.weight)}: x must have shape "
            f"(..., {self.weight.shape[1]}), got {describe(x)}; reshape x, or build the layer "
            "for inputs of that length"
        )
