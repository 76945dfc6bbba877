"""Cases of activation functions."""

import numpy as np
import scipy.special as sp

from fdbr import ops
from ops.cases import ANY, OFF_GRID, POSITIVE, array, arrays, binary, case, grid, unary
from ops.seeds import several

WIDE = grid(-5, 5, 1 / 16)

# --- pieces of lines and parabolas --------------------------------------------------

unary("clipped_relu", grid(-4, 30, 1 / 16), lambda x: np.clip(x, 0, 20))
unary(
    "clipped_relu",
    OFF_GRID,
    lambda x: np.clip(x, 0, 0.5),
    function=lambda x: ops.clipped_relu(x, 0.5),
    setting="z",
)
unary(
    "hard_tanh",
    OFF_GRID,
    lambda x: np.clip(x, -0.5, 1.5),
    function=lambda x: ops.hard_tanh(x, min_val=-0.5, max_val=1.5),
    setting="bounds",
)
unary(
    "leaky_relu",
    OFF_GRID,
    lambda x: np.where(x > 0, x, 0.2 * x),
    function=lambda x: ops.leaky_relu(x, negative_slope=0.2),
    setting="PyTorch's name",
)
unary("hard_sigmoid", WIDE, lambda x: np.clip(x + 3, 0, 6) / 6)
unary(
    "hard_sigmoid",
    WIDE,
    lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    function=lambda x: ops.hard_sigmoid(x, slope=0.2),
    setting="Chainer's",
)
unary("hard_swish", WIDE, lambda x: x * np.clip(x + 3, 0, 6) / 6)
unary("hard_silu", WIDE, lambda x: x * np.clip(x + 3, 0, 6) / 6)
unary("hard_shrink", OFF_GRID, lambda x: np.where(np.abs(x) > 0.5, x, 0))
unary(
    "soft_shrink",
    OFF_GRID,
    lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.75, 0),
    function=lambda x: ops.soft_shrink(x, lambd=0.75),
)
unary("tanh_shrink", ANY, lambda x: x - np.tanh(x))
unary(
    "threshold",
    OFF_GRID,
    lambda x: np.where(x > 0.25, x, 7.0),
    function=lambda x: ops.threshold(x, 0.25, 7.0),
)
unary(
    "sparse_plus",
    OFF_GRID,
    lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
)
unary("sparse_sigmoid", OFF_GRID, lambda x: np.clip((x + 1) / 2, 0, 1))

# --- smooth -------------------------------------------------------------------------

unary(
    "softplus",
    grid(-2, 2),
    lambda x: np.logaddexp(3 * x, 0) / 3,
    function=lambda x: ops.softplus(x, beta=3.0),
    setting="beta",
)
unary(
    "softplus",
    OFF_GRID,
    lambda x: np.where(2 * x > 1, x, np.logaddexp(2 * x, 0) / 2),
    function=lambda x: ops.softplus(x, beta=2, threshold=1),
    setting="threshold",
)
unary(
    "gelu",
    ANY,
    lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    function=lambda x: ops.gelu(x, approximate="tanh"),
    setting="tanh",
)
unary(
    "gelu",
    ANY,
    lambda x: x * sp.ndtr(x),
    function=lambda x: ops.gelu(x, approximate="none"),
    setting="none",
)
unary("swish", ANY, lambda x: x * sp.expit(x))
case(
    "swish",
    several((2, 3, 2), (3,)),
    lambda x, b: x * sp.expit(b[:, None] * x),
    ops.swish,
    "beta",
)
unary("squareplus", ANY, lambda x: (x + np.sqrt(x * x + 4)) / 2)
binary("squareplus", ANY, POSITIVE, lambda x, b: (x + np.sqrt(x * x + b)) / 2, setting="b")

unary("log1mexp", POSITIVE, lambda x: np.log(1 - np.exp(-x)))

# --- of whole axes, with parameters -------------------------------------------------

case(
    "crelu",
    array((2, 3), OFF_GRID).map(lambda x: (x,)),
    lambda x: np.maximum(np.concatenate([x, -x], axis=1), 0),
)
case(
    "crelu",
    array((2, 1, 2), OFF_GRID).map(lambda x: (x,)),
    lambda x: np.maximum(np.concatenate([x, -x], axis=2), 0),
    lambda x: ops.crelu(x, axis=-1),
    "axis",
)
case(
    "maxout",
    array((2, 4), grid(-4, 4), unique=True).map(lambda x: (x,)),
    lambda x: x.reshape(2, 2, 2).max(-1),
    lambda x: ops.maxout(x, 2),
)
case(
    "maxout",
    array((3, 2, 2), grid(-4, 4), unique=True).map(lambda x: (x,)),
    lambda x: x.max(0, keepdims=True),
    lambda x: ops.maxout(x, 3, axis=0),
    "axis",
)
case("softmin", several((2, 3)), lambda x: sp.softmax(-x, axis=-1))


def nearest(x):
    """The probabilities nearest to each row, by trying how many of them are not 0."""
    out = []
    for row in x:
        shifts = [(np.sort(row)[-k:].sum() - 1) / k for k in range(1, len(row) + 1)]
        tries = [np.maximum(row - shift, 0) for shift in shifts]
        out.append(min(tries, key=lambda p: abs(p.sum() - 1)))
    return np.array(out)


# Times 0.9 no differences of elements are 1, where the number of those that are not 0 changes.
case(
    "sparsemax",
    array((2, 3), grid(-2, 2, 1 / 16), unique=True).map(lambda x: (x,)),
    lambda x: nearest(0.9 * x),
    lambda x: ops.sparsemax(0.9 * x),
)
case(
    "sparsemax",
    array((2, 1), grid(-2, 2)).map(lambda x: (x,)),
    lambda x: nearest(0.9 * x.T).T,
    lambda x: ops.sparsemax(0.9 * x, axis=0),
    "axis",
)
case(
    "prelu",
    arrays(((2, 3, 2), OFF_GRID), ((3,), ANY)),
    lambda x, w: np.where(x > 0, x, w[:, None] * x),
)
case(
    "prelu",
    arrays(((4,), OFF_GRID), ((1,), ANY)),
    lambda x, w: np.where(x > 0, x, w * x),
    ops.prelu,
    "one slope",
)
