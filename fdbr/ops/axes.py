"""Check the axes that callers give, and count them from the front."""

from typing import Any

from numpy.exceptions import AxisError

from fdbr.errors.checks import index

__all__ = ["either_axis", "normalize_axes", "normalize_axis"]

_every = [tuple(range(ndim)) for ndim in range(9)]


def normalize_axis(axis: Any, ndim: int, name: str) -> int:
    """Convert an axis to a number from 0 up, or raise an error that names the function."""
    number = axis if type(axis) is int else index(axis)
    if not -ndim <= number < ndim:
        # NumPy's AxisError is a ValueError and an IndexError: the standard asks for either.
        raise AxisError(f"fdbr.ops.{name}: axis {number} is out of range for {ndim} dimensions")
    return number % ndim


def either_axis(name: str, axis: Any, dim: Any, usual: Any = -1) -> Any:
    """Return the axis given as ``axis`` or as PyTorch's ``dim``; ``usual`` is the default."""
    if dim is None:
        return axis
    if axis != usual:
        raise ValueError(
            f"fdbr.ops.{name}: axis={axis} and dim={dim} are two names of one argument; give one"
        )
    return dim


def normalize_axes(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Convert axes, or `None` for all of them, to distinct numbers from 0 up."""
    if axis is None:
        return _every[ndim] if ndim < len(_every) else tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(normalize_axis(a, ndim, name) for a in given)
    if len(set(axes)) < len(axes):
        raise ValueError(f"fdbr.ops.{name}: axis {tuple(given)} names an axis twice")
    return axes
