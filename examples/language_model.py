"""Train an LSTM to predict the next word of a text, by truncated backpropagation through time.

    python examples/language_model.py               # the topics of Python's own help
    python examples/language_model.py --text FILE   # any text

The text is laid out in rows that are read side by side, some words at a time.  The state of the
LSTM is carried from one part to the next and differentiated within a part alone: it is an
argument of the step, not of the gradient.  The perplexity is that of words held out at the end.
"""

import argparse
import math
import pydoc_data.topics
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train


@fdbr.frozen
class LanguageModel(nn.Layer):
    """Vectors of words, an LSTM, and a distribution over the next word."""

    embed: nn.Embed
    dropout: nn.Dropout
    lstm: nn.LSTM
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, words: int, units: int) -> "LanguageModel":
        """A model with fresh parameters."""
        keys = random.split(key, 3)
        return cls(
            nn.Embed.init(keys[0], words, units),
            nn.Dropout(0.3),
            nn.LSTM.init(keys[1], units, units),
            nn.Linear.init(keys[2], units, words),
        )

    def __call__(self, words: Any, state: Any) -> Any:
        """Logits ``(time, rows, words)`` of each next word, and the LSTM's last state."""
        y, state = self.lstm(self.embed(words), state)
        return self.out(y), state

    def train(self, words: Any, state: Any, *, key: Any = None) -> Any:
        """The same with dropout before and behind the LSTM."""
        first, second = random.split(key)
        x, _ = self.dropout.train(self.embed(words), key=first)
        y, state = self.lstm(x, state)
        y, _ = self.dropout.train(y, key=second)
        return (self.out(y), state), self


def corpus(path: Path | None, most: int) -> tuple[Any, int]:
    """The words of a text as numbers, 0 for rare ones, and how many numbers there are."""
    text = path.read_text() if path else "\n".join(pydoc_data.topics.topics.values())
    words = re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", text.lower())
    if len(words) < 1000:
        raise ValueError(f"the text has {len(words)} words; that is too few to learn from")
    known = {word: i for i, (word, _) in enumerate(Counter(words).most_common(most - 1), 1)}
    return np.array([known.get(word, 0) for word in words]), len(known) + 1


def parts(words: Any, rows: int, steps: int) -> dict[str, Any]:
    """Words in rows, cut into parts: of each the input and the words that follow.

    Both have shape ``(parts, steps, rows)``; the parts of a row follow each other.
    """
    count = (len(words) - 1) // (rows * steps)
    if not count:
        raise ValueError(f"{len(words)} words do not fill {rows} rows of {steps}")
    used = count * rows * steps
    shape = (rows, count, steps)
    return {
        "input": words[:used].reshape(shape).transpose(1, 2, 0),
        "target": words[1 : used + 1].reshape(shape).transpose(1, 2, 0),
        "first": np.arange(count) == 0,
    }


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=6, size=20, rate=3e-3)
    made.add_argument("--text", type=Path, metavar="FILE", help="a text to learn from")
    made.add_argument("--units", type=int, default=128)
    made.add_argument("--steps", type=int, default=35, help="through which gradients go back")
    made.add_argument("--words", type=int, default=2000, help="how many different ones")
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the perplexity of what was held out."""
    words, count = corpus(options.text, options.words)
    held_out = len(words) // 10
    training = parts(words[:-held_out], options.batch_size, options.steps)
    test = parts(words[-held_out:], 1, options.steps)
    keys = random.split(random.key(options.seed))
    model = LanguageModel.init(keys[0], count, options.units)
    batches = train.Batches(training, 1)  # in order, part after part
    total = max(options.epochs * len(batches), 1)
    optimizer = train.optim.adam(lambda step: options.learning_rate * (1 - step / total))
    zeros = np.zeros((1, options.batch_size, options.units), np.float32)

    def loss(model: Any, batch: Any, carried: Any, key: Any) -> Any:
        (logits, carried), _ = model.train(batch["input"][0], carried, key=key)
        return ops.softmax_cross_entropy(logits, batch["target"][0]), carried

    @fdbr.jit
    def step(state: Any, batch: Any) -> Any:
        model, opt, key, carried = state
        key, own = random.split(key)
        old = 1 - batch["first"][0].astype(np.float32)  # an epoch begins with a state of zeros
        carried = tuple(old * part for part in carried)
        gradient = fdbr.value_and_grad(loss, has_aux=True)
        (value, carried), grads = gradient(model, batch, carried, own)
        updates, opt = optimizer.update(grads, opt, model)
        model = train.optim.apply_updates(model, updates)
        return (model, opt, key, carried), {"loss": value}

    def test_metrics(state: Any) -> dict[str, Any]:
        carried, losses = None, []
        for given, target in zip(test["input"], test["target"], strict=True):
            logits, carried = state[0](given, carried)
            losses.append(float(ops.softmax_cross_entropy(logits, target)))
        return {"loss": np.mean(losses)}

    state = (model, optimizer.init(model), keys[1], (zeros, zeros))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    return math.exp(test_metrics(state)["loss"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the perplexity."""
    run_command(parser(), run, "test perplexity {:.1f}", arguments)


if __name__ == "__main__":
    main()
