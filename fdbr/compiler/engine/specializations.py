"""The traces for arguments of one signature, and the choice among them."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.capture.watch.captured_inputs import CapturedInput, Key, replaced
from fdbr.compiler.capture.watch.captures import Captures, ImpureError
from fdbr.compiler.capture.watch.constants import first_changed
from fdbr.compiler.engine.budget import Budget, capturing, patience
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.core.collective_log import rewind
from fdbr.errors.checks import describe, is_interrupt

__all__ = ["BRANCHES", "EARLY", "STORM", "TWICE", "Specialization"]

_log = logging.getLogger("fdbr.jit")

TWICE = "it asks whether values are one object, and two of them are"
EARLY = "until then, its calls had taken less time than tracing it takes"
_INSTEAD = (
    "write loops on data with fdbr.while_loop, fdbr.fori_loop or fdbr.scan, and branches in them "
    "with ops.where"
)
STORM = (
    "traces multiply: nearly every call takes another path through its control flow; " + _INSTEAD
)
BRANCHES = f"it branches on so many values that a trace may not hold for long; {_INSTEAD}"
_GUARDS = 32  # branches in a trace from which on one is expected to change, as in a loop on data
_TRUSTED = 4  # replays of a trace after which it is expected to hold, however many guards it has
_MANY = 8  # traces from which on the hit rate decides whether more are captured
_MIN_HIT_RATE = 0.25  # share of calls that an existing trace must hold for
_HIT_RATE_DECAY = 1 / 8  # weight of the newest call in the hit rate
_MAX_RETRY = 512  # calls between two attempts to capture once more
_SLOWER = "replays take longer than the function itself"
_RETRY = 20  # calls before the first attempt
_RETRY_COST = 12  # a slow trace is tried again once the budget covers this many replays
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
    pays
        Whether compiled code for other sizes of such arguments is in use, so that a trace goes
        through the passes at once.
    errors
        Types and lines of the errors of traced runs that the function itself raises, too.
    heavy
        Whether the donated arguments are so large that the function, which needs them twice, must
        not run eagerly; `None` if that is not known yet.
    inputs
        The captured variables whose numbers and arrays are inputs of the programs.
    known
        The captured variables that could be inputs, by their keys, and `None` for those that
        turned out not to be.
    references
        Weak references to objects among the arguments: without one of them this entry is dropped.
    used
        The time of its last use, as a growing counter.
    budget
        The account that pays for traces and their compilation.
    told
        The reasons for eager runs that have been logged.
    runs_traced
        Whether eager runs use traced values, because a capture that gave no program did, and its
        results differed in the last bits.
    was_set_up
        Whether its last capture has initialised a captured variable that later ones may only read.
    wanted
        For a function that is differentiated: which results have had cotangents, if not all have.
    """

    __slots__ = (
        "_cause",
        "_hit_rate",
        "_made",
        "_rested",
        "_retry_after",
        "_wasted",
        "budget",
        "eager",
        "errors",
        "family",
        "heavy",
        "inputs",
        "known",
        "moving",
        "name",
        "obstacle",
        "pays",
        "references",
        "runs_traced",
        "told",
        "traces",
        "used",
        "wanted",
        "was_set_up",
    )

    def __init__(self, name: str, moving: list[int] | None) -> None:
        self.name = name
        self.moving = moving
        self.traces: tuple[CompiledTrace, ...] = ()
        self.budget = Budget()
        self.eager = 0
        self.errors: set[tuple[Any, ...]] = set()
        self.family: tuple[Any, ...] = ()
        self.pays = False
        self.heavy: bool | None = None
        self.obstacle = ""
        self.used = 0
        self.wanted: tuple[bool, ...] | None = None
        self._wasted = 0
        self._cause = ""
        self._made = 0  # traces ever captured
        self._hit_rate = 1.0  # moving average of how often a trace has held
        self._retry_after, self._rested = _RETRY, 0  # calls until the next attempt
        self.told: set[str] = set()
        self.runs_traced = self.was_set_up = False
        self.references: list[Any] = []
        self.inputs: tuple[CapturedInput, ...] = ()
        self.known: dict[Key, CapturedInput | None] = {}

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

    @property
    def is_compiled(self) -> bool:
        """Whether final code is in use that is not slower than the function itself."""
        traces = self.traces
        return bool(traces) and traces[0].code.is_best(self.budget.eager)

    def add(self, trace: CompiledTrace) -> None:
        """Put a trace first."""
        if trace not in self.traces:
            self._made += 1
            branches = sum(type(answer) is bool for answer in trace.answers)
            self.budget.doubtful |= branches >= _GUARDS
        self.traces = (trace, *(other for other in self.traces if other is not trace))

    def forget(self) -> None:
        """Drop all traces."""
        self.traces, self._made = (), 0

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
        self.runs_traced = False
        self.give_up(why)
        self.skip(why)

    def skip(self, why: str) -> None:
        """Record that the function runs without a trace."""
        self.eager += 1
        self.obstacle = why
        if why not in (EARLY, _SLOWER) and why not in self.told and len(self.told) < _MANY:
            self.told.add(why)
            _log.warning("%s runs without a trace: %s", self.name, why)

    def _has_too_many(self) -> bool:
        """Return whether traces keep multiplying while few calls match an existing one.

        Another capture is tried now and then, after pauses that double while it does not help.
        """
        if self._made < _MANY or self._hit_rate >= _MIN_HIT_RATE:
            return False
        self._rested += 1
        if self._rested < self._retry_after:
            return True
        self._rested = 0
        return False

    def _note(self, held: bool) -> None:
        """Update the hit rate: whether one of the traces held."""
        self._hit_rate += _HIT_RATE_DECAY * (held - self._hit_rate)
        if self._hit_rate >= _MIN_HIT_RATE:
            self._retry_after = _RETRY
        elif held:
            self._rested = self._retry_after  # the next call is looked up, too
        else:
            self._retry_after = min(2 * self._retry_after, _MAX_RETRY)

    def runs_eagerly(self) -> bool:
        """Return whether the function should run eagerly although there are traces.

        It should if replays are known to be slower, and while they have cost too much.  Meanwhile
        the compilation of the trace continues.
        """
        budget, traces = self.budget, self.traces
        if not (traces and patience()):
            return False
        if self._has_too_many():
            self.skip(STORM)
            return True
        if not budget.eager:
            return False
        code = traces[0].code
        if code.is_slower(budget.eager):
            if code.settled and budget.affords(_RETRY_COST * code.pace):  # its speed may change
                return False
        elif code.settled or not budget.overdrawn or code.is_faster(budget.eager):
            return False
        code.advance(budget)
        self.skip(BRANCHES if budget.doubtful else _SLOWER)
        return True

    def eager_seconds(self) -> float:
        """Return the seconds for which the function may run eagerly without a look-up."""
        budget = self.budget
        if not patience():
            return 0.0
        if self._made >= _MANY and self._hit_rate < _MIN_HIT_RATE:
            left = max(self._retry_after - self._rested, 0)
            self._rested = self._retry_after  # so that the next look-up captures again
            return left * budget.eager
        if self.traces or self._wasted >= _MAX_WASTED:
            return _RETRY * budget.eager
        return budget.missing / 2

    def captured(self, seconds: float) -> None:
        """Record how long a captured run took."""
        traces, budget = self.traces, self.budget
        if budget.eager:
            took = max(seconds - budget.eager, 0.0)
            budget.captured(took)
            if traces:
                capturing.saw(len(traces[0].raw.steps), took)
        budget.replayed(seconds)
        if self.pays and traces:
            traces[0].code.advance(budget)

    def replayed(self, trace: CompiledTrace, seconds: float) -> None:
        """Record how long a replay took."""
        code = trace.code
        if trace.runs == _TRUSTED:  # its guards check labels, say, and no loop on data
            self.budget.doubtful = False
        code.took(seconds)
        trace.recorded += 1
        self.budget.replayed(seconds)
        if not code.settled:
            code.advance(self.budget)

    def count_calls(self) -> None:
        """Record the replays by call stubs, which take no time to do so themselves."""
        for trace in self.traces:
            if (runs := trace.runs - trace.recorded) > 0 and trace.code.pace < math.inf:
                self.budget.replayed(trace.code.pace, runs)
                trace.recorded = trace.runs

    def replay(
        self, leaves: Sequence[Any], bound: int, rehearses: bool = False
    ) -> tuple[Any, CompiledTrace | None, str]:
        """Replay the trace that holds; return its outputs, the trace, and why to capture one.

        Without a trace that holds, the first two are `None`, and the third is the reason to capture
        one; it is empty if none is to be captured.  With ``rehearses`` outputs are not returned.
        """
        why = "the first call with arguments of this signature"
        traces = self.traces  # one tuple for this call: other threads may replace it
        if traces:
            why = self._change(traces)
            if not why and traces[0].captures.has_twice(leaves):
                self.skip(TWICE)
                return None, None, ""
            if not why:
                outs, trace, why = self._run(traces, leaves, rehearses)
                self._note(trace is not None)
                if trace is not None or not why:
                    return outs, trace, why
        if self._wasted >= _MAX_WASTED:
            self.skip(f"traces are not replayed: {self._cause}")
        elif len(self.traces) >= bound:
            self.skip(f"there are {bound} traces, and none fits")
        else:
            return None, None, why
        return None, None, ""

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
    ) -> tuple[Any, CompiledTrace | None, str]:
        trace: CompiledTrace | None = traces[0]
        why = ""
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
                trace = trace.after(failure, traces)
                continue
            except Exception as error:  # the original function raises a better one
                if is_interrupt(error):
                    raise
                self.skip(f"a replay raised {type(error).__name__}")
                return None, None, ""
            trace.counter[0] += 1
            self._wasted = 0
            if traces[0] is not trace:
                self.add(trace)
            return outs, trace, ""
        return None, None, why

    def _changed(self, array: Any) -> ImpureError:
        return ImpureError(
            f"fdbr.jit: {self.name} uses a captured array {describe(array)}, which has changed "
            "since the function was traced; pass it as an argument"
        )
