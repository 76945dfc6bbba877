"""A captured program with its code, and the conditions under which it may be replayed."""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.compiler.capture.tracing import Captured
from fdbr.compiler.capture.watch.captures import Captures
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import Program, is_collective

__all__ = ["CompiledTrace"]


class CompiledTrace:
    """A captured program with its code, and the conditions under which it may be replayed.

    Attributes
    ----------
    raw
        The program as captured, before the passes.
    code
        The `Code` that runs it.
    answers
        The outcomes of its guards in the captured run.
    captures
        The captured variables of the function.
    shared
        Captured arrays that other code may write to, with copies to compare with.
    unrolled
        Reasons why loops were captured iteration by iteration.
    meets
        Whether it runs collectives: a call that starts over after a failed guard must not repeat
        them.
    form
        The tree structure of the result, to unflatten the outputs with.
    why
        Why it was captured.
    counter
        The number of replays, as a list of one integer that call stubs increment.
    stub
        The call stub, made in the first replay: see `fdbr.compiler.engine.stub`.
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
        "raw",
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
        self.form = form
        self.why = why
        self.counter = [0]
        self.stub: Callable[..., Any] | None = None
        self._next: dict[Any, CompiledTrace] = {}

    @property
    def program(self) -> Program:
        """The program that runs, after the passes."""
        return self.code.program

    @property
    def runs(self) -> int:
        """The number of its replays."""
        return self.counter[0]

    def after(
        self, failure: GuardFailure, others: Sequence["CompiledTrace"]
    ) -> "CompiledTrace | None":
        """Return the trace that has the outcome at which this one failed; `None` if none has."""
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
