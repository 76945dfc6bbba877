"""Which parameters distributions may have, and the errors of others."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import holds, stop_gradient
from fdbr.errors.checks import describe
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["RANGES", "check_range", "check_shapes"]


def _all(values: Any) -> Any:
    return values if isinstance(values, bool | np.bool_) else ops.all(values)


def _factor(x: Any) -> Any:
    """Whether matrices are lower triangular with a positive diagonal."""
    diagonal = ops.linalg.diagonal(x)
    return ops.all((diagonal > 0) & (diagonal < math.inf)) & ops.all(ops.tril(x) == x)


def _symmetric(x: Any) -> Any:
    """Whether matrices are finite, and symmetric but for rounding."""
    away = ops.abs(x - ops.matrix_transpose(x))
    rounding = float(np.finfo(x.dtype).eps) ** 0.5 if dtype_kind(x.dtype) == "f" else 0.0
    return ops.all(ops.isfinite(x)) & (ops.max(away) <= rounding * ops.max(ops.abs(x)))


def _weights(x: Any) -> Any:
    return ops.all((x >= 0) & (x < math.inf)) & ops.all(ops.sum(x, axis=-1) > 0)


def _scores(x: Any) -> Any:
    return ops.all(x < math.inf) & ops.all(ops.max(x, axis=-1) > -math.inf)


RANGES: dict[str, Callable[[Any], Any]] = {
    "finite": lambda x: _all((x > -math.inf) & (x < math.inf)),
    "positive and finite": lambda x: _all((x > 0) & (x < math.inf)),
    "at least 0 and finite": lambda x: _all((x >= 0) & (x < math.inf)),
    "in [0, 1]": lambda x: _all((x >= 0) & (x <= 1)),
    "in (0, 1]": lambda x: _all((x > 0) & (x <= 1)),
    "numbers, not NaN": lambda x: _all(x == x),
    "at least 0 and finite, with a positive sum along the last axis": _weights,
    "numbers below infinity, some of them above -infinity along the last axis": _scores,
    "lower triangular with a positive diagonal": _factor,
    "a symmetric matrix of finite numbers": _symmetric,
}
"""What may be asked of a parameter, and whether all elements of an array are so."""


def check_range(kind: str, name: str, value: Any, wanted: str) -> None:
    """Refuse a parameter that is no array of real numbers, or has elements outside its range.

    Traced values are checked too: in a jitted function at each call, and in its compiled loops
    after the last iteration.
    """
    if not hasattr(value, "dtype"):
        if not isinstance(value, int | float):
            raise TypeError(
                f"fdbr.distributions.{kind}: {name} must be a number or an array, got "
                f"{describe(value)}"
            )
    elif dtype_kind(value.dtype) not in "fiub":
        raise TypeError(
            f"fdbr.distributions.{kind}: {name} must hold real numbers, not {describe(value)}"
        )
    elif not value.size:
        return
    value = stop_gradient(value)
    if not holds(RANGES[wanted](value)):
        raise ValueError(
            f"fdbr.distributions.{kind}: {name} must be {wanted}, got {describe(value)}"
            f"{_extremes(value)}"
        )


def _extremes(value: Any) -> str:
    """Between what the elements of an array lie."""
    if not hasattr(value, "dtype"):
        return ""
    if not value.ndim:
        return f" {float(value):.6g}"
    if ops.any(value != value):
        return " with NaN"
    return f" with elements from {float(ops.min(value)):.6g} to {float(ops.max(value)):.6g}"


def check_shapes(kind: str, **parameters: Any) -> None:
    """Refuse parameters that do not broadcast."""
    shapes = {name: tuple(getattr(value, "shape", ())) for name, value in parameters.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        each = " and ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"fdbr.distributions.{kind}: {each} do not broadcast") from None
