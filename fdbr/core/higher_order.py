"""Primitives that own a body or have several outputs, and state each transformation as a whole.

An ordinary primitive has one rule an operand, and traces put these together.  A higher-order
primitive, such as a loop, a function with a custom derivative, or a collective, has one rule a
transformation for all operands together.  Both go to the innermost trace of their operands:
ordinary ones to `Trace.process`, higher-order ones to `Trace.transform`, which takes the trace off
the operands, calls the rule, and traces the results.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.array_modules import array_module, on_device, several
from fdbr.core.primitive import Facts, Primitive
from fdbr.core.tracer import Trace, below, ended, escaped, innermost, running

__all__ = ["HigherOrder"]

Rule = Callable[..., Any]


class HigherOrder(Primitive):
    """A primitive with one rule for each transformation.

    Operands are leaves; results are a tuple.  A rule gets the trace that is taken off, the operands
    without it, and which of them it was taken off.  Its results may still belong to outer traces.
    A rule that is `None` is `missing`.  Results that a rule has traced itself stay as they are.

    Attributes
    ----------
    reverse
        ``reverse(trace, values, tracked, **params) -> (outs, vjp)``, where ``vjp(cotangents)``
        takes a list of the results' cotangents, which it may change, to a list of those of the
        tracked operands; in both, `None` is zero.  A ``vjp`` of `None` makes the results constants.
    forward
        ``forward(trace, values, tangents, **params) -> (outs, tangents)``; `None` is zero.
    batch
        ``batch(trace, values, batched, **params) -> (outs, batched)``, with batches along the first
        axis.
    capture
        ``capture(trace, operands, **params) -> outs``, on operands that are still traced; if it is
        `None`, the primitive becomes a step of the program.
    communicates
        Whether its rules may run collectives.  A run that is repeated, as `checkpoint` does, then
        takes the results of the first run instead of communicating again.
    """

    __slots__ = ("capture", "reverse")

    communicates = False

    def __init__(
        self,
        name: str,
        value: Callable[..., Any],
        *,
        reverse: Rule | None = None,
        forward: Rule | None = None,
        batch: Rule | None = None,
        capture: Rule | None = None,
        facts: Facts | None = None,
    ) -> None:
        facts = facts or Facts()
        super().__init__(name, "higher-order", value, None, forward, batch, facts, registered=False)
        self.reverse = reverse
        self.capture = capture

    def apply(self, *operands: Any, **params: Any) -> Any:
        """Apply it to leaves, by the rule of the innermost trace."""
        trace = innermost(operands)
        if self.facts.collective:
            trace = max((trace, *running.get()), key=_level)
        if trace is None:
            return self.evaluate(operands, params)
        if not trace.running and ended(trace) and trace not in running.get():
            raise escaped(trace, f"fdbr.{self.title(params)}")
        return self.apply_in(trace, operands, params)

    def apply_in(self, trace: Trace, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply it by the rule of a trace, within which only the traces around it are running."""
        if not running.get():
            return trace.transform(self, operands, params)
        with below(trace):
            return trace.transform(self, operands, params)

    def evaluate(self, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply it to arrays and numbers."""
        with on_device(*operands) if several else contextlib.nullcontext():
            return self.value(array_module(*operands), *operands, **params)

    def title(self, params: dict[str, Any]) -> str:
        """The name of an application, on the tape and in messages."""
        return self.name

    def missing(self, trace: Trace) -> BaseException:
        """The error for a trace for which there is no rule."""
        return TypeError(f"fdbr.{self.name} has no rule for {trace}")

    def resume(self, params: dict[str, Any], first: dict[str, Any]) -> None:
        """Note that an application takes the results of the ``first`` one, of a repeated run."""

    def explain(self, error: Exception, args: Any) -> Exception:
        return error  # one of its body, which has said what is wrong


def _level(trace: Trace | None) -> int:
    return 0 if trace is None else trace.level
