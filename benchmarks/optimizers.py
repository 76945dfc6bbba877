"""Jitted steps of optimizers on many parameters, beside a copy of the bytes that they must touch.

``python -m benchmarks optimizers [NAME ...]``: a step makes new parameters and a new state of the
old ones and of gradients, which lie in memory; the old ones are given up (``donate_argnums``), so
that the new ones are written over them.  It must read the gradients, and read and write parameters
and state; the copy moves as many bytes, on as many threads.  Rules with norms of whole arrays must
read some arrays a second time, which no cache holds: these bytes are counted, too.

Those that multiply or factor matrices (`muon`, `shampoo`), or evaluate the loss again (`sam`,
`lbfgs`), have no such bound.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import interleaved

NAMES = (
    "sgd sgd+momentum adam adamw nadam amsgrad adabelief lion rmsprop adagrad adadelta adamax "
    "radam yogi adan nadamw adamaxw sign_sgd rprop adabound amsbound msvag smorms3 asgd "
    "optimistic_gradient_descent schedule_free_sgd schedule_free_adamw lamb lars fromage "
    "novograd sm3 adafactor"
).split()
AGAIN = {
    "lamb": 3,  # what the update is made of, and the parameters
    "lars": 2,  # gradients and parameters
    "fromage": 2,
    "novograd": 1,  # gradients
    "adafactor": 3,  # gradients, for the factors and for the norm of the update; parameters
}
"""How many arrays of the size of the parameters are read after what follows from all of them."""


def main(arguments: list[str] | None = None) -> None:
    """Measure the optimizers that are named, or all, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks optimizers", description=__doc__)
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="; ".join(NAMES))
    parser.add_argument("--size", type=int, default=10_000_000, help="how many parameters")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in NAMES:
            parser.error(f"no optimizer {name!r}; choose of {', '.join(NAMES)}")
    print(f"{options.size:,} parameters of float32; medians of {options.rounds} rounds")
    print(f"{'optimizer':28}{'bytes/param':>12}{'step ms':>10}{'copy ms':>10}{'ratio':>8}")
    for name in options.names or NAMES:
        touched, step, copy = measure(name, options.size, options.rounds)
        each = touched / options.size
        print(f"{name:28}{each:12.0f}{step * 1e3:10.2f}{copy * 1e3:10.2f}{step / copy:8.2f}")


def measure(name: str, size: int, rounds: int) -> tuple[int, float, float]:
    """The bytes that a step touches, its seconds, and those of a copy of as many."""
    step, touched = _step(name, size)
    source = np.ones(touched // 8, np.float32)  # a copy reads and writes each
    target = np.empty_like(source)
    loops = {"step": _loop(step), "copy": _loop(lambda: _copied(target, source))}
    found = interleaved(loops, rounds, shortest=0.1, rest=0.05)
    return touched, statistics.median(found["step"]), statistics.median(found["copy"])


def _copied(target: Any, source: Any) -> None:
    from fdbr.backends.cpu.library.copy import copied_into

    copied_into(target, source)


def _loop(call: Callable[[], Any]) -> Callable[[int], float]:
    def run(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return time.perf_counter() - start

    return run


def _step(name: str, size: int) -> tuple[Callable[[], None], int]:
    import fdbr
    from fdbr.train import optim

    base, _, extra = name.partition("+")
    options = {"momentum": 0.9} if extra else {}
    optimizer = getattr(optim, base)(1e-3, **options)
    keys = fdbr.random.split(fdbr.random.key(0), 2)
    shape = (size // 1000, 1000)
    params = {"w": fdbr.random.normal(keys[0], shape, "float32")}
    grads = {"w": fdbr.random.normal(keys[1], shape, "float32")}

    def moved(state: Any, grads: Any) -> Any:
        params, memory = state["params"], state["memory"]
        updates, memory = optimizer.update(grads, memory, params)
        return {"params": optim.apply_updates(params, updates), "memory": memory}

    holder = [{"params": params, "memory": optimizer.init(params)}]
    del params
    arrays = [x for x in fdbr.tree.leaves(holder[0]) if isinstance(x, np.ndarray)]
    touched = (1 + AGAIN.get(base, 0)) * grads["w"].nbytes + 2 * sum(x.nbytes for x in arrays)
    del arrays
    jitted = fdbr.jit(moved, donate_argnums=0)
    jitted.compile(holder[0], grads)

    def call() -> None:
        holder[0] = jitted(holder[0], grads)

    for _ in range(3):
        call()
    return call, touched
