"""Cases of layers that leave something out."""

from fdbr import nn
from nn.layer_cases import KEY, case

for kind in (nn.Dropout, nn.StochasticDepth):
    name = kind.__name__
    case(name, lambda dtype, kind=kind: kind(0.25), [(2, 3)], key=True)
    case(
        f"{name} in training",
        lambda dtype, kind=kind: kind(0.25),
        [(2, 3)],
        key=True,
        call=lambda layer, x: layer.train(x, key=KEY)[0],
    )
