"""SciPy's Array API mode (``SCIPY_ARRAY_API=1``) on traced values.

In that mode SciPy asks its arrays for their namespace, which of traced values is `fdbr.ops`, and
computes with the functions found there.  Two things it takes for granted do not hold here, and
are set right when SciPy is met in that mode: that all arrays of a call are of one class, where a
constant beside a traced value is a plain array; and that what is no array of JAX can be written
to, where ``x.at[key].set(value)`` is to be used as with JAX.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from fdbr import ops
from fdbr.core import Tracer
from fdbr.pytrees import settling

__all__: list[str] = []


def _among_traced(namespace_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(namespace_of)
    def namespace(*arrays: Any, **options: Any) -> Any:
        if any(isinstance(array, Tracer) for array in arrays):
            return ops
        return namespace_of(*arrays, **options)

    return namespace


def _but_traced(is_writeable: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(is_writeable)
    def writeable(array: Any) -> bool:
        return not isinstance(array, Tracer) and is_writeable(array)

    return writeable


def _or_traced(is_jax: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(is_jax)
    def has_at(array: Any) -> bool:
        return isinstance(array, Tracer) or is_jax(array)

    return has_at


def _set_right(library: Any) -> None:
    if not getattr(library, "SCIPY_ARRAY_API", False):
        return
    for name, attribute, better in (
        ("scipy._lib.array_api_compat", "array_namespace", _among_traced),
        ("scipy._lib.array_api_extra._lib._at", "is_writeable_array", _but_traced),
        ("scipy._lib.array_api_extra._lib._at", "is_jax_array", _or_traced),
    ):
        module = sys.modules.get(name)
        if hasattr(module, attribute):
            setattr(module, attribute, better(getattr(module, attribute)))


settling["scipy._lib._array_api"] = _set_right
