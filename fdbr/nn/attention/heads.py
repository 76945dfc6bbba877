"""Features divided among the heads of attention."""

from typing import Any

from fdbr import ops
from fdbr.errors.checks import integer

__all__ = ["checked_heads", "heads_apart", "heads_together"]


def heads_apart(x: Any, heads: int) -> Any:
    """Reshape ``(..., length, heads * width)`` to ``(..., heads, length, width)``."""
    return ops.moveaxis(ops.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), -2, -3)


def heads_together(x: Any) -> Any:
    """Reshape ``(..., heads, length, width)`` to ``(..., length, heads * width)``."""
    x = ops.moveaxis(x, -3, -2)
    return ops.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def checked_heads(where: str, name: str, width: int, heads: Any) -> int:
    """Return a number of heads that divides a width."""
    count = integer(where, "num_heads", heads, least=1)
    if width % count:
        raise ValueError(
            f"{where}: num_heads={count} must divide {name}={width}, of which each head gets an "
            "equal part"
        )
    return count
