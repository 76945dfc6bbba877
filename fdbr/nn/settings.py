"""Fields of layers that hold settings, given as numbers or as sequences of them."""

from typing import Any

from fdbr.tree import static

__all__ = ["setting"]


def setting(**options: Any) -> Any:
    """A field that can be compared and hashed: lists become tuples."""
    return static(converter=_settled, **options)


def _settled(value: Any) -> Any:
    return tuple(map(_settled, value)) if isinstance(value, list | tuple) else value
