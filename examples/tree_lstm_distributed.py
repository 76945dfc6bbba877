"""Train a tree LSTM on several processes: each step's graph is another one on each of them.

    mpiexec -n 2 python examples/tree_lstm_distributed.py

The model and its trees are those of ``tree_lstm.py``.  A rank runs the trees of its share of a
batch, whose shapes nobody else knows: all that ranks have to have in common is the order of the
collectives, which here is one average of gradients a step.  A share may be empty; it has weight 0.
"""

import argparse
from typing import Any

import numpy as np
from recording import record, run_command
from tree_lstm import Tree, TreeClassifier, corpus, parser

import fdbr
from fdbr import distributed, ops, random, train, tree


def loss(model: TreeClassifier, some: list[tuple[Tree, int]]) -> Any:
    """The mean cross entropy over some trees, and the accuracy."""
    logits = ops.stack([model(one) for one, _ in some])
    labels = np.array([label for _, label in some])
    value = ops.softmax_cross_entropy(logits, labels)
    return value, {"accuracy": ops.accuracy(logits, labels)}


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the accuracy on what was held out."""
    comm = distributed.world()
    examples, kinds = corpus(options.examples)
    keys = random.split(random.key(options.seed), 3)
    order = random.permutation(keys[0], len(examples))
    examples = [examples[i] for i in order]
    test, training = examples[: len(examples) // 5], examples[len(examples) // 5 :]
    numbers = train.Batches(np.arange(len(training)), options.batch_size, key=keys[2])
    optimizer = train.optim.chain(
        distributed.average_gradients(comm), train.optim.adam(options.learning_rate)
    )

    def step(state: Any, numbers: Any) -> Any:
        model, opt = state
        some = [training[i] for i in numbers]
        if some:
            (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, some)
        else:
            value, metrics, grads = 0.0, {"accuracy": 0.0}, tree.map(np.zeros_like, model)
        updates, opt = optimizer.update(grads, opt, model, weight=len(some))
        return (train.optim.apply_updates(model, updates), opt), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        value, metrics = loss(state[0], test)
        return {"loss": value, **metrics}

    model = TreeClassifier.init(keys[1], kinds, options.units)
    state = (model, optimizer.init(model))
    batches = distributed.share(numbers, comm)
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the test accuracy."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
