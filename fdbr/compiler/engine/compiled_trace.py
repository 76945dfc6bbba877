"""A captured program that can be run, and when it holds."""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.capture.tracing import Captured
from fdbr.compiler.capture.watch.captures import Captures
from fdbr.compiler.engine.tiers import Code
from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.loops import loops
from fdbr.compiler.ir.program import Program, is_collective

__all__ = ["CompiledTrace"]


class CompiledTrace:
    """A program that can be run, and when it holds.

    Attributes
    ----------
    raw
        The program as it was captured.
    code
        What runs it.
    answers
        The answers to its guards.
    captures
        What was around the function.
    shared
        Arrays from elsewhere that others can write to, with copies.
    unrolled
        Why loops in it were captured turn by turn.
    meets
        Whether it does something together with other processes: a call that begins anew, because
        it does not hold, must not do that again.
    repeats
        Whether Python asked again where it had asked before, as loops do.
    form
        What makes a result of the outputs.
    why
        Why it was captured.
    counter
        How often it was replayed, as a list of one number.
    stub
        What a call that fits it does, once it was replayed: see `call_stub`.
    over
        What runs as long as there is no ``stub``, and what does the same for that, if it writes
        over arguments.
    """

    __slots__ = (
        "__weakref__",
        "_next",
        "answers",
        "captures",
        "code",
        "counter",
        "form",
        "meets",
        "over",
        "raw",
        "repeats",
        "shared",
        "stub",
        "unrolled",
        "why",
    )

    def __init__(
        self,
        captured: Captured,
        code: Code,
        captures: Captures,
        form: Any,
        why: str,
    ) -> None:
        self.raw = captured.program
        self.code = code
        self.answers = captured.answers
        self.captures = captures
        self.shared = captured.constants.shared()
        self.unrolled = captured.unrolled
        self.meets = any(map(is_collective, self.raw.steps))
        self.repeats = captured.repeats
        self.form = form
        self.why = why
        self.counter = [0]
        self.stub: Callable[..., Any] | None = None
        self.over: tuple[Any, Callable[..., Any]] | None = None
        self._next: dict[Any, CompiledTrace] = {}

    @property
    def program(self) -> Program:
        """The program that runs: after the passes, if it has gone through them."""
        return self.code.program

    @property
    def is_open(self) -> bool:
        """Whether it has a loop that holds for any number of turns."""
        return any(loop.is_open for _, loop in loops(self.code.program))

    @property
    def graphs(self) -> frozenset[int]:
        """The control flow in it that is learnt: the addresses of what is known of that."""
        params = (getattr(step, "params", {}).get("graph") for step in self.raw.steps)
        return frozenset(id(graph.flow) for graph in params if graph is not None)

    def replaces(self, other: "CompiledTrace") -> bool:
        """Whether it holds wherever another one does: as much and more is known of the same."""
        mine = self.graphs
        return bool(mine) and mine == other.graphs and self.answers == other.answers

    @property
    def run(self) -> Callable[..., tuple[Any, ...]]:
        """A function from the inputs to the outputs."""
        return self.code.run

    @property
    def runs(self) -> int:
        """The number of its replays."""
        return self.counter[0]

    def after(
        self, failure: GuardFailure, others: Sequence["CompiledTrace"]
    ) -> "CompiledTrace | None":
        """The one that goes on where this one did not hold, if there is one."""
        key = failure.index, repr(failure.answer)
        found = self._next.get(key)
        if found is None:
            known = (*self.answers[: failure.index], failure.answer)
            for other in others:
                theirs = other.answers[: len(known)]
                if len(theirs) == len(known) and all(map(same, theirs, known)):
                    found = self._next[key] = other
                    break
        return found
