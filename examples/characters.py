"""Train a small transformer on the characters of a text, and have it write.

    python examples/characters.py               # the topics of Python's own help
    python examples/characters.py --text FILE   # any text

The model is a GPT-2 with few layers; each epoch is a number of random pieces of the text.  At the
end samples are printed, and written to ``samples.txt``.
"""

import argparse
import pydoc_data.topics
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train

PIECES = 1600  # an epoch


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=6, size=16, rate=2e-3)
    made.add_argument("--text", type=Path, metavar="FILE", help="a text to learn from")
    made.add_argument("--length", type=int, default=64, help="characters that are seen at once")
    made.add_argument("--width", type=int, default=96)
    made.add_argument("--layers", type=int, default=3)
    made.add_argument("--temperature", type=float, default=0.8)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says, and print samples; return the loss on what was held out."""
    topics = pydoc_data.topics.topics
    text = options.text.read_text() if options.text else "\n".join(topics.values())
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(c) for c in text])
    length = options.length
    if len(codes) < 20 * (length + 1):
        raise ValueError(f"the text has {len(codes)} characters; give 20 times --length at least")
    held_out = max(len(codes) // 20, length + 1)
    windows = np.lib.stride_tricks.sliding_window_view(codes, length + 1)
    training = windows[: -held_out - length]
    test = windows[-held_out + length :: length][:64]
    keys = random.split(random.key(options.seed), 4)
    starts = random.randint(keys[0], (options.epochs, PIECES), 0, len(training))
    model = nn.models.GPT2.init(
        keys[1],
        vocab_size=len(alphabet),
        n_positions=length,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    total = max(options.epochs * (PIECES // options.batch_size), 1)
    warm = max(total // 20, 1)
    rate = options.learning_rate
    optimizer = train.optim.adam(
        lambda step: rate * ops.minimum((step + 1) / warm, (total - step) / total)
    )

    def loss(model: Any, pieces: Any) -> Any:
        return ops.softmax_cross_entropy(model(pieces[:, :-1]), pieces[:, 1:])

    @fdbr.jit
    def step(state: Any, batch: Any) -> Any:
        model, opt = state
        value, grads = fdbr.value_and_grad(loss)(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    def test_metrics(state: Any) -> dict[str, Any]:
        return {"loss": loss(state[0], test)}

    pieces = training[starts.reshape(-1)[:PIECES]] if options.epochs else training[:1]
    batches = train.Batches(pieces, options.batch_size, key=keys[2])
    state = (model, optimizer.init(model))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    begin = np.tile(codes[: length // 4], (3, 1))
    texts = nn.models.generate(
        state[0], keys[3], begin, length - length // 4, temperature=options.temperature
    )
    samples = ["".join(alphabet[c] for c in row) for row in texts.tolist()]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "samples.txt").write_text("\n---\n".join(samples) + "\n")
    print("\n---\n".join(samples))
    return float(test_metrics(state)["loss"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the loss."""
    run_command(parser(), run, "test loss {:.3f}", arguments)


if __name__ == "__main__":
    main()
