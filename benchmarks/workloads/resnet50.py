"""One training step of ResNet-50 on four images of 3x224x224, SGD, float32.

He, Zhang, Ren & Sun, *Deep residual learning for image recognition*, CVPR 2016, with strides in
the 3x3 convolutions, as torchvision has them: 26 million parameters.  Batch norm takes the
statistics of the batch.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks import images
from benchmarks.images import ABSENT

__all__ = ["ABSENT", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "torch"]

TITLE = "ResNet-50 on 4x3x224x224"
RTOL = 0.05  # of float32, where rounding turns some ReLUs on or off, in every library alike
RATE = 0.001


@attrs.frozen
class Sizes:
    """The lengths of everything; the images are square.

    A stage is as many blocks of a width, of which four times as many channels come out.
    """

    batch: int = 4
    size: int = 224
    stem: int = 64
    stages: tuple[tuple[int, int], ...] = ((3, 64), (4, 128), (6, 256), (3, 512))
    classes: int = 1000


TINY = Sizes(batch=2, size=16, stem=3, stages=((1, 2), (2, 3)), classes=5)


def make_parameters(sizes: Sizes) -> tuple[Any, list[list[Any]], Any]:
    """The stem, the stages of blocks, and the output layer.

    A unit is a convolution's weight and the scale and shift of the norm after it.  A block has
    three of them, and a fourth where its shape changes.
    """
    generator = np.random.default_rng(1)

    def weights(*shape: int) -> np.ndarray:
        weight = generator.standard_normal(shape, np.float32)
        weight *= (2 / np.prod(shape[1:])) ** 0.5
        return weight

    def unit(outputs: int, inputs: int, kernel: int) -> list[np.ndarray]:
        weight = weights(outputs, inputs, kernel, kernel)
        return [weight, np.ones(outputs, np.float32), np.zeros(outputs, np.float32)]

    stages: list[list[Any]] = []
    inputs = sizes.stem
    for number, width in sizes.stages:
        stages.append([])
        for _ in range(number):
            shortcut = unit(4 * width, inputs, 1) if inputs != 4 * width else None
            units = [unit(width, inputs, 1), unit(width, width, 3), unit(4 * width, width, 1)]
            stages[-1].append([*units, shortcut])
            inputs = 4 * width
    out = [weights(sizes.classes, inputs), np.zeros(sizes.classes, np.float32)]
    return unit(sizes.stem, 3, 7), stages, out


def _logits(of: Any, parameters: Any, x: Any) -> Any:
    stem, stages, out = parameters

    def unit(values: Any, x: Any, stride: int = 1, padding: int = 0) -> Any:
        weight, scale, shift = values
        return of.norm(of.conv(x, weight, stride=stride, padding=padding), scale, shift)

    x = of.pool(of.relu(unit(stem, x, 2, 3)), 3, 2, 1)
    for i, stage in enumerate(stages):
        for j, (first, second, third, shortcut) in enumerate(stage):
            stride = 2 if i > 0 and j == 0 else 1
            inner = of.relu(unit(second, of.relu(unit(first, x)), stride, 1))
            x = of.relu(unit(third, inner) + (unit(shortcut, x, stride) if shortcut else x))
    return of.linear(of.mean(x), *out)


fdbr, torch, jax = images.in_libraries(_logits, make_parameters, RATE)
