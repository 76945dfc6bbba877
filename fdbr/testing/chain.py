"""Derivatives of derivatives of a function, each a function of the same arguments."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module
from fdbr.core.devices import is_host
from fdbr.testing.numeric import differentiated
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import vjp

__all__ = ["Link", "cotangents", "cotangents_in", "tangent_out", "tangents", "weight"]

Function = Callable[..., Any]


@dataclass(frozen=True)
class Link:
    """A function or a derivative of it, as a function from the arguments to a list of leaves.

    Attributes
    ----------
    call
        The function.
    scaled
        ``scaled(scales, *args)``: a derivative by cotangents or tangents times a scale.
    chain
        How it came about: ``("jvp", "vjp")`` is the `jvp` of the `vjp` of the function itself.
    names
        How messages call the leaves of its result.
    """

    call: Function
    scaled: Function | None
    chain: tuple[str, ...]
    names: list[str]

    def under(self, *modes: str) -> str:
        """The name of a transformation of it in messages."""
        return " of ".join((*modes, *self.chain))


def cotangents_in(link: Link, args: Any, seed: int) -> Link:
    """The gradient of a link's result, contracted with fixed random cotangents."""

    def call(scales: Any, *args: Any) -> list[Any]:
        out, pullback = vjp(lambda args: link.call(*args), args)
        (gradient,) = pullback(_times(scales, cotangents(out, seed)))
        return tree.leaves(gradient)

    everything = zip(tree.paths(args), differentiated(args), strict=True)
    names = [f"the gradient by args{path}" for path, choose in everything if choose]
    return Link(functools.partial(call, None), call, ("vjp", *link.chain), names)


def tangent_out(link: Link, args: Any, seed: int) -> Link:
    """The derivative of a link's result along fixed random tangents."""

    def call(scales: Any, *args: Any) -> list[Any]:
        steps = _times(scales, tangents(args, seed))
        return tree.leaves(jvp(link.call, args, tree.unflatten(tree.structure(args), steps))[1])

    everything = zip(link.call(*args), link.names, strict=True)
    names = [f"the tangent of {name}" for leaf, name in everything if tree.is_inexact(leaf)]
    return Link(functools.partial(call, None), call, ("jvp", *link.chain), names)


def _times(scales: dict[str, Any] | None, weights: list[Any]) -> list[Any]:
    """Cotangents or tangents times a scale, of which there is one for each array module."""
    if scales is None:
        return weights
    names = ["" if isinstance(w, np.generic) else array_module(w).__name__ for w in weights]
    return [
        w if w is None else w * ops.astype(scales[name], w.dtype)
        for w, name in zip(weights, names, strict=True)
    ]


def cotangents(out: list[Any], seed: int) -> list[Any]:
    """Fixed random cotangents of the floating leaves of a result; `None` for the others."""
    generator = np.random.Generator(np.random.Philox(key=(seed, 0)))
    return [weight(leaf, generator) if tree.is_inexact(leaf) else None for leaf in out]


def tangents(args: Any, seed: int) -> list[Any]:
    """Fixed random tangents of the leaves that are differentiated; `None` for the others."""
    generator = np.random.Generator(np.random.Philox(key=(seed, 1)))
    everything = zip(tree.leaves(args), differentiated(args), strict=True)
    return [weight(leaf, generator) if choose else None for leaf, choose in everything]


def weight(leaf: Any, generator: Any) -> Any:
    """Numbers of both signs away from 0, which every dtype holds exactly."""
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", None) or np.dtype(type(leaf))
    numbers = generator.integers(32, 96, shape) * generator.choice((-1, 1), shape) / 64
    if dtype.kind == "c":
        numbers = numbers + 1j * generator.integers(32, 96, shape) / 64
    numbers = np.asarray(numbers, dtype=dtype)
    xp = array_module(leaf)
    return numbers[()] if is_host(xp) else xp.asarray(numbers)
