"""A program in a library, in this process: started, and called."""

import importlib
import time
from typing import Any

import numpy as np

from benchmarks import research
from benchmarks.libraries import AbsentError

__all__ = ["COMPARED", "LIBRARIES", "FixedNoise", "Run", "start"]

LIBRARIES = ("fdbr", "fdbr.jit", "jax.jit")
COMPARED = 3  # calls whose results are compared: several, so that updates are


class FixedNoise:
    """Stands for a library's module of random numbers: both libraries get the same numbers."""

    def key(self, seed: int) -> Any:
        return np.zeros(2, np.uint32)

    def split(self, key: Any, num: int = 2) -> Any:
        return [key] * num

    def normal(self, key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
        return np.random.default_rng(0).normal(size=shape).astype(dtype)

    def uniform(self, key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
        return np.random.default_rng(0).uniform(size=shape).astype(dtype)


class Run:
    """A program on its way: each call goes on from the last one's state."""

    def __init__(self, step: Any, state: Any, batch: Any, library: Any) -> None:
        self._step = step
        self._state = state
        self._batch = batch
        self._library = library

    def loop(self, number: int) -> tuple[float, list[Any]]:
        """Make some calls: the seconds they took, and what the first of them gave."""
        step, state, batch = self._step, self._state, self._batch
        results = []
        began = time.perf_counter()
        for call in range(number):
            state, result = step(state, batch)
            if call < COMPARED:
                results.append(result)
        if hasattr(self._library, "block_until_ready"):
            self._library.block_until_ready((state, result))
        taken = time.perf_counter() - began
        self._state = state
        leaves = self._library.tree.leaves
        return taken, [[np.array(leaf) for leaf in leaves(result)] for result in results]


def start(label: str, name: str, tiny: bool = False, noise: Any = None) -> Run:
    """A program in one of `LIBRARIES`, with its own random numbers or with other ones.

    Raises
    ------
    AbsentError
        If the library is not installed.
    """
    program = research.load(name)
    sizes = program.TINY if tiny else program.Sizes()
    module = label.partition(".")[0]
    try:
        library = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise AbsentError(f"not installed: pip install {module}") from error
    if module == "jax":
        library.config.update("jax_enable_x64", np.dtype(program.DTYPE).itemsize == 8)
    numpy = importlib.import_module("jax.numpy") if module == "jax" else np
    random = noise or library.random
    step = getattr(program, module)(numpy, library, random, sizes)
    state, batch = program.start(sizes)
    if module == "jax":
        state, batch = library.tree.map(numpy.asarray, (state, batch))
    else:
        state, batch = library.device_get((state, batch))
    if getattr(program, "RANDOM", False):
        state = random.key(0), state
    return Run(library.jit(step) if label.endswith(".jit") else step, state, batch, library)
