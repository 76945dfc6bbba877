"""What computes the steps of programs with convolutions and pooling, by the primitives' names."""

from collections.abc import Callable
from typing import Any

from fdbr.jit.kernels import convolution, multiplying, pooling, turning
from fdbr.jit.passes.derived import EXAMPLES_LAST, to_last

__all__ = ["VALUES"]

_OWN = convolution.VALUES | pooling.VALUES
_LAST = {name: to_last(_OWN[name], *how) for name, how in EXAMPLES_LAST.items() if name in _OWN}

VALUES: dict[str, Callable[..., Any]] = {
    **multiplying.VALUES,
    **turning.VALUES,
    **_OWN,
    **{f"{name}_last": value for name, value in _LAST.items()},
    "conv_last_relu": to_last(_OWN["conv_relu"], (0,), True),
    "conv_biased_last_relu": to_last(_OWN["conv_biased_relu"], (0,), True),
    "pulled_windows_last": to_last(_OWN["pulled_windows"], (0, 1, 2), True),
}
