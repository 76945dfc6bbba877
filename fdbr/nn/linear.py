"""The fully connected layer."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
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

    weight: Any
    bias: Any

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
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
        weight_key, bias_key = random.split(key)
        weight = (weight_init or initializers.lecun_normal())(weight_key, sizes, dtype)
        if not bias:
            return cls(weight, None)
        return cls(weight, (bias_init or initializers.zeros())(bias_key, sizes[:1], dtype))

    def __call__(self, x: Any) -> Any:
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
