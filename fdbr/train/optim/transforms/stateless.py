"""Transformations that keep nothing, made of functions."""

from collections.abc import Callable
from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.leafwise import leafwise

__all__ = ["set_to_zero", "stateless", "stateless_with_tree_map"]


@public_factory("fdbr.train.optim")
def set_to_zero() -> Optimizer:
    """Updates of zero, for parameters that are to stay as they are.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optim.set_to_zero().update([np.ones(2), None], optim.EmptyState())[0]
    [array([0., 0.]), None]
    """
    return leafwise("set_to_zero", lambda g, own, p, t: (nothing_like(g), own))


def nothing_like(g: Any) -> Any:
    """Zeros of an array's shape and dtype, or a number's kind."""
    return 0.0 * 0 if type(g) is float else ops.zeros_like(g)


@public_factory("fdbr.train.optim")
def stateless(f: Callable[[Any, Any], Any]) -> Optimizer:
    """A transformation that is a function of trees.

    Parameters
    ----------
    f
        ``f(updates, params) -> updates``, pure; ``params`` may be `None`.

    >>> from fdbr import tree
    >>> from fdbr.train import optim
    >>> ascent = optim.stateless(lambda updates, params: tree.scale(-1.0, updates))
    >>> ascent.update([1.0, None], ascent.init([0.0, 1]))
    ([-1.0, None], EmptyState())
    """

    def init(params: Any) -> EmptyState:
        return EmptyState()

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return tree.map(lock, f(grads, params)), EmptyState()

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def stateless_with_tree_map(f: Callable[[Any, Any], Any]) -> Optimizer:
    """A transformation that is a function of arrays.

    Parameters
    ----------
    f
        ``f(g, p) -> update``, pure: for the gradient of each leaf, and its parameter or `None`.

    >>> from fdbr.train import optim
    >>> signs = optim.stateless_with_tree_map(lambda g, p: (g > 0) - (g < 0))
    >>> signs.update([2.5, None], signs.init([0.0, 1]))
    ([1, None], EmptyState())
    """
    return leafwise("stateless_with_tree_map", lambda g, own, p, t: (f(g, p), own))
