"""The captured programs for arguments of the same kinds, and which of them holds."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.capture.tracers import learners
from fdbr.compiler.capture.watch.captured_inputs import Key, Place, replaced
from fdbr.compiler.capture.watch.captures import Captures, ImpureError
from fdbr.compiler.capture.watch.constants import first_changed
from fdbr.compiler.engine.budget import Budget, capturing, patience
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.core.collective_log import rewind
from fdbr.errors.checks import describe

__all__ = ["EARLY", "STORM", "TWICE", "Specialization"]

_log = logging.getLogger("fdbr.jit")

TWICE = "it asks whether values are one object, and two of them are"
EARLY = "it has not run for as long yet as it would take to trace it"
STORM = "traces multiply: nearly every call takes another way through its control flow"
_MANY = 8  # traces, from which on it counts how often one of them holds
_LUCK = 0.25  # how often that has to be
_SLOW = 1 / 16  # how fast that is forgotten
_LARGE = 1000  # steps of a capture that may be of a loop
_HUGE = 20_000  # steps that captures, and what is made of them, take seconds for
_SOME = 4  # traces of loops, after which it is better to learn how they go on
_LONGEST = 512  # calls between two trials
_SLOWER = "replays take longer than the function itself"
_REST = 20  # calls
_SELDOM = 12  # times what a replay takes: what has to be there for a trial of slower ones
_KNOWN = 256  # variables that may be inputs
_PATIENCE = 8  # traces in a row that may be given up before they were replayed


class Specialization:
    """The traces for arguments of the same kinds: structure, shapes, dtypes, static leaves.

    Attributes
    ----------
    name
        What messages call the function.
    moving
        The positions of the leaves that may differ from call to call; `None` if all may.
    traces
        The one that held last comes first.
    eager
        How often the function was run without a trace.
    obstacle
        Why, the last time.
    errors
        The errors that the function itself has raised where a traced run had: types, and lines.
    heavy
        Whether arguments are given up that are so large that the function, which has them twice,
        is not to run as it is; `None` if that is not known yet.
    inputs
        The variables around the function whose numbers and arrays are inputs of its programs.
    learnt
        What is known of the control flow of the function, and of those that it transforms.
    known
        Those that could be, by their keys, and `None` for those that turned out not to be.
    repeats
        Whether captures that were broken off have found loops.
    references
        Weak ones to objects among the arguments: when one is gone, this is dropped.
    used
        When it was used last, as a number that grows.
    budget
        What may be spent on traces and their compilation.
    told
        The reasons for running the function as it is that `logging` has been told.
    runs_traced
        Whether the function, where it is run as it is, is run as it was when a capture of it was no
        program: the results of that were other in the last bits.
    was_set_up
        Whether its last capture has bound something around it that later ones may only read.
    wanted
        Of a function that is differentiated: which results have had cotangents, if not all
        have.
    """

    __slots__ = (
        "_cause",
        "_luck",
        "_made",
        "_pause",
        "_probed",
        "_rested",
        "_wasted",
        "budget",
        "eager",
        "errors",
        "heavy",
        "inputs",
        "known",
        "learnt",
        "moving",
        "name",
        "obstacle",
        "references",
        "repeats",
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
        self.heavy: bool | None = None
        self.obstacle = ""
        self.used = 0
        self.wanted: tuple[bool, ...] | None = None
        self._wasted = 0
        self._cause = ""
        self.learnt: Any = None
        self.repeats = False
        self._made = 0  # traces that were ever made
        self._probed = False
        self._luck = 1.0  # how often a trace has held, of late
        self._pause, self._rested = _REST, 0  # calls until the next trial, and since the last one
        self.told: set[str] = set()
        self.runs_traced = self.was_set_up = False
        self.references: list[Any] = []
        self.inputs: tuple[Place, ...] = ()
        self.known: dict[Key, Place | None] = {}

    def chosen(self, leaves: list[Any]) -> list[Any]:
        """The leaves that may differ, and those around the function that do."""
        chosen = leaves if self.moving is None else [leaves[i] for i in self.moving]
        if self.inputs:
            return [*chosen, *(leaf for place in self.inputs for leaf in place.leaves())]
        return chosen

    def filled(self, leaves: list[Any], chosen: list[Any]) -> list[Any]:
        """All leaves, with others in the place of those that may differ."""
        if self.moving is None:
            return chosen[: len(leaves)]
        filled = list(leaves)
        for position, leaf in zip(self.moving, chosen, strict=False):
            filled[position] = leaf
        return filled

    def with_inputs(self, run: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], Any]:
        """A run that is given values for what is around the function, too."""
        count = sum(len(place.leaves()) for place in self.inputs)

        def filled(leaves: list[Any]) -> list[Any]:
            with replaced(self.inputs, leaves[len(leaves) - count :]):
                return run(leaves[: len(leaves) - count])

        return filled

    def withdraw_inputs(self) -> None:
        """Take what is around the function for what it is."""
        self.known.update((place.key, None) for place in self.inputs)
        self.inputs = ()
        self.forget()

    def take_inputs(self) -> None:
        """Have what is known to change, and can be, be inputs of the programs to come."""
        places = [place for place in self.known.values() if place is not None]
        self.inputs = tuple(place for place in places if place.fits())

    @property
    def captures(self) -> Captures | None:
        """The captures of the function, if it has been captured."""
        traces = self.traces
        return traces[0].captures if traces else None

    def add(self, trace: CompiledTrace) -> None:
        """Put a trace first."""
        others = [r for r in self.traces if r is not trace]
        replaced = [r for r in others if trace.replaces(r)]
        trace.counter[0] += sum(r.runs for r in replaced)
        others = [r for r in others if r not in replaced]
        self._made += trace not in self.traces
        self.traces = (trace, *others)

    def learner(self) -> Any:
        """The learner of the control flow of what is to be captured, if there is a reason for one.

        That is where traces of a loop did not hold, most of all such as are for one number of
        turns.
        """
        repeating = [r for r in self.traces if r.repeats]
        unrolled = [r for r in repeating if not r.is_open]
        large = self.repeats or any(len(r.raw.steps) > _LARGE for r in unrolled)
        if self.learnt is None and (large or len(repeating) + len(unrolled) >= 2 * _SOME):
            self.learnt = learners[0]()
        return self.learnt

    def probe(self) -> int:
        """The number of steps to capture in order to see whether there are loops; 0 if it is known.

        Loops make a function's captures, and what is made of them, dear.
        """
        budget = self.budget
        # Where tapes do not differ a capture may hold for long, unless it is too large to be made.
        if self._probed or budget.steps < (_LARGE if budget.varies else _HUGE):
            return 0
        if not budget.affords(capturing.of(_LARGE)):
            return 0
        self._probed = True
        return _LARGE

    def cut(self, limit: int, repeats: bool) -> None:
        """Note that a capture was broken off after so many steps, and whether there was a loop."""
        self.budget.cut(limit)
        if repeats and not self.repeats:
            self.repeats = True
            self.budget.learns()

    def forget(self) -> None:
        """Drop all traces, and what is known of the function."""
        self.traces, self.learnt, self._made = (), None, 0

    def waste(self, why: str) -> None:
        """Note that a run could not be traced, or will not be replayed."""
        self._wasted += 1
        self._cause = self.obstacle = why

    def give_up(self, why: str) -> None:
        """Never capture a run again."""
        self._wasted = _PATIENCE
        self._cause = self.obstacle = why

    def refuse(self, why: str) -> None:
        """Note that the function is run as it is, and will be."""
        self.runs_traced = False
        self.give_up(why)
        self.skip(why)

    def skip(self, why: str) -> None:
        """Note that the function is run without a trace."""
        self.eager += 1
        self.obstacle = why
        if why not in (EARLY, _SLOWER) and why not in self.told and len(self.told) < _MANY:
            self.told.add(why)
            _log.warning("%s runs without a trace: %s", self.name, why)

    def _multiplies(self) -> bool:
        """Whether there are ever more traces, and hardly a call is like one before.

        Now and then another one is tried nevertheless, ever more seldom as long as it is in vain.
        """
        if self._made < _MANY or self._luck >= _LUCK:
            return False
        self._rested += 1
        if self._rested < self._pause:
            return True
        self._rested, self._pause = 0, min(2 * self._pause, _LONGEST)
        return False

    def _note(self, held: bool) -> None:
        """Note whether one of the traces held."""
        self._luck += _SLOW * (held - self._luck)
        if held:
            self._pause = _REST

    def rests(self) -> bool:
        """Whether the function is to run as it is, although there are traces.

        That is where replays are known to be slower, and while they have cost too much.  What there
        is goes on towards compiled code meanwhile.
        """
        budget, traces = self.budget, self.traces
        if not (traces and patience()):
            return False
        if self._multiplies():
            self.skip(STORM)
            return True
        if not budget.eager:
            return False
        code = traces[0].code
        if code.is_slower(budget.eager):
            if code.settled and budget.affords(_SELDOM * code.pace):  # it may be otherwise now
                return False
        elif not budget.overdrawn or code.is_faster(budget.eager):
            return False
        code.advance(budget)
        self.skip(_SLOWER)
        return True

    def resting(self) -> float:
        """Seconds for which the function may run as it is, before anything else is thought of."""
        budget = self.budget
        if not patience():
            return 0.0
        if self._made >= _MANY and self._luck < _LUCK:
            left = max(self._pause - self._rested, 0)
            self._rested = self._pause  # the next call that is looked up is a trial
            return left * budget.eager
        if self.traces or self._wasted >= _PATIENCE:
            return _REST * budget.eager
        return budget.missing / 2

    def captured(self, seconds: float) -> None:
        """Note how long a run took of which there may be a trace now."""
        traces, budget = self.traces, self.budget
        if budget.eager:
            took = max(seconds - budget.eager, 0.0)
            budget.captured(took)
            if traces and self.learnt is None:
                capturing.saw(len(traces[0].raw.steps), took)
        budget.replayed(seconds)

    def replayed(self, trace: CompiledTrace, seconds: float) -> None:
        """Note how long a replay took."""
        code = trace.code
        code.took(seconds)
        self.budget.replayed(seconds)
        if not code.settled:
            code.advance(self.budget)

    def replay(
        self, leaves: Sequence[Any], bound: int, rehearses: bool = False
    ) -> tuple[Any, CompiledTrace | None, str]:
        """The outputs of the trace that holds, and which it is; or that alone, if it rehearses.

        If there is none, the reason to make one is told; it is empty where none is to be made.
        """
        why = "the first call with arguments of these kinds"
        traces = self.traces  # other threads may put other ones there
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
        if self._wasted >= _PATIENCE:
            self.skip(f"traces are not replayed: {self._cause}")
        elif len(self.traces) >= bound:
            self.skip(f"there are {bound} traces, and none fits")
        else:
            return None, None, why
        return None, None, ""

    def _change(self, traces: Sequence[CompiledTrace]) -> str:
        """Describe what has changed around the function, if anything; its traces end with that."""
        captures = traces[0].captures
        if captures.holds():
            if (array := captures.changed_array()) is not None:
                raise self._changed(array)
            return ""
        why = captures.change()
        moved = [place for place in captures.moved() if place.key not in self.known]
        self.known.update((place.key, place) for place in moved)
        while len(self.known) > _KNOWN:  # of objects that are gone, most likely
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
                # Answers that loops of any number of turns have given tell nothing of those behind.
                others = [other for other in left if other.is_open]
                trace = trace.after(failure, traces) or next(iter(others), None)
                continue
            except Exception as error:  # the function itself raises it better
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
            f"fdbr.jit: {self.name} uses an array {describe(array)} that is no argument, and it "
            "has changed since it was traced; pass it as an argument"
        )
