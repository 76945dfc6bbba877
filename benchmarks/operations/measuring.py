"""Timing a program in each library, in turns, each in a process of its own."""

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import attrs
import numpy as np

from benchmarks import libraries, timing
from benchmarks.measuring import disagreement
from benchmarks.operations.program import Draw, Program
from benchmarks.worker import FailedError, Process, answering

__all__ = ["LIBRARIES", "Measured", "Plan", "measure", "programs"]

LIBRARIES = ("fdbr", "fdbr.jit", "torch", "numpy")
"""NumPy is the floor of what is computed with it: the values of programs that it has by name."""
REFERENCE = "torch"
RTOL = 1e-3  # in float32, with matrices that are conditioned so and so


@attrs.frozen
class Plan:
    """What is measured.

    Attributes
    ----------
    libraries
        Of `LIBRARIES`.
    sizes
        Numbers of elements.
    gradients
        Of `False`, the value alone, and `True`, the value and its gradient.
    rounds, shortest, rest
        See `timing.interleaved`.
    """

    libraries: tuple[str, ...] = LIBRARIES[:3]
    sizes: tuple[int, ...] = (8, 10_000, 1_000_000)
    gradients: tuple[bool, ...] = (False, True)
    threads: int = 2
    rounds: int = 7
    shortest: float = 0.02
    rest: float = 0.02


@attrs.frozen
class Measured:
    """A program at one size, with or without its gradient, in each library.

    Attributes
    ----------
    seconds
        Of a call, in each round, by library.
    notes
        Why a library has no times, or that it computes something else.
    """

    program: str
    size: int
    gradient: bool
    seconds: dict[str, list[float]] = attrs.field(factory=dict)
    notes: dict[str, str] = attrs.field(factory=dict)

    def median(self, library: str) -> float | None:
        """Seconds of a call."""
        taken = self.seconds.get(library)
        return statistics.median(taken) if taken else None

    def ratio(self, library: str) -> float | None:
        """How many times as long as PyTorch a library takes."""
        ours, theirs = self.median(library), self.median(REFERENCE)
        return ours / theirs if ours and theirs else None


def programs() -> dict[str, Program]:
    """All programs by name."""
    from benchmarks.operations import (
        activations,
        algebra,
        arrays,
        elementwise,
        losses,
        networks,
        recurrent,
    )

    modules = (elementwise, networks, activations, losses, recurrent, arrays, algebra)
    return {
        program.name: program
        for program in itertools.chain(*(module.PROGRAMS for module in modules))
    }


def measure(chosen: list[Program], plan: Plan) -> Iterator[Measured]:
    """Time programs, one after the other."""
    workers: dict[str, Process] = {}
    try:
        for library in plan.libraries:
            workers[library] = Process(_serve, library, plan.threads)
        for program, size in itertools.product(chosen, plan.sizes):
            for gradient in plan.gradients:
                if program.gradient or not gradient:
                    yield _measured(program, size, gradient, plan, workers)
    finally:
        for worker in workers.values():
            worker.end()


def _measured(
    program: Program, size: int, gradient: bool, plan: Plan, workers: dict[str, Process]
) -> Measured:
    results: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for library, worker in workers.items():
        if library == "numpy" and gradient:
            continue
        try:
            results[library] = worker.ask((program.name, size, gradient))
        except FailedError as error:
            notes[library] = str(error)
    if program.alike and REFERENCE in results:
        expected = [results[REFERENCE]]
        for library in results.keys() - {REFERENCE}:
            apart = disagreement([results[library]], expected, RTOL)
            notes |= {library: apart.replace("with fdbr", "with PyTorch")} if apart else {}
    loops: dict[str, Callable[[int], float]] = {name: workers[name].ask for name in results}
    rest = plan.rest if size > 1000 else 0.0  # small arrays wake no threads
    seconds = timing.interleaved(loops, plan.rounds, plan.shortest, rest)
    return Measured(program.name, size, gradient, seconds, notes)


# --- in a process -------------------------------------------------------------------


def _serve(pipe: Connection, library: str, threads: int) -> None:
    table = programs()
    run: Any = None

    def answer(what: Any) -> Any:
        nonlocal run
        if isinstance(what, int):
            return run.loop(what)
        name, size, gradient = what
        program = table[name]
        arguments = program.draw(Draw(size))
        turned = library == "torch" and gradient  # its gradients are the conjugates of fdbr's
        run = None  # its arrays are free before those of the next are made
        run = libraries.Run(
            _steps(library, threads)(program, arguments, gradient),
            None,
            None,
            lambda values: None,
            lambda result: [np.conj(_plain(x)) if turned else _plain(x) for x in result],
        )
        return run.results()

    answering(pipe, answer)


def _steps(library: str, threads: int) -> Callable[..., Any]:
    if library == "torch":
        import torch

        torch.set_num_threads(threads)
        return _step_of_torch
    if library == "numpy":
        return _step_of_numpy
    if library == "fdbr.jit":
        return functools.partial(_step_of_fdbr, jitted=True)
    return _step_of_fdbr


def _plain(part: Any) -> np.ndarray:
    array = np.array(part.detach().resolve_conj() if hasattr(part, "detach") else part)
    return array.astype(np.int8) if array.dtype == bool else array  # which can be subtracted


def _parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _cotangents(shapes_and_dtypes: Any) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.uniform(0.5, 1.5, shape).astype(dtype) for shape, dtype in shapes_and_dtypes]


def _step_of_fdbr(
    program: Program, arguments: tuple[Any, ...], gradient: bool, jitted: bool = False
) -> Any:
    import fdbr
    from fdbr import ops

    ours = program.ours  # not the program, which `jit` would compare part by part at each call
    # Locked, as results of fdbr are: what a caller may write to is copied, unlike in PyTorch.
    arguments = fdbr.device_get(arguments)

    def value(*operands: Any) -> tuple[Any, ...]:
        return _parts(ours(ops, *operands))

    outs = value(*arguments)
    cotangents = tuple(_cotangents((out.shape, out.dtype) for out in outs)) if gradient else ()
    cotangents = fdbr.device_get(cotangents)
    moving = [i for i, x in enumerate(arguments) if x.dtype.kind in "fc"]

    def both(*operands: Any) -> Any:
        def of_moving(*moved: Any) -> tuple[Any, ...]:
            every = list(operands)
            for i, x in zip(moving, moved, strict=True):
                every[i] = x
            return value(*every)

        _, pullback = fdbr.vjp(of_moving, *(operands[i] for i in moving))
        return pullback(cotangents)

    call = both if gradient else value
    if jitted:
        call = fdbr.jit(call).compile(*arguments)
    return lambda state, batch: (None, call(*arguments))


def _step_of_numpy(program: Program, arguments: tuple[Any, ...], gradient: bool) -> Any:
    try:
        program.ours(np, *arguments)
    except (AttributeError, TypeError):
        raise libraries.AbsentError("has no function of this name and arguments") from None
    return lambda state, batch: (None, _parts(program.ours(np, *arguments)))


def _step_of_torch(program: Program, arguments: tuple[Any, ...], gradient: bool) -> Any:
    import torch

    operands = [
        torch.tensor(x).requires_grad_(gradient and x.dtype.kind in "fc") for x in arguments
    ]
    inputs = [x for x in operands if x.requires_grad]

    def value() -> tuple[Any, ...]:
        return _parts(program.theirs(torch, *operands))

    if not gradient:
        return lambda state, batch: (None, value())
    dtypes = [(tuple(out.shape), _plain(out).dtype) for out in value()]
    cotangents = [torch.from_numpy(ct) for ct in _cotangents(dtypes)]

    def both(state: Any, batch: Any) -> Any:
        return None, torch.autograd.grad(value(), inputs, cotangents, allow_unused=True)

    return both
