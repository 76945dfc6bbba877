"""Cases of arrays taken apart, and of small compositions."""

from typing import Any

import numpy as np

from fdbr import ops
from ops.cases import ANY, CASES, POSITIVE, array, arrays, broadcasting, case, unary
from ops.seeds import several

_FIRST = len(CASES)


def _weighed(parts: Any) -> Any:
    return sum((i + 1) * part.sum() for i, part in enumerate(parts))


for sections, axis in ((2, 1), ([1, 1], 0)):
    case(
        "split",
        several((2, 4)),
        lambda x, s=sections, a=axis: _weighed(np.split(x, s, a)),
        lambda x, s=sections, a=axis: _weighed(ops.split(x, s, a)),
        f"axis {axis}",
    )
case(
    "average",
    arrays(((2, 3), ANY), ((2, 3), POSITIVE)),
    lambda x, w: np.average(x, 1, w),
    lambda x, w: ops.average(x, 1, w),
)
case(
    "average",
    arrays(((2, 1, 3), ANY), ((3, 2), POSITIVE)),
    lambda x, w: (x * w.T[:, None]).sum((0, 2), keepdims=True) / w.sum(),
    lambda x, w: ops.average(x, (2, 0), w, keepdims=True),
    "along axes",
)
case("average", array((2, 3)).map(lambda x: (x,)), np.mean, ops.average, "of all")
case(
    "lerp",
    broadcasting(ANY, ANY, ANY),
    lambda start, end, weight: start + weight * (end - start),
    ops.lerp,
)
unary("rsqrt", POSITIVE, lambda x: x**-0.5)
case("sum_to", several((2, 3)), lambda x: x.sum(1, keepdims=True), lambda x: ops.sum_to(x, (2, 1)))
case("sum_to", several((2, 3)), lambda x: x.sum(0), lambda x: ops.sum_to(x, 3), "fewer axes")
case(
    "as_strided",
    several((2, 3)),
    lambda x: x.reshape(-1)[[[5, 4], [3, 2], [1, 0]]],
    lambda x: ops.as_strided(x, (3, 2), (-2, -1), 5),
)
case(
    "as_strided",
    several((4,)),
    lambda x: x[[[0, 1], [1, 2]]],
    lambda x: ops.as_strided(x, (2, 2), (1, 1)),
    "overlapping",
)

OWN = CASES[_FIRST:]
