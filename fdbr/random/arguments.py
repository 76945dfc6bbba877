"""Checks of arguments, and the form of results, for the functions of this package."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, is_array, lock, on_device, several
from fdbr.core.tracer import Tracer, holds
from fdbr.errors.checks import describe, index
from fdbr.ops.devices import beside, to_device
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "Shape",
    "broadcasts",
    "check_key",
    "check_order",
    "checked",
    "drawing",
    "give",
    "parameter",
    "shape_of",
]

Shape = int | Sequence[int]


def drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a key that takes ``device`` as well, and runs where its draws shall lie.

    That is the device given; or that of an argument which lies on a GPU; or the key's.
    """
    parameters = inspect.signature(function)
    known = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)

    @functools.wraps(function)
    def draw(key: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if is_array(key):
            if device is not None:
                key = to_device(key, device)
            else:
                for value in filter(is_array, (*args, *kwargs.values())):
                    key = beside(key, value)
            if is_array(key) and several:  # asked first, as the key may be of a module not yet met
                with on_device(key):
                    return function(key, *args, **kwargs)
        return function(key, *args, **kwargs)

    draw.__signature__ = parameters.replace(  # type: ignore[attr-defined]
        parameters=[*parameters.parameters.values(), known]
    )
    return draw


def check_key(function: str, key: Any) -> None:
    """Refuse what is no key."""
    shape, dtype = getattr(key, "shape", None), getattr(key, "dtype", None)
    if shape == (2,) and dtype == np.uint64:
        return
    hint = "make one with fdbr.random.key(seed)"
    if dtype == np.uint64 and shape is not None and shape[-1:] == (2,):
        hint = "these are several keys: unpack or index them, or use fdbr.vmap"
    raise TypeError(
        f"fdbr.random.{function}: key must be one key, uint64[2], got {describe(key)}; {hint}"
    )


def shape_of(function: str, shape: Shape) -> tuple[int, ...]:
    """An argument as a shape."""
    try:
        sizes = tuple(shape) if isinstance(shape, Sequence) else (index(shape),)
        sizes = tuple(index(size) for size in sizes)
    except TypeError:
        raise TypeError(
            f"fdbr.random.{function}: shape must be a tuple of integers, got {shape!r}"
        ) from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"fdbr.random.{function}: shape {sizes} has a negative size")
    return sizes


def checked(
    function: str, key: Any, shape: Shape, dtype: Any
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and floating dtype of what is drawn by a key, or the error for what is none."""
    check_key(function, key)
    try:
        known = np.dtype(dtype)
    except TypeError as error:  # uniform(key, low, high), as in NumPy
        raise TypeError(
            f"fdbr.random.{function}: the arguments after key are shape and dtype, and {dtype!r} "
            f"is no dtype; give others by name (help(fdbr.random.{function}))"
        ) from error
    if dtype_kind(known) != "f":
        raise TypeError(
            f"fdbr.random.{function}: dtype must be a floating dtype, got {known}; draw integers "
            "with fdbr.random.randint"
        )
    return shape_of(function, shape), known


def broadcasts(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape."""
    return len(value.shape) <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(value.shape[::-1], shape[::-1], strict=False)
    )


def parameter(
    function: str, name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """A parameter of a distribution: a number as it is, an array in the dtype of the draws."""
    if not isinstance(value, Tracer):
        if isinstance(value, bool | int | float):
            return float(value)
        value = array_module(value).asarray(value)
    if not broadcasts(value, shape) or dtype_kind(value.dtype) not in "biuf":
        raise ValueError(
            f"fdbr.random.{function}: {name} must be real and broadcast to shape {shape}, got "
            f"{describe(value)}"
        )
    return value if value.dtype == dtype else ops.astype(value, dtype)


def check_order(function: str, low_name: str, low: Any, high_name: str, high: Any) -> None:
    """Refuse bounds that are not in their order."""
    if holds(low < high):
        return
    raise ValueError(
        f"fdbr.random.{function}: {low_name} must lie below {high_name} everywhere, got {low!r} "
        f"and {high!r}"
    )


def give(values: Any, dtype: Any) -> Any:
    """Finish a distribution's result: of its dtype, read-only, an array even where 0-d."""
    if isinstance(values, Tracer):
        return ops.astype(values, dtype)
    with np.errstate(over="ignore"):  # a draw beyond a small dtype's range is infinite in it
        return lock(array_module(values).asarray(values).astype(dtype, copy=False))
