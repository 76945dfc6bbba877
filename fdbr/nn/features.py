"""The outputs of a model's layers, by their paths."""

from collections.abc import Callable
from typing import Any, Self

from fdbr import tree
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.nn.parts import changed
from fdbr.pytrees.classes import fields_of
from fdbr.transforms.harvest import marked
from fdbr.tree import frozen, static

__all__ = ["mark_layers"]


@frozen
class _Marked(Layer):
    """A layer whose output is marked; other attributes are the wrapped layer's."""

    layer: Any
    path: str = static()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return marked(self.path, self.layer(*inputs, **options))

    def train(self, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        out, layer = self.layer.train(*inputs, **options)
        return marked(self.path, out), tree.replace(self, layer=layer)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.layer, name)


@public("fdbr.nn")
def mark_layers(model: Any, *paths: str, where: Callable[[str, Any], bool] | None = None) -> Any:
    """Return a model whose layers mark their outputs, which `harvest` returns by the layers' paths.

    The result behaves like the model, but its tree has another structure; so create it where it is
    called::

        features = fdbr.harvest(lambda model, x: nn.mark_layers(model, "layer3", "avgpool")(x))

    and gradients with respect to ``model`` have the structure of ``model``.

    Parameters
    ----------
    model
        A layer, or a frozen class of the user's.
    paths
        The paths of layers, such as ``"layer3"`` or ``"blocks[2].attention"``.
    where
        ``where(path, layer)`` tells whether a layer is marked, instead of ``paths``.  Without both,
        all layers within the model are marked.

    Returns
    -------
    model
        A model of the same class.

    Raises
    ------
    ValueError
        If there is no layer at a path, or none is chosen.
    TypeError
        If a path is no string, or both ``paths`` and ``where`` are given.

    >>> import fdbr, numpy as np
    >>> from fdbr import nn
    >>> model = nn.Sequential(nn.Lambda(np.sin), nn.Lambda(np.exp))
    >>> fdbr.harvest(nn.mark_layers(model, "layers[0]"))(0.0)[1]
    {'layers[0]': np.float64(0.0)}
    """
    name = "fdbr.nn.mark_layers"
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(f"{name}: paths must be strings, not {describe(path)}")
    if paths and where is not None:
        raise TypeError(f"{name}: give paths or where, not both")
    seen: list[str] = []
    chosen: list[str] = []

    def choose(path: str, value: Any) -> None:
        if path and fields_of(type(value)) is not None and callable(value):
            seen.append(path)
            if path in paths if paths else where is None or where(path, value):
                chosen.append(path)

    changed(model, choose)
    if missing := [path for path in paths if path not in seen]:
        raise ValueError(
            f"{name}: {type(model).__name__} has no layer at {', '.join(missing)}; its layers are "
            f"at {', '.join(seen) or 'no path'}"
        )
    if not chosen:
        raise ValueError(
            f"{name}: no layer of {type(model).__name__} is chosen; its layers are at "
            f"{', '.join(seen) or 'no path'}"
        )
    for path in reversed(chosen):  # inner layers come after the layers that contain them

        def marking(at: str, value: Any, path: str = path) -> Any:
            return _Marked(value, path) if at == path else None

        model = changed(model, marking)
    return model
