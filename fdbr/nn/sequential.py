"""Layers one after the other."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, overload

from fdbr import random, tree
from fdbr.core.array_modules import Array
from fdbr.errors.checks import name_of
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.tree import frozen, static

__all__ = ["Lambda", "Sequential"]


@public("fdbr.nn")
@frozen
class Lambda(Layer):
    """A plain function as a layer.

    The function belongs to the structure of the tree: it is not a leaf, and two trees with
    different functions are trees of different structure.

    Attributes
    ----------
    fn
        A function of one array.

    >>> import fdbr
    >>> fdbr.nn.Lambda(abs)(-3.0)
    3.0
    """

    fn: Callable[[Any], Any] = static(repr=name_of)

    def __call__(self, x: Any) -> Any:
        """Return ``fn(x)``."""
        return self.fn(x)


@public("fdbr.nn")
@frozen
class Sequential(Layer):
    """Layers, each applied to the output of the one before.

    Parameters
    ----------
    layers
        Layers and plain functions; functions are wrapped in `Lambda`.

    Raises
    ------
    TypeError
        If one of them cannot be called.

    >>> import fdbr
    >>> from fdbr import nn, ops
    >>> first, last = fdbr.random.split(fdbr.random.key(0))
    >>> net = nn.Sequential(nn.Linear.init(first, 4, 8), ops.relu, nn.Linear.init(last, 8, 2))
    >>> net(fdbr.random.normal(fdbr.random.key(1), (5, 4), "float32")).shape
    (5, 2)
    >>> len(net[:2]), net[1]
    (2, Lambda(fn=relu))
    """

    layers: tuple[Any, ...]

    torch_names: ClassVar = {"layers": ""}

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        self.__attrs_init__(tuple(_element(i, layer) for i, layer in enumerate(layers)))  # type: ignore[attr-defined]

    def __call__(self, x: Any) -> Any:
        """Return the output of the last layer, or ``x`` if there are no layers."""
        held = [x]  # no local name refers to it, so a layer may reuse its memory
        del x
        for layer in self.layers:
            function = layer.fn if type(layer) is Lambda else layer
            held.append(function(held.pop()))
        return held.pop()

    def train(self, x: Array, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output in training, and the layers' successors.

        Parameters
        ----------
        x
            The input of the first layer.
        key
            A random key, which is split among the layers; `None` if no layer draws random numbers.

        Returns
        -------
        tuple
            The output of the last layer, and a `Sequential` of the successors.
        """
        count = len(self.layers)
        keys = [None] * count if key is None or not count else random.split(key, count)
        successors = []
        for layer, own in zip(self.layers, keys, strict=True):
            if hasattr(layer, "train"):
                x, layer = layer.train(x, key=own)
            else:
                x = layer(x)
            successors.append(layer)
        return x, tree.replace(self, layers=tuple(successors))

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return a layer, or for a slice a `Sequential` of these layers."""
        if isinstance(index, slice):
            return type(self)(*self.layers[index])
        return self.layers[index]


def _element(position: int, layer: Any) -> Any:
    if not callable(layer):
        raise TypeError(
            f"fdbr.nn.Sequential: layer {position} is a {type(layer).__name__}, which cannot be "
            "called; give layers and functions of one array"
        )
    leaves = tree.leaves(layer)
    return Lambda(layer) if len(leaves) == 1 and leaves[0] is layer else layer
