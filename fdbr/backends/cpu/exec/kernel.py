"""Kernels in compiled programs, which NumPy replaces until their machine code is ready."""

import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.backends.cpu.runtime.background import (
    Awaited,
    NotCompiledError,
    ensure_running,
    request_for,
    without_waiting,
)
from fdbr.backends.cpu.runtime.launching import function_at, launch
from fdbr.compiler.backend import RefusedError
from fdbr.compiler.interpret import stepwise, unboxed
from fdbr.compiler.ir.blocks import in_blocks, unlocked
from fdbr.compiler.ir.program import Instruction, is_variable, kind_of
from fdbr.ops.declare.user_reductions import Combine, reduce_states

__all__ = ["Kernel", "RefusedError", "by_numpy", "joined_parts", "native", "otherwise", "word_of"]

Call = Callable[..., None]
"""A function of the operands and the outputs of a kernel."""


class Kernel(Awaited):
    """A kernel that is not compiled yet, as a function of its operands and outputs.

    Parameters
    ----------
    scope, name
        The namespace and name of this object, where the compiled kernel replaces it.
    written, threads
        The kernel, and the number of threads.
    instead
        The function that replaces it.
    """

    __slots__ = ("instead", "interruptible", "name", "rows", "scope", "threads")

    def __init__(
        self, scope: dict[str, Any], name: str, written: Written, threads: int, instead: Call
    ) -> None:
        super().__init__(request_for(written.source))
        self.scope, self.name, self.threads, self.instead = scope, name, threads, instead
        self.rows, self.interruptible = written.rows, written.interruptible
        scope[name] = self
        if self.request.address is not None:
            self.install()

    def __call__(self, *arrays: Any) -> None:
        if self.request.address is None:
            if self.request.requested:
                ensure_running()
            start = time.perf_counter()
            self.instead(*arrays)
            self.seconds += time.perf_counter() - start
        else:
            self.install()(*arrays)

    def install(self) -> Call:
        if self.scope[self.name] is self:
            address = self.request.wait()
            self.scope[self.name] = native(address, self.rows, self.threads, self.interruptible)
        found: Call = self.scope[self.name]
        return found


def native(address: int, rows: int, threads: int, interruptible: bool = False) -> Call:
    """Return a compiled kernel as a function of arrays."""
    if threads == 1:
        function = function_at(address, interruptible)

        def run(*arrays: Any) -> None:
            table = array("q", map(id, arrays))
            function(table.buffer_info()[0], 0, rows, 0)

    else:

        def run(*arrays: Any) -> None:
            table = array("q", map(id, arrays))
            launch(address, table.buffer_info()[0], rows, threads)

    return run


def by_numpy(steps: Sequence[Instruction], written: Written, threads: int) -> Call:
    """Return a function that computes the same as a kernel step by step."""
    outputs = written.outputs
    first = {v: i for i, v in reversed([*enumerate(written.inputs)]) if is_variable(v)}
    inputs = [(i, v) for v, i in first.items()]
    made = [output for output in outputs if output.variable is not None]
    run = stepwise([v for _, v in inputs], steps, [output.variable for output in made])

    overs = [output.over for output in outputs]
    several = [v for v in written.inputs if is_variable(v) or kind_of(v).size != 1]
    shapes = {kind_of(v).shape for v in (*several, *overs)} - {()}
    if all(overs) and len(shapes) == 1:
        targets = [written.inputs.index(over) for over in overs]

        def write_over(*arrays: Any) -> None:
            known = [unboxed(arrays[i], v.kind) for i, v in inputs]
            given = [arrays[i] for i in targets]
            with unlocked(given):
                in_blocks(run, known, given)

        return write_over

    def call(*arrays: Any) -> None:
        results = run(*(unboxed(arrays[i], v.kind) for i, v in inputs))
        given = iter(arrays[len(written.inputs) :])
        found = iter(results)
        for output in outputs:
            if output.over is not None:
                _put_over(arrays[written.inputs.index(output.over)], next(found))
            elif output.variable is None:
                next(given)[...] = 0  # scratch memory, or the flag of an index out of bounds
            else:
                _put(output, next(found), next(given), threads)

    return call


def word_of(number: int) -> Any:
    """Return a Python integer as an array without axes.

    Raises
    ------
    RefusedError
        If the array's dtype does not hold it.
    """
    try:
        return np.asarray(number, np.int64)
    except OverflowError:
        raise RefusedError from None


def _put_over(array: Any, result: Any) -> None:
    """Overwrite a donated array as a kernel does, even if it is read-only."""
    with unlocked([array]):
        np.copyto(array, result)


def _put(output: Output, result: Any, out: Any, threads: int) -> None:
    """Store a result as a kernel does: of a reduction, partial results before the division."""
    if not output.per_thread:
        np.copyto(out, np.reshape(result, out.shape))
        return
    if threads > 1:
        out[...] = {"add": 0, "maximum": -np.inf, "minimum": np.inf}[output.joined]
        out = out[0, ...]  # with the ellipsis the result is an array, not a scalar
    np.copyto(out, np.reshape(result, out.shape))
    if output.divisor != 1:
        np.multiply(out, output.divisor, out=out)


def joined_parts(combine: Combine, found: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Combine the partial results of threads; NumPy leaves its single result in the first."""
    if not found[-1, 0]:
        return tuple([part[0] for part in parts])
    return reduce_states(combine, parts, (0,))


def otherwise(own: Callable[..., Any], value: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes a primitive by kernels, or by value until they are ready."""
    there = False

    def either(*operands: Any, **params: Any) -> Any:
        nonlocal there
        if there:
            return own(*operands, **params)
        try:
            with without_waiting():
                found = own(*operands, **params)
        except NotCompiledError:
            return value(*operands, **params)
        there = True
        return found

    return either
