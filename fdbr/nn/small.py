"""Small layers: gates beside a fully connected layer, bilinear forms, and bare parameters."""

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.core.array_modules import lock
from fdbr.errors.checks import integer, name_of
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.tree import frozen, static

__all__ = ["Bias", "Bilinear", "Highway", "Identity", "Parameter", "Scale"]

Init = initializers.Initializer | None


@public("fdbr.nn")
@frozen
class Identity(Layer):
    """The input itself, where a layer is expected.

    >>> import fdbr
    >>> fdbr.nn.Identity()(3.0)
    3.0
    """

    def __call__(self, x: Any) -> Any:
        """Return ``x``."""
        return x


@public("fdbr.nn")
@frozen
class Highway(Layer):
    """A fully connected layer and its input, mixed by a gate: ``t * f(plain(x)) + (1 - t) * x``.

    The gate is ``t = sigmoid(transform(x))``: Srivastava, Greff & Schmidhuber, *Highway networks*,
    arXiv:1505.00387.

    Attributes
    ----------
    plain, transform
        The `Linear` layers, with as many outputs as inputs.
    activation
        The function ``f``.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Highway.init(fdbr.random.key(0), 3)
    >>> layer(np.ones((2, 3), np.float32)).shape
    (2, 3)
    """

    plain: Linear
    transform: Linear
    activation: Callable[[Any], Any] = static(default=ops.relu, repr=name_of)

    @classmethod
    def init(
        cls,
        key: Any,
        features: int,
        *,
        activation: Callable[[Any], Any] = ops.relu,
        bias: bool = True,
        weight_init: Init = None,
        bias_init: Init = None,
        gate_weight_init: Init = None,
        gate_bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters, which at first passes most of its input through.

        Parameters
        ----------
        key
            A random key.
        features
            The length of the last axis.
        activation
            A function of one array.
        bias
            Whether both parts have a bias.
        weight_init, bias_init
            Initializers of the plain part: by default LeCun's normal distribution, and zeros.
        gate_weight_init, gate_bias_init
            Initializers of the gate: by default LeCun's normal distribution, and -1.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If ``features`` is not a positive integer.
        """
        count = integer("fdbr.nn.Highway.init", "features", features, least=1)
        first, second = random.split(key)
        settings: Any = {"bias": bias, "dtype": dtype}
        plain = Linear.init(
            first, count, count, weight_init=weight_init, bias_init=bias_init, **settings
        )
        transform = Linear.init(
            second,
            count,
            count,
            weight_init=gate_weight_init,
            bias_init=gate_bias_init or initializers.constant(-1.0),
            **settings,
        )
        return cls(plain, transform, activation)

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        gate = ops.sigmoid(self.transform(x))
        return self.activation(self.plain(x)) * gate + x * (1 - gate)


@public("fdbr.nn")
@frozen
class Bilinear(Layer):
    """A bilinear form of two inputs for each output, ``x1 @ weight[o] @ x2 + bias[o]``.

    Attributes
    ----------
    weight
        Shape ``(out_features, in1_features, in2_features)``, as in PyTorch.
    bias
        Shape ``(out_features,)``, or `None`.
    weight1, weight2
        The weights of linear terms in each input, shapes ``(out_features, in1_features)`` and
        ``(out_features, in2_features)``, or `None`.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Bilinear.init(fdbr.random.key(0), 2, 3, 4)
    >>> layer(np.ones((5, 2), np.float32), np.ones((5, 3), np.float32)).shape
    (5, 4)
    """

    weight: Any
    bias: Any
    weight1: Any = None
    weight2: Any = None

    @classmethod
    def init(
        cls,
        key: Any,
        in1_features: int,
        in2_features: int,
        out_features: int,
        *,
        bias: bool = True,
        linear_terms: bool = False,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in1_features, in2_features, out_features
            The lengths of the last axes of the inputs and the output.
        bias
            Whether the layer has a bias.
        linear_terms
            Whether there are linear terms too, as in Chainer.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default uniform between ``±1 / sqrt(in1_features)``,
            and LeCun's normal distribution for linear terms.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        where = "fdbr.nn.Bilinear.init"
        ones = integer(where, "in1_features", in1_features, least=1)
        twos = integer(where, "in2_features", in2_features, least=1)
        outs = integer(where, "out_features", out_features, least=1)
        keys = random.split(key, 4)
        usual = initializers.uniform(1 / math.sqrt(ones))
        weight = (weight_init or usual)(keys[0], (outs, ones, twos), dtype)
        shift = (bias_init or usual)(keys[1], (outs,), dtype) if bias else None
        if not linear_terms:
            return cls(weight, shift)
        linear = weight_init or initializers.lecun_normal()
        first, second = linear(keys[2], (outs, ones), dtype), linear(keys[3], (outs, twos), dtype)
        return cls(weight, shift, first, second)

    def __call__(self, x1: Any, x2: Any = None) -> Any:
        """Return the output of shape ``(..., out_features)``; the inputs may be given as a pair."""
        if x2 is None:
            x1, x2 = x1
        return ops.bilinear(
            x1, x2, self.weight, self.bias, weight1=self.weight1, weight2=self.weight2
        )

    def train(self, x1: Any, x2: Any = None, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output, and the layer."""
        return self(x1, x2), self


@public("fdbr.nn")
@frozen
class Scale(Layer):
    """Multiply by a weight along some axes, and add a bias.

    Attributes
    ----------
    weight
        An array whose shape is that of some axes of ``x``, from ``axis`` on.
    bias
        An array of the same shape, or `None`.
    axis
        The first of these axes.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.Scale.init(None, 3)(np.ones((2, 3, 4), np.float32)).shape
    (2, 3, 4)
    """

    weight: Any
    bias: Any = None
    axis: int = static(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        shape: int | tuple[int, ...],
        *,
        axis: int = 1,
        bias: bool = False,
        weight_init: Init = None,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with weight 1, and bias 0 if it has one.

        Parameters
        ----------
        key
            A random key; `None` suffices for the default initializers.
        shape
            The shape of the weight: an integer or a tuple.
        axis
            The first axis of ``x`` that the weight belongs to.
        bias
            Whether there is a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default ones and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a length is not a positive integer.
        """
        lengths = _lengths("fdbr.nn.Scale.init", shape)
        first, second = (None, None) if key is None else random.split(key)
        weight = (weight_init or initializers.ones())(first, lengths, dtype)
        shift = (bias_init or initializers.zeros())(second, lengths, dtype) if bias else None
        return cls(weight, shift, axis)

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        out = ops.scale(x, self.weight, axis=self.axis)
        return out if self.bias is None else ops.bias(out, self.bias, axis=self.axis)


@public("fdbr.nn")
@frozen
class Bias(Layer):
    """Add a bias along some axes.

    Attributes
    ----------
    bias
        An array whose shape is that of some axes of ``x``, from ``axis`` on.
    axis
        The first of these axes.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.Bias.init(None, 3)(np.ones((2, 3, 4), np.float32)).shape
    (2, 3, 4)
    """

    bias: Any
    axis: int = static(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        shape: int | tuple[int, ...],
        *,
        axis: int = 1,
        bias_init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with bias 0.

        Parameters
        ----------
        key, shape, axis, bias_init, dtype
            As for `Scale`.

        Raises
        ------
        TypeError, ValueError
            If a length is not a positive integer.
        """
        lengths = _lengths("fdbr.nn.Bias.init", shape)
        return cls((bias_init or initializers.zeros())(key, lengths, dtype), axis)

    def __call__(self, x: Any) -> Any:
        """Return the output, which has the shape of ``x``."""
        return ops.bias(x, self.bias, axis=self.axis)


@public("fdbr.nn")
@frozen
class Parameter(Layer):
    """A trained array as a layer without input; a field of a frozen class does the same.

    Attributes
    ----------
    array
        The array.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.nn.Parameter(np.array([1.0, 2.0]))()
    array([1., 2.])
    """

    array: Any

    @classmethod
    def init(
        cls,
        key: Any,
        shape: int | tuple[int, ...],
        *,
        init: Init = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a fresh parameter.

        Parameters
        ----------
        key
            A random key.
        shape
            The shape of the array: an integer or a tuple.
        init
            ``init(key, shape, dtype)``; by default zeros.
        dtype
            The dtype of the array.

        Raises
        ------
        TypeError, ValueError
            If a length is not a positive integer.
        """
        lengths = _lengths("fdbr.nn.Parameter.init", shape)
        return cls(lock((init or initializers.zeros())(key, lengths, dtype)))

    def __call__(self, x: Any = None) -> Any:
        """Return the array; the input is ignored."""
        return self.array

    def train(self, x: Any = None, *, key: Any = None) -> tuple[Any, Self]:
        """Return the array, and the layer."""
        return self.array, self


def _lengths(where: str, shape: Any) -> tuple[int, ...]:
    lengths = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return tuple([integer(where, "shape", length, least=1) for length in lengths])
