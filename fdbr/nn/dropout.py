"""Dropout layers, which drop something at random in training and nothing in inference."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import frozen, static

__all__ = [
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "SimplifiedDropconnect",
    "SpatialDropout",
    "StochasticDepth",
]


def needed_key(name: str, key: Any) -> Any:
    """Return the key of a layer's `train`; raises if there is none."""
    if key is None:
        raise TypeError(
            placed(
                f"fdbr.nn.{name}: train draws random numbers and got no key; call "
                "model.train(x, key=key) with one that fdbr.random.key(seed) or split made"
            )
        )
    return key


@public("fdbr.nn")
@frozen
class _LeavingOut(Layer):
    """The base class of layers with one dropout rate."""

    rate: float = static(default=0.5)

    def __init__(self, rate: float = 0.5, *, p: float | None = None) -> None:
        rate = check_rate(f"fdbr.nn.{type(self).__name__}", rate if p is None else p)
        self.__attrs_init__(rate)  # type: ignore[attr-defined]

    def __call__(self, x: Any) -> Any:
        """Return the input itself."""
        return x


@public("fdbr.nn")
@frozen(init=False)
class Dropout(_LeavingOut):
    """Dropout: in training, set elements to 0 with probability ``rate`` and rescale the others.

    Srivastava et al., *Dropout: a simple way to prevent neural networks from overfitting*, JMLR
    2014.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is not a number in [0, 1).

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Dropout(0.5)
    >>> layer(np.ones(3))
    array([1., 1., 1.])
    >>> y, _ = layer.train(np.ones(1000), key=fdbr.random.key(0))
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the input after dropout, and the layer.

        Raises
        ------
        TypeError
            If there is no key, and the rate is not 0.
        """
        if not self.rate and key is None:
            return x, self
        return ops.dropout(x, self.rate, key=needed_key("Dropout", key)), self


@public("fdbr.nn")
@frozen(init=False)
class SpatialDropout(_LeavingOut):
    """In training, set whole channels of ``(N, C, ...)`` to 0 with probability ``rate``.

    PyTorch's ``Dropout2d``; Tompson et al., *Efficient object localization using convolutional
    networks*, CVPR 2015.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is not a number in [0, 1).

    >>> import fdbr
    >>> import numpy as np
    >>> y, _ = fdbr.nn.SpatialDropout(0.5).train(np.ones((1, 3, 2)), key=fdbr.random.key(0))
    >>> y.tolist()
    [[[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]]
    """

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the input with channels dropped, and the layer.

        Raises
        ------
        TypeError, ValueError
            If there is no key, or ``x`` has no channels.
        """
        return ops.spatial_dropout(x, self.rate, key=needed_key("SpatialDropout", key)), self


@public("fdbr.nn")
@frozen(init=False)
class AlphaDropout(_LeavingOut):
    """Dropout for networks of `fdbr.ops.selu`, that keeps mean 0 and variance 1.

    Klambauer, Unterthiner, Mayr & Hochreiter, *Self-normalizing neural networks*, NIPS 2017.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.
    channels
        Whether whole channels of inputs ``(N, C, ...)`` are dropped.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is not a number in [0, 1).

    >>> import fdbr
    >>> import numpy as np
    >>> y, _ = fdbr.nn.AlphaDropout(0.5).train(np.zeros(1000), key=fdbr.random.key(0))
    >>> sorted(set(y.round(3).tolist()))
    [-0.779, 0.779]
    """

    channels: bool = static(default=False)

    def __init__(
        self, rate: float = 0.5, *, p: float | None = None, channels: bool = False
    ) -> None:
        rate = check_rate("fdbr.nn.AlphaDropout", rate if p is None else p)
        self.__attrs_init__(rate, bool(channels))  # type: ignore[attr-defined]

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the input after dropout, and the layer.

        Raises
        ------
        TypeError
            If there is no key.
        """
        key = needed_key("AlphaDropout", key)
        return ops.alpha_dropout(x, self.rate, channels=self.channels, key=key), self


@public("fdbr.nn")
@frozen(init=False)
class GaussianDropout(_LeavingOut):
    """In training, multiply by normal noise of mean 1 and variance ``rate / (1 - rate)``.

    Srivastava et al., *Dropout*, JMLR 2014, section 10.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is not a number in [0, 1).

    >>> import fdbr
    >>> import numpy as np
    >>> y, _ = fdbr.nn.GaussianDropout(0.2).train(np.ones(10_000), key=fdbr.random.key(0))
    >>> round(float(y.std()), 1)
    0.5
    """

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the input with noise, and the layer.

        Raises
        ------
        TypeError
            If there is no key.
        """
        return ops.gaussian_dropout(x, self.rate, key=needed_key("GaussianDropout", key)), self


@public("fdbr.nn")
@frozen(init=False)
class StochasticDepth(_LeavingOut):
    """In training, set examples to 0 with probability ``rate`` and rescale the others.

    It is used at the end of a residual branch, ``x + drop(branch(x))``, and so skips the branch:
    Huang et al., *Deep networks with stochastic depth*, ECCV 2016.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.
    mode
        ``"row"``: each example of a batch is dropped independently; ``"batch"``: all together.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is not a number in [0, 1), or ``mode`` is unknown.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.StochasticDepth(0.5)
    >>> y, _ = layer.train(np.ones((5, 2)), key=fdbr.random.key(1))
    >>> y.tolist()
    [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
    """

    mode: str = static(default="row")

    def __init__(self, rate: float = 0.5, mode: str = "row", *, p: float | None = None) -> None:
        rate = check_rate("fdbr.nn.StochasticDepth", rate if p is None else p)
        if mode not in ("row", "batch"):
            raise ValueError(
                f"fdbr.nn.StochasticDepth: mode must be 'row' or 'batch', got {describe(mode)}"
            )
        self.__attrs_init__(rate, mode)  # type: ignore[attr-defined]

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the input with examples dropped, and the layer.

        Raises
        ------
        TypeError
            If there is no key, and the rate is not 0.
        """
        if not self.rate and key is None:
            return x, self
        key = needed_key("StochasticDepth", key)
        return ops.drop_path(x, self.rate, mode=self.mode, key=key), self


@public("fdbr.nn")
@frozen
class SimplifiedDropconnect(Layer):
    """A fully connected layer whose weight has elements dropped at random in training.

    After Wan et al., *Regularization of neural networks using DropConnect*, ICML 2013.

    Attributes
    ----------
    weight, bias
        As of `Linear`.
    rate
        The probability that an element is dropped, in [0, 1).
    batchwise
        Whether elements are dropped independently for each example.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.SimplifiedDropconnect.init(fdbr.random.key(0), 3, 2)
    >>> y, _ = layer.train(np.ones((4, 3), np.float32), key=fdbr.random.key(1))
    >>> y.shape
    (4, 2)
    """

    weight: Any
    bias: Any
    rate: float = static(default=0.5)
    batchwise: bool = static(default=True)

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        out_features: int,
        *,
        rate: float = 0.5,
        batchwise: bool = True,
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
        rate, batchwise
            The settings.
        bias
            Whether the layer has a bias.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution, and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a number of features is not a positive integer, or ``rate`` not in [0, 1).
        """
        where = "fdbr.nn.SimplifiedDropconnect.init"
        rate = check_rate(where, rate)
        sizes = (
            integer(where, "out_features", out_features, least=1),
            integer(where, "in_features", in_features, least=1),
        )
        weight_key, bias_key = random.split(key)
        weight = (weight_init or initializers.lecun_normal())(weight_key, sizes, dtype)
        shift = None
        if bias:
            shift = (bias_init or initializers.zeros())(bias_key, sizes[:1], dtype)
        return cls(weight, shift, rate, bool(batchwise))

    def __call__(self, x: Any) -> Any:
        """Return the output with the whole weight."""
        return ops.linear(x, self.weight, self.bias)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output with weights dropped at random, and the layer.

        Raises
        ------
        TypeError
            If there is no key.
        """
        out = ops.simplified_dropconnect(
            x,
            self.weight,
            self.bias,
            self.rate,
            batchwise=self.batchwise,
            key=needed_key("SimplifiedDropconnect", key),
        )
        return out, self
