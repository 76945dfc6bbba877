"""Activation functions with parameters, or with random numbers in training.

Plain functions such as `fdbr.ops.relu` can be put into `Sequential` directly.
"""

from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.tree import frozen, static

__all__ = ["Maxout", "PReLU", "RReLU", "Swish"]

Init = initializers.Initializer | None


def _shape_of(where: str, name: str, value: Any) -> tuple[int, ...]:
    lengths = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple([integer(where, name, length, least=1) for length in lengths])


@public("fdbr.nn")
@frozen
class PReLU(Layer):
    """Parametric ReLU: ``x`` where it is positive, and elsewhere ``weight * x`` with a trained
    weight.

    He, Zhang, Ren & Sun, *Delving deep into rectifiers*, ICCV 2015.

    Attributes
    ----------
    weight
        Shape ``(num_parameters,)``: one factor, or one for each channel of ``(N, C, ...)``.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.PReLU.init(None)(np.array([-2.0, 2.0], np.float32))
    array([-0.5,  2. ], dtype=float32)
    """

    weight: Any

    @classmethod
    def init(
        cls,
        key: Any,
        num_parameters: int | tuple[int, ...] = 1,
        *,
        init: float = 0.25,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer whose weights all have one value.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        num_parameters
            1 or the number of channels; or the lengths of several axes after the first.
        init
            The initial value.
        dtype
            The dtype of the weight.

        Raises
        ------
        TypeError, ValueError
            If ``num_parameters`` is neither a positive integer nor a sequence of them.
        """
        shape = _shape_of("fdbr.nn.PReLU.init", "num_parameters", num_parameters)
        return cls(initializers.constant(float(init))(key, shape, dtype))

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        return ops.prelu(x, self.weight)


@public("fdbr.nn")
@frozen
class Swish(Layer):
    """Swish: ``x * sigmoid(beta * x)`` with a trained ``beta``.

    Ramachandran, Zoph & Le, *Searching for activation functions*, arXiv:1710.05941.

    Attributes
    ----------
    beta
        One number, or the lengths of axes of ``x`` after the first.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.Swish.init(None)(np.array([0.0, 1.0], np.float32)).round(4)
    array([0.    , 0.7311], dtype=float32)
    """

    beta: Any

    @classmethod
    def init(
        cls,
        key: Any,
        shape: int | tuple[int, ...] = (),
        *,
        init: float = 1.0,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer whose ``beta`` has one value.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        shape
            The shape of ``beta``: a scalar by default, or the lengths of axes after the first.
        init
            The number.
        dtype
            The dtype of ``beta``.

        Raises
        ------
        TypeError, ValueError
            If a length is not a positive integer.
        """
        lengths = _shape_of("fdbr.nn.Swish.init", "shape", shape)
        return cls(initializers.constant(float(init))(key, lengths, dtype))

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        return ops.swish(x, self.beta)


@public("fdbr.nn")
@frozen
class RReLU(Layer):
    """Randomized ReLU: ``x`` where it is positive, and elsewhere times a factor, random in
    training.

    In inference the factor is the mean of the bounds: Xu, Wang, Chen & Li, *Empirical evaluation of
    rectified activations in convolutional network*, arXiv:1505.00853.

    Parameters
    ----------
    lower, upper
        The bounds of the factor.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.RReLU(0.25, 0.5)(np.array([-8.0, 1.0]))
    array([-3.,  1.])
    """

    lower: float = static(default=1 / 8)
    upper: float = static(default=1 / 3)

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        return ops.rrelu(x, self.lower, self.upper)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output with randomly drawn factors, and the layer.

        Raises
        ------
        TypeError
            If there is no key.
        """
        return ops.rrelu(x, self.lower, self.upper, key=needed_key("RReLU", key)), self


@public("fdbr.nn")
@frozen
class Maxout(Layer):
    """The largest of several fully connected layers, for each output.

    Goodfellow, Warde-Farley, Mirza, Courville & Bengio, *Maxout networks*, ICML 2013.

    Attributes
    ----------
    linear
        The `Linear` of ``out_features * pool_size`` outputs: the inputs of each maximum are
        adjacent.
    pool_size
        The number of linear outputs for each maximum.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Maxout.init(fdbr.random.key(0), 3, 2, 4)
    >>> layer(np.ones((5, 3), np.float32)).shape
    (5, 2)
    """

    linear: Linear
    pool_size: int = static()

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        out_features: int,
        pool_size: int,
        *,
        bias: bool = True,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_features, out_features, pool_size
            The sizes.
        bias, weight_init, bias_init, dtype
            As for `Linear`.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        where = "fdbr.nn.Maxout.init"
        outs = integer(where, "out_features", out_features, least=1)
        size = integer(where, "pool_size", pool_size, least=1)
        linear = Linear.init(
            key,
            in_features,
            outs * size,
            bias=bias,
            weight_init=weight_init,
            bias_init=bias_init,
            dtype=dtype,
        )
        return cls(linear, size)

    def __call__(self, x: Any) -> Any:
        """Return the output of shape ``(..., out_features)`` for ``x`` of shape ``(...,
        in_features)``.
        """
        return ops.maxout(self.linear(x), self.pool_size, axis=-1)
