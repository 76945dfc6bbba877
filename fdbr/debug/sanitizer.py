"""Checked functions: every n-th call is compared with a run of the function itself."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.paths import exact
from fdbr.compiler.capture.signature import flatten_arguments, unflatten_arguments
from fdbr.compiler.capture.tracers import capturing
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.capture.watch.captured_inputs import text_of
from fdbr.compiler.capture.watch.captures import ImpureError
from fdbr.compiler.capture.watch.constants import same_elements
from fdbr.compiler.capture.watch.walk import Walk
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.jitted import Jitted, disable_jit
from fdbr.compiler.engine.lookup import Cache
from fdbr.compiler.engine.partition import Partition
from fdbr.compiler.engine.pullback import Differentiated
from fdbr.compiler.engine.specialization import Specialization
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.ir.program import Guard, Instruction, Program, is_variable, unfused
from fdbr.core.array_modules import copy_of, is_a, is_array, to_numpy
from fdbr.core.effects import without_effects
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, recoverable
from fdbr.transforms import harvest

__all__ = ["Checked"]

P = ParamSpec("P")
R = TypeVar("R")

_ULPS = 1024  # of a leaf's largest element; test_random_programs needs up to 4096 in a few programs
_LARGEST = 2.0**-6  # relative difference that is never due to rounding alone, for float16
_MOVES = 16  # runs at neighbouring points that show how much rounding changes the result
_MOVED = 64  # units in the last place by which these points differ, and results of steps

_is_due: ContextVar[bool] = ContextVar("is_due", default=False)


class Checked(Jitted[P, R]):
    """A jitted function that compares every n-th call with a run of the function itself.

    Parameters
    ----------
    every
        Which calls are compared: 1 for all of them.
    f, settings
        As for `Jitted`.
    """

    def __init__(self, every: int, f: Callable[..., Any], *settings: Any) -> None:
        super().__init__(f, *settings)
        self._every = every
        self._calls = itertools.count(1)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        due = not (next(self._calls) % self._every or capturing.get() or harvest.are_collected())
        token = _is_due.set(due)
        try:
            return self._call_compared(args, kwargs) if due else super().__call__(*args, **kwargs)
        finally:
            _is_due.reset(token)

    def _call_compared(self, args: Any, kwargs: Any) -> Any:
        donated = self._donation.argnums
        given = [tree.map(_copied, arg) if i in donated else arg for i, arg in enumerate(args)]
        before = self._runs()
        result = super().__call__(*args, **kwargs)
        # A call that ran the function itself has nothing to compare, and ranks do not compile at
        # the same call, so the collectives of one more run would wait for the other ranks.
        ran = [trace for trace, runs in self._runs().items() if runs > before.get(trace, -1)]
        if not ran or ran[0].meets or any(map(_is_traced, tree.leaves((args, kwargs)))):
            return result
        entries = list(self._cache.specializations.values())
        entry = next((entry for entry in entries if ran[0] in entry.traces), None)
        if entry is not None:
            call = flatten_arguments(tuple(given), kwargs, self._cache.readers)
            _Check(self._cache, self._every, entry, ran[0], *call).compare(*tree.flatten(result))
        return result

    def _runs(self) -> dict[CompiledTrace, int]:
        """Return how often each trace was replayed."""
        entries = list(self._cache.specializations.values())
        return {trace: trace.runs for entry in entries for trace in entry.traces}

    def _differentiated(self, call: Any) -> Differentiated:
        found = super()._differentiated(call)
        if _is_due.get():
            found = _CheckedDifferentiated(
                self._every, found.cache, found.compiler, found.leaves, found.structure
            )
        return found

    def __reduce__(self) -> Any:
        found = super().__reduce__()
        return found if isinstance(found, str) else (Checked, (self._every, *found[1]))


class _CheckedDifferentiated(Differentiated):
    """One call with traced values, whose results and cotangents are compared."""

    def __init__(self, every: int, *settings: Any) -> None:
        super().__init__(*settings)
        self._every = every

    def reverse(self, trace: Any, values: list[Any], mine: list[bool]) -> Any:
        outs, pullback = super().reverse(trace, values, mine)
        entry, form = self.entry, self.form
        assert entry is not None
        ran = next((one for one in entry.traces if one.form is form), None)
        if ran is None or ran.meets:
            return outs, pullback
        check = _Check(self.cache, self._every, entry, ran, self.values, self.structure, self.mine)
        own, rest = iter(outs), iter(self.results)
        found = [next(own if yes else rest) for yes in form.partition.own]
        check.compare(found, form.structure)
        if pullback is None:
            return outs, None

        def compared(cotangents: list[Any]) -> list[Any]:
            found = pullback(cotangents)
            if not any(map(_is_traced, (*cotangents, *found))):

                def run(moved: list[Any]) -> Any:
                    values, self.values = self.values, entry.filled(self.values, moved)
                    try:
                        desired = self._vjp_of_function(form.partition, cotangents)
                    finally:
                        self.values = values
                    # `None` is the zero of what the results do not depend on.
                    return [
                        None if one is None and not np.any(to_numpy(other)) else other
                        for one, other in zip(found, desired, strict=True)
                    ]

                check_of_pullback = attrs.evolve(check, pullback=run)
                check_of_pullback.compare(*tree.flatten(found))
            return found

        return outs, compared


@attrs.frozen(eq=False)
class _Check:
    """The comparison of one call with a run of the function itself.

    Attributes
    ----------
    cache
        The function, with its name and its traces.
    every
        Which calls are compared.
    entry, trace
        The trace that ran.
    leaves, structure
        The arguments.
    mine
        Which leaves are differentiated from outside; `None` if the function is called.
    pullback
        The pullback of the function itself, from the leaves that may differ to cotangents, if
        these are what is compared.
    """

    cache: Cache
    every: int
    entry: Specialization
    trace: CompiledTrace
    leaves: list[Any]
    structure: Any
    mine: tuple[bool, ...] | None = None
    pullback: Callable[[list[Any]], Any] | None = None

    def compare(self, found: Sequence[Any], form: Any) -> None:
        """Raise if the function itself gives another result than a trace."""
        moving = self.entry.moving_leaves(self.leaves)
        captures = self.trace.captures
        held = captures.holds()
        try:
            desired, structure = self._run_itself(moving)
            if held:  # what this run appended to a log is no reason for another trace
                captures.accept_containers()
        except recoverable() as error:
            why = f"the function itself raises {type(error).__name__}: {error}"
            raise self._error(why, moving, None) from error
        if structure != form:
            why = f"its structure is {form}, and that of the function's own result {structure}"
            raise self._error(why, moving, desired)
        unit = _rounding(self.trace.raw)
        for i, (path, one, other) in enumerate(
            zip(tree.paths_of(form), found, desired, strict=True)
        ):
            why = _difference(one, other, unit)
            if why and not self._is_rounding(i, one, other, moving, unit):
                where = f"its leaf {path}" if path else "it"
                raise self._error(f"{where} {why}", moving, desired)

    def _run_itself(self, moving: list[Any]) -> tuple[list[Any], Any]:
        moving = moving[: self._given]
        with disable_jit(), without_effects():
            if self.pullback:
                return tree.flatten(self.pullback(moving))
            return tree.flatten(self._call(self.entry.filled(self.leaves, moving)))

    def _call(self, leaves: list[Any]) -> Any:
        """Call the function itself."""
        args, kwargs = unflatten_arguments(self.structure, leaves)
        return self.cache.f(*args, **kwargs)

    def _traced_again(self, moving: list[Any]) -> Program | None:
        """Return the program of a new trace; the forward one if the function is differentiated."""

        def flat(leaves: list[Any]) -> list[Any]:
            return tree.leaves(self._call(leaves))

        partition = None if self.mine is None else Partition(flat, self.mine, self.entry.wanted)

        def run(traced: list[Any]) -> list[Any]:
            leaves = self.entry.filled(self.leaves, traced)
            return flat(leaves) if partition is None else partition.capture(leaves)

        program = capture(self.entry.with_inputs(run), self.cache.f, moving).program
        if partition is None:
            return program
        divided = partition.divide(program)
        return divided and divided[0]

    @property
    def _given(self) -> int:
        """The number of leaves of arguments; those of captured variables come after them."""
        inputs = self.trace.captures.inputs
        return len(self.trace.raw.inputs) - sum(len(input.leaves()) for input in inputs)

    def _is_rounding(
        self, i: int, found: Any, desired: Any, moving: list[Any], unit: float
    ) -> bool:
        """Return whether rounding changes a leaf as much as it is changed.

        Rounding of the operands does if the problem is ill-conditioned or if rounding decides
        which branch is taken, and rounding of the results of steps if terms cancel.
        """
        rng = np.random.default_rng(0)
        distance, spread = _distance(found, desired), 0.0
        for _ in range(_MOVES):
            try:
                moved = self._run_itself([_moved(leaf, rng, unit) for leaf in moving])[0]
            except recoverable():  # the neighbouring point may be outside of the domain
                continue
            if i < len(moved) and not _difference(found, moved[i], unit):
                return True
            spread = max(spread, _distance(moved[i], desired) if i < len(moved) else 0.0)
        if distance <= spread < math.inf:
            return True
        return not self.pullback and distance <= self._spread_of_rounding(i, moving, rng, unit)

    def _spread_of_rounding(
        self, i: int, moving: list[Any], rng: np.random.Generator, unit: float
    ) -> float:
        """Return how far a leaf moves when the result of each step has other rounding errors.

        This is Monte Carlo arithmetic (Parker, 1997).
        """

        def rounded(result: Any, operands: tuple[Any, ...]) -> Any:
            return result if _is_moved_data(result, operands) else _moved(result, rng, unit)

        steps = functools.partial(interpret, self.trace.raw, moving)
        try:
            with without_effects():
                exact = steps()[i]
                distances = [_distance(steps(rounded)[i], exact) for _ in range(_MOVES)]
        except recoverable():  # a step has no value for the moved results
            return 0.0
        return max((d for d in distances if d < math.inf), default=0.0)

    def _error(self, why: str, moving: list[Any], desired: Any) -> Exception:
        """Return the error for a difference; it names the guard that is missing, if one is."""
        what = (
            f"fdbr.jit: {self.cache.name} (check={self.every}): the compiled result of "
            f"{'the pullback of ' if self.pullback else ''}the function is not its own: {why}. "
        )
        missing = self._missing(moving)
        if missing:
            return ImpureError(
                f"{what}{missing}. Pass what changes as an argument; docs/jit.md lists what is "
                "watched"
            )
        if desired is None or not self._agrees(moving, desired):
            return ImpureError(
                f"{what}Traced again, the function takes the same steps with the same constants. "
                "Two cases are possible. Either it gives different results in two runs: it draws "
                "random numbers, or reads what it changes itself. Or fdbr computes an operation "
                "differently for traced values, which is a defect: please report it if two calls "
                "under fdbr.disable_jit() give the same result"
            )
        return RuntimeError(
            f"{what}The steps that were traced give the function's own result, and the code that "
            "was compiled of them does not: this is a defect of fdbr. Please report it"
        )

    def _agrees(self, moving: list[Any], desired: list[Any]) -> bool:
        """Return whether the trace, interpreted step by step, gives the function's own result."""
        if self.pullback:
            return True
        try:
            with without_effects():
                found = interpret(self.trace.raw, moving)[: len(desired)]
        except recoverable():
            return False
        unit = _rounding(self.trace.raw)
        return not any(_difference(*pair, unit) for pair in zip(found, desired, strict=True))

    def _missing(self, moving: list[Any]) -> str:
        """Return what a new trace reads that the one that ran did not; empty if it is the same."""
        try:
            with disable_jit(), without_effects():
                program = self._traced_again(moving)
        except recoverable() as error:
            return f"It cannot be traced again, which raises {type(error).__name__}: {error}"
        if program is None:
            return ""
        old, new = _lines(self.trace.raw), _lines(program)
        for number, (before, now) in enumerate(itertools.zip_longest(old, new)):
            if before is not None and now is not None and before[0] == now[0]:
                for was, reads in zip(before[1], now[1], strict=True):
                    if not _is_same(was, reads):
                        holder = _holder(self.cache.f, reads)
                        return (
                            f"No guard watches {holder}: step {number} of the trace "
                            f"({before[0][0]}) has {_shown(was)}, and the function reads "
                            f"{_shown(reads)} now"
                        )
                continue
            was = "nothing" if before is None else before[0][0]
            does = "nothing" if now is None else now[0][0]
            return (
                f"No guard watches what decides that step {number} is {does} now, and {was} in "
                "the trace"
            )
        return ""


def _lines(program: Program) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Return the steps of a program: what two traces must have in common, and the constants."""
    numbers = {variable: i for i, variable in enumerate(program.inputs)}
    lines: list[tuple[tuple[Any, ...], list[Any]]] = []
    for step in unfused(program.steps):
        for out in step.outs:
            numbers[out] = len(numbers)
        if isinstance(step, Guard):
            lines.append((("a guard", repr(step.answer), numbers.get(step.operand)), []))
            continue
        assert isinstance(step, Instruction)
        fixed = [operand for operand in step.operands if not is_variable(operand)]
        params = [value for value in step.params.values() if not is_a(value, Program)]
        positions = tuple(numbers.get(o) if is_variable(o) else None for o in step.operands)
        kinds = tuple(str(out.kind) for out in step.outs)
        lines.append(
            ((step.primitive.name, kinds, positions, tuple(step.params)), [*fixed, *params])
        )
    fixed = [output for output in program.outputs if not is_variable(output)]
    lines.append((("the result", len(program.outputs), len(fixed)), fixed))
    return lines


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two constants of traces have equal values, as far as they have any."""
    if is_array(old) and is_array(new) and not isinstance(old, np.generic):
        return same_elements(old, new)
    try:
        if type(old) in (list, tuple) and type(old) is type(new) and len(old) == len(new):
            return all(map(_is_same, old, new))
        return type(old) is not type(new) or _has_no_value(old) or bool(exact(old) == exact(new))
    except Exception:  # an operator of the user's raises
        return True


def _has_no_value(value: Any) -> bool:
    """Return whether an object equals only itself, so that each run makes another one."""
    return type(value).__eq__ is object.__eq__


def _holder(f: Any, value: Any) -> str:
    """Return the path by which a function can reach a value, for messages."""
    for part, path in Walk([f]).found.values():
        if part is value or (is_array(part) and is_array(value) and _is_same(part, value)):
            return text_of(path)
    return f"where {_shown(value)} comes from"


# --- values -------------------------------------------------------------------------


def _copied(leaf: Any) -> Any:
    return copy_of(leaf) if is_array(leaf) else leaf


def _is_traced(leaf: Any) -> bool:
    return issubclass(type(leaf), Tracer)


def _shown(value: Any) -> str:
    if getattr(value, "size", 1) != 1:
        return f"an array {describe(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _rounding(program: Program) -> float:
    """Return the relative rounding error of the coarsest floating dtype in a program."""
    variables = [*program.inputs, *(out for step in program.steps for out in step.outs)]
    dtypes = {variable.kind.dtype for variable in variables}
    return max((np.finfo(d).eps for d in dtypes if d.kind in "fc"), default=0.0)


def _moved(leaf: Any, rng: np.random.Generator, unit: float) -> Any:
    """Return a leaf whose floating elements have been changed by some rounding errors."""
    dtype = getattr(leaf, "dtype", np.dtype(type(leaf)))
    if dtype.kind not in "fc":
        return leaf
    unit = max(unit, float(np.finfo(dtype).eps))
    factor = 1 + _MOVED * unit * rng.uniform(-1, 1, np.shape(leaf))
    return leaf * (factor.astype(dtype) if is_array(leaf) else type(leaf)(factor))


def _is_moved_data(result: Any, operands: tuple[Any, ...]) -> bool:
    """Return whether the elements of a result are elements of operands, so nothing is rounded."""
    there = [np.ravel(to_numpy(operand)) for operand in operands if operand is not None]
    return bool(there) and bool(np.isin(to_numpy(result), np.concatenate(there)).all())


def _distance(found: Any, desired: Any) -> float:
    """Return the largest difference of elements; infinity for values that have none."""
    if type(found) is not type(desired) or np.shape(found) != np.shape(desired):
        return math.inf
    mine, other = to_numpy(found), to_numpy(desired)
    if other.dtype.kind not in "fc" or not (np.isfinite(mine) == np.isfinite(other)).all():
        return math.inf
    with np.errstate(all="ignore"):
        return float(np.abs(mine - other)[np.isfinite(other)].max(initial=0.0))


def _difference(found: Any, desired: Any, unit: float) -> str:
    """Describe how a leaf differs from the function's own by more than rounding; empty if not."""
    # NumPy's functions make scalars of Python's numbers, which stay Python's where they are traced.
    if type(found) in (int, float, complex, bool) and type(desired) is np.result_type(found).type:
        desired = desired.item()
    if type(found) is not type(desired):
        return f"is a {type(found).__name__}, and the function's own a {type(desired).__name__}"
    if not is_array(desired) and type(desired) not in (int, float, complex, bool):
        try:
            same = found is desired or _has_no_value(desired) or bool(found == desired)
        except Exception:  # an operator of the user's raises
            same = True
        return "" if same else f"is {_shown(found)}, and the function's own {_shown(desired)}"
    mine, other = to_numpy(found), to_numpy(desired)
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return f"is {describe(found)}, and the function's own {describe(desired)}"
    if other.dtype.kind not in "fc":
        wrong = np.asarray(mine != other)
    else:
        with np.errstate(all="ignore"):
            apart = np.abs(mine - other)
            finite = np.isfinite(other)
            largest = float(np.abs(other[finite]).max(initial=0.0))
            tiny = float(np.finfo(other.dtype).tiny)
            bound = max(largest, tiny) * min(
                _ULPS * max(unit, float(np.finfo(other.dtype).eps)), _LARGEST
            )
            wrong = np.where(
                finite, ~(apart <= bound), (mine != other) & ~(np.isnan(mine) & np.isnan(other))
            )
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"at {list(at)} " if at else ""
    more = f" ({int(wrong.sum())} of {math.prod(other.shape)} elements differ)" if at else ""
    return f"{where}is {mine[at]!r}, and the function's own {other[at]!r}{more}"
