"""SciPy's Array API mode (``SCIPY_ARRAY_API=1``) on traced values.

In that mode SciPy asks its arrays for their namespace, which of traced values is `fdbr.ops`, and
computes with the functions found there.  Some things it takes for granted do not hold here, and
are set right when SciPy is met in that mode: that all arrays of a call are of one class, where a
constant beside a traced value is a plain array; that what is no array of JAX is written to
where its ``at(x)[key].set(y)`` asks for it, in the place of which `ops.at` stands; and that either
way of a convolution can be chosen, where the direct one is compiled for NumPy's arrays alone.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core import Tracer, stop_gradient
from fdbr.pytrees import settling

__all__: list[str] = []


def _among_traced(namespace_of: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(namespace_of)
    def namespace(*arrays: Any, **options: Any) -> Any:
        if any(isinstance(array, Tracer) for array in arrays):
            return ops
        return namespace_of(*arrays, **options)

    return namespace


def _updated(update: Callable[..., Any]) -> Callable[..., Any]:
    """``at(x)[key].set(y)`` and its kin, where one of the three is traced."""

    @functools.wraps(update)
    def updated(self: Any, which: Any, within: Any, op: Any, y: Any, /, copy: Any, xp: Any) -> Any:
        x, key = self._x, self._idx
        traced = any(isinstance(part, Tracer) for part in (x, y, *_parts(key)))
        if copy is False or not traced:
            return update(self, which, within, op, y, copy=copy, xp=xp)
        place = ops.at(x)[key]
        return place.set(y if op is None else op(place.get(), y))

    return updated


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _chosen(apply_where: Callable[..., Any]) -> Callable[..., Any]:
    """``apply_where``, where the condition differs between examples, or is not known yet."""

    @functools.wraps(apply_where)
    def choose(condition: Any, args: Any, f: Any, other: Any = None, /, **how: Any) -> Any:
        if not isinstance(stop_gradient(condition), Tracer):
            return apply_where(condition, args, f, other, **how)
        values = args if isinstance(args, list | tuple) else (args,)
        named = how.get("kwargs") or {}
        out = how.get("fill_value") if other is None else _on(~condition, values, other, named)
        return ops.where(condition, _on(condition, values, f, named), out)

    return choose


def _on(condition: Any, values: Any, f: Callable[..., Any], named: dict[str, Any]) -> Any:
    """A function of values where a condition holds; elsewhere, of some for which it does."""
    shape = np.broadcast_shapes(condition.shape, *map(np.shape, values))
    place = ops.argmax(ops.reshape(ops.broadcast_to(condition, shape), -1).astype(int))
    flat = [ops.reshape(ops.broadcast_to(ops.asarray(value), shape), -1) for value in values]
    return f(
        *[ops.where(condition, v, ops.take(w, place)) for v, w in zip(values, flat, strict=True)],
        **named,
    )


def _by_transform(choose: Callable[..., Any]) -> Callable[..., Any]:
    """``choose_conv_method``, for ``method="auto"`` of convolutions of traced values."""

    @functools.wraps(choose)
    def method(in1: Any, in2: Any, *args: Any, **options: Any) -> Any:
        if isinstance(in1, Tracer) or isinstance(in2, Tracer):
            return "fft"
        return choose(in1, in2, *args, **options)

    return method


def _set_right(library: Any) -> None:
    """Set right what SciPy's arrays share.

    The packages of others that it comes with lie elsewhere from 1.18 on: they are found as the
    module that uses them has them.
    """
    extra: Any = getattr(library, "xpx", None)
    if hasattr(extra, "apply_where"):
        extra.apply_where = _chosen(extra.apply_where)
    places: Any = getattr(extra, "at", None)
    if hasattr(places, "_op"):
        places._op = _updated(places._op)
    compat = getattr(getattr(library, "np_compat", None), "__package__", "").rpartition(".")[0]
    namespaces: Any = sys.modules.get(compat)
    if getattr(library, "SCIPY_ARRAY_API", False) and hasattr(namespaces, "array_namespace"):
        namespaces.array_namespace = _among_traced(namespaces.array_namespace)


def _set_convolutions_right(library: Any) -> None:
    mode: Any = sys.modules.get("scipy._lib._array_api")
    if getattr(mode, "SCIPY_ARRAY_API", False) and hasattr(library, "choose_conv_method"):
        library.choose_conv_method = _by_transform(library.choose_conv_method)


settling["scipy._lib._array_api"] = _set_right
settling["scipy.signal._signaltools"] = _set_convolutions_right
