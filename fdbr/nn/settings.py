"""Fields of layers that hold settings, given as numbers or as sequences of them."""

from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.tree import static

__all__ = ["for_axes", "refuse_either", "setting"]


def setting(**options: Any) -> Any:
    """Return a field that can be compared and hashed: lists become tuples."""
    return static(converter=_settled, **options)


def _settled(value: Any, depth: int = 3) -> Any:
    if not depth:
        raise ValueError("a setting is a number, a sequence, or a sequence of sequences")
    if isinstance(value, list | tuple):
        return tuple(_settled(part, depth - 1) for part in value)
    return value


def for_axes(layer: Any, value: Any, x: Any) -> Any:
    """Return a setting for each spatial axis, if the layer's class fixes their number.

    Raises
    ------
    ValueError
        If the number of settings is another; or for an integer and an array of three axes, which
        may be a batch of sequences or one image, if the class does not fix the number of axes.
    """
    kind, dimensions = type(layer).__name__, layer._dimensions
    if dimensions is None:
        if not isinstance(value, tuple):
            refuse_either(kind, value, x, f"use nn.{kind}1d or nn.{kind}2d, or give ")
        return value
    if not isinstance(value, tuple):
        return (value,) * dimensions
    if len(value) != dimensions:
        message = f"{value} must be an integer, or {dimensions}, one for each spatial axis"
        raise ValueError(placed(f"fdbr.nn.{kind}: {message}"))
    return value


def refuse_either(kind: str, value: Any, x: Any, advice: str = "give ", each: Any = None) -> None:
    """Raise for an integer if an array of three axes may be sequences or one image."""
    if getattr(x, "ndim", 0) == 3:
        each = value if each is None else each
        raise ValueError(
            placed(
                f"fdbr.nn.{kind}: {value} is an integer, which does not tell whether {describe(x)} "
                f"is a batch (N, C, L) or one image (C, H, W), as in a vmap; {advice}"
                f"({each},) or ({each}, {each})"
            )
        )
