"""Arithmetic in memory that nobody else knows.

The right-hand sides of optimizers make temporaries; these functions write the next step into
them.  Traced values, which have no memory to write to, take the ordinary operators.
"""

from typing import Any

from fdbr.core import Tracer

__all__ = ["divided", "plus", "times"]


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
