"""Checks of operands, and sums and means, that losses share."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, holds
from fdbr.errors.checks import describe
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import maximum
from fdbr.ops.elementwise.comparison import logical_not, where
from fdbr.ops.reductions.reduce import mean, sum
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "same_shape",
    "any_known",
    "check_reduction",
    "check_signs",
    "counted_mean",
    "extremes",
    "floats_of",
    "in_dtype_of",
    "check_choice",
    "reduce_losses",
    "setting_of",
    "safe_ratio",
    "values_of",
    "weighted_mean",
]


def check_choice(name: str, argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise for an argument that is not one of some strings."""
    if value not in choices:
        texts = ", ".join(map(repr, choices))
        raise ValueError(f"fdbr.ops.{name}: {argument} {value!r} is not one of {texts}")


def check_reduction(name: str, reduction: Any, *more: str) -> None:
    """Raise for an unknown reduction."""
    check_choice(name, "reduction", reduction, ("mean", "sum", "none", *more))


def reduce_losses(losses: Any, reduction: str) -> Any:
    """Return losses unchanged, or their sum or mean."""
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else sum(losses)


def floats_of(name: str, **operands: Any) -> list[Any]:
    """Convert operands to arrays: the first must be real floating, the others real numbers."""
    found = arrays(*operands.values())
    first = found[0]
    if dtype_kind(first.dtype) != "f":
        argument = next(iter(operands))
        raise TypeError(f"fdbr.ops.{name}: {argument} must be real floating, not {describe(first)}")
    others = zip(list(operands)[1:], found[1:], strict=True)
    return [first, *(_number(name, argument, x, first) for argument, x in others)]


def _number(name: str, argument: str, x: Any, first: Any) -> Any:
    if dtype_kind(x.dtype) not in "fiub":
        raise TypeError(f"fdbr.ops.{name}: {argument} must hold real numbers, not {describe(x)}")
    return in_dtype_of(first, x)


def in_dtype_of(first: Any, x: Any) -> Any:
    """Convert integers and booleans to the dtype of a floating array; return others unchanged."""
    if dtype_kind(x.dtype) in "iub":
        return astype(beside(x, first), first.dtype)
    return x


def setting_of(name: str, argument: str, value: Any, x: Any) -> Any:
    """Convert an array argument such as weights to the dtype of a floating array."""
    value = asarray(value) if hasattr(value, "dtype") else array_module(x).asarray(value)
    if dtype_kind(value.dtype) not in "fiub":
        raise TypeError(
            f"fdbr.ops.{name}: {argument} must hold real numbers, not {describe(value)}"
        )
    return value if value.dtype == x.dtype else astype(value, x.dtype)


def same_shape(name: str, **operands: Any) -> list[Any]:
    """Convert operands of one shape to arrays of real numbers, the first of them floating."""
    found = floats_of(name, **operands)
    names = list(operands)
    for other, x in zip(names[1:], found[1:], strict=True):
        if x.shape != found[0].shape:
            raise ValueError(
                f"fdbr.ops.{name}: {names[0]} {describe(found[0])} and {other} {describe(x)} "
                "differ in shape; reshape or broadcast one of them first"
            )
    return found


def values_of(x: Any) -> Any:
    """Return the NumPy array below all traces, to check its values; `None` if there is none."""
    while isinstance(x, Tracer):
        x = x.value
    return x if isinstance(x, np.ndarray | np.generic) else None


def any_known(condition: Any) -> bool:
    """Whether a condition holds for any element of a NumPy array, without waiting for a GPU.

    For a traced value the outcome is a guard, which a jitted function checks at each call.
    """
    return values_of(condition) is not None and not holds(logical_not(condition))


def extremes(x: Any) -> str:
    """Describe the range of an array's elements, for messages."""
    values = values_of(x)
    return "" if values is None or not values.size else f" from {values.min()} to {values.max()}"


def check_signs(name: str, labels: Any) -> None:
    """Raise for labels other than 1 and -1."""
    if any_known((labels != 1) & (labels != -1)):
        raise ValueError(
            f"fdbr.ops.{name}: labels must be 1 or -1, got {describe(labels)}{extremes(labels)}"
        )


# --- means over some elements ---------------------------------------------------------


def safe_ratio(total: Any, count: Any) -> Any:
    """Divide a total by a count of at least 1; 16-bit floats are divided in float32."""
    wide = np.result_type(total.dtype, np.float32)  # the largest float16 is 65,504
    count = maximum(count, 1)
    if total.dtype == wide:
        return total / astype(count, wide) if hasattr(count, "dtype") else total / count
    return astype(astype(total, wide) / count, total.dtype)


def counted_mean(losses: Any, counted: Any) -> Any:
    """Compute the mean of the losses that count, 0 if none does, without waiting for a GPU."""
    wide = np.result_type(losses.dtype, np.float32)
    return safe_ratio(sum(losses), sum(asarray(counted), dtype=wide))


def weighted_mean(losses: Any, weights: Any) -> Any:
    """Divide the sum of weighted losses by the sum of weights; 0 / 0 is 0."""
    total, whole = sum(losses), sum(weights)
    nothing = whole == 0
    return where(nothing, 0, total) / where(nothing, 1, whole)
