"""Arithmetic in memory that nobody else knows.

The right-hand sides of optimizers make temporaries; these functions write the next step into
them.  Traced values, which have no memory to write to, take the ordinary operators.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.ops.moments import square

__all__ = ["averaged", "divided", "in_parts", "norm", "of_all_parts", "plus", "square"]


def _has_room(fresh: Any, other: Any) -> bool:
    """Whether a step with another value can be written into one just computed."""
    if isinstance(fresh, Tracer) or isinstance(other, Tracer):
        return False
    dtype = getattr(other, "dtype", None)
    return dtype is None or dtype == getattr(fresh, "dtype", dtype)


def plus(fresh: Any, other: Any) -> Any:
    """``fresh + other``; ``fresh`` must be a value just computed, and is used up."""
    if not _has_room(fresh, other):
        return fresh + other
    fresh += other
    return fresh


def divided(fresh: Any, other: Any) -> Any:
    """``fresh / other``; ``fresh`` must be a value just computed, and is used up."""
    if not _has_room(fresh, other):
        return fresh / other
    fresh /= other
    return fresh


def averaged(mean: Any, new: Any, decay: Any) -> Any:
    """A running mean: ``decay * mean + (1 - decay) * new``."""
    return plus(decay * mean, (1 - decay) * new)


def norm(x: Any) -> Any:
    """The root of the sum of squares of all elements."""
    return of_all_parts(ops.sqrt(ops.sum(square(x))))


@contextmanager
def in_parts(add: Callable[[Any], Any]) -> Iterator[None]:
    """Within it arrays are parts of others, and ``add`` gives the sum of a number of all."""
    token = _adding.set(add)
    try:
        yield
    finally:
        _adding.reset(token)


def of_all_parts(length: Any) -> Any:
    """The norm of the whole, of the norm of a part."""
    add = _adding.get()
    return length if add is None else ops.sqrt(add(length * length))


_adding: ContextVar[Callable[[Any], Any] | None] = ContextVar("adding", default=None)
