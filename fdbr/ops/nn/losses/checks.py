"""Checks of operands that losses share, and the sums and means that they end in."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import maximum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.reductions.reduce import any, mean, sum
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "alike",
    "anywhere",
    "check_reduction",
    "check_signs",
    "counted_mean",
    "extremes",
    "floats_of",
    "in_dtype_of",
    "one_of",
    "reduced",
    "setting_of",
    "share",
    "values_of",
    "weighted_mean",
]


def one_of(name: str, argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of some texts."""
    if value not in choices:
        texts = ", ".join(map(repr, choices))
        raise ValueError(f"fdbr.ops.{name}: {argument} {value!r} is none of {texts}")


def check_reduction(name: str, reduction: Any, *more: str) -> None:
    """Refuse a reduction that there is not."""
    one_of(name, "reduction", reduction, ("mean", "sum", "none", *more))


def reduced(losses: Any, reduction: str) -> Any:
    """Losses as they are, or their sum or mean."""
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else sum(losses)


def floats_of(name: str, **operands: Any) -> list[Any]:
    """Operands as arrays: the first real floating, the others real numbers in a dtype like its."""
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
    """Integers and truth values in the dtype of floating numbers, beside them; others as is."""
    if dtype_kind(x.dtype) in "iub":
        return astype(beside(x, first), first.dtype)
    return x


def setting_of(name: str, argument: str, value: Any, x: Any) -> Any:
    """An array that is a setting, as weights are, in the dtype of floating numbers beside it."""
    value = asarray(value) if hasattr(value, "dtype") else array_module(x).asarray(value)
    if dtype_kind(value.dtype) not in "fiub":
        raise TypeError(
            f"fdbr.ops.{name}: {argument} must hold real numbers, not {describe(value)}"
        )
    return value if value.dtype == x.dtype else astype(value, x.dtype)


def alike(name: str, **operands: Any) -> list[Any]:
    """Operands of one shape as arrays of real numbers, the first of them floating."""
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
    """The numbers of an array of NumPy's below whatever traces it, to be looked at; or `None`."""
    while isinstance(x, Tracer):
        x = x.value
    return x if isinstance(x, np.ndarray | np.generic) else None


def anywhere(condition: Any) -> bool:
    """Whether a condition of NumPy's arrays holds of any element; nobody waits for a GPU.

    It is an answer that Python gets from what is traced: a jitted function asks at each call.
    """
    return values_of(condition) is not None and bool(any(condition))


def extremes(x: Any) -> str:
    """Between what the elements of an array lie, for messages."""
    values = values_of(x)
    return "" if values is None or not values.size else f" from {values.min()} to {values.max()}"


def check_signs(name: str, labels: Any) -> None:
    """Refuse labels that are neither 1 nor -1."""
    if anywhere((labels != 1) & (labels != -1)):
        raise ValueError(
            f"fdbr.ops.{name}: labels must be 1 or -1, got {describe(labels)}{extremes(labels)}"
        )


# --- means of some of them ----------------------------------------------------------


def share(total: Any, count: Any) -> Any:
    """A total by a count, which is 1 at least; of short floating numbers in single precision."""
    wide = np.result_type(total.dtype, np.float32)  # float16 ends at 65,504
    count = maximum(count, 1)
    if total.dtype == wide:
        return total / astype(count, wide) if hasattr(count, "dtype") else total / count
    return astype(astype(total, wide) / count, total.dtype)


def counted_mean(losses: Any, counted: Any) -> Any:
    """The mean of the losses that count, 0 if none does; nobody waits for their number."""
    wide = np.result_type(losses.dtype, np.float32)
    return share(sum(losses), sum(asarray(counted), dtype=wide))


def weighted_mean(losses: Any, weights: Any) -> Any:
    """The sum of losses, which have their weights already, by the sum of these; 0 by 0 is 0."""
    total, whole = sum(losses), sum(weights)
    nothing = whole == 0
    return where(nothing, 0, total) / where(nothing, 1, whole)
