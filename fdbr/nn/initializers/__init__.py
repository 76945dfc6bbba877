"""Initial values of parameters.

An initializer is a frozen object that is called as ``init(key, shape, dtype)`` and returns
a read-only array.  The functions here make them.

Weights are laid out as in PyTorch, ``(out, in, *kernel)``: ``fan_in`` is
``in * prod(kernel)`` and ``fan_out`` is ``out * prod(kernel)``.
"""

from collections.abc import Callable
from typing import Any

from fdbr.errors.names import missing_from
from fdbr.nn.initializers.bilinear_filters import (
    LinearFilter,
    downsampling_conv_filter,
    upsampling_deconv_filter,
)
from fdbr.nn.initializers.patterned import (
    Constant,
    DeltaOrthogonal,
    Dirac,
    Identity,
    Orthogonal,
    Sparse,
    constant,
    delta_orthogonal,
    dirac,
    eye,
    generate_array,
    identity,
    nan,
    ones,
    orthogonal,
    sparse,
    zeros,
)
from fdbr.nn.initializers.random import (
    Normal,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
    calculate_gain,
    glorot_normal,
    glorot_uniform,
    he_normal,
    he_uniform,
    kaiming_normal,
    kaiming_uniform,
    lecun_normal,
    lecun_uniform,
    normal,
    truncated_normal,
    uniform,
    variance_scaling,
    xavier_normal,
    xavier_uniform,
)

__all__ = [
    "Constant",
    "DeltaOrthogonal",
    "Dirac",
    "Identity",
    "Initializer",
    "LinearFilter",
    "Normal",
    "Orthogonal",
    "Sparse",
    "TruncatedNormal",
    "Uniform",
    "VarianceScaling",
    "calculate_gain",
    "constant",
    "delta_orthogonal",
    "dirac",
    "downsampling_conv_filter",
    "eye",
    "generate_array",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "nan",
    "normal",
    "ones",
    "orthogonal",
    "sparse",
    "truncated_normal",
    "uniform",
    "upsampling_deconv_filter",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`

Initializer = Callable[..., Any]
"""An initializer: a function of a key, a shape and a dtype."""
