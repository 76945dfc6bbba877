"""``python -m benchmarks.leaks``: whether what calls of jitted functions leave behind has a bound.

Each case runs in a process of its own, which grows for a while: compilers are loaded, pools and
caches are filled.  What counts is how much it grows over the second half of its rounds.
"""

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np

import fdbr
from benchmarks.memory import resident
from fdbr import ops

__all__ = ["CASES", "grown"]

Round = Callable[[], object]
CASES: dict[str, Callable[[], Round]] = {}


def case(make: Callable[[], Round]) -> Callable[[], Round]:
    """Register what makes a case: a function that does one round of calls."""
    CASES[make.__name__] = make
    return make


def _network() -> fdbr.compiler.Jitted:
    w = np.random.default_rng(0).normal(size=(64, 64)) / 8
    w.flags.writeable = False
    return fdbr.jit(fdbr.grad(lambda x: ops.sum(ops.tanh(ops.tanh(x @ w) @ w) ** 2)))


@case
def batch_sizes() -> Round:
    """Forty batch sizes, over and over."""
    f = _network()

    def calls() -> None:
        for rows in range(1000, 1040):
            f(np.ones((rows, 64)))

    return calls


@case
def ever_new_shapes() -> Round:
    """A shape that has never been there, three times."""
    f, sizes = _network(), itertools.count(10)

    def calls() -> None:
        for _ in range(10):
            x = np.ones((next(sizes), 64))
            for _ in range(3):
                f(x)

    return calls


@case
def threads_that_end() -> Round:
    """Eight threads that call one function and end."""
    f, x = _network(), np.ones((1000, 64))

    def calls() -> None:
        threads = [threading.Thread(target=f, args=(x,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return calls


@case
def values_in_a_closure() -> Round:
    """A number around the function that changes at each call."""
    rate = 0.0
    f, x = fdbr.jit(lambda x: np.exp(np.sin(x) * rate)), np.linspace(0, 1, 1000)

    def calls() -> None:
        nonlocal rate
        for _ in range(50):
            rate += 0.125
            f(x)

    return calls


@case
def texts_in_a_closure() -> Round:
    """A text around the function that changes at each call: what is no input of a program."""
    name, numbers = "", itertools.count()
    f, x = fdbr.jit(lambda x: np.sin(x) * len(name)), np.linspace(0, 1, 1000)

    def calls() -> None:
        nonlocal name
        for _ in range(100):
            name = str(next(numbers))
            f(x)

    return calls


@case
def functions_that_go() -> Round:
    """A new jitted function with kernels of its own, which is given up."""
    numbers = itertools.count(1)
    x = np.linspace(0, 1, 1000)

    def calls() -> None:
        for _ in range(5):
            number = next(numbers) / 7
            f = fdbr.jit(lambda x: np.sin(x * number) + np.exp(x) * number)  # noqa: B023
            for _ in range(40):
                f(x)

    return calls


@case
def objects_with_jitted_methods() -> Round:
    """Objects of a class with a jitted method, which are given up."""

    class Model:
        def __init__(self) -> None:
            self.w = np.ones(100_000)
            self.rate = 0.5

        @fdbr.jit
        def step(self, x: np.ndarray) -> np.ndarray:
            return x - self.w * self.rate

    x = np.ones(100_000)

    def calls() -> None:
        for _ in range(5):
            model = Model()
            for iteration in range(8):
                model.rate = iteration / 8
                model.step(x)

    return calls


@case
def decisions_that_multiply() -> Round:
    """Control flow that takes another path at nearly every call."""
    rng = np.random.default_rng(0)

    def path(x: np.ndarray) -> np.ndarray:
        for i in range(12):
            x = np.sin(x) if x[i] > 0 else x * 0.5
        return x

    f = fdbr.jit(path)

    def calls() -> None:
        for _ in range(50):
            f(rng.normal(size=100))

    return calls


def grown(name: str, rounds: int) -> tuple[float, float]:
    """Megabytes that the process has after the first half of the rounds, and gains afterwards."""
    calls = CASES[name]()
    for _ in range(rounds // 2):
        calls()
    before = resident() / 1e6
    for _ in range(rounds - rounds // 2):
        calls()
    return before, resident() / 1e6 - before


def _rows(names: list[str], rounds: int) -> Iterator[str]:
    for name in names:
        program = f"from benchmarks.leaks import grown; print(*grown({name!r}, {rounds}))"
        found = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        before, more = map(float, found.stdout.split())
        yield f"{name:30} {before:8.1f} MB, then {more:+.1f} MB in {rounds // 2} rounds"


if __name__ == "__main__":
    for row in _rows(sys.argv[1:] or list(CASES), rounds=40):
        print(row, flush=True)
