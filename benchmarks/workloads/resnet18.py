"""Loss and gradient of ResNet-18 on 16 images of 3x64x64, float32.

He, Zhang, Ren & Sun, *Deep residual learning for image recognition*, CVPR 2016, with 1,000
classes, and batch norm with the statistics of the batch.  The result is the loss and the gradient
of all parameters, which stay as they are.
"""

from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import optree

from benchmarks import descent

TITLE = "ResNet-18 on 16x3x64x64, loss and gradient"
RTOL = 0.05  # of float32, where rounding turns some ReLUs on or off, in every library alike

ABSENT = {"autograd": "it has no convolution but SciPy's, which takes minutes"}


@attrs.frozen
class Sizes:
    """The lengths of everything; the images are square."""

    batch: int = 16
    size: int = 64
    widths: tuple[int, ...] = (64, 128, 256, 512)
    classes: int = 1000


TINY = Sizes(batch=2, size=16, widths=(3, 4), classes=5)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    generator = np.random.default_rng(0)
    images = generator.standard_normal((sizes.batch, 3, sizes.size, sizes.size), np.float32)
    return images, generator.integers(0, sizes.classes, sizes.batch)


def make_parameters(sizes: Sizes) -> tuple[Any, list[Any], Any]:
    """The stem, the blocks and the output layer.

    A unit is a convolution's weight and the scale and shift of the norm after it.  A block has
    two of them, and a third where its shape changes.
    """
    generator = np.random.default_rng(1)

    def unit(outputs: int, inputs: int, kernel: int) -> tuple[np.ndarray, ...]:
        spread = (2 / (outputs * kernel**2)) ** 0.5
        weight = generator.normal(0, spread, (outputs, inputs, kernel, kernel))
        return (
            weight.astype(np.float32),
            np.ones(outputs, np.float32),
            np.zeros(outputs, np.float32),
        )

    blocks = []
    inputs = sizes.widths[0]
    for width in sizes.widths:
        for _ in range(2):
            shortcut = unit(width, inputs, 1) if width != inputs else None
            blocks.append((unit(width, inputs, 3), unit(width, width, 3), shortcut))
            inputs = width
    weight = generator.normal(0, inputs**-0.5, (sizes.classes, inputs)).astype(np.float32)
    out = weight, np.zeros(sizes.classes, np.float32)
    return unit(sizes.widths[0], 3, 7), blocks, out


def fdbr(sizes: Sizes) -> Any:
    """With frozen classes and `fdbr.ops`."""
    from fdbr import device_get, frozen, nn, ops, value_and_grad

    @frozen
    class Unit:
        weight: Any
        scale: Any
        shift: Any

        def __call__(self, x: Any, stride: int) -> Any:
            pad = self.weight.shape[-1] // 2
            x = ops.conv(x, self.weight, stride=stride, padding=pad)
            return ops.batch_norm(x, self.scale, self.shift)[0]

    @frozen
    class Block:
        first: Unit
        second: Unit
        shortcut: Unit | None

        def __call__(self, x: Any) -> Any:
            stride = 1 if self.shortcut is None else 2
            out = self.second(ops.relu(self.first(x, stride)), 1)
            return ops.relu(out + (x if self.shortcut is None else self.shortcut(x, 2)))

    @frozen
    class Model:
        stem: Unit
        blocks: tuple[Block, ...]
        out: nn.Linear

        def __call__(self, x: Any) -> Any:
            x = ops.max_pool(ops.relu(self.stem(x, 2)), 3, stride=2, padding=1)
            for block in self.blocks:
                x = block(x)
            return self.out(ops.mean(x, axis=(2, 3)))

    def block(first: Any, second: Any, shortcut: Any) -> Block:
        return Block(Unit(*first), Unit(*second), None if shortcut is None else Unit(*shortcut))

    stem, blocks, out = make_parameters(sizes)
    model = Model(Unit(*stem), tuple(block(*units) for units in blocks), nn.Linear(*out))

    def loss(model: Any, batch: Any) -> Any:
        images, labels = batch
        return ops.softmax_cross_entropy(model(images), labels)

    slope = value_and_grad(loss)
    step = lambda model, batch: (model, slope(model, batch))  # noqa: E731
    return step, device_get(model), device_get(make_batch(sizes))


def _logits(of: Any, parameters: Any, x: Any) -> Any:
    """The network, of the operations of some library."""

    def unit(values: Any, x: Any, stride: int) -> Any:
        weight, scale, shift = values
        return of.norm(of.conv(x, weight, stride), scale, shift)

    stem, blocks, (weight, bias) = parameters
    x = of.pool(of.relu(unit(stem, x, 2)))
    for first, second, shortcut in blocks:
        out = unit(second, of.relu(unit(first, x, 1 if shortcut is None else 2)), 1)
        x = of.relu(out + (x if shortcut is None else unit(shortcut, x, 2)))
    return x.mean((2, 3)) @ weight.T + bias


def torch(sizes: Sizes) -> Any:
    """With `torch.nn.functional`."""
    import torch
    from torch.nn import functional

    of = SimpleNamespace(
        conv=lambda x, w, stride: functional.conv2d(x, w, None, stride, w.shape[-1] // 2),
        norm=lambda x, scale, shift: functional.batch_norm(x, None, None, scale, shift, True),
        relu=functional.relu,
        pool=lambda x: functional.max_pool2d(x, 3, 2, 1),
    )
    parameters = descent.torch_parameters(make_parameters(sizes))
    leaves = optree.tree_leaves(parameters)

    def step(state: Any, batch: Any) -> Any:
        images, labels = batch
        loss = functional.cross_entropy(_logits(of, parameters, images), labels)
        return state, (loss, torch.autograd.grad(loss, leaves))

    return step, None, descent.tensors(make_batch(sizes))


def jax(sizes: Sizes) -> Any:
    """With `jax.lax`."""
    import jax
    import jax.numpy as np
    from jax import lax

    def conv(x: Any, w: Any, stride: int) -> Any:
        pad = w.shape[-1] // 2
        return lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean((0, 2, 3), keepdims=True)
        variance = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
        scale = scale[:, None, None] / np.sqrt(variance + 1e-5)
        return (x - mean) * scale + shift[:, None, None]

    def pool(x: Any) -> Any:
        pad = [(0, 0), (0, 0), (1, 1), (1, 1)]
        return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pad)

    of = SimpleNamespace(conv=conv, norm=norm, relu=jax.nn.relu, pool=pool)

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels = batch
        return descent.jax_cross_entropy(_logits(of, parameters, images), labels)

    slope = jax.value_and_grad(loss)
    parameters, batch = descent.mapped(np.array, (make_parameters(sizes), make_batch(sizes)))
    return lambda parameters, batch: (parameters, slope(parameters, batch)), parameters, batch
