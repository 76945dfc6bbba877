"""Train a recurrent network with attention to translate dates as people write them.

    python examples/translate.py

"Tuesday, March 3rd 1987" becomes 1987-03-03.  The inputs are sequences of characters of different
lengths, a list of arrays: the encoder computes no padding.  The decoder looks at the encoder's
outputs through attention, whose weights ``attention.png`` shows for one date.  (Bahdanau, Cho &
Bengio, *Neural machine translation by jointly learning to align and translate*, ICLR 2015.)
"""

import argparse
import datetime
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train

FORMS = (
    "%A, %B {day} %Y", "%B {day}, %Y", "{day} of %B %Y", "{number} %b %Y", "%a {number} %b %y",
    "%d/%m/%Y", "%d.%m.%y", "%b {number} '%y",
)  # fmt: skip
ALPHABET = " ',./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789-"


def written(day: datetime.date, form: str) -> str:
    """A date in one of the forms."""
    number = day.day
    ending = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return day.strftime(form).format(day=f"{number}{ending}", number=number)


def corpus(key: Any, count: int) -> tuple[list[Any], Any, list[str]]:
    """Dates as characters of different numbers, their translations ``(count, 10)``, and texts."""
    first, second = random.split(key)
    start = datetime.date(1970, 1, 1).toordinal()
    ordinals = random.randint(first, (count,), start, start + 365 * 60).tolist()
    forms = random.randint(second, (count,), 0, len(FORMS)).tolist()
    days = [datetime.date.fromordinal(ordinal) for ordinal in ordinals]
    texts = [written(day, FORMS[form]) for day, form in zip(days, forms, strict=True)]
    inputs = [np.array([ALPHABET.index(c) for c in text]) for text in texts]
    return inputs, np.array([[DIGITS.index(c) for c in str(day)] for day in days]), texts


@fdbr.frozen
class Translator(nn.Layer):
    """An encoder in both directions, and a decoder that looks at what it gave."""

    letters: nn.Embed
    encoder: nn.GRU
    digits: nn.Embed
    decoder: nn.GRUCell
    query: nn.Linear
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, units: int) -> "Translator":
        """A network with fresh parameters."""
        keys = random.split(key, 6)
        return cls(
            nn.Embed.init(keys[0], len(ALPHABET), units),
            nn.GRU.init(keys[1], units, units, bidirectional=True),
            nn.Embed.init(keys[2], len(DIGITS) + 1, units),
            nn.GRUCell.init(keys[3], 3 * units, units),
            nn.Linear.init(keys[4], units, 2 * units),
            nn.Linear.init(keys[5], 3 * units, len(DIGITS)),
        )

    def encode(self, inputs: list[Any]) -> tuple[Any, Any]:
        """Features of all characters, ``(inputs, length, 2 * units)``, and which there are."""
        features, _ = self.encoder([self.letters(text) for text in inputs])
        there = [np.ones(len(text), bool) for text in inputs]
        memory = ops.pad_sequence(features, batch_first=True)
        return memory, ops.pad_sequence(there, batch_first=True)

    def start(self, memory: Any) -> tuple[Any, Any]:
        """What the decoder begins with: its state, and what it has looked at."""
        shape = (memory.shape[0], self.decoder.hidden_size)
        return np.zeros(shape, np.float32), np.zeros((shape[0], 2 * shape[1]), np.float32)

    def step(self, state: Any, last: Any, memory: Any, there: Any) -> tuple[Any, Any, Any]:
        """The next state, logits of the next digit, and where the decoder looks."""
        h, seen = state
        h, _ = self.decoder(h, ops.concat([self.digits(last), seen], axis=-1))
        scores = ops.einsum("nlf,nf->nl", memory, self.query(h))
        weights = ops.softmax(ops.where(there, scores, -np.inf), axis=-1)
        seen = ops.einsum("nl,nlf->nf", weights, memory)
        return (h, seen), self.out(ops.concat([h, seen], axis=-1)), weights

    def __call__(self, inputs: list[Any], targets: Any) -> Any:
        """Logits ``(inputs, digits, 11)`` of each digit after the right ones before it."""
        memory, there = self.encode(inputs)
        state, logits = self.start(memory), []
        last = np.full(len(inputs), len(DIGITS))
        for i in range(targets.shape[1]):
            state, digit, _ = self.step(state, last, memory, there)
            logits.append(digit)
            last = targets[:, i]
        return ops.stack(logits, axis=1)

    def translate(self, inputs: list[Any], length: int = 10) -> tuple[Any, Any]:
        """The likeliest digits one by one, ``(inputs, length)``, and where the decoder looked."""
        memory, there = self.encode(inputs)
        state, last = self.start(memory), np.full(len(inputs), len(DIGITS))
        digits, looks = [], []
        for _ in range(length):
            state, logits, weights = self.step(state, last, memory, there)
            last = logits.argmax(axis=-1)
            digits.append(last)
            looks.append(weights)
        return np.stack(digits, axis=1), np.stack(looks, axis=1)


def draw(text: str, digits: str, weights: Any, path: Path) -> None:
    """A picture of where the decoder looked."""
    figure = Figure(figsize=(0.25 * len(text) + 1, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.imshow(weights[:, : len(text)], cmap="gray_r", aspect="auto")
    axes.set_xticks(range(len(text)), list(text))
    axes.set_yticks(range(len(digits)), list(digits))
    figure.savefig(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=4, size=32, rate=5e-3)
    made.add_argument("--examples", type=int, default=4000)
    made.add_argument("--units", type=int, default=48)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the share of dates that are right as a whole."""
    keys = random.split(random.key(options.seed), 4)
    inputs, targets, _ = corpus(keys[0], options.examples)
    others, right, texts = corpus(keys[1], 200)
    model = Translator.init(keys[2], options.units)
    batches = train.Batches(np.arange(len(inputs)), options.batch_size, key=keys[3])
    total = max(options.epochs * len(batches), 1)
    optimizer = train.optim.adam(lambda step: options.learning_rate * (1 - step / total))

    def loss(model: Translator, some: list[Any], digits: Any) -> Any:
        return ops.softmax_cross_entropy(model(some, digits), digits)

    def step(state: Any, numbers: Any) -> Any:
        model, opt = state
        some = [inputs[i] for i in numbers]
        value, grads = fdbr.value_and_grad(loss)(model, some, targets[numbers])
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    def test_metrics(state: Any) -> dict[str, Any]:
        found, _ = state[0].translate(others)
        return {"loss": loss(state[0], others, right), "accuracy": (found == right).all(1).mean()}

    state = (model, optimizer.init(model))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    digits, looks = state[0].translate(others[:8])
    for text, row in zip(texts, digits.tolist(), strict=False):
        print(f"{text:30} {''.join(DIGITS[i] for i in row)}")
    options.out.mkdir(parents=True, exist_ok=True)
    shown = "".join(DIGITS[i] for i in digits[0].tolist())
    draw(texts[0], shown, looks[0], options.out / "attention.png")
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print how many dates are right."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
