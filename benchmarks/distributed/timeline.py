"""Two overlapped training steps on each rank, as a picture: what computes, waits and is reduced.

Beside it stands the share of communication that is hidden: the time in which a rank waited for
averages, as a part of the time in which they were made, taken from 1.  The time in which ranks wait
for the slowest of them counts as communication.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

import fdbr
from fdbr import distributed, nn, ops
from fdbr.distributed.gradients.background import observing
from fdbr.train import optim

__all__ = ["main"]

Span = tuple[str, float, float]

_COLOURS = {"compute": "#6baed6", "wait": "#fdd0a2", "bucket": "#de2d26", "update": "#74c476"}


def main(arguments: list[str]) -> None:
    """Record on this rank, with the others; rank 0 draws into the file that is named first."""
    tiny = "--quick" in arguments
    comm = distributed.world()
    found = {}
    for name in ("eager", "jitted"):
        spans, hidden = recorded(comm, jitted=name == "jitted", tiny=tiny)
        found[name] = distributed.gather_object((spans, hidden), comm)
    if comm.rank == 0:
        for name, ranks in found.items():
            shares = ", ".join(f"{hidden:.0%}" for _, hidden in ranks or ())
            print(f"{name}: hidden on each rank: {shares}")
        draw(Path(arguments[0]), found)


def recorded(comm: Any, *, jitted: bool, tiny: bool, steps: int = 2) -> tuple[list[Span], float]:
    """What this rank does in some steps, from their begin, and the share that is hidden."""
    width, depth, count = (32, 3, 8) if tiny else (1024, 6, 256)
    keys = fdbr.random.split(fdbr.random.key(0), depth)
    layers: list[Any] = []
    for key in keys:
        layers += [nn.Linear.init(key, width, width), ops.tanh]
    model = nn.Sequential(*layers)
    x = np.random.default_rng(comm.rank).normal(size=(count, width)).astype(np.float32)
    gradient_of: Any = distributed.value_and_grad(lambda model, x: ops.mean(model(x) ** 2), comm)
    optimizer = optim.sgd(0.01)
    gradient_of = fdbr.jit(gradient_of) if jitted else gradient_of
    update = fdbr.jit(optimizer.update) if jitted else optimizer.update
    state = optimizer.init(model)
    spans: list[Span] = []
    before = 3 if tiny else 12  # steps, after which what is jitted is compiled
    for number in range(before + steps):
        if number == before:
            spans.clear()
            distributed.barrier(comm)
            origin = time.perf_counter()
        began = time.perf_counter()
        with observing(spans.append):
            _, grads = gradient_of(model, x)
        ended = time.perf_counter()
        updates, state = update(grads, state, model)
        model = optim.apply_updates(model, updates)
        spans += [("compute", began, ended), ("update", ended, time.perf_counter())]
    reduced = sum(end - begin for name, begin, end in spans if name == "bucket")
    waited = sum(end - begin for name, begin, end in spans if name == "wait")
    made = [(name, begin - origin, end - origin) for name, begin, end in spans]
    return made, max(0.0, 1 - waited / reduced) if reduced else 1.0


def draw(path: Path, found: Any) -> None:
    """Draw a row for what each rank computes, and one for what it reduces."""
    from matplotlib.figure import Figure

    count = sum(len(ranks) for ranks in found.values())
    figure = Figure(figsize=(11.0, 1.0 + 0.9 * count), layout="constrained")
    axes = figure.add_subplot()
    places = []
    row = 0.0
    for name, ranks in found.items():
        for rank, (spans, hidden) in enumerate(ranks):
            for what in ("compute", "update", "wait", "bucket"):  # waits lie over computation
                bars = [(1e3 * a, 1e3 * (b - a)) for kind, a, b in spans if kind == what]
                place = row - 1 if what == "bucket" else row
                axes.broken_barh(
                    bars, (place - 0.4, 0.8), facecolors=_COLOURS[what], edgecolor="white"
                )
            places += [
                (row, f"{name}, rank {rank}: computes"),
                (row - 1, f"reduces; {hidden:.0%} hidden"),
            ]
            row -= 2.3
    for what, colour in _COLOURS.items():
        axes.barh(
            [0], [0], color=colour, label={"bucket": "all-reduce of a bucket"}.get(what, what)
        )
    axes.set_yticks(*zip(*places, strict=True))
    axes.set_xlabel("ms")
    axes.legend(loc="upper right", fontsize="small", ncols=4, bbox_to_anchor=(1.0, 1.12))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
