"""Train a small transformer on the characters of a text, whose layers are divided among processes.

    mpiexec -n 2 python examples/tensor_transformer.py               # the topics of Python's help
    mpiexec -n 2 python examples/tensor_transformer.py --text FILE   # any text

Of each layer every rank has a part: some of the heads, some of the hidden features, some rows of
the table of characters. Parameters come from the same key as those of the whole model, and the loss
is the same but for the order in which numbers are added.
"""

import argparse
import pydoc_data.topics
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import distributed, nn, ops, random, train

PIECES = 800  # of the text, which are learned in each epoch


@fdbr.frozen
class Block(nn.Layer):
    """Attention and a perceptron, each one behind a normalisation, and beside what they get."""

    norms: tuple[Any, Any]
    attention: Any
    up: Any
    down: Any

    @classmethod
    def init(cls, key: Any, width: int, heads: int, comm: Any) -> "Block":
        """Its part of a block, for one rank."""
        keys = random.split(key, 3)
        norm = nn.LayerNorm.init(None, width)
        linear = distributed.TensorLinear.init
        return cls(
            (norm, norm),
            distributed.TensorAttention.init(keys[0], width, heads, comm=comm),
            linear(keys[1], width, 4 * width, comm=comm, split="column"),
            linear(keys[2], 4 * width, width, comm=comm, split="row"),
        )

    def __call__(self, x: Any) -> Any:
        """The same shape, ``(..., length, width)``."""
        x = x + self.attention(self.norms[0](x), causal=True)
        return x + self.down(ops.gelu(self.up(self.norms[1](x))))


@fdbr.frozen
class Transformer(nn.Layer):
    """A transformer whose tables of characters are tied."""

    table: Any
    places: Any
    blocks: tuple[Any, ...]
    norm: Any

    @classmethod
    def init(
        cls, key: Any, characters: int, length: int, width: int, depth: int, heads: int, comm: Any
    ) -> "Transformer":
        """Its part of a transformer, for one rank."""
        keys = random.split(key, depth + 2)
        small = nn.initializers.normal(0.02)
        table = distributed.TensorEmbed.init(
            keys[0], characters, width, comm=comm, weight_init=small
        )
        places = small(keys[1], (length, width), np.float32)
        blocks = tuple(Block.init(k, width, heads, comm) for k in keys[2:])
        return cls(table, places, blocks, nn.LayerNorm.init(None, width))

    def __call__(self, x: Any) -> Any:
        """Its logits, shape ``(..., length, part)``."""
        x = self.table(x) + self.places
        for block in self.blocks:
            x = block(x)
        return self.table.attend(self.norm(x))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=6, size=16, rate=2e-3)
    made.add_argument("--text", type=Path, metavar="FILE", help="a text to learn from")
    made.add_argument("--length", type=int, default=64, help="characters that are seen at once")
    made.add_argument("--width", type=int, default=64)
    made.add_argument("--layers", type=int, default=2)
    made.add_argument("--heads", type=int, default=4)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the loss on what was held out."""
    comm = distributed.world()
    topics = pydoc_data.topics.topics
    text = options.text.read_text() if options.text else "\n".join(topics.values())
    alphabet = sorted(set(text))
    codes = np.searchsorted(alphabet, list(text))
    length = options.length
    if len(codes) < 20 * (length + 1):
        raise ValueError(f"the text has {len(codes)} characters; give 20 times --length at least")
    windows = np.lib.stride_tricks.sliding_window_view(codes, length + 1)
    held_out = max(len(codes) // 20, length + 1)
    training, test = windows[: -held_out - length], windows[-held_out + length :: length][:32]
    model_key, start_key, order_key = random.split(random.key(options.seed), 3)
    model = Transformer.init(
        model_key, len(alphabet), length, options.width, options.layers, options.heads, comm
    )
    optimizer = train.optim.adam(options.learning_rate)

    def loss(model: Any, pieces: Any) -> Any:
        logits = model(pieces[:, :-1])
        return distributed.tensor_softmax_cross_entropy(
            logits, pieces[:, 1:], comm, classes=len(alphabet)
        )

    @fdbr.jit
    def step(state: Any, batch: Any) -> Any:
        model, opt = state
        value, grads = fdbr.value_and_grad(loss)(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    def test_metrics(state: Any) -> dict[str, Any]:
        return {"loss": loss(state[0], test)}

    starts = np.asarray(random.randint(start_key, (PIECES,), 0, len(training)))
    batches = train.Batches(training[starts], options.batch_size, key=order_key)
    state = (model, optimizer.init(model))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    return float(test_metrics(state)["loss"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the loss."""
    run_command(parser(), run, "test loss {:.3f}", arguments)


if __name__ == "__main__":
    main()
