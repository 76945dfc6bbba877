"""The operations of image classifiers in each library, under one name: what their users call.

A network that is written once over these runs in each library by its own operations.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import descent

__all__ = ["ABSENT", "fdbr", "in_libraries", "jax", "make_batch", "torch"]

ABSENT = {"autograd": "it has no convolution but SciPy's, which takes minutes"}

Network = Callable[[SimpleNamespace, Any, Any], Any]
"""``network(operations, parameters, images)``: the logits."""


def make_batch(batch: int, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Square images with three channels, and labels."""
    generator = np.random.default_rng(0)
    images = generator.standard_normal((batch, 3, size, size), np.float32)
    return images, generator.integers(0, classes, batch)


def in_libraries(
    network: Network, make_parameters: Callable[[Any], Any], rate: float
) -> list[Callable[[Any], Any]]:
    """What makes a training step of some sizes with fdbr, with torch and with jax."""

    def with_library(library: Callable[..., Any]) -> Callable[[Any], Any]:
        def step(sizes: Any) -> Any:
            batch = make_batch(sizes.batch, sizes.size, sizes.classes)
            return library(network, make_parameters(sizes), batch, rate)

        return step

    return [with_library(library) for library in (fdbr, torch, jax)]


def fdbr(network: Network, parameters: Any, batch: Any, rate: float) -> Any:
    """With `fdbr.ops`."""
    from fdbr import device_get, ops

    of = SimpleNamespace(
        conv=lambda x, w, b=None, stride=1, padding=0: ops.conv(
            x, w, b, stride=stride, padding=padding
        ),
        norm=lambda x, scale, shift: ops.batch_norm(x, scale, shift)[0],
        relu=ops.relu,
        pool=lambda x, size, stride, padding: ops.max_pool(x, size, stride=stride, padding=padding),
        mean=lambda x: ops.mean(x, axis=(2, 3)),
        flat=lambda x: ops.reshape(x, (x.shape[0], -1)),
        linear=ops.linear,
    )

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels = batch
        return ops.softmax_cross_entropy(network(of, parameters, images), labels)

    step, state = descent.fdbr(loss, parameters, rate)
    return step, state, device_get(batch)


def torch(network: Network, parameters: Any, batch: Any, rate: float) -> Any:
    """With `torch.nn.functional`."""
    from torch.nn import functional

    of = SimpleNamespace(
        conv=lambda x, w, b=None, stride=1, padding=0: functional.conv2d(x, w, b, stride, padding),
        norm=lambda x, scale, shift: functional.batch_norm(x, None, None, scale, shift, True),
        relu=functional.relu,
        pool=functional.max_pool2d,
        mean=lambda x: x.mean((2, 3)),
        flat=lambda x: x.flatten(1),
        linear=functional.linear,
    )
    parameters = descent.torch_parameters(parameters)

    def loss(batch: Any) -> Any:
        images, labels = batch
        return functional.cross_entropy(network(of, parameters, images), labels)

    return descent.torch(loss, parameters, rate), None, descent.tensors(batch)


def jax(network: Network, parameters: Any, batch: Any, rate: float) -> Any:
    """With `jax.numpy` and `jax.lax`."""
    import jax
    import jax.numpy as np
    from jax import lax

    def conv(x: Any, w: Any, b: Any = None, stride: int = 1, padding: int = 0) -> Any:
        out = lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)
        return out if b is None else out + b[:, None, None]

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean((0, 2, 3), keepdims=True)
        variance = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
        scale = scale[:, None, None] / np.sqrt(variance + 1e-5)
        return (x - mean) * scale + shift[:, None, None]

    def pool(x: Any, size: int, stride: int, padding: int) -> Any:
        pads = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        window, steps = (1, 1, size, size), (1, 1, stride, stride)
        return lax.reduce_window(x, -np.inf, lax.max, window, steps, pads)

    of = SimpleNamespace(
        conv=conv,
        norm=norm,
        relu=jax.nn.relu,
        pool=pool,
        mean=lambda x: x.mean((2, 3)),
        flat=lambda x: x.reshape(len(x), -1),
        linear=lambda x, w, b: x @ w.T + b,
    )

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels = batch
        return descent.jax_cross_entropy(network(of, parameters, images), labels)

    return descent.jax(loss, parameters, rate, batch)
