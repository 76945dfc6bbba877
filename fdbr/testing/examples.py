"""Batches of examples near a point, on which `vmap` is compared with a loop."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module, to_numpy
from fdbr.testing.numeric import STEP, differentiated
from fdbr.transforms.vmap import vmap

__all__ = ["SCALES", "Batch", "batches"]

# By these the examples' cotangents and tangents differ.
SCALES = (1.0, 1.25, 1.5)


class Batch:
    """Several examples of some arguments; the other arguments are shared by all.

    Attributes
    ----------
    name
        Which arguments are batched, for messages.
    chosen
        The leaves that are differentiated, by number.
    values
        These leaves: with the examples along the first axis where they are batched.
    batched
        Which of them are.
    """

    def __init__(self, args: tuple[Any, ...], subset: Sequence[int]) -> None:
        self.leaves, self.structure = tree.flatten(args)
        self.name = ", ".join(f"args[{i}]" for i in subset)
        owners = [i for i, arg in enumerate(args) for _ in tree.leaves(arg)]
        self.chosen = [i for i, choose in enumerate(differentiated(args)) if choose]
        self.batched = [owners[i] in subset for i in self.chosen]
        generator = np.random.Generator(np.random.Philox(key=(0, 2)))
        self.values = [
            _around(self.leaves[i], array_module(*self.leaves), generator)
            if own
            else self.leaves[i]
            for i, own in zip(self.chosen, self.batched, strict=True)
        ]

    def example(self, number: int) -> Any:
        """The arguments of one example."""
        both = zip(self.values, self.batched, strict=True)
        return self._arguments([value[number] if own else value for value, own in both])

    def _arguments(self, values: Sequence[Any]) -> Any:
        leaves = list(self.leaves)
        for i, value in zip(self.chosen, values, strict=True):
            leaves[i] = value
        return tree.unflatten(self.structure, leaves)

    def vectorised(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the arguments, as one of the batch's values."""
        return vmap(lambda *values: call(*self._arguments(values)), in_axes=self._axes())

    def scaled(self, call: Callable[..., Any]) -> Any:
        """The results for the batch, of a function of scales and of the arguments.

        There are scales for each array module, by its name, and under ``""`` for numbers.
        """
        modules = {xp.__name__: xp for xp in (np, *map(array_module, self.values))}
        modules[""] = array_module(*self.values)
        scales = {name: xp.asarray(np.array(SCALES)) for name, xp in modules.items()}
        return vmap(
            lambda scales, *values: call(scales, *self._arguments(values)), (0, *self._axes())
        )(scales, *self.values)

    def _axes(self) -> tuple[int | None, ...]:
        return tuple(0 if own else None for own in self.batched)


def batches(args: tuple[Any, ...]) -> Iterator[Batch]:
    """All arguments batched, then some of them: every subset, or each alone if they are many."""
    able = [i for i, arg in enumerate(args) if any(differentiated((arg,)))]
    sizes = range(len(able), 0, -1) if len(able) <= 3 else (len(able), 1)
    for size in sizes:
        for subset in itertools.combinations(able, size):
            yield Batch(args, subset)


def _around(leaf: Any, xp: Any, generator: Any) -> Any:
    """The leaf, and copies of it moved as little as for numerical derivatives.

    Numbers go to the array module of the other arguments.
    """
    host = to_numpy(leaf)
    moved = [host]
    for _ in SCALES[1:]:
        shift = generator.uniform(-STEP, STEP, host.shape) * np.maximum(1, np.abs(host))
        if host.dtype.kind == "c":
            shift = shift * (1 + 1j)
        moved.append(host + shift)
    batch = np.stack(moved).astype(host.dtype)
    xp = array_module(leaf) if hasattr(leaf, "shape") else xp
    return xp.asarray(batch)
