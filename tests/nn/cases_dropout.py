"""Cases of layers that leave something out."""

from fdbr import nn
from nn.layer_cases import KEY, case


def trained(layer, x):
    return layer.train(x, key=KEY)[0]


KINDS = nn.Dropout, nn.StochasticDepth, nn.SpatialDropout, nn.AlphaDropout, nn.GaussianDropout
for kind in KINDS:
    name = kind.__name__
    case(name, lambda dtype, kind=kind: kind(0.25), [(2, 3)], key=True)
    case(f"{name} in training", lambda d, kind=kind: kind(0.25), [(2, 3)], key=True, call=trained)


def dropconnect(dtype, **settings):
    return nn.SimplifiedDropconnect.init(KEY, 3, 2, rate=0.25, dtype=dtype, **settings)


case("SimplifiedDropconnect", dropconnect, [(2, 3)], key=True)
case("SimplifiedDropconnect in training", dropconnect, [(2, 3)], key=True, call=trained)
case(
    "SimplifiedDropconnect with one mask",
    lambda dtype: dropconnect(dtype, batchwise=False, bias=False),
    [(2, 3)],
    key=True,
    call=trained,
)
