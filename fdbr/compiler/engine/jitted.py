"""`Jitted`, which captures programs of a function and replays them."""

import contextlib
import inspect
import logging
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import attrs

from fdbr import tree
from fdbr.compiler.capture.signature import flatten_arguments, sign, unflatten_arguments
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.donation import Donation
from fdbr.compiler.engine.garbage_collection import collecting_seldom
from fdbr.compiler.engine.lookup import Cache, failure_of, is_meant
from fdbr.compiler.engine.outputs import published
from fdbr.compiler.engine.pullback import DeclinedError, Differentiated, Form
from fdbr.compiler.engine.report import Report, report_of
from fdbr.compiler.engine.specialization import Specialization
from fdbr.compiler.engine.stub import NEVER, NO_FIT, CallStub, call_stub_of
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import Program
from fdbr.core.collective_log import log_of_collectives, rewind
from fdbr.core.effects import Callbacks, without_effects
from fdbr.core.observation import hook
from fdbr.core.tracer import Tracer, follows_runs, running
from fdbr.errors.checks import is_interrupt, named_as, recoverable
from fdbr.errors.public import public
from fdbr.errors.tracebacks import hide_frames
from fdbr.transforms import harvest

__all__ = ["Jitted", "disable_jit"]

P = ParamSpec("P")
R = TypeVar("R")

_disabled: ContextVar[bool] = ContextVar("disabled", default=False)
_log = logging.getLogger("fdbr.jit")
_NO_LAST: Any = (NEVER, None, None)
_MAX_ERRORS = 64  # errors of the function itself that are remembered; bounds the memory


@attrs.frozen(eq=False)
class _Call:
    """The arguments of a call, as given and flattened.

    Attributes
    ----------
    signature
        The hashable key of their structure and avals.
    traced
        Whether a transformation traces one of them.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: Any
    signature: tuple[Any, ...]
    traced: bool


class Jitted(Generic[P, R]):
    """The result of `jit`: a function that replays captured programs of another.

    Parameters
    ----------
    f
        The function.
    code
        The factory of `Code` from a program.
    max_traces, donate_argnums
        See `jit`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        code: Callable[..., Code],
        max_traces: int,
        donate_argnums: tuple[int, ...] = (),
    ) -> None:
        named_as(f)(self)
        self._f = f
        self._code = code
        self._cache = Cache(f, max_traces)
        self._donation = Donation(self._cache.name, donate_argnums)
        self._last: Any = _NO_LAST
        self._ordered = _observes_order(f)
        self._settings = max_traces, donate_argnums
        self._harvested: Any = None  # the jitted function that also returns harvested marks

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if _disabled.get():
            return self._f(*args, **kwargs)
        if (watch := hook.watch) is not None:
            result = watch.jitted(self, args, kwargs)
            if result is not NotImplemented:
                return result
        try:
            if harvest.are_collected():
                return self._call_harvested(args, kwargs)
            stub, entry, trace = self._last
            result = stub(args, kwargs)
            while type(result) is GuardFailure:  # this call needs another trace than the last one
                if result is not NO_FIT:
                    trace = trace.after(result, entry.traces)
                if result is NO_FIT or trace not in entry.traces or trace.stub is None:
                    return self._call_any(args, kwargs)
                entry.add(trace)
                self._last = trace.stub, entry, trace
                result = trace.stub(args, kwargs)
            return result
        except recoverable() as error:
            hide_frames(error)
            raise

    def _call_harvested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run with harvested marks: the programs return them as further outputs."""
        watched = harvest.watched_level()
        if watched is not None:
            leaves = tree.leaves((args, kwargs))
            if any(isinstance(leaf, Tracer) and leaf._trace.level > watched for leaf in leaves):
                return self._f(*args, **kwargs)  # a backward pass continues outside this call
        if self._harvested is None or (watched is not None) is not self._harvested[0]:
            f = harvest.alone(self._f, watched is not None)
            self._harvested = watched is not None, Jitted(f, self._code, *self._settings)
        marked = self._harvested[1]

        def replayed(_: Any) -> Any:
            with harvest.uncollected():
                return marked(*args, **kwargs)

        return harvest.through(replayed, self._f)

    def _call_any(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run with arguments of any signature."""
        if sys.is_finalizing():  # a capture would import modules, which fails at shutdown
            return self._f(*args, **kwargs)
        if not follows_runs():
            return self._call_looked_up(args, kwargs)
        with log_of_collectives():  # a run that starts over replays the collectives already done
            return self._call_looked_up(args, kwargs)

    def _call_looked_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._donation.check(args)
        if self._last is not _NO_LAST:
            self._cache.use(self._last[1])  # call stubs do not record their use
        call = self._flattened(args, kwargs)
        if call.traced:
            inside = self._differentiated(call)
            try:
                return inside.result()
            except DeclinedError:  # the outer transformation must trace the function itself
                rewind(last=True)
                return self._f(*args, **kwargs)
        entry = self._cache.entry(call.signature, call.leaves, call.structure)
        if self._donation.argnums and entry.traces:
            result = self._replay_donated(entry, call)
            if type(result) is not GuardFailure:
                return result
            call = self._flattened(args, kwargs)
        result = self._replay(entry, call)
        self._donation.take(args)
        return result

    def _differentiated(self, call: _Call) -> Differentiated:
        return Differentiated(self._cache, self._code, call.leaves, call.structure)

    def _flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        if not self._ordered:
            kwargs = dict(sorted(kwargs.items()))
        leaves, structure = flatten_arguments(args, kwargs, self._cache.readers)
        return _Call(args, kwargs, leaves, structure, *sign(structure, leaves))

    def _replay_donated(self, entry: Specialization, call: _Call) -> Any:
        """Replay the last trace with donated buffers reused in place.

        The result is a `GuardFailure` if the trace does not hold; then the arguments are unchanged.
        """
        trace = entry.traces[0]
        stub = self._stub_of(trace, call)
        call.leaves.clear()  # an array is overwritten only if the arguments hold its only reference
        rewind()
        result = stub(call.args, call.kwargs)
        if type(result) is not GuardFailure:
            self._last = stub, entry, trace
        return result

    def _stub_of(self, trace: CompiledTrace, call: _Call) -> CallStub:
        if trace.stub is None:
            stub = call_stub_of(trace, call.args, call.kwargs, self._ordered, self._donation)
            trace.stub = self._with_collective_log(stub) if trace.meets else stub
        return trace.stub

    def _replay(self, entry: Specialization, call: _Call) -> Any:
        """Replay the trace that holds, else capture a new one or run the function itself."""
        moving = entry.moving_leaves(call.leaves)
        outs, trace, why = entry.replay(moving, self._cache.bound)
        if trace is not None:
            self._last = self._stub_of(trace, call), entry, trace
            return tree.unflatten(trace.form, published(outs, moving))
        self._last = _NO_LAST
        if why:
            return self._capture(entry, call, why)
        rewind(last=True)
        if self._donation.argnums:
            # The caller's nodes lose their donated arrays, so the function gets nodes of its own.
            return self._call_function(call)
        return self._f(*call.args, **call.kwargs)

    def _with_collective_log(self, stub: CallStub) -> CallStub:
        """Wrap a call stub with collectives so that a failed guard does not repeat them.

        The wrapped stub fits no call inside another trace, which must record the collectives.
        """
        alive = weakref.ref(self)  # a strong reference would be a cycle through the stub

        def remembering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            jitted = alive()
            if running.get() or jitted is None:
                return NO_FIT
            with log_of_collectives():
                result = stub(args, kwargs)
                if type(result) is GuardFailure:
                    rewind()
                    return jitted._call_any(args, kwargs)
                return result

        return remembering

    def _capture(self, entry: Specialization, call: _Call, why: str, runs: bool = True) -> Any:
        """Capture a run and compile it; if it ``runs``, return what the compiled code gives."""
        form: Any = None
        leaves, structure = call.leaves, call.structure
        donated = self._donation.positions(call.args)

        def run(traced: list[Any]) -> list[Any]:
            nonlocal form
            found, form = tree.flatten(
                self._cache.call_checked(entry.filled(leaves, traced), structure)
            )
            return found

        # Where ranks communicate, the collectives run in the program, for the bits of later calls.
        rehearsed = not runs or follows_runs()
        failure: Exception | None = None
        with Callbacks() as callbacks:
            with without_effects() if rehearsed else contextlib.nullcontext() as silence:
                try:
                    with collecting_seldom():
                        found = self._cache.capture(entry, run, leaves, structure)
                except Exception as error:
                    if not runs or is_meant(error):
                        raise
                    failure = error
            callbacks.begin_anew()
            if failure is not None:
                try:
                    return self._run_after_error(entry, call, failure)
                finally:
                    del failure  # its traceback refers to this frame
            if found is None:
                return self._call_function(call) if runs else None
            captured, captures = found
            if captured.obstacle:
                if not runs:
                    return None
                if silence is not None and silence.suppressed:
                    return self._call_function(call)
                return tree.unflatten(form, captured.result)
            captured.result.clear()  # memory that the compiled code may take
            positions = range(len(leaves)) if entry.moving is None else entry.moving
            pairs = zip(positions, captured.program.inputs, strict=False)
            given = frozenset(v for i, v in pairs if i in donated)
            captured.program = attrs.evolve(captured.program, donated=given)
            code = self._code(captured.program)
            _log.info(
                "%s: traced %d steps and compiled them in %.2g s",
                self._cache.name,
                len(captured.program.steps),
                code.seconds,
            )
            trace = CompiledTrace(captured, code, captures, form, why)
            entry.add(trace)
            if not runs:
                return None
            moving = entry.moving_leaves(leaves)
            rewind()
            try:
                outs = code.run_or_step(*moving)
            except recoverable():  # the function raises a better one; or a kernel rounds
                callbacks.begin_anew()
                return self._call_function(call)
            return tree.unflatten(form, published(outs, moving))

    def _run_after_error(self, entry: Specialization, call: _Call, error: Exception) -> Any:
        """Return the function's own result, or raise its error, after its traced run has raised.

        An error is the function's own if it has raised it before, from the same lines.
        """
        why, raised = failure_of(error), _origin_of(error)
        if raised in entry.errors:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        try:
            result = self._call_function(call)
        except Exception as own:
            if not is_interrupt(own) and isinstance(error, type(own)):
                if len(entry.errors) >= _MAX_ERRORS:
                    entry.errors.clear()
                entry.errors.add(raised)
                raise error from None  # the traced error has the better message
            raise
        finally:
            del error  # its traceback may refer to this frame
        entry.refuse(why)
        return result

    def _call_function(self, call: _Call) -> Any:
        """Call the function itself with arguments that were flattened."""
        args, kwargs = unflatten_arguments(call.structure, call.leaves)
        rewind(last=True)
        return self._f(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> "Jitted":
        """Compile for such arguments ahead of calls, and wait for it.

        The function is run once with them, unless that has been traced; and once more, if the
        first run has initialised a captured variable.  Nothing is donated.

        Returns
        -------
        Jitted
            This function itself.

        Raises
        ------
        RuntimeError
            If the function cannot be traced with such arguments.

        >>> import fdbr, numpy as np
        >>> f = fdbr.jit(lambda x: np.sum(np.sin(x) ** 2)).compile(np.ones(3))
        >>> float(f(np.zeros(3)))
        0.0
        """
        entry, trace, leaves, _ = self.fitting(args, kwargs)
        if trace is None:
            raise RuntimeError(
                f"fdbr.jit: {self._cache.name} cannot be compiled for these arguments, and runs "
                f"as it is: {entry.obstacle}"
            )
        with without_effects(), contextlib.suppress(GuardFailure):  # kernels may round differently
            trace.code.rehearse(*entry.moving_leaves(leaves))
        return self

    def fitting(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Specialization, CompiledTrace | None, list[Any], Any]:
        """Find the program for such arguments or capture one; return it with their leaves."""
        call = self._flattened(args, kwargs)
        if call.traced:
            raise TypeError(f"fdbr.jit: {self._cache.name}: an argument is traced")
        entry = self._cache.entry(call.signature, call.leaves, call.structure)
        moving = entry.moving_leaves(call.leaves)
        with without_effects():
            trace, why = entry.replay(moving, self._cache.bound, rehearses=True)[1:]
        if trace is None and why:
            self._capture(entry, call, why, runs=False)
            if entry.was_set_up:  # the first run has set up what the second one reads
                self._capture(entry, call, why, runs=False)
            trace = entry.traces[0] if entry.traces else None
        return entry, trace, call.leaves, call.structure

    def programs(self) -> tuple[Program, ...]:
        """Return the programs that are replayed, after the passes; print one to read it."""
        entries = list(self._cache.specializations.values())
        traces = [trace for entry in entries for trace in entry.traces]
        forms = [trace.form for trace in traces]
        pullbacks = [form.code.program for form in forms if isinstance(form, Form)]
        return (*(trace.program for trace in traces), *pullbacks)

    def report(self) -> Report:
        """Return a report on the captured programs; print it to read it."""
        return report_of(self._cache.name, self._cache.specializations.values())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Pickle without traces: a copy in another process makes its own."""
        path = str(vars(self).get("__qualname__"))
        found: Any = sys.modules.get(self.__module__)
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is self:  # the decorated function is importable by its name
            return path
        return Jitted, (self._f, self._code, *self._settings)

    def __repr__(self) -> str:
        count = sum(len(entry.traces) for entry in list(self._cache.specializations.values()))
        return f"<fdbr.jit of {self._cache.name}: {count} trace{'s' * (count != 1)}>"


@public("fdbr")
@contextlib.contextmanager
def disable_jit() -> Iterator[None]:
    """Run jitted functions eagerly while the block lasts, in this thread or task.

    A debugger then steps through the lines of the function itself.

    >>> import fdbr
    >>> f = fdbr.jit(lambda x: x + 1)
    >>> with fdbr.disable_jit():
    ...     f(1.0)
    2.0
    >>> len(f.programs())
    0
    """
    token = _disabled.set(True)
    try:
        yield
    finally:
        _disabled.reset(token)


def _origin_of(error: Exception) -> tuple[Any, ...]:
    """Return the type of an error, and the lines through which it was raised."""
    frames = traceback.walk_tb(error.__traceback__)
    return (type(error), *((frame.f_code, line) for frame, line in frames))


def _observes_order(f: Callable[..., Any]) -> bool:
    """Return whether a function can observe the order of its keyword arguments."""
    try:
        parameters = inspect.signature(f, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # builtins may have no signature
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
