"""One training step of VGG16 on two images of 3x224x224, SGD, float32.

Simonyan & Zisserman, *Very deep convolutional networks for large-scale image recognition*,
ICLR 2015, configuration D, without dropout: 138 million parameters.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks import images
from benchmarks.images import ABSENT

__all__ = ["ABSENT", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "torch"]

TITLE = "VGG16 on 2x3x224x224"
RTOL = 1e-3
RATE = 1e-5  # with 1e-3 the third loss is 125, and rounding decides about the digits of the second


@attrs.frozen
class Sizes:
    """The lengths of everything; the images are square, and each stage halves them."""

    batch: int = 2
    size: int = 224
    stages: tuple[tuple[int, ...], ...] = (
        *((64, 64), (128, 128), (256, 256, 256)),
        *((512, 512, 512), (512, 512, 512)),
    )
    hidden: tuple[int, ...] = (4096, 4096)
    classes: int = 1000


TINY = Sizes(batch=2, size=8, stages=((3,), (4, 4)), hidden=(6,), classes=5)


def make_parameters(sizes: Sizes) -> tuple[list[list[list[np.ndarray]]], list[Any]]:
    """Weight and bias of each convolution, by stages, and of each layer of the classifier."""
    generator = np.random.default_rng(1)

    def layer(*shape: int) -> list[np.ndarray]:
        weight = generator.standard_normal(shape, np.float32)
        weight *= (2 / np.prod(shape[1:])) ** 0.5
        return [weight, np.zeros(shape[0], np.float32)]

    stages: list[list[Any]] = []
    inputs = 3
    for widths in sizes.stages:
        stages.append([])
        for width in widths:
            stages[-1].append(layer(width, inputs, 3, 3))
            inputs = width
    inputs *= (sizes.size // 2 ** len(sizes.stages)) ** 2
    classifier = []
    for width in (*sizes.hidden, sizes.classes):
        classifier.append(layer(width, inputs))
        inputs = width
    return stages, classifier


def _logits(of: Any, parameters: Any, x: Any) -> Any:
    stages, (*hidden, out) = parameters
    for stage in stages:
        for weight, bias in stage:
            x = of.relu(of.conv(x, weight, bias, padding=1))
        x = of.pool(x, 2, 2, 0)
    x = of.flat(x)
    for weight, bias in hidden:
        x = of.relu(of.linear(x, weight, bias))
    return of.linear(x, *out)


fdbr, torch, jax = images.in_libraries(_logits, make_parameters, RATE)
