"""The distributions of `scipy.stats` on traced values: their own formulas, which are NumPy's.

SciPy's methods collect what their formulas give in an array, at the places where they hold.  Where
an argument is traced, the same formulas are computed everywhere, outside the support on a point
within, and `ops.where` chooses.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import Tracer, stop_gradient
from fdbr.pytrees.structure import settling

__all__: list[str] = []

_BEYOND = {
    "pdf": (0.0, 0.0),
    "pmf": (0.0, 0.0),
    "logpdf": (-np.inf, -np.inf),
    "logpmf": (-np.inf, -np.inf),
    "cdf": (0.0, 1.0),
    "sf": (1.0, 0.0),
    "logcdf": (-np.inf, 0.0),
    "logsf": (0.0, -np.inf),
}
"""The values of the functions below the support and above it."""

_KINDS = {
    "rv_continuous": ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf"),
    "rv_discrete": ("pmf", "logpmf", "cdf", "logcdf", "sf", "logsf"),
}


def _double(x: Any) -> Any:
    """An argument in double precision, in which SciPy computes."""
    x = ops.asarray(x)
    return ops.astype(x, ops.result_type(x, np.float64), copy=False)


def _are_allowed(dist: Any, shapes: tuple[Any, ...]) -> Any:
    """Whether the parameters of a distribution's shape are among those that it has, one by one."""
    if not type(dist)._argcheck.__qualname__.startswith("rv_generic"):
        return dist._argcheck(*shapes)
    return functools.reduce(lambda all_, shape: all_ & (shape > 0), shapes, True)


def _formula(dist: Any, name: str) -> Callable[..., Any]:
    """A distribution's own formula, or what SciPy makes of others where it has none.

    Of densities that of the logarithm comes first: SciPy computes many of them by functions that
    nobody else can call.
    """
    if name in ("pdf", "pmf") and _states(dist, f"_log{name}"):
        return lambda *args: ops.exp(getattr(dist, f"_log{name}")(*args))
    if name in ("logcdf", "logsf") and not _states(dist, f"_{name}"):
        mine, other = f"_{name[3:]}", "_sf" if name == "logcdf" else "_cdf"
        return lambda *args: _logarithm(getattr(dist, mine)(*args), getattr(dist, other)(*args))
    return getattr(dist, f"_{name}")


def _states(dist: Any, name: str) -> bool:
    """Whether a distribution has a formula of its own."""
    return getattr(type(dist), name, None) is not getattr(_generic(dist), name, None)


def _logarithm(share: Any, rest: Any) -> Any:
    """That of a probability; ``rest`` is what it lacks to 1."""
    low = share <= 0.5
    return ops.where(
        low, ops.log(ops.where(low, share, 0.5)), ops.log1p(-ops.where(low, 0.5, rest))
    )


def _generic(dist: Any) -> Any:
    return next(kind for kind in type(dist).__mro__ if kind.__name__ in _KINDS)


def _quantile(dist: Any, name: str, q: Any, shapes: tuple[Any, ...], ends: Any) -> Any:
    """The quantile function, or its mirror image, of the distribution as it is not moved."""
    first, last = ends if name == "ppf" else reversed(ends)
    inside = (q > 0) & (q < 1)
    out = _formula(dist, name)(ops.where(inside, q, 0.5), *shapes)
    out = ops.where(q == 0, first, ops.where(q == 1, last, out))
    return ops.where((q >= 0) & (q <= 1), out, np.nan)


def _value(dist: Any, name: str, x: Any, shapes: tuple[Any, ...], ends: Any) -> Any:
    """A density or a distribution function of the distribution as it is not moved."""
    low, high = ends
    discrete = _generic(dist).__name__ == "rv_discrete"
    cumulative = name[-2:] in ("df", "sf") and "pdf" not in name
    below, above = x < low, x > high
    if cumulative:
        above = x >= high
        below = below if discrete else x <= low
        x = ops.floor(x) if discrete else x
    inner = _inner(low, high)
    out = _formula(dist, name)(ops.where(below | above, inner, x), *shapes)
    before, beyond = _BEYOND[name]
    out = ops.where(below, before, ops.where(above, beyond, out))
    if discrete and not cumulative:
        out = ops.where(dist._nonzero(x, *shapes), out, before)
    return ops.where(ops.isnan(x), np.nan, out)


def _inner(low: Any, high: Any) -> Any:
    """A point of the support."""
    low, high = stop_gradient(_double(low)), stop_gradient(_double(high))
    below, above = ops.isfinite(low), ops.isfinite(high)
    low, high = ops.where(below, low, 0.0), ops.where(above, high, 0.0)
    one_end = ops.where(below, low + 1.0, high - ops.where(above, 1.0, 0.0))
    return ops.where(below & above, low + (high - low) / 2, one_end)


def _computed(dist: Any, name: str, args: Any, kwds: dict[str, Any]) -> Any:
    shapes, loc, scale = dist._parse_args(*args[1:], **kwds)
    shapes = tuple(map(_double, shapes))
    ends = dist._get_support(*shapes)
    x = _double(args[0])
    if name in ("ppf", "isf"):
        out = _quantile(dist, name, x, shapes, ends) * scale + loc
    else:
        out = _value(dist, name, (x - loc) / scale, shapes, ends)
        if name == "pdf":
            out = out / scale
        elif name == "logpdf":
            out = out - ops.log(scale)
    allowed = (ops.asarray(scale) > 0) & _are_allowed(dist, shapes)
    return out * ops.where(allowed, 1.0, np.nan)  # of its slope, too


def _or_traced(theirs: Callable[..., Any], name: str) -> Callable[..., Any]:
    first = list(inspect.signature(theirs).parameters)[1]

    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwds: Any) -> Any:
        if any(isinstance(value, Tracer) for value in (*args, *kwds.values())):
            args = (kwds.pop(first), *args) if first in kwds else args
            return _computed(self, name, args, kwds)
        return theirs(self, *args, **kwds)

    return method


def _register(stats: Any) -> None:
    for kind, names in _KINDS.items():
        for name in names:
            setattr(
                getattr(stats, kind), name, _or_traced(getattr(getattr(stats, kind), name), name)
            )


settling["scipy.stats"] = _register
