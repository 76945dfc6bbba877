"""One training step of a transformer language model: 16 texts of 64 bytes, SGD, float32.

Four blocks, 128 wide, with 4 heads and a perceptron of four times the width with the tanh
approximation of GELU; layer norms before both and at the end; each position sees those before
it; learned positions; the output layer predicts the next of 256 bytes.
"""

import math
from typing import Any

import attrs
import numpy as np

from benchmarks import descent
from benchmarks.decoders import linear, normed, torch_hidden
from benchmarks.products import affine, random, repeated, sequence

TITLE = "transformer, 4 layers, 128 wide, 16x64 tokens"
RTOL = 1e-4
RATE = 0.1


@attrs.frozen
class Sizes:
    """The lengths of everything; ``depth`` counts the blocks."""

    batch: int = 16
    length: int = 64
    width: int = 128
    heads: int = 4
    depth: int = 4
    tokens: int = 256


TINY = Sizes(batch=2, length=3, width=8, heads=2, depth=2, tokens=7)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the tokens after them, by example and position."""
    text = np.random.default_rng(0).integers(0, sizes.tokens, (sizes.batch, sizes.length + 1))
    return text[:, :-1].copy(), text[:, 1:].copy()


def make_parameters(sizes: Sizes) -> dict[str, Any]:
    """Affine layers as (weight, bias), with the weight as (outputs, inputs); norms likewise."""
    generator = np.random.default_rng(1)
    width = sizes.width

    def normal(*shape: int, spread: float = 0.1) -> np.ndarray:
        return generator.normal(0, spread, shape).astype(np.float32)

    def layer(outputs: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
        return normal(outputs, inputs, spread=inputs**-0.5), np.zeros(outputs, np.float32)

    def norm() -> tuple[np.ndarray, np.ndarray]:
        return np.ones(width, np.float32), np.zeros(width, np.float32)

    return {
        "tokens": normal(sizes.tokens, width),
        "positions": normal(sizes.length, width),
        "blocks": [
            {
                "norm": norm(),
                "attention": layer(3 * width, width),
                "mix": layer(width, width),
                "second_norm": norm(),
                "widen": layer(4 * width, width),
                "narrow": layer(width, 4 * width),
            }
            for _ in range(sizes.depth)
        ],
        "norm": norm(),
        "out": layer(sizes.tokens, width),
    }


def fdbr(sizes: Sizes) -> Any:
    """With frozen classes and `fdbr.ops`."""
    from fdbr import device_get, frozen, nn, ops

    @frozen
    class Norm:
        scale: Any
        shift: Any

        def __call__(self, x: Any) -> Any:
            return ops.layer_norm(x, self.scale, self.shift)

    @frozen
    class Block:
        norm: Norm
        attention: nn.Linear
        mix: nn.Linear
        second_norm: Norm
        widen: nn.Linear
        narrow: nn.Linear

        def __call__(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.attention(self.norm(x)).reshape(batch, length, 3, sizes.heads, -1)
            query, key, value = ops.unstack(ops.permute_dims(parts, (2, 0, 3, 1, 4)))
            seen = ops.scaled_dot_product_attention(query, key, value, causal=True)
            x = x + self.mix(ops.swapaxes(seen, 1, 2).reshape(batch, length, width))
            wide = ops.gelu(self.widen(self.second_norm(x)), approximate=True)
            return x + self.narrow(wide)

    @frozen
    class Model:
        tokens: Any
        positions: Any
        blocks: tuple[Block, ...]
        norm: Norm
        out: nn.Linear

        def __call__(self, tokens: Any) -> Any:
            x = ops.embed(self.tokens, tokens) + self.positions
            for block in self.blocks:
                x = block(x)
            return self.out(self.norm(x))

    def loss(model: Any, batch: Any) -> Any:
        tokens, targets = batch
        return ops.softmax_cross_entropy(model(tokens), targets)

    def built(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: (Norm if "norm" in name else nn.Linear)(*value) if len(value) == 2 else value
            for name, value in values.items()
        }

    values = make_parameters(sizes)
    blocks = tuple(Block(**built(block)) for block in values.pop("blocks"))
    step, state = descent.fdbr(loss, Model(blocks=blocks, **built(values)), RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.nn.functional`."""
    from torch.nn.functional import cross_entropy, linear

    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        tokens, targets = batch
        logits = linear(torch_hidden(parameters, tokens, sizes.heads), *parameters["out"])
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def _gelu(np: Any, x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _logits(np: Any, sizes: Sizes, parameters: Any, tokens: Any) -> Any:
    """The model for modules that are like NumPy; one row a position."""
    batch, length = tokens.shape
    width = sizes.width

    def attention(parts: Any) -> Any:
        parts = np.reshape(parts, (batch, length, 3, sizes.heads, -1))
        query, key, value = (np.swapaxes(parts[:, :, i], 1, 2) for i in range(3))
        scores = query @ np.swapaxes(key, 2, 3) * (width // sizes.heads) ** -0.5
        scores = np.where(past, scores, -np.inf)
        shares = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        shares = shares / np.sum(shares, axis=-1, keepdims=True)
        return np.reshape(np.swapaxes(shares @ value, 1, 2), (batch * length, width))

    past = np.tril(np.ones((length, length), bool))
    x = parameters["tokens"][tokens] + parameters["positions"]
    x = np.reshape(x, (batch * length, width))  # one large product instead of many small ones
    for of in parameters["blocks"]:
        x = x + linear(attention(linear(normed(np, x, of["norm"]), of["attention"])), of["mix"])
        wide = _gelu(np, linear(normed(np, x, of["second_norm"]), of["widen"]))
        x = x + linear(wide, of["narrow"])
    return linear(normed(np, x, parameters["norm"]), parameters["out"])


def jax(sizes: Sizes) -> Any:
    """With `jax.numpy`."""
    import jax.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        tokens, targets = batch
        logits = _logits(np, sizes, parameters, tokens)
        return descent.jax_cross_entropy(logits, targets.reshape(-1))

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))


def autograd(sizes: Sizes) -> Any:
    """With `autograd.numpy`."""
    import autograd.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        tokens, targets = batch
        logits = _logits(np, sizes, parameters, tokens)
        return descent.autograd_cross_entropy(logits, targets.reshape(-1))

    return descent.autograd(loss, make_parameters(sizes), RATE, make_batch(sizes))


def products(sizes: Sizes) -> Any:
    """Those of the affine layers, and of attention for each head of each example."""
    rows, width = sizes.batch * sizes.length, sizes.width
    block = sequence(
        affine(
            (rows, width, 3 * width, True),
            (rows, width, width, True),
            (rows, width, 4 * width, True),
            (rows, 4 * width, width, True),
        ),
        _attention(sizes),
    )
    return sequence(repeated(sizes.depth, block), affine((rows, width, sizes.tokens, True)))


def _attention(sizes: Sizes) -> Any:
    lead = sizes.batch, sizes.heads, sizes.length
    query, key, value, ct = (random(*lead, sizes.width // sizes.heads) for _ in range(4))
    shares, out = random(*lead, sizes.length), np.empty_like(ct)
    scores = np.empty_like(shares)

    def call() -> None:
        np.matmul(query, key.swapaxes(-1, -2), out=scores)
        np.matmul(shares, value, out=out)
        np.matmul(ct, value.swapaxes(-1, -2), out=scores)
        for x in (ct, query):
            np.matmul(shares.swapaxes(-1, -2), x, out=out)
        np.matmul(shares, key, out=out)

    return call


PRODUCTS = {"matrix products": products}
