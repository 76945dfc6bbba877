"""Functions along some axes of arrays, which back ends may compute in one pass over memory."""

from collections.abc import Callable
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine

__all__ = ["along_axes", "exp_over", "max_along", "mean_along"]


@Routine
def along_axes(
    x: Any, function: Callable[..., Any], axes: tuple[int, ...], *others: Any, name: Any = None
) -> Any:
    """Call ``function(axes, x, *others)``, which acts along some axes of arrays.

    Its results keep all axes of the operands; those it reduces have length 1.  It is a function of
    operations, so a back end may compute it for each row of ``x`` at once.  A function that is made
    anew for each call needs a ``name``.
    """
    return function(axes, x, *others)


@Routine
def max_along(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the maximum over axes, kept with length 1."""
    return x.max(axis=axes, keepdims=True)


@Routine
def mean_along(x: Any, axes: tuple[int, ...]) -> Any:
    """Return the mean over axes, kept with length 1."""
    return x.mean(axis=axes, keepdims=True)


@Routine
def exp_over(x: Any) -> Any:
    """Return the exponential; the caller must have the only reference to the array."""
    return array_module(x).exp(x)
