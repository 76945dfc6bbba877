"""Twenty mistakes that users make, each on one line, which type checkers must find.

Nothing here runs: `tests/project/test_types.py` gives the file to mypy and pyright, and compares
the lines of their errors with the marked ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import fdbr
from fdbr import nn, ops, random, train, tree


def loss(model: nn.Linear, x: Any, label: Any) -> Any:
    return ops.softmax_cross_entropy(model(x), label)


def step(model: nn.Linear, batch: Any) -> tuple[nn.Linear, Mapping[str, Any]]:
    return model, {"loss": 0.0}


def step_without_metrics(model: nn.Linear, batch: Any) -> nn.Linear:
    return model


def operations() -> None:
    x = np.ones((2, 3, 8, 8))
    ops.sum(x, axes=0)  # error: the argument is called axis
    ops.mean(x, axis="rows")  # error: an axis is an integer
    ops.zeros((2.0, 3))  # error: lengths are integers
    ops.zeros((2, 3), dtype=32)  # error: a number is no dtype
    ops.conv(x, np.ones((4, 3, 3, 3)), padding="samee")  # error: no such padding
    ops.mean_squared_error(x, x, reduction="average")  # error: no such reduction
    random.normal(0, (3,))  # error: a seed is no key


def transformations() -> None:
    model, x, label = nn.Linear.init(random.key(0), 3, 2), np.ones((4, 3)), np.zeros(4, int)
    fdbr.value_and_grad(loss)(model, x, label) + 1.0  # error: it returns a pair
    fdbr.grad(loss)(model, x, target=label)  # error: the function has no such argument
    fdbr.vmap(loss, in_axes="batch")  # error: axes of a batch are integers
    tree.map(model, ops.tanh)  # error: the function comes first


def models() -> None:
    key, x = random.key(0), np.ones((4, 3))
    nn.Linear.init(3, 2)  # error: the key is missing
    nn.Linear(3, 2)  # error: the constructor takes arrays
    model = nn.Linear.init(key, 3, 2)
    model(x, x)  # error: one input too many
    model.weight = x  # error: models are frozen


def training(reports: Iterator[train.Report], batches: train.Batches) -> None:
    model = nn.Linear.init(random.key(0), 3, 2)
    optimizer = train.optim.adam("0.01")  # error: a rate is a number
    state, gradient = optimizer.init(model), model
    optimizer.update(gradient, model, state)  # error: the state comes before the parameters
    train.pipe(reports, 10)  # error: a stage is a function
    train.fit(step_without_metrics, model, batches, epochs=1)  # error: a step returns metrics
    train.fit(step, model, 32, epochs=1)  # error: batches are iterated over
