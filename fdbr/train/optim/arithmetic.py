"""Arithmetic in memory that nobody else knows.

The right-hand sides of optimizers make temporaries; these functions write the next step into
them.  Traced values, which have no memory to write to, take the ordinary operators.
"""

from collections.abc import Callable
from typing import Any

from fdbr.backend import on_device, several
from fdbr.core import Tracer

__all__ = ["divided", "plus", "times", "where_it_lies"]


def where_it_lies(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a leaf and what belongs to it that runs on the device of the leaf."""

    def there(leaf: Any, *others: Any) -> Any:
        if not several:
            return function(leaf, *others)
        with on_device(leaf):
            return function(leaf, *others)

    return there


def plus(fresh: Any, other: Any) -> Any:
    """``fresh + other``; ``fresh`` must be a value just computed, and is used up."""
    if isinstance(fresh, Tracer) or isinstance(other, Tracer):
        return fresh + other
    fresh += other
    return fresh


def times(fresh: Any, other: Any) -> Any:
    """``fresh * other``; ``fresh`` must be a value just computed, and is used up."""
    if isinstance(fresh, Tracer) or isinstance(other, Tracer):
        return fresh * other
    fresh *= other
    return fresh


def divided(fresh: Any, other: Any) -> Any:
    """``fresh / other``; ``fresh`` must be a value just computed, and is used up."""
    if isinstance(fresh, Tracer) or isinstance(other, Tracer):
        return fresh / other
    fresh /= other
    return fresh
