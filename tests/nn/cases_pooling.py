"""Cases of layers that pool."""

import numpy as np

from fdbr import nn
from nn.layer_cases import case, numbers

case("MaxPool", lambda dtype: nn.MaxPool(2, stride=1, padding=1), [(1, 2, 4, 3)])
case("MaxPool covering all", lambda dtype: nn.MaxPool((2,), cover_all=True), [(1, 2, 3)])
case("MaxPool with indices", lambda dtype: nn.MaxPool((2,), return_indices=True), [(1, 2, 4)])
case("AvgPool", lambda dtype: nn.AvgPool([2, 1], padding=[1, 0]), [(1, 2, 4, 3)])
case("AdaptiveAvgPool", lambda dtype: nn.AdaptiveAvgPool((2, None)), [(2, 3, 3)])
case("AdaptiveMaxPool", lambda dtype: nn.AdaptiveMaxPool((2, None)), [(2, 3, 3)])
case("FractionalMaxPool", lambda dtype: nn.FractionalMaxPool((2,), (2,)), [(1, 2, 4)], key=True)
case("Flatten", lambda dtype: nn.Flatten(), [(2, 3, 2)])
case("Unflatten", lambda dtype: nn.Unflatten(1, [2, -1]), [(2, 6)])
case("LPPool", lambda dtype: nn.LPPool(2, 2, stride=1), [(1, 2, 3, 3)])
case("Upsample", lambda dtype: nn.Upsample(scale_factor=2), [(1, 2, 2, 3)])
case("Upsample to a size", lambda dtype: nn.Upsample([3, 5], mode="bicubic"), [(1, 2, 2, 3)])
case("PixelShuffle", lambda dtype: nn.PixelShuffle(2), [(1, 4, 2, 1)])
case("PixelUnshuffle", lambda dtype: nn.PixelUnshuffle([2, 1], mode="DCR"), [(1, 2, 4, 3)])
case("ChannelShuffle", lambda dtype: nn.ChannelShuffle(2), [(1, 4, 2)])
case(
    "MaxUnpool",
    lambda dtype: nn.MaxUnpool((2,)),
    lambda dtype: (numbers((1, 2, 2), dtype), np.array([[[1, 2], [0, 3]]])),
)


for _n in (1, 2, 3):
    for _name, _settings in (
        ("MaxPool", (2, 1)),
        ("AvgPool", (2, 1)),
        ("LPPool", (2, 2)),
        ("FractionalMaxPool", (2, 1)),
        ("AdaptiveAvgPool", (2,)),
        ("AdaptiveMaxPool", (2,)),
    ):
        _layer = getattr(nn, f"{_name}{_n}d")(*_settings)
        _shapes, _draws = [(1, 3, 2, 2)[: _n + 1]], _name == "FractionalMaxPool"
        case(f"{_name}{_n}d", lambda dtype, layer=_layer: layer, _shapes, key=_draws)
    _layer, _shape = getattr(nn, f"MaxUnpool{_n}d")(2), (2, *(1,) * _n)
    case(
        f"MaxUnpool{_n}d",
        lambda dtype, layer=_layer: layer,
        lambda dtype, shape=_shape: (numbers(shape, dtype), np.ones(shape, int)),
    )
