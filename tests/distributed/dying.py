"""A run on many ranks that may die at any moment and be begun again: for test_runs_that_die.py."""

import json
import mmap
import os
import sys
from pathlib import Path

import numpy as np

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, random, train

DATA = {
    "x": np.linspace(-1.0, 1.0, 258, dtype=np.float32).reshape(43, 6),
    "y": np.arange(43) % 3,
}


@fdbr.frozen
class Net(nn.Layer):
    hidden: nn.Linear
    dropout: nn.Dropout
    norm: nn.BatchNorm
    out: nn.Linear

    @classmethod
    def init(cls, key, width=600):
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
    """The sum over the examples of this rank."""
    scores, model = model.train(batch["x"], key=key)
    return ops.softmax_cross_entropy(scores, batch["y"], reduction="none").sum(), model


def step_of(optimizer, comm, jitted):
    """A step with batch normalisation over ranks, and with dropout of each rank's own."""
    derivatives = fdbr.value_and_grad(loss, has_aux=True)
    update = optimizer.update
    if jitted:
        derivatives, update = (fdbr.jit(f) for f in (derivatives, update))

    def step(state, batch):
        key, own = random.split(state["key"])
        model = state["model"]
        (value, successor), grads = derivatives(model, batch, d.fold_in_rank(own, comm))
        count = float(d.all_reduce(len(batch["y"]), comm))
        grads = fdbr.tree.map(lambda g: g / count, d.all_reduce(grads, comm))
        updates, opt = update(grads, state["opt"], model)
        model = train.optim.apply_updates(successor, updates)
        changed = {"model": model, "opt": opt, "key": key}
        if "own" in state:
            changed["own"] = 0.5 * state["own"] + batch["x"].sum() + comm.rank
        return changed, {"loss": value / max(len(batch["y"]), 1)}

    return step


def start(comm, kind):
    """The optimizer, and the state at the beginning; one part is each rank's own, or none is."""
    optimizer = train.optim.adam(lambda count: 0.01 * 0.99**count)
    model = d.sync_batch_norm(Net.init(random.key(0)), comm)
    state = {"model": model, "opt": optimizer.init(model), "key": random.key(1)}
    return optimizer, {**state, "own": np.zeros(4000)} if kind == "own" else state


def telling(folder, comm):
    """Have others see in which collective this rank is: a byte of a file, 1 within one."""
    path = folder / f"rank-{comm.rank}"
    path.write_bytes(b"\0")
    with path.open("r+b") as file:
        place = mmap.mmap(file.fileno(), 1)
    transport = comm.transport

    def told(method):
        def call(*args):
            place[0] = 1
            try:
                return method(*args)
            finally:
                place[0] = 0

        return call

    for name in ("agree", "all_reduce", "all_gather_bytes", "broadcast_bytes"):
        setattr(transport, name, told(getattr(transport, name)))
    (folder / f"process-{comm.rank}").write_text(f"{os.getpid()}")


def run(comm, folder, kind, jitted, iterations, fails=0):
    """The whole run, from where the last one came to."""
    optimizer, state = start(comm, kind)
    step = step_of(optimizer, comm, jitted)
    snapshots = folder / "snapshots"
    found = d.resume(snapshots, state, comm)
    batches = d.share(train.Batches(DATA, 7, key=random.key(2)), comm)
    test = d.share(train.Batches(DATA, 16), comm)

    def tested(state, batch):
        return {"loss": ops.softmax_cross_entropy(state["model"](batch["x"]), batch["y"])}

    reports = train.fit(
        step, state, train.prefetch(batches, 1), iterations=iterations, resume=found
    )
    stages = [
        d.aggregate(comm, train.every(iterations=4)),
        d.evaluate(tested, comm, test, train.every(iterations=3)),
        d.on_root(comm, train.log(folder / "log.jsonl", train.every(iterations=12))),
        d.snapshot(snapshots, comm, train.every(iterations=3), keep=2, best="test/loss"),
    ]
    begun = 0 if found is None else found.iteration
    for report in train.pipe(reports, *stages):
        found = report
        if comm.rank == 0:
            (folder / "iteration").write_text(f"{report.iteration}")
        if report.iteration == begun + fails and comm.rank == comm.size - 1:
            raise RuntimeError("a rank that fails")
    if found.iteration < iterations:  # Ctrl-C
        print(f"stopped after iteration {found.iteration}")
        return
    train.save(folder / f"state-{comm.rank}", found.state)
    text = json.dumps([found.iteration, dict(found.metrics), repr(found.position)], default=float)
    (folder / f"report-{comm.rank}").write_text(text)
    d.barrier(comm)
    if comm.rank == 0:
        (folder / "ended").touch()


if __name__ == "__main__":
    folder, kind, jitted, iterations, fails = sys.argv[1:]
    comm = d.world(timeout=4.0)
    telling(Path(folder), comm)
    run(comm, Path(folder), kind, jitted == "jitted", int(iterations), int(fails))
