"""The command line: ``python -m benchmarks layers``."""

import argparse
import json
import statistics
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from benchmarks import libraries, timing
from benchmarks.layers.activations import ACTIVATIONS
from benchmarks.layers.detectors import DETECTORS, Detector, prediction
from benchmarks.layers.functions import FUNCTIONS
from benchmarks.layers.further import FURTHER
from benchmarks.layers.losses import LOSSES
from benchmarks.layers.rows import ROWS, Row
from benchmarks.measuring import disagreement
from benchmarks.report import lines
from benchmarks.worker import FailedError, Process, answering

__all__ = ["main"]

TABLE = [*ROWS, *FURTHER, *FUNCTIONS, *ACTIVATIONS, *LOSSES, *DETECTORS]
LIBRARIES = ("fdbr", "fdbr.jit", "torch")
BOUNDS = {"fdbr": 2.0, "fdbr.jit": 1.0}
"""The ratios to PyTorch's eager time that nothing shall exceed."""
RTOL = 1e-3  # in float32
Gradients = tuple[list[Any], list[Any]]
"""By the input, and by the parameters, which stand in another order in each library."""


@attrs.frozen
class Measured:
    """A layer in each library: seconds of a forward and backward pass, in each round."""

    name: str
    seconds: dict[str, list[float]]
    notes: dict[str, str]

    def median(self, library: str) -> float:
        """Seconds of a pass; NaN where there are none."""
        taken = self.seconds.get(library)
        return statistics.median(taken) if taken else float("nan")

    def ratio(self, library: str) -> float:
        """A library's time to PyTorch's."""
        return self.median(library) / self.median("torch")


def main(arguments: list[str], environment: Callable[[int, int], dict[str, Any]]) -> None:
    """Time layers, print the table, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks layers", description=__doc__)
    parser.add_argument("names", nargs="*", help="the first words of names; all by default")
    parser.add_argument("--rounds", type=int, default=7, help="timed repeats of each")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--output", type=Path, default=Path("result"), help="a folder")
    chosen = parser.parse_args(arguments)
    rows = [row for row in TABLE if not chosen.names or row.name.split()[0] in chosen.names]
    found = environment(chosen.threads, chosen.rounds)
    workers = {library: Process(_serve, library, chosen.threads) for library in LIBRARIES}
    try:
        measured = [_measured(row, workers, chosen.rounds) for row in rows]
    finally:
        for worker in workers.values():
            worker.end()
    print("\n" + _table(measured))
    chosen.output.mkdir(parents=True, exist_ok=True)
    document = {"environment": found, "layers": [attrs.asdict(each) for each in measured]}
    (chosen.output / "layers.json").write_text(json.dumps(document, indent=1) + "\n")


def _measured(row: Row | Detector, workers: dict[str, Process], rounds: int) -> Measured:
    results: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for library, worker in workers.items():
        try:
            results[library] = worker.ask(row.name)
        except FailedError as error:
            notes[library] = str(error)
    for library in results.keys() - {"torch"} if not getattr(row, "random", False) else ():
        if "torch" in results:
            apart = disagreement([results[library]], [results["torch"]], RTOL)
            notes |= {library: apart} if apart else {}
    loops: dict[str, Callable[[int], float]] = {name: workers[name].ask for name in results}
    return Measured(row.name, timing.interleaved(loops, rounds, 0.05), notes)


def _table(measured: list[Measured]) -> str:
    cells: list[tuple[str, ...]] = [("layer", *(f"{x} ms" for x in LIBRARIES), "eager /", "jit /")]
    notes = []
    for each in measured:
        times = [f"{1e3 * each.median(library):.2f}" for library in LIBRARIES]
        ratios = [f"{each.ratio(library):.2f}" for library in BOUNDS]
        cells.append((each.name, *times, *ratios))
        notes += [f"{each.name}: {library} {note}" for library, note in each.notes.items()]
    above = [
        f"above {bound} of PyTorch's, {library}: "
        + (", ".join(x.name for x in measured if x.ratio(library) > bound) or "none")
        for library, bound in BOUNDS.items()
    ]
    return "\n".join([*lines(cells), *notes, *above])


# --- in a process -------------------------------------------------------------------


def _serve(pipe: Connection, library: str, threads: int) -> None:
    run: Any = None

    def answer(what: Any) -> Any:
        nonlocal run
        if isinstance(what, int):
            return run.loop(what)
        run = None  # its arrays are free before those of the next are made
        row = next(row for row in TABLE if row.name == what)
        if isinstance(row, Detector):
            step = prediction(row, library, threads)
        else:
            step = _step(row, library, threads)
        run = libraries.Run(
            lambda state, batch: (None, step()), None, None, lambda values: None, _compared
        )
        return run.results()

    answering(pipe, answer)


def _step(row: Row, library: str, threads: int) -> Callable[[], Gradients]:
    x = row.input(np.random.default_rng(0), row.shape)
    x.flags.writeable = False
    if library == "torch":
        return _step_of_torch(row, x, threads)
    return _step_of_fdbr(row, x, library == "fdbr.jit")


def _compared(gradients: Gradients) -> list[np.ndarray]:
    """The gradients by the input, and the sum of the squares of the others."""
    by_x, others = gradients
    total = sum(float((g * g).sum()) for g in others)
    return [*(np.array(g) for g in by_x), np.array(total, np.float32)]


def _filled(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The values of a parameter, by its name: the same in both libraries."""
    if name.endswith("running_var"):
        return np.ones(shape, np.float32)
    generator = np.random.default_rng(list(name.encode()))
    return (0.1 * generator.standard_normal(shape)).astype(np.float32)


def _cotangent(shape: tuple[int, ...]) -> np.ndarray:
    ct = np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)
    ct.flags.writeable = False
    return ct


def _step_of_fdbr(row: Row, x: Any, jitted: bool) -> Callable[[], Gradients]:
    import fdbr
    from fdbr import nn, tree

    layer = row.ours(nn, fdbr.random.key(0))
    state = nn.save_torch_state(layer)
    layer = nn.load_torch_state(layer, {name: _filled(name, v.shape) for name, v in state.items()})
    trained, moving = bool(tree.leaves(tree.trainable(layer))), x.dtype.kind == "f"

    def value(layer: Any, x: Any) -> Any:
        return layer.train(x)[0] if row.train else row.call(layer, x)

    ct = _cotangent(value(layer, x).shape)

    def both(layer: Any, x: Any, ct: Any) -> Gradients:
        if not trained:
            return list(fdbr.vjp(lambda x: value(layer, x), x)[1](ct)), []
        if not moving:
            return [], list(fdbr.vjp(lambda layer: value(layer, x), layer)[1](ct))
        by_layer, by_x = fdbr.vjp(value, layer, x)[1](ct)
        return [by_x], [by_layer]

    call = fdbr.jit(both).compile(layer, x, ct) if jitted else both

    def step() -> Gradients:
        by_x, by_layer = call(layer, x, ct)
        return by_x, tree.leaves(by_layer)

    return step


def _step_of_torch(row: Row, x: Any, threads: int) -> Callable[[], Gradients]:
    import torch

    torch.set_num_threads(threads)
    module = row.theirs(torch.nn)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(torch.from_numpy(_filled(name, tuple(value.shape))))
    module.train(row.train)
    given = torch.tensor(x)
    moving = [*module.parameters()]
    if given.dtype.is_floating_point:
        moving.insert(0, given.requires_grad_())
    ct = torch.tensor(_cotangent(tuple(row.their_call(module, given).shape)))
    first = len(moving) - len(list(module.parameters()))

    def step() -> Gradients:
        found = list(torch.autograd.grad(row.their_call(module, given), moving, ct))
        return found[:first], found[first:]

    return step
