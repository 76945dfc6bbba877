"""Learn vectors of words from the words around them, by skip-grams.

    python examples/word2vec.py                            # negative sampling
    python examples/word2vec.py --output-layer hierarchical
    python examples/word2vec.py --text FILE

Mikolov et al., *Distributed representations of words and phrases and their compositionality*,
NIPS 2013.  The text is by default the topics of Python's own help.  At the end the words nearest to
some are printed, and all vectors are saved to ``vectors.npz``.
"""

import argparse
import pydoc_data.topics
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, random, train


@fdbr.frozen
class SkipGram(nn.Layer):
    """Vectors of words, and the layer that tells which words are around them."""

    embed: nn.Embed
    output: Any

    @classmethod
    def init(cls, key: Any, counts: Any, units: int, output_layer: str) -> "SkipGram":
        """A model with fresh parameters."""
        first, second = random.split(key)
        if output_layer == "hierarchical":
            tree = nn.huffman_tree(counts)
            output: Any = nn.BinaryHierarchicalSoftmax.init(second, units, tree)
        else:
            output = nn.NegativeSampling.init(second, units, counts, 5)
        init = nn.initializers.uniform(0.5 / units)
        return cls(nn.Embed.init(first, len(counts), units, weight_init=init), output)

    def train(self, batch: Any, *, key: Any = None) -> Any:
        """The mean loss of pairs of a word and one around it."""
        total, _ = self.output.train(self.embed(batch["word"]), batch["around"], key=key)
        return total / len(batch["word"]), self


def corpus(path: Path | None, least: int) -> tuple[Any, list[str], Any]:
    """The words of a text as numbers, the words, and how often each occurs."""
    text = path.read_text() if path else "\n".join(pydoc_data.topics.topics.values())
    words = re.findall(r"[a-z]{2,}", text.lower())
    counts = [(word, n) for word, n in Counter(words).most_common() if n >= least]
    if len(counts) < 10:
        raise ValueError(f"the text has {len(counts)} words that occur {least} times; give more")
    known = {word: i for i, (word, _) in enumerate(counts)}
    numbers = np.array([known[word] for word in words if word in known])
    return numbers, list(known), np.array([n for _, n in counts])


def pairs(words: Any, counts: Any, window: int, generator: np.random.Generator) -> dict[str, Any]:
    """All pairs of a word and one around it; frequent words are left out now and then."""
    often = counts / counts.sum()
    kept = generator.random(len(words)) < np.sqrt(1e-3 / often)[words]
    words = words[kept]
    found = [(words[:-i], words[i:]) for i in range(1, window + 1)]
    first, second = (np.concatenate(part) for part in zip(*found, strict=True))
    return {
        "word": np.concatenate([first, second]),
        "around": np.concatenate([second, first]),
    }


def nearest(vectors: Any, place: int, count: int = 5) -> Any:
    """The numbers of the words nearest to one, by the cosine."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(unit @ unit[place]))[1 : count + 1]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=4, size=500, rate=1e-2)
    made.add_argument("--text", type=Path, metavar="FILE", help="a text to learn from")
    made.add_argument("--output-layer", choices=("negative", "hierarchical"), default="negative")
    made.add_argument("--units", type=int, default=50)
    made.add_argument("--window", type=int, default=4, help="words to either side")
    made.add_argument("--least", type=int, default=8, help="occurrences of a word that is learnt")
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the loss of the last epoch."""
    words, names, counts = corpus(options.text, options.least)
    keys = random.split(random.key(options.seed), 3)
    generator = np.random.default_rng(options.seed)
    dataset = pairs(words, counts, options.window, generator)
    model = SkipGram.init(keys[0], counts, options.units, options.output_layer)
    batches = train.Batches(dataset, options.batch_size, key=keys[1], drop_last=True)
    total = max(options.epochs * len(batches), 1)
    optimizer = train.optim.adam(lambda step: options.learning_rate * (1 - step / total))

    def loss(model: SkipGram, batch: Any, key: Any) -> Any:
        return model.train(batch, key=key)[0]

    @fdbr.jit
    def step(state: Any, batch: Any) -> Any:
        model, opt, key, mean = state
        key, own = random.split(key)
        value, grads = fdbr.value_and_grad(loss)(model, batch, own)
        updates, opt = optimizer.update(grads, opt, model)
        mean = 0.99 * mean + 0.01 * value
        return (train.optim.apply_updates(model, updates), opt, key, mean), {"loss": value}

    state = (model, optimizer.init(model), keys[2], np.float32(0))
    state = record(options.out, step, state, batches, options.epochs)
    vectors = state[0].embed.weight
    for word in ("class", "list", "string", "exception", "import"):
        if word in names:
            near = ", ".join(names[i] for i in nearest(vectors, names.index(word)))
            print(f"{word}: {near}")
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "vectors.npz", words=np.array(names), vectors=vectors)
    return float(state[-1])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the loss."""
    run_command(parser(), run, "loss {:.3f}", arguments)


if __name__ == "__main__":
    main()
