"""Functions of arrays that are no operations, and that back ends may implement for their arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.devices import family
from fdbr.core.loading import first_use

__all__ = ["Routine"]


class Routine:
    """A function of arrays which is no operation, but which back ends may implement as they do.

    Rules of derivatives call it, and values that several operations share.  ``definition`` is for
    arrays of all modules, and the one that is called for tracers; `host` is for NumPy's arrays.  A
    routine is called as a function of arrays; if its first parameter is the array module ``xp``,
    as ``routine.on(xp)(xp, *args)``.

    Attributes
    ----------
    least
        The bytes of the smallest array for which a caller asks `host`; smaller ones it computes by
        itself, if that saves a call.
    """

    __slots__ = ("definition", "host", "least", "others")

    def __init__(self, definition: Callable[..., Any]) -> None:
        self.definition = definition
        self.host = first_use(self, definition)
        self.least: float = 0
        self.others: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.host if type(args[0]) is np.ndarray else self.definition
        return found(*args, **kwargs)

    def on(self, xp: Any) -> Callable[..., Any]:
        """Return the function for arrays of a module."""
        return self.host if xp is np else self.others.get(family(xp), self.definition)
