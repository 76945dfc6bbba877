"""Cases of layers that pool."""

from fdbr import nn
from nn.layer_cases import case

case("MaxPool", lambda dtype: nn.MaxPool(2, stride=1, padding=1), [(1, 2, 4, 3)])
case("MaxPool covering all", lambda dtype: nn.MaxPool(2, cover_all=True), [(1, 2, 3)])
case("MaxPool with indices", lambda dtype: nn.MaxPool(2, return_indices=True), [(1, 2, 4)])
case("AvgPool", lambda dtype: nn.AvgPool([2, 1], padding=[1, 0]), [(1, 2, 4, 3)])
case("AdaptiveAvgPool", lambda dtype: nn.AdaptiveAvgPool((2, None)), [(2, 3, 3)])
case("AdaptiveMaxPool", lambda dtype: nn.AdaptiveMaxPool((2, None)), [(2, 3, 3)])
case("Flatten", lambda dtype: nn.Flatten(), [(2, 3, 2)])
