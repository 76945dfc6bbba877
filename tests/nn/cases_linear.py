"""Cases of fully connected layers, and of containers."""

from fdbr import nn, ops, random
from nn.layer_cases import KEY, case

case("Linear", lambda dtype: nn.Linear.init(KEY, 3, 2, dtype=dtype), [(4, 3)])
case("Linear without bias", lambda d: nn.Linear.init(KEY, 3, 2, bias=False, dtype=d), [(3,)])
case("Lambda", lambda dtype: nn.Lambda(ops.tanh), [(2, 3)])


def _two(dtype):
    first, second = random.split(KEY)
    return nn.Sequential(
        nn.Linear.init(first, 3, 4, dtype=dtype),
        ops.tanh,
        nn.Linear.init(second, 4, 2, dtype=dtype),
    )


case("Sequential", _two, [(5, 3)])
