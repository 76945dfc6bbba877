"""Layers made of layers, whose computation is written once for inference and for training."""

from typing import Any, Self

from fdbr import random, tree
from fdbr.nn.layer import Layer

__all__ = ["Composite"]


class Composite(Layer):
    """The base of layers that say in `_forward` how the layers in their fields follow each other.

    `_forward` finds these layers not in ``self`` but in its second argument, under the names of
    the fields: in inference that is ``self``, in training it gives each its key, and notes its
    successor.
    """

    __slots__ = ()

    def _forward(self, of: Any, x: Any) -> Any:
        """The output, computed with the layers of ``of``."""
        raise NotImplementedError

    def __call__(self, x: Any) -> Any:
        return self._forward(self, x)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """The output in training, and the layer of the successors.

        Parameters
        ----------
        x
            What ``__call__`` takes.
        key
            A key, of which each layer gets its own; `None` if no layer draws.
        """
        of = _Training(self, key)
        out = self._forward(of, x)
        return out, tree.replace(self, **of.successors)


class _Training:
    """The layers of a layer, as functions that note what becomes of them."""

    def __init__(self, layer: Any, key: Any) -> None:
        self._layer = layer
        self._key = key
        self.successors: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._layer, name)
        if not hasattr(part, "train"):
            return part

        def run(x: Any) -> Any:
            key = self._key
            if key is not None:
                key = random.fold_in(key, len(self.successors))
            y, self.successors[name] = part.train(x, key=key)
            return y

        return run
