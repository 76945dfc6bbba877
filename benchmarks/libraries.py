"""The libraries that take part, and how each runs a workload."""

import importlib
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
import numpy as np

__all__ = ["LIBRARIES", "PEERS", "WITH_NUMPY", "AbsentError", "Library", "Run", "start", "version"]

Step = Callable[[Any, Any], tuple[Any, Any]]


class AbsentError(Exception):
    """Why a library cannot run a workload."""


@attrs.frozen
class Library:
    """One way to run workloads.

    Attributes
    ----------
    module
        What it needs; the function of a workload has the same name.
    prepare
        ``prepare(module, threads)``, before anything else.
    compiled
        ``compiled(module, step)``: the step that is run.
    settle
        ``settle(step, state, batch)``: have compiled what a warm step consists of.
    wait
        ``wait(module, values)`` returns when the values are computed.
    arrays
        ``arrays(module, result)``: the result's arrays, as NumPy's.
    """

    module: str
    prepare: Callable[[Any, int], None] = lambda module, threads: None
    compiled: Callable[[Any, Step], Step] = lambda module, step: step
    settle: Callable[[Any, Any, Any], Any] = lambda step, state, batch: None
    wait: Callable[[Any, Any], Any] = lambda module, values: None
    arrays: Callable[[Any, Any], list[np.ndarray]] = lambda module, result: _arrays(result)


def _arrays(result: Any) -> list[np.ndarray]:
    """The arrays of nested lists and tuples, in their order."""
    if isinstance(result, list | tuple):
        return [array for part in result for array in _arrays(part)]
    if hasattr(result, "detach"):
        result = result.detach().numpy()
    return [np.array(result)]


def _fdbr_arrays(fdbr: Any, result: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in fdbr.tree.leaves(result)]


def _fdbr_jit(fdbr: Any, step: Step) -> Step:
    if not hasattr(fdbr, "jit"):
        raise AbsentError("this version of fdbr has no jit")
    return fdbr.jit(step, donate_argnums=0)


def _compile(step: Any, state: Any, batch: Any) -> None:
    """Compile ahead: calls alone do it when they have earned it, and meanwhile."""
    if hasattr(step, "compile"):  # as of this version
        step.compile(state, batch)


def _prepare_torch(torch: Any, threads: int) -> None:
    torch.set_num_threads(threads)


def _torch_compile(torch: Any, step: Step) -> Step:
    torch._dynamo.reset()  # or what was compiled for other workloads would count against a limit
    return torch.compile(step)


def _jax_arrays(jax: Any, result: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(result)]


LIBRARIES = {
    "fdbr": Library("fdbr", arrays=_fdbr_arrays),
    "fdbr.jit": Library("fdbr", compiled=_fdbr_jit, settle=_compile, arrays=_fdbr_arrays),
    "torch": Library("torch", _prepare_torch),
    "torch.compile": Library("torch", _prepare_torch, _torch_compile),
    "jax": Library(
        "jax",
        compiled=lambda jax, step: jax.jit(step, donate_argnums=0),
        wait=lambda jax, values: jax.block_until_ready(values),
        arrays=_jax_arrays,
    ),
    "autograd": Library("autograd"),
}
PEERS = tuple(name for name in LIBRARIES if not name.startswith("fdbr"))
WITH_NUMPY = ("fdbr", "fdbr.jit", "autograd")
"""Those whose arrays are NumPy's."""


class Run:
    """A workload in one library, on its way: each call goes on from the last one's state."""

    def __init__(
        self,
        step: Step,
        state: Any,
        batch: Any,
        wait: Any,
        arrays: Any,
        settle: Any = lambda step, state, batch: None,
    ) -> None:
        self._step = step
        self._state = state
        self._batch = batch
        self._wait = wait
        self._arrays = arrays
        self._settle = settle

    def loop(self, number: int) -> float:
        """Make some calls; the seconds they took."""
        step, state, batch, result = self._step, self._state, self._batch, None
        self._state = None  # or the first state would be in memory until the last call ends
        start = time.perf_counter()
        for _ in range(number):
            state, result = step(state, batch)
        self._wait((state, result))
        taken = time.perf_counter() - start
        self._state = state
        return taken

    def settle(self) -> None:
        """Have everything compiled, so that what follows is timed warm."""
        self._settle(self._step, self._state, self._batch)

    def results(self) -> list[np.ndarray]:
        """The arrays that the next call gives."""
        self._state, result = self._step(self._state, self._batch)
        return self._arrays(result)


def start(name: str, workload: ModuleType, sizes: Any, threads: int) -> Run:
    """Make a library ready, and a workload in it; or products of matrices, by their name.

    Raises
    ------
    AbsentError
        If the library is not installed or cannot run it.
    """
    products = getattr(workload, "PRODUCTS", {})
    if name in products:
        call = products[name](sizes)
        return Run(lambda state, batch: (None, call()), None, None, lambda values: None, _arrays)
    library = LIBRARIES[name]
    module = _imported(library.module)
    library.prepare(module, threads)
    absent = getattr(workload, "ABSENT", {})
    if reason := absent.get(name) or absent.get(library.module):
        raise AbsentError(reason)
    step, state, batch = getattr(workload, library.module)(sizes)
    return Run(
        library.compiled(module, step),
        state,
        batch,
        lambda values: library.wait(module, values),
        lambda result: library.arrays(module, result),
        library.settle,
    )


def version(name: str) -> str | None:
    """A library's version; `None` where it is not installed."""
    module = LIBRARIES[name].module if name in LIBRARIES else name
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        # It may still be there, as fdbr is in its repository.
        return getattr(_imported(module), "__version__", "?") if _found(module) else None


def _found(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is installed, and broken
            raise
        raise AbsentError(f"not installed: pip install {name}") from error
