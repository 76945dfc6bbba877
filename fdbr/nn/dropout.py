"""Layers that leave something out by chance in training, and nothing in inference."""

from typing import Any, Self

from fdbr import ops
from fdbr.messages import describe
from fdbr.nn.layer import Layer
from fdbr.ops.networks.dropout import proper_rate
from fdbr.tree import frozen, static
from fdbr.whereabouts import placed

__all__ = ["Dropout", "StochasticDepth"]


def needed_key(name: str, key: Any) -> Any:
    """The key of a layer's `train`, which must be given."""
    if key is None:
        raise TypeError(
            placed(
                f"fdbr.nn.{name}: train draws random numbers and got no key; call "
                "model.train(x, key=key) with one that fdbr.random.key(seed) or split made"
            )
        )
    return key


@frozen
class Dropout(Layer):
    """In training, each element is 0 with probability ``rate``, and divided by ``1 - rate`` else.

    Srivastava et al., *Dropout: a simple way to prevent neural networks from overfitting*, JMLR
    2014.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is no number in [0, 1).

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Dropout(0.5)
    >>> layer(np.ones(3))
    array([1., 1., 1.])
    >>> y, _ = layer.train(np.ones(1000), key=fdbr.random.key(0))
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """

    rate: float = static(default=0.5)

    def __init__(self, rate: float = 0.5, *, p: float | None = None) -> None:
        rate = proper_rate("fdbr.nn.Dropout", rate if p is None else p)
        self.__attrs_init__(rate)  # type: ignore[attr-defined]

    def __call__(self, x: Any) -> Any:
        """The input itself."""
        return x

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """The input with elements left out, and the layer.

        Raises
        ------
        TypeError
            If there is no key, and the rate is not 0.
        """
        if not self.rate and key is None:
            return x, self
        return ops.dropout(x, self.rate, key=needed_key("Dropout", key)), self


@frozen
class StochasticDepth(Layer):
    """In training, an example is 0 with probability ``rate``, and divided by ``1 - rate`` else.

    It stands at the end of a residual branch, ``x + drop(branch(x))``, which then is left out:
    Huang et al., *Deep networks with stochastic depth*, ECCV 2016.

    Parameters
    ----------
    rate
        A number in [0, 1); ``p`` is another name for it.
    mode
        ``"row"``: each example of a batch has its own chance; ``"batch"``: all have one.

    Raises
    ------
    TypeError, ValueError
        If ``rate`` is no number in [0, 1), or there is no such mode.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.StochasticDepth(0.5)
    >>> y, _ = layer.train(np.ones((5, 2)), key=fdbr.random.key(1))
    >>> y.tolist()
    [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0], [2.0, 2.0]]
    """

    rate: float = static(default=0.5)
    mode: str = static(default="row")

    def __init__(self, rate: float = 0.5, mode: str = "row", *, p: float | None = None) -> None:
        rate = proper_rate("fdbr.nn.StochasticDepth", rate if p is None else p)
        if mode not in ("row", "batch"):
            raise ValueError(
                f"fdbr.nn.StochasticDepth: mode must be 'row' or 'batch', got "
                f"{mode if isinstance(mode, str) else describe(mode)!r}"
            )
        self.__attrs_init__(rate, mode)  # type: ignore[attr-defined]

    def __call__(self, x: Any) -> Any:
        """The input itself."""
        return x

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """The input with examples left out, and the layer.

        Raises
        ------
        TypeError
            If there is no key.
        """
        key = needed_key("StochasticDepth", key)
        return ops.drop_path(x, self.rate, mode=self.mode, key=key), self
