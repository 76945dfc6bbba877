"""Fields of layers that hold settings, given as numbers or as sequences of them."""

from typing import Any

from fdbr.tree import static
from fdbr.whereabouts import placed

__all__ = ["for_axes", "setting"]


def setting(**options: Any) -> Any:
    """A field that can be compared and hashed: lists become tuples."""
    return static(converter=_settled, **options)


def _settled(value: Any) -> Any:
    return tuple(map(_settled, value)) if isinstance(value, list | tuple) else value


def for_axes(value: Any, dimensions: int | None) -> Any:
    """A setting for each of a known number of spatial axes; as it is where there is none."""
    if dimensions is None:
        return value
    if not isinstance(value, tuple):
        return (value,) * dimensions
    if len(value) != dimensions:
        message = f"fdbr.nn: {value} must be an integer, or {dimensions}, one for each spatial axis"
        raise ValueError(placed(message))
    return value
