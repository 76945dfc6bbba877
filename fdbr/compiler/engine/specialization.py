"""The traces for arguments of one signature, and the choice among them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.capture.watch.captured_inputs import CapturedInput, Key, replaced
from fdbr.compiler.capture.watch.captures import Captures, ImpureError
from fdbr.compiler.capture.watch.constants import first_changed
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.core.collective_log import rewind
from fdbr.errors.checks import describe, recoverable

__all__ = ["MANY_SIZES", "STORM", "TWICE", "Specialization"]

_log = logging.getLogger("fdbr.jit")

TWICE = "it asks whether values are one object, and two of them are"
STORM = (
    "there are many paths through its control flow, and a new one is not traced at once; "
    "write loops on data with fdbr.while_loop, fdbr.fori_loop or fdbr.scan, and branches in them "
    "with ops.where"
)
MANY_SIZES = "there are many sizes of its arguments, and a new one is traced at its second call"
_MANY_PATHS = 7  # traces from which on a new path of guards is traced at its second call
_MORE_PATHS = 4  # traces that double the calls which a new path waits for
_MAX_PATHS = 4096  # paths that are remembered; bounds the memory
_MAX_TOLD = 8  # reasons that are logged; bounds the log
_MAX_INPUTS = 256  # captured variables that may become inputs; bounds the memory
_MAX_WASTED = 8  # traces in a row that may be dropped before they were ever replayed


class Specialization:
    """The traces for arguments of one signature: structure, shapes, dtypes and static leaves.

    Attributes
    ----------
    name
        The name of the function in messages.
    moving
        The positions of the leaves that may differ from call to call; `None` if all may.
    traces
        The traces, the one that held last first.
    eager
        How often the function was run without a trace.
    obstacle
        The latest reason for that.
    family
        The signature without the sizes of arrays; entries that share it differ by sizes only.
    rests
        Why its first call runs the function itself; empty if it is traced.
    errors
        Types and lines of the errors of traced runs that the function itself raises, too.
    inputs
        The captured variables whose numbers and arrays are inputs of the programs.
    known
        The captured variables that could be inputs, by their keys, and `None` for those that
        turned out not to be.
    references
        Weak references to objects among the arguments: without one of them this entry is dropped.
    used
        The time of its last use, as a growing counter.
    told
        The reasons for eager runs that have been logged.
    was_set_up
        Whether its last capture has initialised a captured variable that later ones may only read.
    wanted
        For a function that is differentiated: which results have had cotangents, if not all have.
    """

    __slots__ = (
        *("_cause", "_paths", "_wasted", "eager", "errors", "family", "inputs", "known"),
        *("moving", "name", "obstacle", "references", "rests", "told", "traces", "used"),
        *("wanted", "was_set_up"),
    )

    def __init__(self, name: str, moving: list[int] | None) -> None:
        self.name = name
        self.moving = moving
        self.traces: tuple[CompiledTrace, ...] = ()
        self.eager = 0
        self.errors: set[tuple[Any, ...]] = set()
        self.family: tuple[Any, ...] = ()
        self.rests = self.obstacle = ""
        self.used = 0
        self.wanted: tuple[bool, ...] | None = None
        self.told: set[str] = set()
        self.was_set_up = False
        self.references: list[Any] = []
        self.inputs: tuple[CapturedInput, ...] = ()
        self.known: dict[Key, CapturedInput | None] = {}
        self._wasted = 0
        self._cause = ""
        self._paths: dict[str, int] = {}  # the calls that took paths without a trace

    def moving_leaves(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves that may differ, those of captured variables included."""
        moving_leaves = leaves if self.moving is None else [leaves[i] for i in self.moving]
        if self.inputs:
            return [*moving_leaves, *(leaf for input in self.inputs for leaf in input.leaves())]
        return moving_leaves

    def filled(self, leaves: list[Any], moving_leaves: list[Any]) -> list[Any]:
        """Return all leaves, with other values for those that may differ."""
        if self.moving is None:
            return moving_leaves[: len(leaves)]
        filled = list(leaves)
        for position, leaf in zip(self.moving, moving_leaves, strict=False):
            filled[position] = leaf
        return filled

    def with_inputs(self, run: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], Any]:
        """Return a run that also takes values for the captured variables that are inputs."""
        count = sum(len(input.leaves()) for input in self.inputs)

        def filled(leaves: list[Any]) -> list[Any]:
            with replaced(self.inputs, leaves[len(leaves) - count :]):
                return run(leaves[: len(leaves) - count])

        return filled

    def withdraw_inputs(self) -> None:
        """Make captured variables constants of programs again."""
        self.known.update((input.key, None) for input in self.inputs)
        self.inputs = ()
        self.forget()

    def take_inputs(self) -> None:
        """Make captured variables that are known to change inputs of the next programs."""
        inputs = [input for input in self.known.values() if input is not None]
        self.inputs = tuple(input for input in inputs if input.fits())

    @property
    def captures(self) -> Captures | None:
        """The captured variables of the function, if it has been captured."""
        traces = self.traces
        return traces[0].captures if traces else None

    def add(self, trace: CompiledTrace) -> None:
        """Put a trace first."""
        self.traces = (trace, *(other for other in self.traces if other is not trace))

    def forget(self) -> None:
        """Drop all traces."""
        self.traces = ()

    def waste(self, why: str) -> None:
        """Record that a run could not be traced, or that its trace will not be replayed."""
        self._wasted += 1
        self._cause = self.obstacle = why

    def give_up(self, why: str) -> None:
        """Rule out further captures."""
        self._wasted = _MAX_WASTED
        self._cause = self.obstacle = why

    def refuse(self, why: str) -> None:
        """Record that the function runs eagerly, now and in all later calls."""
        self.give_up(why)
        self.skip(why)

    def skip(self, why: str) -> None:
        """Record that the function runs without a trace."""
        self.eager += 1
        self.obstacle = why
        if why not in self.told and len(self.told) < _MAX_TOLD:
            self.told.add(why)
            _log.warning("%s runs without a trace: %s", self.name, why)

    def replay(
        self, leaves: Sequence[Any], bound: int, rehearses: bool = False
    ) -> tuple[Any, CompiledTrace | None, str]:
        """Replay the trace that holds; return its outputs, the trace, and why to capture one.

        Without a trace that holds, the first two are `None`, and the third is the reason to capture
        one; it is empty if none is to be captured.  With ``rehearses`` outputs are not returned.
        """
        why, path = "the first call with arguments of this signature", ""
        traces = self.traces  # one tuple for this call: other threads may replace it
        if traces:
            why = self._change(traces)
            if not why and traces[0].captures.has_twice(leaves):
                self.skip(TWICE)
                return None, None, ""
            if not why:
                outs, trace, why, path = self._run(traces, leaves, rehearses)
                if trace is not None or not why:
                    return outs, trace, why
        if self._wasted >= _MAX_WASTED:
            self.skip(f"traces are not replayed: {self._cause}")
        elif len(self.traces) >= bound:
            self.skip(f"there are {bound} traces, and none fits")
        elif not rehearses and (rests := self._rests(path)):
            self.skip(rests)
        else:
            return None, None, why
        return None, None, ""

    def _rests(self, path: str) -> str:
        """Return why this call is not traced although a later one like it will be."""
        rests, self.rests = self.rests, ""
        beyond = len(self.traces) - _MANY_PATHS
        if rests or beyond < 0:
            return rests
        if len(self._paths) >= _MAX_PATHS:
            self._paths.clear()
        count = self._paths[path] = self._paths.get(path, 0) + 1
        return STORM if count < 2 << beyond // _MORE_PATHS else ""

    def _change(self, traces: Sequence[CompiledTrace]) -> str:
        """Describe what has changed in captured variables, if anything; then drop the traces."""
        captures = traces[0].captures
        if captures.holds():
            if (array := captures.changed_array()) is not None:
                raise self._changed(array)
            return ""
        why = captures.change()
        moved = [input for input in captures.changed_inputs() if input.key not in self.known]
        self.known.update((input.key, input) for input in moved)
        while len(self.known) > _MAX_INPUTS:  # the oldest are likely of objects that are gone
            self.known.pop(next(iter(self.known)))
        self.take_inputs()
        if moved:
            why += ", and is an argument from now on"
        elif any(trace.runs for trace in traces):
            self._wasted = 0
        else:
            self.waste(why)
        self.forget()
        return why

    def _run(
        self, traces: Sequence[CompiledTrace], leaves: Sequence[Any], rehearses: bool
    ) -> tuple[Any, CompiledTrace | None, str, str]:
        trace: CompiledTrace | None = traces[0]
        why = path = ""
        left = list(traces)
        while trace is not None and trace in left:
            left.remove(trace)
            if trace.shared and (array := first_changed(trace.shared)) is not None:
                raise self._changed(array)
            rewind()
            try:
                run = trace.code.rehearse if rehearses else trace.code.run_or_step
                outs = run(*leaves)
            except GuardFailure as failure:
                why = why or f"guard {failure.index} was {failure.answer!r} for the first time"
                path = repr((*trace.answers[: failure.index], failure.answer))
                trace = trace.after(failure, traces)
                continue
            except recoverable() as error:  # the original function raises a better one
                self.skip(f"a replay raised {type(error).__name__}")
                return None, None, "", ""
            trace.counter[0] += 1
            self._wasted = 0
            if traces[0] is not trace:
                self.add(trace)
            return outs, trace, "", ""
        return None, None, why, path

    def _changed(self, array: Any) -> ImpureError:
        return ImpureError(
            f"fdbr.jit: {self.name} uses a captured array {describe(array)}, which has changed "
            "since the function was traced; pass it as an argument"
        )
