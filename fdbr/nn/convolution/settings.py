"""Checks of the settings of convolutional layers."""

from collections.abc import Sequence
from typing import Any

from fdbr.errors.checks import describe, integer, integers
from fdbr.errors.layer_path import placed

__all__ = [
    "MODES",
    "axes_of",
    "channels_of",
    "check_room",
    "kernel_of",
    "settings_of",
]


MODES: dict[str, Any] = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}
"""The padding modes: PyTorch's names, and those of `ops.pad`."""


def kernel_of(where: str, size: Any, ndim: Any, dimensions: int | None = None) -> tuple[int, ...]:
    """Return the lengths of a kernel; ``size``, ``ndim`` or the class give the number of axes."""
    if ndim is not None:
        ndim = integer(where, "ndim", ndim, least=1)
        if dimensions not in (None, ndim):
            name = where.split(".")[2]
            raise ValueError(
                f"{where}: ndim of a {name} must be {dimensions}, got {ndim}; use fdbr.nn."
                f"{name[:-2]}.init for other numbers of spatial axes"
            )
    rank = ndim or dimensions
    given = integers(where, "kernel_size", size)
    kernel = (given,) * (rank or 2) if isinstance(given, int) else given
    if not kernel or len(kernel) != (rank or len(kernel)) or min(kernel) < 1:
        number = "one or more" if rank is None else rank
        raise ValueError(
            f"{where}: kernel_size must be a positive integer, or {number} of them, one for each "
            f"spatial axis; got {size!r}"
        )
    return kernel


def axes_of(where: str, name: str, value: Any, kernel: tuple[int, ...], least: int) -> Any:
    """Check a setting: an integer for all axes, or one for each."""
    given = integers(where, name, value)
    numbers = (given,) * len(kernel) if isinstance(given, int) else given
    if len(numbers) != len(kernel) or min(numbers) < least:
        raise ValueError(
            f"{where}: {name} must be an integer of at least {least}, or {len(kernel)} of them, "
            f"one for each axis of kernel_size; got {value!r}"
        )
    return given


def settings_of(
    where: str, kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any
) -> tuple[Any, Any, Any]:
    """Check stride, padding and dilation, and make them hashable."""
    stride = axes_of(where, "stride", stride, kernel, least=1)
    dilation = axes_of(where, "dilation", dilation, kernel, least=1)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(
                f"{where}: padding must be 'same', 'valid', integers, or pairs of integers; got "
                f"{padding!r}"
            )
    elif isinstance(padding, Sequence) and any(isinstance(pad, Sequence) for pad in padding):
        if len(padding) != len(kernel) or any(
            not isinstance(pad, Sequence) or len(pad) != 2 for pad in padding
        ):
            raise ValueError(
                f"{where}: padding must have a pair (before, after) for each of {len(kernel)} axes "
                f"of kernel_size; got {padding!r}"
            )
        padding = tuple(axes_of(where, "padding", tuple(pad), (1, 1), least=0) for pad in padding)
    else:
        padding = axes_of(where, "padding", padding, kernel, least=0)
    return stride, padding, dilation


def channels_of(where: str, inputs: Any, outputs: Any, groups: Any) -> tuple[int, int, int]:
    """Check the numbers of channels, and of groups, which must divide both."""
    inputs = integer(where, "in_channels", inputs, least=1)
    outputs = integer(where, "out_channels", outputs, least=1)
    groups = integer(where, "groups", groups, least=1)
    for name, number in (("in_channels", inputs), ("out_channels", outputs)):
        if number % groups:
            raise ValueError(f"{where}: groups must divide {name}={number}, got {groups}")
    return inputs, outputs, groups


def check_room(where: str, mode: str, x: Any, pairs: Any) -> None:
    """Raise if padding reads more elements of the last axes of an input than exist."""
    size = x.shape[x.ndim - len(pairs) :]
    for axis, (n, pair) in enumerate(zip(size, pairs, strict=True)):
        most = {"reflect": n - 1, "circular": n}.get(mode)
        if most is not None and max(pair) > most:
            raise ValueError(
                placed(
                    f"{where}: padding is taken from x {describe(x)}, whose spatial axis {axis} of "
                    f"length {n} is too short for padding {pair}; use less padding, or another mode"
                )
            )
