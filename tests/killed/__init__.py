"""A run that may be killed at any moment and begun again: for tests/train/test_kill.py."""

import os
from pathlib import Path

import numpy as np

import fdbr
from fdbr import nn, ops, random, train

DATA = {
    "x": np.linspace(-1.0, 1.0, 240).reshape(40, 6),
    "y": np.arange(40) % 3,
}


@fdbr.frozen
class Net(nn.Layer):
    hidden: nn.Linear
    dropout: nn.Dropout
    norm: nn.BatchNorm
    out: nn.Linear

    @classmethod
    def init(cls, key, width):
        first, last = random.split(key)
        return cls(
            nn.Linear.init(first, 6, width),
            nn.Dropout(0.1),
            nn.BatchNorm.init(first, width),
            nn.Linear.init(last, width, 3),
        )

    def train(self, x, *, key):
        h = ops.tanh(self.hidden(x))
        h, _ = self.dropout.train(h, key=key)
        h, norm = self.norm.train(h)
        return self.out(h), fdbr.tree.replace(self, norm=norm)

    def __call__(self, x):
        return self.out(self.norm(ops.tanh(self.hidden(x))))


def loss(model, batch, key):
    scores, model = model.train(batch["x"], key=key)
    return ops.softmax_cross_entropy(scores, batch["y"]), model


def step_of(optimizer):
    """A step with dropout, running statistics, and a schedule."""

    def step(state, batch):
        model, opt, key = state
        key, own = random.split(key)
        derivatives = fdbr.value_and_grad(loss, has_aux=True)
        (value, successor), grads = derivatives(model, batch, own)
        updates, opt = optimizer.update(grads, opt, model)
        successor = train.optim.apply_updates(successor, updates)
        return (successor, opt, key), {"loss": value, "size": float(len(batch["y"]))}

    return step


def start(width=4000):
    """The optimizer, and the state at the beginning."""
    optimizer = train.optim.adam(lambda count: 0.01 * 0.99**count)
    model = Net.init(random.key(0), width)
    return optimizer, (model, optimizer.init(model), random.key(1))


def run(folder, jitted, epochs):
    """The whole run, from where the last one came to; the last state is in ``final``."""
    folder = Path(folder)
    optimizer, state = start()
    step = step_of(optimizer)
    if jitted:
        step = fdbr.jit(step, donate_argnums=0)
    snapshots = folder / "snapshots"
    found = train.resume(snapshots, like=state)
    batches = train.prefetch(train.Batches(DATA, 7, key=random.key(2)), workers=2)
    reports = train.fit(step, state, batches, epochs=epochs, resume=found)
    stages = [
        train.average(train.every(iterations=4)),
        train.evaluate(
            lambda state: {"loss": ops.softmax_cross_entropy(state[0](DATA["x"]), DATA["y"])}
        ),
        train.log(folder / "log.jsonl", train.every(iterations=1)),
        train.log(folder / "log.csv", train.best("loss", every=train.every(iterations=2)), "csv"),
        train.snapshot(snapshots, train.every(iterations=3), keep=2, best="loss"),
    ]
    for report in train.pipe(reports, *stages):
        found = report
        (folder / "iteration").write_text(f"{report.iteration}")
    train.save(folder / "final", found.state)
    os.rename(folder / "final", folder / "ended")
