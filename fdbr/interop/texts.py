"""The text of traced values: their numbers, and a mark that they are traced."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.core.tracer import Tracer, shown
from fdbr.core.tracer_methods import install

__all__: list[str] = []


def _marked(tracer: Any, text: Callable[[Any], str], end: str) -> str:
    numbers = shown(tracer)
    many = len(getattr(numbers, "shape", ())) > len(tracer.shape)  # those of all examples
    return f"<traced {'batch ' * many}{text(numbers)}{end}>"


def _represent(tracer: Tracer) -> str:
    return _marked(tracer, repr, f" of {tracer._trace}")


def _string(tracer: Tracer) -> str:
    return _marked(tracer, str, "")


def _format(tracer: Any, spec: str) -> str:
    """As of the plain value; of an array, and of a batch, each number in that format."""
    if not spec:
        return _string(tracer)
    numbers = shown(tracer)
    if not getattr(numbers, "shape", ()):
        return format(numbers, spec)
    each: Any = {"all": lambda number: format(number, spec)}
    return np.array2string(to_numpy(numbers), formatter=each)


install("__repr__", _represent)
install("__str__", _string)
install("__format__", _format)
