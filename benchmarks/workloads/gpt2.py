"""One training step of GPT-2 small on one text of 256 tokens, SGD, float32.

Radford and others, *Language models are unsupervised multitask learners*, 2019: 124 million
parameters, without dropout.  The embedding of the tokens is the output layer, too.
"""

import math
from typing import Any

import attrs
import numpy as np

from benchmarks import descent
from benchmarks.decoders import linear, normed, torch_hidden

TITLE = "GPT-2 small, 1x256 tokens"
RTOL = 1e-3
RATE = 0.01


@attrs.frozen
class Sizes:
    """The lengths of everything; ``depth`` counts the blocks."""

    batch: int = 1
    length: int = 256
    context: int = 1024
    width: int = 768
    heads: int = 12
    depth: int = 12
    tokens: int = 50257


TINY = Sizes(batch=2, length=3, context=4, width=8, heads=2, depth=2, tokens=7)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the tokens after them, by example and position."""
    text = np.random.default_rng(0).integers(0, sizes.tokens, (sizes.batch, sizes.length + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


def make_parameters(sizes: Sizes) -> dict[str, Any]:
    """Affine layers as [weight, bias], with the weight as (outputs, inputs); norms likewise.

    They are in lists and dicts, of which a jitted step is given up what it writes over.
    """
    generator = np.random.default_rng(1)
    width = sizes.width

    def normal(*shape: int, spread: float = 0.02) -> np.ndarray:
        values = generator.standard_normal(shape, np.float32)
        values *= spread
        return values

    def layer(outputs: int, inputs: int, spread: float = 0.02) -> list[np.ndarray]:
        return [normal(outputs, inputs, spread=spread), np.zeros(outputs, np.float32)]

    def norm() -> list[np.ndarray]:
        return [np.ones(width, np.float32), np.zeros(width, np.float32)]

    residual = 0.02 / math.sqrt(2 * sizes.depth)
    return {
        "tokens": normal(sizes.tokens, width),
        "positions": normal(sizes.context, width, spread=0.01),
        "blocks": [
            {
                "norm": norm(),
                "attention": layer(3 * width, width),
                "mix": layer(width, width, residual),
                "second_norm": norm(),
                "widen": layer(4 * width, width),
                "narrow": layer(width, 4 * width, residual),
            }
            for _ in range(sizes.depth)
        ],
        "norm": norm(),
    }


def fdbr(sizes: Sizes) -> Any:
    """With `fdbr.ops`."""
    from fdbr import device_get, ops

    def block(of: Any, x: Any) -> Any:
        batch, length, width = x.shape
        parts = ops.linear(ops.layer_norm(x, *of["norm"]), *of["attention"])
        query, key, value = (
            ops.swapaxes(ops.reshape(part, (batch, length, sizes.heads, -1)), 1, 2)
            for part in np.split(parts, 3, axis=-1)
        )
        seen = ops.scaled_dot_product_attention(query, key, value, causal=True)
        seen = ops.reshape(ops.swapaxes(seen, 1, 2), (batch, length, width))
        x = x + ops.linear(seen, *of["mix"])
        wide = ops.linear(ops.layer_norm(x, *of["second_norm"]), *of["widen"])
        return x + ops.linear(ops.gelu(wide, approximate=True), *of["narrow"])

    def loss(parameters: Any, batch: Any) -> Any:
        tokens, targets = batch
        x = ops.embed(parameters["tokens"], tokens) + parameters["positions"][: tokens.shape[1]]
        for of in parameters["blocks"]:
            x = block(of, x)
        logits = ops.linear(ops.layer_norm(x, *parameters["norm"]), parameters["tokens"])
        return ops.softmax_cross_entropy(logits, targets)

    step, state = descent.fdbr(loss, make_parameters(sizes), RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.nn.functional`."""
    from torch.nn.functional import cross_entropy, linear

    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        tokens, targets = batch
        logits = linear(torch_hidden(parameters, tokens, sizes.heads), parameters["tokens"])
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def jax(sizes: Sizes) -> Any:
    """With `jax.numpy`."""
    import jax
    import jax.numpy as np

    def attention(parts: Any) -> Any:
        batch, length, _ = parts.shape
        query, key, value = (
            np.swapaxes(part.reshape(batch, length, sizes.heads, -1), 1, 2)
            for part in np.split(parts, 3, axis=-1)
        )
        scores = query @ np.swapaxes(key, 2, 3) / math.sqrt(query.shape[-1])
        past = np.tril(np.ones((length, length), bool))
        shares = jax.nn.softmax(np.where(past, scores, -np.inf), axis=-1)
        return np.swapaxes(shares @ value, 1, 2).reshape(batch, length, -1)

    def block(of: Any, x: Any) -> Any:
        x = x + linear(attention(linear(normed(np, x, of["norm"]), of["attention"])), of["mix"])
        wide = linear(normed(np, x, of["second_norm"]), of["widen"])
        return x + linear(jax.nn.gelu(wide, approximate=True), of["narrow"])

    def loss(parameters: Any, batch: Any) -> Any:
        tokens, targets = batch
        x = parameters["tokens"][tokens] + parameters["positions"][: tokens.shape[1]]
        for of in parameters["blocks"]:
            x = block(of, x)
        logits = normed(np, x, parameters["norm"]) @ parameters["tokens"].T
        return descent.jax_cross_entropy(logits, targets)

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))
