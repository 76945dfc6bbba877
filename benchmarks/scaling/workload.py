"""What a rank computes in a step: times of layers, and bytes of their gradients."""

import functools
from typing import Any

import attrs
import numpy as np

from fdbr import nn, random

__all__ = ["Bucket", "Layer", "Workload", "of_model", "resnet50"]


@attrs.frozen
class Layer:
    """Seconds of a layer's ways forward and back, and the number of its parameters."""

    name: str
    forward: float
    backward: float
    parameters: int


@attrs.frozen
class Bucket:
    """Gradients that are reduced together, and the computation after which they are there.

    The first bucket of a step has the way forward in its seconds.
    """

    seconds: float
    size: float


@attrs.frozen
class Workload:
    """A step on one rank.

    Attributes
    ----------
    layers
        From the input to the loss.
    update
        Seconds that the optimizer takes.
    bytes_each
        Bytes of a gradient's number on the wire.
    """

    layers: tuple[Layer, ...]
    update: float = 0.0
    bytes_each: int = 4

    @property
    def seconds(self) -> float:
        """What the step takes on one rank."""
        return sum(layer.forward + layer.backward for layer in self.layers) + self.update

    @property
    def size(self) -> float:
        """Bytes of all gradients."""
        return float(self.bytes_each * sum(layer.parameters for layer in self.layers))

    def taking(self, seconds: float) -> "Workload":
        """The same with all times in proportion, so that a step takes so many seconds."""
        factor = seconds / self.seconds
        layers = tuple(
            attrs.evolve(one, forward=one.forward * factor, backward=one.backward * factor)
            for one in self.layers
        )
        return attrs.evolve(self, layers=layers, update=self.update * factor)

    def buckets(self, least: float | None) -> tuple[Bucket, ...]:
        """The buckets in the order of the backward pass; each has at least so many bytes.

        The last may have fewer.  `None`: one bucket with everything.
        """
        made = []
        seconds = sum(layer.forward for layer in self.layers)
        size = 0.0
        for layer in reversed(self.layers):
            seconds += layer.backward
            size += self.bytes_each * layer.parameters
            if least is not None and size >= max(least, 1.0):
                made.append(Bucket(seconds, size))
                seconds = size = 0.0
        if seconds or size or not made:
            made.append(Bucket(seconds, size))
        return tuple(made)


def of_model(
    model: Any,
    example: Any,
    *,
    batch: int,
    operations: float,
    memory: float,
    bytes_each: int = 4,
) -> Workload:
    """The workload of a model, by what its layers compute and how much they write.

    A layer takes as long as its multiply-adds, or as the reading and writing of its outputs,
    whichever is longer; the way back takes twice as long, for there are two products for each one
    and twice as many arrays.  The optimizer reads and writes parameters five times.

    Parameters
    ----------
    model, example
        A model, and an input for it with a batch of one.
    batch
        How many examples a rank has in a step.
    operations, memory
        Floating-point operations (two for a multiply-add), and bytes of memory, per second.
    bytes_each
        Bytes of a gradient's number on the wire.
    """
    summary = nn.summary(model, example)
    layers = []
    rows = list(summary)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        if after is not None and after.depth > row.depth:
            continue  # what is in it comes by itself
        computing = 2 * row.operations * batch / operations
        moving = 2 * row.memory * batch / memory
        forward = max(computing, moving)
        layers.append(Layer(row.path, forward, 2 * forward, row.parameters))
    update = 5 * 4 * summary.parameters / memory
    return Workload(tuple(layers), update, bytes_each)


@functools.cache
def resnet50(batch: int = 32, bytes_each: int = 2) -> Workload:
    """ResNet-50 on images of 224 by 224, at the rates of a Tesla P100's data sheet.

    Its times are to be scaled (`Workload.taking`) to those that a framework reaches; what counts
    is how they are spread over layers.
    """
    model = nn.models.ResNet50.init(random.key(0))
    example = np.zeros((1, 3, 224, 224), np.float32)
    return of_model(
        model, example, batch=batch, operations=9.3e12, memory=732e9, bytes_each=bytes_each
    )
