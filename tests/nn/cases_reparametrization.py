"""Cases of layers whose weight is computed from another."""

from fdbr import nn
from nn.layer_cases import KEY, case


def linear(dtype):
    return nn.Linear.init(KEY, 3, 2, dtype=dtype)


def conv(dtype):
    return nn.Conv.init(KEY, 2, 2, (2,), dtype=dtype)


case("WeightNorm", lambda d: nn.WeightNorm.init(None, linear(d)), [(4, 3)])
case("WeightNorm of all", lambda d: nn.WeightNorm.init(None, conv(d), axis=None), [(1, 2, 3)])
case("WeightNorm of columns", lambda d: nn.WeightNorm.init(None, linear(d), axis=1), [(3,)])
case("SpectralNorm", lambda d: nn.SpectralNorm.init(KEY, linear(d)), [(4, 3)])
case(
    "SpectralNorm of a transposed convolution",
    lambda d: nn.SpectralNorm.init(
        KEY, nn.ConvTranspose.init(KEY, 2, 2, (2,), dtype=d), use_gamma=True, factor=2.0
    ),
    [(1, 2, 3)],
)
case(
    "WeightStandardization",
    lambda d: nn.WeightStandardization.init(None, conv(d), eps=0.01),
    [(1, 2, 3)],
)
