"""One training step of a convolutional classifier: 64 images of 3x32x32, SGD, float32.

Two convolutions of 3x3 to 32 and 64 channels, each with ReLU and 2x2 max pooling, and a linear
classifier with ten classes.
"""

from itertools import pairwise
from typing import Any

import attrs
import numpy as np

from benchmarks import descent
from benchmarks.products import affine, random, sequence

TITLE = "CNN 3-32-64 on 64x3x32x32"
RTOL = 1e-4
RATE = 0.001

ABSENT = {"autograd": "it has no convolution but SciPy's, which takes seconds"}


@attrs.frozen
class Sizes:
    """The lengths of everything; the images are square."""

    batch: int = 64
    size: int = 32
    channels: tuple[int, ...] = (3, 32, 64)
    classes: int = 10

    @property
    def features(self) -> int:
        """What the convolutions leave of an image."""
        return self.channels[-1] * (self.size // 2 ** (len(self.channels) - 1)) ** 2


TINY = Sizes(batch=2, size=8, channels=(2, 3, 4), classes=3)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    generator = np.random.default_rng(0)
    shape = (sizes.batch, sizes.channels[0], sizes.size, sizes.size)
    images = generator.standard_normal(shape, dtype=np.float32)
    return images, generator.integers(0, sizes.classes, sizes.batch)


def make_parameters(sizes: Sizes) -> tuple[list[tuple[np.ndarray, np.ndarray]], Any]:
    """Weight and bias of each convolution, and of the classifier, in PyTorch's layouts."""
    generator = np.random.default_rng(1)

    def layer(*shape: int) -> tuple[np.ndarray, np.ndarray]:
        spread = np.prod(shape[1:]) ** -0.5
        weight = generator.normal(0, spread, shape).astype(np.float32)
        return weight, np.zeros(shape[0], np.float32)

    convolutions = [layer(outputs, inputs, 3, 3) for inputs, outputs in pairwise(sizes.channels)]
    return convolutions, layer(sizes.classes, sizes.features)


def fdbr(sizes: Sizes) -> Any:
    """With a frozen class and `fdbr.ops`."""
    from fdbr import device_get, frozen, nn, ops

    @frozen
    class Model:
        convolutions: Any
        out: nn.Linear

        def __call__(self, x: Any) -> Any:
            for weight, bias in self.convolutions:
                x = ops.max_pool(ops.relu(ops.conv(x, weight, bias, padding=1)), 2)
            return self.out(ops.reshape(x, (len(x), -1)))

    def loss(model: Any, batch: Any) -> Any:
        images, labels = batch
        return ops.softmax_cross_entropy(model(images), labels)

    convolutions, out = make_parameters(sizes)
    step, state = descent.fdbr(loss, Model(convolutions, nn.Linear(*out)), RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.nn.functional`."""
    from torch.nn.functional import conv2d, cross_entropy, linear, max_pool2d, relu

    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        x, labels = batch
        convolutions, out = parameters
        for weight, bias in convolutions:
            x = max_pool2d(relu(conv2d(x, weight, bias, padding=1)), 2)
        return cross_entropy(linear(x.flatten(1), *out), labels)

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def jax(sizes: Sizes) -> Any:
    """With `jax.lax`."""
    import jax
    import jax.numpy as np
    from jax import lax

    def loss(parameters: Any, batch: Any) -> Any:
        x, labels = batch
        convolutions, (weight, bias) = parameters
        for kernel, shift in convolutions:
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME") + shift[:, None, None]
            window = (1, 1, 2, 2)
            x = lax.reduce_window(jax.nn.relu(x), -np.inf, lax.max, window, window, "VALID")
        logits = x.reshape(len(x), -1) @ weight.T + bias
        return descent.jax_cross_entropy(logits, labels)

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))


def products(sizes: Sizes) -> Any:
    """Of the kernels and the windows, a column each, and those of the classifier."""
    size, calls = sizes.size, []
    for number, (inputs, outputs) in enumerate(pairwise(sizes.channels)):
        calls.append(_convolution(9 * inputs, outputs, sizes.batch * size**2, number > 0))
        size //= 2
    return sequence(*calls, affine((sizes.batch, sizes.features, sizes.classes, True)))


def _convolution(inputs: int, outputs: int, windows: int, by_input: bool) -> Any:
    kernel, columns, ct = random(outputs, inputs), random(inputs, windows), random(outputs, windows)
    out, by_kernel, by_columns = map(np.empty_like, (ct, kernel, columns))

    def call() -> None:
        np.dot(kernel, columns, out=out)
        np.dot(ct, columns.T, out=by_kernel)
        if by_input:
            np.dot(kernel.T, ct, out=by_columns)

    return call


PRODUCTS = {"products of windows": products}
