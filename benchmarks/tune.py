"""Measure the sizes in `fdbr.backends.cpu.tuning` again: ``python -m benchmarks tune``.

For each field a program runs at a few sizes, with the field at its value and at a quarter, half,
twice and four times of it.  Every setting has a process of its own, so that nothing is remembered
from another one, and they alternate.  The table shows the fastest setting, and
how much faster it is; what gains less than `NOTED` is within the noise.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

import fdbr
from fdbr import nn, ops
from fdbr.backends.cpu.tuning import TUNING, Tuning

__all__ = ["CASES", "main", "measured", "seconds_of"]

FACTORS = 0.25, 0.5, 1.0, 2.0, 4.0
NOTED = 0.05  # the share of the time that another setting has to save
_SHORTEST = 0.02  # seconds that one repeat takes at least
_rng = np.random.default_rng(0)


def _normal(*shape: int, dtype: Any = np.float32) -> Any:
    return _rng.normal(size=shape).astype(dtype)


def _of_one(function: Callable[[Any], Any], dtype: Any = np.float32) -> Callable[[int], Any]:
    """Make a program of an array of some elements."""

    def made(size: int) -> Callable[[], Any]:
        x = np.abs(_normal(size, dtype=dtype)) % 0.9 + 0.05
        return lambda: function(x)

    return made


def _of_matrix(function: Callable[[Any], Any], rows: int | None = None) -> Callable[[int], Any]:
    """Make a program of a matrix with some columns, or, with ``rows``, with so many rows."""

    def made(size: int) -> Callable[[], Any]:
        x = _normal(rows or max(1, (1 << 18) // size), size)
        return lambda: function(x)

    return made


def _of_square(function: Callable[[Any], Any], dtype: Any = np.float32) -> Callable[[int], Any]:
    def made(size: int) -> Callable[[], Any]:
        x = _normal(size, size, dtype=dtype)
        return lambda: function(x)

    return made


def _of_stack(function: Callable[[Any], Any], count: int = 64) -> Callable[[int], Any]:
    def made(size: int) -> Callable[[], Any]:
        x = _normal(count, size, size) + size * np.eye(size, dtype=np.float32)
        return lambda: function(x)

    return made


def _gathered(size: int) -> Callable[[], Any]:
    x, i = _normal(1000, 64), _rng.integers(0, 1000, size)
    return lambda: ops.take(x, i, axis=0)


def _flat(size: int) -> Callable[[], Any]:
    x, i, j = _normal(1000, 64), _rng.integers(0, 1000, size), _rng.integers(0, 64, size)
    gradient = fdbr.grad(lambda x: ops.sum(x[i, j]))
    return lambda: gradient(x)


def _scattered(size: int) -> Callable[[], Any]:
    x, i = _normal(1000, 16), _rng.integers(0, 1000, size)
    gradient = fdbr.grad(lambda x: ops.sum(ops.take(x, i, axis=0)))
    return lambda: gradient(x)


def _chosen(size: int) -> Callable[[], Any]:
    x, y = _normal(size), _normal(size)
    condition = x > 0
    return lambda: ops.where(condition, x, y)


def _broadcast(size: int) -> Callable[[], Any]:
    x, y = _normal(1 << 14, size), _normal(size)
    return lambda: ops.multiply(x, y)


def _joined(size: int) -> Callable[[], Any]:
    parts = [_normal((1 << 18) // size, size) for _ in range(4)]
    return lambda: ops.concat(parts, axis=1)


def _outer(size: int) -> Callable[[], Any]:
    x, y = _normal(size), _normal(size)
    return lambda: ops.outer(x, y)


def _many_products(size: int) -> Callable[[], Any]:
    x, y = _normal(64, size, size), _normal(64, size, size)
    program = fdbr.jit(lambda x, y: ops.sum(ops.tanh(x @ y)))
    return lambda: program(x, y)


def _product_with_vector(size: int) -> Callable[[], Any]:
    x, y = _normal(size, size), _normal(size)
    return lambda: ops.matmul(x, y)


def _convolved(size: int) -> Callable[[], Any]:
    x, kernel = _normal(8, size, 28, 28), _normal(size, size, 3, 3)
    step = fdbr.value_and_grad(lambda kernel: ops.sum(ops.conv(x, kernel, padding=1)))
    return lambda: step(kernel)


def _pooled(size: int) -> Callable[[], Any]:
    x = _normal(8, size, 28, 28)
    program = fdbr.jit(lambda x: ops.max_pool(x, (2, 2), stride=2))
    return lambda: program(x)


def _recurrent(size: int) -> Callable[[], Any]:
    layer = nn.LSTM.init(fdbr.random.key(0), size, size)
    x = _normal(8, 20, size)
    return lambda: layer(x)


def _chain(size: int) -> Callable[[], Any]:
    x = _normal(size)
    program = fdbr.jit(lambda x: ops.tanh(ops.exp(x) * x + 1) * x)
    return lambda: program(x)


_ELEMENTS = 1 << 6, 1 << 10, 1 << 14, 1 << 18, 1 << 21
_COLUMNS = 4, 16, 64, 256, 1024
_SIDES = 8, 32, 128, 512
_CHANNELS = 2, 8, 32, 96

CASES: Mapping[str, tuple[Callable[[int], Callable[[], Any]], Sequence[int]]] = {
    "argsort": (_of_one(ops.argsort), _ELEMENTS),
    "batched inverse": (_of_stack(fdbr.ops.linalg.inv), (2, 4, 8, 16, 32)),
    "batched products": (_many_products, (4, 16, 64, 128)),
    "batched svd": (_of_stack(fdbr.ops.linalg.svdvals), (4, 16, 64)),
    "broadcast product": (_broadcast, _COLUMNS),
    "chain": (_chain, _ELEMENTS),
    "concatenation": (_joined, _COLUMNS),
    "convolution": (_convolved, _CHANNELS),
    "copy": (_of_one(fdbr.backend.protect), _ELEMENTS),
    "cumulative product": (_of_matrix(lambda x: ops.cumulative_prod(x, axis=0)), _COLUMNS),
    "cumulative sum": (_of_one(ops.cumulative_sum), _ELEMENTS),
    "erf": (_of_one(ops.special.erf), _ELEMENTS),
    "erfinv": (_of_one(ops.special.erfinv, np.float64), (1 << 14, 1 << 18, 1 << 20)),
    "exponential": (_of_one(ops.exp), _ELEMENTS),
    "gather": (_gathered, (64, 1024, 1 << 14, 1 << 17)),
    "gelu": (_of_one(ops.gelu), _ELEMENTS),
    "hypotenuse": (_of_one(lambda x: ops.hypot(x, x)), _ELEMENTS),
    "indexing": (_flat, (64, 1024, 1 << 14, 1 << 17)),
    "largest": (_of_one(lambda x: ops.top_k(x, 8)), _ELEMENTS[1:]),
    "least squares": (_of_stack(lambda x: ops.linalg.pinv(x), 16), (4, 8, 16, 32)),
    "lstm": (_recurrent, (8, 32, 128)),
    "max of columns": (_of_matrix(lambda x: ops.max(x, axis=0)), _COLUMNS),
    "max of rows": (_of_matrix(lambda x: ops.max(x, axis=-1)), _COLUMNS),
    "outer product": (_outer, _SIDES),
    "pooling": (_pooled, _CHANNELS),
    "power": (_of_one(lambda x: ops.power(x, 1.5)), _ELEMENTS),
    "product": (_of_square(lambda x: x @ x), _SIDES),
    "product of all": (_of_one(ops.prod), _ELEMENTS),
    "product with vector": (_product_with_vector, _SIDES),
    "random": (_of_one(lambda x: fdbr.random.normal(fdbr.random.key(0), x.shape)), _ELEMENTS),
    "scatter": (_scattered, (64, 1024, 1 << 14, 1 << 17)),
    "sigmoid": (_of_one(ops.sigmoid), _ELEMENTS),
    "softmax": (_of_matrix(ops.softmax), _COLUMNS),
    "leaky rectifier": (_of_one(ops.leaky_relu), _ELEMENTS),
    "softplus": (_of_one(ops.softplus), _ELEMENTS),
    "sort": (_of_one(ops.sort), _ELEMENTS),
    "sum": (_of_one(ops.sum), _ELEMENTS),
    "sum of columns": (_of_matrix(lambda x: ops.sum(x, axis=0)), _COLUMNS),
    "sum of rows": (_of_matrix(lambda x: ops.sum(x, axis=-1)), _COLUMNS),
    "transform": (_of_one(lambda x: ops.fft.fft(x)), _ELEMENTS),
    "transpose": (_of_square(lambda x: ops.permute_dims(x, (1, 0)) + 0), _SIDES),
    "where": (_chosen, _ELEMENTS),
}
"""The programs by name: a function of a size that makes the program, and the sizes."""


def seconds_of(case: str) -> list[float]:
    """Return the seconds of a call of a program at each of its sizes: the least of some repeats."""
    make, sizes = CASES[case]
    found = []
    for size in sizes:
        program = make(size)
        program()
        started = time.perf_counter()
        program()
        calls = max(1, int(_SHORTEST / max(time.perf_counter() - started, 1e-7)))
        least = math.inf
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(calls):
                program()
            least = min(least, (time.perf_counter() - started) / calls)
        found.append(least)
    return found


_PROCESS = """
import json, sys
from fdbr.backends.cpu.tuning import TUNING
name, value, case = sys.argv[1:]
setattr(TUNING, name, int(value))
from benchmarks.tune import seconds_of
print(json.dumps(seconds_of(case)))
"""


def measured(name: str, rounds: int = 2) -> dict[int, float]:
    """Return the time of a field's program at each setting, relative to that at its value."""
    field = attrs.fields_dict(Tuning)[name]
    value, case = getattr(TUNING, name), field.metadata["case"]
    settings = sorted({max(1, int(value * factor)) for factor in FACTORS})
    least: dict[int, list[float]] = {}
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    for _ in range(rounds):
        for setting in settings:
            command = [sys.executable, "-c", _PROCESS, name, str(setting), case]
            out = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            found = json.loads(out.stdout)
            least[setting] = list(map(min, found, least.get(setting, found)))
    base = np.array(least[value])
    return {
        setting: float(np.exp(np.mean(np.log(np.array(each) / base))))
        for setting, each in least.items()
    }


def main(arguments: list[str]) -> None:
    """Measure the chosen fields, and print where another setting is faster."""
    names = [field.name for field in attrs.fields(Tuning)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks tune", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names, []], help="fields; all by default")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each setting")
    chosen = parser.parse_args(arguments)
    print(f"{'field':<24}{'value':>12}{'fastest':>12}{'its time':>10}")
    for name in chosen.names or names:
        ratios = measured(name, chosen.rounds)
        best = min(ratios, key=lambda setting: ratios[setting])
        note = "" if ratios[best] > 1 - NOTED else "   differs"
        print(f"{name:<24}{getattr(TUNING, name):>12}{best:>12}{ratios[best]:>10.2f}{note}")
