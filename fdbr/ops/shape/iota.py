"""Apply a function to the whole numbers from 0 on."""

from collections.abc import Callable
from typing import Any

from fdbr.core.routine import Routine
from fdbr.pytrees.typing import Array

__all__ = ["apply_to_iota"]


@Routine
def apply_to_iota(xp: Any, function: Callable[..., Any], count: int, *numbers: float) -> Array:
    """Compute ``function(xp, i, *numbers)`` for ``i = 0, 1, …, count - 1`` in float64.

    Parameters
    ----------
    xp
        The array module.
    function
        A hashable elementwise function of an array module, or the expression graph's functions.
    count
        The number of elements.
    numbers
        Further arguments of the function.
    """
    return function(xp, xp.arange(count, dtype=float), *numbers)
