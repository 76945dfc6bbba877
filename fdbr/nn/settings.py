"""Fields of layers that hold settings, given as numbers or as sequences of them."""

from typing import Any

from fdbr.messages import describe
from fdbr.tree import static
from fdbr.whereabouts import placed

__all__ = ["for_axes", "setting"]


def setting(**options: Any) -> Any:
    """A field that can be compared and hashed: lists become tuples."""
    return static(converter=_settled, **options)


def _settled(value: Any) -> Any:
    return tuple(map(_settled, value)) if isinstance(value, list | tuple) else value


def for_axes(value: Any, dimensions: int | None, x: Any) -> Any:
    """A setting for each spatial axis of ``x``, of which there are as many as a class says, if any.

    Raises
    ------
    ValueError
        If there are other numbers of them; or if an integer is to serve for an array of three
        axes, which may be a batch of sequences or one image, and the class does not tell.
    """
    if dimensions is None:
        if not isinstance(value, tuple) and getattr(x, "ndim", 0) == 3:
            raise ValueError(
                placed(
                    f"fdbr.nn: {value} is an integer, which does not tell whether {describe(x)} is "
                    "a batch (N, C, L) or one image (C, H, W); use the layer ending in 1d or 2d, "
                    f"or give ({value},) or ({value}, {value})"
                )
            )
        return value
    if not isinstance(value, tuple):
        return (value,) * dimensions
    if len(value) != dimensions:
        message = f"fdbr.nn: {value} must be an integer, or {dimensions}, one for each spatial axis"
        raise ValueError(placed(message))
    return value
