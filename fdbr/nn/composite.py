"""Layers made of layers, with one definition for inference and for training."""

from typing import Any, ClassVar, Self

from fdbr import ops, random, tree
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer

__all__ = ["Composite"]


class Composite(Layer):
    """The base class of layers that combine the layers in their fields by `_forward`.

    `_forward` takes these layers not from ``self`` but from its second argument, under the names of
    the fields.  In inference that argument is ``self``; in training it is an object that gives each
    layer a key and records its successor.  A field may be a tuple of layers.
    """

    __slots__ = ()

    training: ClassVar[bool] = False
    """Whether `_forward` runs in training; it is read from `_forward`'s second argument."""

    def _forward(self, of: Any, *inputs: Any, **options: Any) -> Any:
        """Compute the output with the layers found in ``of``."""
        raise NotImplementedError(f"{type(self).__name__} has no `_forward`")

    def _left_out(self, x: Any, rate: float) -> Any:
        """Return ``x``; in training, apply dropout with that rate."""
        return x

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self._forward(self, *inputs, **options)

    def train(self, *inputs: Any, key: Any = None, **options: Any) -> tuple[Any, Self]:
        """Return the output in training, and a layer made of the successors.

        Parameters
        ----------
        inputs, options
            The arguments of ``__call__``.
        key
            A random key, which is split among the layers; `None` if no layer draws random numbers.
        """
        return self._trained(key, *inputs, **options)

    def _trained(self, key: Any, /, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        """Compute the same as `train`, for subclasses whose `train` has another signature."""
        of = _Training(self, key)
        out = self._forward(of, *inputs, **options)
        return out, tree.replace(self, **of.successors)


class _Training:
    """The fields of a layer in training: each call runs `train` and records the successor."""

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
            return [self._trained(member, name, index) for index, member in enumerate(part)]
        return self._trained(part, name)

    def _trained(self, part: Any, name: str, index: int | None = None) -> Any:
        if not hasattr(part, "train"):
            return part

        def run(*inputs: Any, **options: Any) -> Any:
            now = self.successors.get(name, getattr(self._layer, name))
            key = None if self._key is None else random.fold_in(self._key, self._calls)
            self._calls += 1
            if index is None:
                out, self.successors[name] = now.train(*inputs, key=key, **options)
            else:
                out, successor = now[index].train(*inputs, key=key, **options)
                self.successors[name] = (*now[:index], successor, *now[index + 1 :])
            return out

        return run
