"""The CPU's own values of convolutions and pooling, by the primitives' names."""

from collections.abc import Callable
from typing import Any

from fdbr.compiler.backends.cpu import batch_last_copy, conv, conv_matmuls, pool_kernels
from fdbr.compiler.passes.program_primitives import EXAMPLES_LAST, to_last

__all__ = ["VALUES"]

_OWN = conv.VALUES | pool_kernels.VALUES
_LAST = {name: to_last(_OWN[name], *how) for name, how in EXAMPLES_LAST.items() if name in _OWN}

VALUES: dict[str, Callable[..., Any]] = {
    **conv_matmuls.VALUES,
    **batch_last_copy.VALUES,
    **_OWN,
    **{f"{name}_last": value for name, value in _LAST.items()},
    "conv_last_relu": to_last(_OWN["conv_relu"], (0,), True),
    "conv_biased_last_relu": to_last(_OWN["conv_biased_relu"], (0,), True),
    "pulled_windows_last": to_last(_OWN["pulled_windows"], (0, 1, 2), True),
}
