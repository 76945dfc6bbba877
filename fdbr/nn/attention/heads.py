"""Features divided among the heads of attention."""

from typing import Any

from fdbr import ops
from fdbr.errors.checks import integer

__all__ = ["checked_heads", "heads_apart", "heads_together"]


def heads_apart(x: Any, heads: int) -> Any:
    """``(..., length, heads * width)`` as ``(..., heads, length, width)``."""
    return ops.moveaxis(ops.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), -2, -3)


def heads_together(x: Any) -> Any:
    """``(..., heads, length, width)`` as ``(..., length, heads * width)``."""
    x = ops.moveaxis(x, -3, -2)
    return ops.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def checked_heads(where: str, name: str, width: int, heads: Any) -> int:
    """A number of heads that divides a width."""
    count = integer(where, "num_heads", heads, least=1)
    if width % count:
        raise ValueError(
            f"{where}: num_heads={count} must divide {name}={width}, of which each head gets an "
            "equal part"
        )
    return count
