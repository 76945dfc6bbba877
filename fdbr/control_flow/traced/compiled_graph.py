"""Graphs as machine code, which replaces Python as soon as it is compiled."""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.backend import backend_of
from fdbr.compiler.engine.budget import Budget, compiling, passing, patience
from fdbr.compiler.ir.program import Variable, kind_of
from fdbr.control_flow.operands import scalar
from fdbr.control_flow.traced.compiled_parts import Forward, Part, RefusedError, WayBack

__all__ = ["Machine"]

_AT_ONCE = 8  # kernels of one graph that may be queued for compilation
_EACH = 2e-3  # estimated seconds of the passes for a block, besides those for its steps


class Machine:
    """The machine code of a graph.

    Parameters
    ----------
    blocks
        The blocks of the graph.
    first
        The number of the entry block.
    """

    def __init__(self, blocks: Sequence[Any], first: int) -> None:
        self._blocks, self._first = blocks, first
        self._forward: dict[bool, Forward] = {}
        self._back: dict[tuple[int, ...], WayBack] = {}
        self._budget = Budget(often=math.inf)
        self._waits = False
        self.refused = False

    def forward(self, operands: Sequence[Any], path: Any) -> Any:
        """Run the graph; return `None` if the path is not compiled."""
        part = self._part(operands, path is not None)
        if part.now is None:
            return None
        log = None if path is None else self._log()
        found = self._ran(part, operands, log)
        if found is not None and path is not None:
            path.log = log
        return found

    def forward_apart(
        self, operands: Sequence[Any], own: Sequence[bool], size: int, path: Any
    ) -> list[Any] | None:
        """Run the graph for each example of a batch; return `None` if a path is not compiled."""

        def example(lane: int) -> list[Any]:
            return [value[lane] if one else value for value, one in zip(operands, own, strict=True)]

        part = self._part(example(0), path is not None)
        part.lanes = size
        ways = self._back.values() if path is not None else ()
        if part.now is None or any(way.now is None for way in ways):  # run back as a batch, too
            return None
        logs, results = [], []
        for lane in range(size):
            log = None if path is None else self._log()
            found = self._ran(part, example(lane), log)
            if found is None:
                return None
            logs.append(log)
            results.append(found)
        if path is not None:
            path.logs = logs
        return [np.array(values, kind_of(values[0]).dtype) for values in zip(*results, strict=True)]

    def _part(self, operands: Sequence[Any], keeps: bool) -> Forward:
        part = self._forward.get(keeps)
        if part is None:
            kinds = list(map(kind_of, map(scalar, operands)))
            part = self._forward[keeps] = Forward(self._blocks, self._first, kinds, keeps)
        self._at_once(part)
        return part

    def _log(self) -> Any:
        return backend_of(self._blocks[self._first].body.captured()).log()

    def _ran(self, part: Forward, operands: Sequence[Any], log: Any) -> list[Any] | None:
        now = part.now
        assert now is not None
        found = now.code.run(self._first, operands, log, now.results)
        if found is None:
            return None
        end, values = found
        left = iter(values)
        outputs = self._blocks[end].body.passed().outputs
        return [next(left) if type(out) is Variable else out for out in outputs]

    def back(self, wanted: tuple[int, ...]) -> WayBack:
        """Return the backward pass to the cotangents of some operands."""
        part = self._back.get(wanted)
        if part is None:
            part = self._back[wanted] = WayBack(self._blocks, wanted)
        self._at_once(part)
        return part

    def _at_once(self, part: Part) -> None:
        """Compile a part at once if calls may wait for it."""
        part.calls += 1
        if part.is_behind and not self.refused and (self._waits or not patience()):
            self._renew(part, True)

    def _renew(self, part: Part, waits: bool) -> None:
        try:
            part.renew(waits)
        except RefusedError:
            self._refuse()

    def _refuse(self) -> None:
        self.refused = True
        self._forward.clear()
        self._back.clear()
        for block in self._blocks:
            block.compiles = True

    def _parts(self) -> list[Part]:
        return [*self._forward.values(), *self._back.values()]

    @contextlib.contextmanager
    def accounting(self) -> Iterator[None]:
        """Pay for machine code with the time that Python takes for the graph."""
        start = time.perf_counter()
        yield
        if not self.refused:
            self._budget.ran(time.perf_counter() - start)
            self.advance(self._budget)

    # --- the interface of loop bodies, which `Code` calls ---

    def advance(self, budget: Budget) -> None:
        """Continue towards machine code, as far as the budget allows."""
        for block in self._blocks:
            block.advance(budget)
        for part in self._parts():
            if part.is_behind:
                if part.calls > 1:  # the first one may be the capture's
                    self._pass(part, budget)
                if self.refused:
                    return
            else:
                _ask(part.take_up(), budget)

    def _pass(self, part: Part, budget: Budget) -> None:
        left = [body.captured() for body in part.bodies() if not body.has_passed]
        takes = passing.of(sum(len(program.steps) for program in left)) + _EACH * len(left)
        backend = backend_of(self._blocks[self._first].body.program)
        if not budget.affords(backend.takes_to_prepare() + takes):
            return
        start = time.perf_counter()
        backend.prepare()
        self._renew(part, False)
        budget.spend(time.perf_counter() - start)

    def finish(self) -> None:
        """Compile everything that has run, and wait for it."""
        self._waits = True
        for part in self._parts():
            self._renew(part, True)
            if self.refused:
                break
            for kernel in part.take_up():
                kernel.settle()
            part.take_up()
        for block in self._blocks:
            block.finish()

    def waiting(self) -> int:
        """Return the number of kernels that are not compiled yet."""
        waiting = sum(block.waiting() for block in self._blocks)
        return waiting + sum(len(part.take_up()) for part in self._parts())

    @property
    def settled(self) -> bool:
        """Whether its code is final, as far as it has run."""
        parts = [part for part in self._parts() if part.calls > 1]
        if any(part.is_behind or part.take_up() for part in parts):
            return False
        return all(block.settled for block in self._blocks)


def _ask(kernels: Sequence[Any], budget: Budget) -> None:
    """Request kernels in the background."""
    takes = 0.0
    for kernel in kernels[:_AT_ONCE]:
        takes += compiling.of(kernel.length)
        if kernel.asked:
            kernel.hurry(budget.affords(takes))
        elif budget.affords(takes):
            kernel.ask()
