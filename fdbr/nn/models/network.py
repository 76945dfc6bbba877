"""Networks with one definition for inference, training and extraction of features."""

import contextlib
from collections.abc import Sequence
from typing import Any, Self

from fdbr import ops, tree
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.sequential import Lambda, Sequential
from fdbr.pytrees.classes import fields_of
from fdbr.tree import frozen

__all__ = ["ImageNetwork", "Network"]


@public("fdbr.nn.models")
@frozen
class Network(Composite):
    """The base class of models; `extract` returns the outputs of their layers."""

    def other_layers(self) -> dict[str, str]:
        """Return further names that `extract` accepts, with the paths they refer to."""
        return {}

    def extract(self, *inputs: Any, **options: Any) -> dict[str, Any]:
        """Return the outputs of some layers, in inference.

        Nothing after the last of them is computed.

        Parameters
        ----------
        inputs, options
            The arguments of ``__call__``, and last the names, which can also be given as
            ``layers=``.  A name is the path of a layer in the model, as ``"layer2[0].conv1"`` or
            ``"layer2.0.conv1"``.

        Returns
        -------
        dict
            For each name the layer's output; where it is called several times, the first.

        Raises
        ------
        ValueError
            If the model has no such layer, or does not call it in inference.
        """
        names = options.pop("layers", None)
        if names is None:
            *inputs, names = inputs  # type: ignore[assignment]
        wanted = _paths(self, names)
        found: dict[str, Any] = {}
        with contextlib.suppress(_EnoughError):
            self._forward(_Watching(self, "", found, set(wanted.values())), *inputs, **options)
        missing = [name for name, path in wanted.items() if path not in found]
        if missing:
            raise ValueError(
                f"fdbr.nn.models: {type(self).__name__} does not call {', '.join(missing)} in "
                "inference; ask for layers that it does"
            )
        return {name: found[path] for name, path in wanted.items()}


class _EnoughError(Exception):
    """All requested outputs have been found."""


class _Watching:
    """The fields of a network, which record the outputs that were requested."""

    training = False

    def __init__(self, whole: Any, path: str, found: dict[str, Any], wanted: set[str]) -> None:
        self._whole = whole
        self._path = path
        self._found = found
        self._wanted = wanted

    def _left_out(self, x: Any, rate: float) -> Any:
        return x

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._whole, name)
        path = f"{self._path}.{name}"
        if isinstance(part, tuple | list):
            return [self._watched(member, f"{path}.{i}") for i, member in enumerate(part)]
        return self._watched(part, path)

    def _watched(self, part: Any, path: str) -> Any:
        if not callable(part):
            return part

        def call(*inputs: Any, **options: Any) -> Any:
            out = self._run(part, path, *inputs, **options)
            if path in self._wanted:
                self._found.setdefault(path, out)
                if len(self._found) == len(self._wanted):
                    raise _EnoughError
            return out

        return call

    def _run(self, part: Any, path: str, *inputs: Any, **options: Any) -> Any:
        if not any(name.startswith(f"{path}.") for name in self._wanted):
            return part(*inputs, **options)
        if isinstance(part, Composite):
            of = _Watching(part, path, self._found, self._wanted)
            return part._forward(of, *inputs, **options)
        if isinstance(part, Sequential):
            (x,) = inputs
            for i, layer in enumerate(part):
                x = self._watched(layer, f"{path}.{i}")(x)
            return x
        return part(*inputs, **options)


def _paths(model: Any, names: Any) -> dict[str, str]:
    """Return the path of each named layer, with a dot before each step."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(
            f"fdbr.nn.models: layers must be a list of names of layers, got {describe(names)}"
        )
    paths = {}
    others = model.other_layers()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"fdbr.nn.models: a layer's name must be text, got {describe(name)}")
        steps = others.get(name, name).replace("[", ".").replace("]", "").split(".")
        part, path = model, ""
        for step in steps:
            if isinstance(part, Sequential) and step == "layers":
                continue
            there = _layers_of(part)
            if step not in there:
                raise ValueError(
                    f"fdbr.nn.models: {type(model).__name__} has no layer {name!r}: where "
                    f"{step!r} should be, there are {', '.join(there) or 'none'}"
                )
            part, path = there[step], f"{path}.{step}"
        paths[name] = path
    return paths


def _layers_of(part: Any) -> dict[str, Any]:
    """Return the parts of a layer or of a sequence of layers, by name."""
    if isinstance(part, Sequential | tuple | list):
        return {str(i): member for i, member in enumerate(part)}
    fields = fields_of(type(part))
    if fields is None or isinstance(part, Lambda):
        return {}
    members = {name: getattr(part, name) for name in fields[0]}
    return {n: m for n, m in members.items() if callable(m) or isinstance(m, tuple | list)}


@public("fdbr.nn.models")
@frozen
class ImageNetwork(Network):
    """A network that takes a batch of images, or one."""

    def __call__(self, x: Any) -> Any:
        """Return the output for images.

        Parameters
        ----------
        x
            Shape ``(N, C, H, W)``; or ``(C, H, W)``, one image, whose output has no first axis.

        Returns
        -------
        array
            The logits, shape ``(N, classes)``.

        Raises
        ------
        ValueError
            If ``x`` has other axes or channels, or is too small for a layer.
        """
        x, alone = self._batch(x)
        return _unbatched(super().__call__(x), alone)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:  # type: ignore[override]
        """Return the output in training, and the model's successor.

        Parameters
        ----------
        x
            As in a call; batch statistics are those of all images together.
        key
            A random key, which is split among the layers; `None` if no layer draws random numbers.

        Returns
        -------
        tuple
            The logits, shape ``(N, classes)``, and the model with new running statistics.
        """
        x, alone = self._batch(x)
        out, successor = super().train(x, key=key)
        return _unbatched(out, alone), successor

    def extract(self, x: Any, layers: Sequence[str]) -> dict[str, Any]:
        """Return the outputs of some layers, in inference, for images.

        Nothing after the last of them is computed.

        Parameters
        ----------
        x
            As in a call.
        layers
            Paths of layers in the model, as ``"layer2[0].conv1"`` or ``"layer2.0.conv1"``.

        Returns
        -------
        dict
            For each name the layer's output, for one image without the first axis.

        Raises
        ------
        ValueError
            If the model has no such layer, or does not call it in inference.
        """
        x, alone = self._batch(x)
        return _unbatched(super().extract(x, layers), alone)

    def _batch(self, x: Any) -> tuple[Any, bool]:
        """Add a missing batch axis; returns also whether it was missing."""
        x = ops.asarray(x)
        if x.ndim not in (3, 4):
            raise ValueError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: x must be images of shape (N, C, H, "
                    f"W), or one of shape (C, H, W), got {describe(x)}"
                )
            )
        return (x[None], True) if x.ndim == 3 else (x, False)


def _unbatched(out: Any, alone: bool) -> Any:
    return tree.map(lambda part: part[0], out) if alone else out
