"""Cases of activations with parameters, and of small layers."""

from fdbr import nn, ops
from nn.layer_cases import KEY, case, numbers

case("PReLU", lambda d: nn.PReLU.init(None, 3, dtype=d), [(2, 3)])
case("PReLU of one slope", lambda d: nn.PReLU.init(None, dtype=d), [(2, 2)])
case("Swish", lambda d: nn.Swish.init(None, dtype=d), [(2, 3)])
case("Swish of channels", lambda d: nn.Swish.init(None, (2,), dtype=d), [(2, 2, 2)])
case("RReLU", lambda d: nn.RReLU(), [(2, 3)], key=True)
case(
    "RReLU in training",
    lambda d: nn.RReLU(),
    [(2, 3)],
    key=True,
    call=lambda layer, x: layer.train(x, key=KEY)[0],
)
case("Maxout", lambda d: nn.Maxout.init(KEY, 3, 2, 2, dtype=d), [(4, 3)])
case("Highway", lambda d: nn.Highway.init(KEY, 3, activation=ops.tanh, dtype=d), [(4, 3)])
case("Highway without bias", lambda d: nn.Highway.init(KEY, 3, bias=False, dtype=d), [(3,)])
case("Bilinear", lambda d: nn.Bilinear.init(KEY, 2, 3, 2, dtype=d), [(4, 2), (4, 3)])
case(
    "Bilinear with linear terms",
    lambda d: nn.Bilinear.init(KEY, 2, 3, 2, linear_terms=True, bias=False, dtype=d),
    [(2,), (3,)],
)
case("Scale", lambda d: nn.Scale(numbers((3,), d)), [(2, 3, 2)])
case("Scale with bias", lambda d: nn.Scale.init(None, (3, 2), bias=True, dtype=d), [(1, 3, 2)])
case("Bias", lambda d: nn.Bias.init(None, 3, axis=0, dtype=d), [(3, 2)])
case("Parameter", lambda d: nn.Parameter(numbers((3,), d)), [])
case("Identity", lambda d: nn.Identity(), [(2, 3)])
