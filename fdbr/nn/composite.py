"""Layers made of layers, whose computation is written once for inference and for training."""

from typing import Any, ClassVar, Self

from fdbr import ops, random, tree
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer

__all__ = ["Composite"]


class Composite(Layer):
    """The base of layers that say in `_forward` how the layers in their fields follow each other.

    `_forward` finds these layers not in ``self`` but in its second argument, under the names of
    the fields: in inference that is ``self``, in training it gives each its key, and notes its
    successor.  A field may be a tuple of layers.
    """

    __slots__ = ()

    training: ClassVar[bool] = False
    """What `_forward` finds in its second argument: whether it is used in training."""

    def _forward(self, of: Any, *inputs: Any, **options: Any) -> Any:
        """The output, computed with the layers of ``of``."""
        raise NotImplementedError(f"{type(self).__name__} has no `_forward`")

    def _left_out(self, x: Any, rate: float) -> Any:
        """``x``; in training, with elements left out at that rate."""
        return x

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self._forward(self, *inputs, **options)

    def train(self, *inputs: Any, key: Any = None, **options: Any) -> tuple[Any, Self]:
        """The output in training, and the layer of the successors.

        Parameters
        ----------
        inputs, options
            What ``__call__`` takes.
        key
            A key, of which each layer gets its own; `None` if no layer draws.
        """
        return self._trained(key, *inputs, **options)

    def _trained(self, key: Any, /, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        """The same, for layers whose `train` has a signature of its own."""
        of = _Training(self, key)
        out = self._forward(of, *inputs, **options)
        return out, tree.replace(self, **of.successors)


class _Training:
    """The layers of a layer, as functions that note what becomes of them."""

    training = True

    def __init__(self, layer: Any, key: Any) -> None:
        self._layer = layer
        self._key = key
        self._calls = 0
        self.successors: dict[str, Any] = {}

    def _left_out(self, x: Any, rate: float) -> Any:
        if not rate:
            return x
        key = needed_key(type(self._layer).__name__, self._key)
        self._calls += 1
        return ops.dropout(x, rate, key=random.fold_in(key, self._calls - 1))

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._layer, name)
        if isinstance(part, tuple):
            return [self._trained(member, name, place) for place, member in enumerate(part)]
        return self._trained(part, name)

    def _trained(self, part: Any, name: str, place: int | None = None) -> Any:
        if not hasattr(part, "train"):
            return part

        def run(*inputs: Any, **options: Any) -> Any:
            now = self.successors.get(name, getattr(self._layer, name))
            key = None if self._key is None else random.fold_in(self._key, self._calls)
            self._calls += 1
            if place is None:
                out, self.successors[name] = now.train(*inputs, key=key, **options)
            else:
                out, successor = now[place].train(*inputs, key=key, **options)
                self.successors[name] = (*now[:place], successor, *now[place + 1 :])
            return out

        return run
