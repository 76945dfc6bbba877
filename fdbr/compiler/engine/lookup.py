"""All traces of a jitted function: how they are looked up, captured and evicted."""

import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from fdbr.compiler.capture.paths import exact, held_weakly, one_level
from fdbr.compiler.capture.signature import (
    Reader,
    contents,
    is_moving,
    is_special,
    is_untouched,
    nodes,
    paths,
    unflatten_arguments,
)
from fdbr.compiler.capture.tracers import AbandonedError, CaptureTrace
from fdbr.compiler.capture.tracing import Captured, capture
from fdbr.compiler.capture.watch.captured_inputs import CapturedInput, Key
from fdbr.compiler.capture.watch.captures import Captures, ImpureError, RandomStates
from fdbr.compiler.engine.specialization import MANY_SIZES, TWICE, Specialization
from fdbr.core.array_modules import has_method
from fdbr.core.collective_log import collectives_are_refused, rewind
from fdbr.core.effects import effects_are_had
from fdbr.core.tracer import EscapedTracerError
from fdbr.errors.checks import is_interrupt, is_refusal, name_of, recoverable

__all__ = ["Cache", "failure_of", "is_meant"]

_clock = itertools.count(1)
_MANY_SIZES = 3  # signatures that differ in sizes only, from which on a new one waits for a call
_LONGEST = 400  # characters of a reason: an error message may contain a whole printed array


class Cache:
    """The traces of a function, by the signature (structure and avals) of its arguments.

    Attributes
    ----------
    f, name
        The function, and its name in messages.
    bound
        The maximal number of signatures, and of traces for each signature.
    specializations
        One `Specialization` for each signature.
    readers
        Compiled readers of arguments, by tree structure: see `flatten_arguments`.
    known
        Captured variables that change from call to call, by their keys.
    """

    def __init__(self, f: Callable[..., Any], bound: int) -> None:
        self.f = f
        self.name = name_of(f)
        self.bound = bound
        self.specializations: dict[Any, Specialization] = {}
        self.readers: dict[Any, Reader] = {}
        self.known: dict[Key, CapturedInput | None] = {}
        self._told: set[str] = set()

    def entry(self, key: tuple[Any, ...], leaves: Sequence[Any], structure: Any) -> Specialization:
        """Return the traces for arguments of a signature; make an empty entry for a new one."""
        try:
            entry = self.specializations.get(key)
        except Exception as error:
            raise self._unhashable(leaves, structure) from error
        if entry is None:
            positions = [i for i, leaf in enumerate(leaves) if is_moving(leaf)]
            self._check_static(leaves, structure)
            entry = Specialization(self.name, None if len(positions) == len(leaves) else positions)
            self.use(entry)
            entry.told = self._told
            entry.family = tuple(map(_without_sizes, key))
            known = list(self.specializations.values())  # a copy: other threads may add entries
            if sum(other.family == entry.family for other in known) >= _MANY_SIZES:
                entry.rests = MANY_SIZES
            for leaf in leaves:
                if is_special(leaf):
                    entry.give_up(f"a {type(leaf).__name__} has operators of its own")
            self.specializations[key] = entry
            if all(held_weakly(leaf) is None for leaf in leaves if not is_moving(leaf)):
                entry.known = self.known  # an entry with weak references must not outlive its leaf
            entry.take_inputs()
            entry.references = [
                self._weak_reference(key, leaf) for leaf in leaves if not is_moving(leaf)
            ]
            if len(self.specializations) > self.bound:
                pairs = list(self.specializations.items())  # a copy: other threads may add entries
                self.specializations.pop(min(pairs, key=lambda pair: pair[1].used)[0], None)
        self.use(entry)
        return entry

    def _weak_reference(self, key: tuple[Any, ...], leaf: Any) -> Any:
        """Return a weak reference that drops the entry with its leaf; `None` for a strong leaf."""
        if held_weakly(leaf) is None:
            return None
        known = self.specializations
        return weakref.ref(leaf, lambda _: known.pop(key, None))

    @staticmethod
    def use(entry: Specialization) -> None:
        """Record that an entry has just been used."""
        entry.used = next(_clock)

    def call_checked(self, leaves: Sequence[Any], structure: Any) -> Any:
        """Call the function on some leaves; raise if it mutates its arguments."""
        args, kwargs = unflatten_arguments(structure, leaves)
        before = contents(structure, args, kwargs)
        result = self.f(*args, **kwargs)
        if not is_untouched(before, contents(structure, args, kwargs)):
            raise ImpureError(
                f"fdbr.jit: {self.name} assigns into a list or dict among its arguments, which a "
                "replay would not do; return the value instead"
            )
        return result

    def capture(
        self,
        entry: Specialization,
        run: Callable[[list[Any]], list[Any]],
        leaves: Sequence[Any],
        structure: Any,
    ) -> tuple[Captured, Captures] | None:
        """Capture a run, and check that the function is pure.

        Impure acts are found as far as they can be observed.  The result is `None` if the traced
        run behaved differently from an untraced one.

        Captured variables that change from call to call become inputs of the program if possible.
        With traced values in them the run may fail where the function itself does not; then it is
        captured again with their values as constants.
        """
        try:
            if entry.inputs:
                try:
                    whole = entry.with_inputs(run)
                    found = self._capture_once(entry, whole, leaves, structure)
                except recoverable():
                    found = None
                if found is None or found[0].obstacle:
                    entry.withdraw_inputs()
                if found is not None:
                    return self._record_outcome(entry, found)
            found = self._capture_once(entry, run, leaves, structure)
        except AbandonedError as error:
            if effects_are_had() or collectives_are_refused():
                entry.refuse(str(error))
            else:  # with side effects allowed the capture may succeed
                entry.waste(str(error))
                entry.skip(entry.obstacle)
            return None
        return None if found is None else self._record_outcome(entry, found)

    @staticmethod
    def _record_outcome(
        entry: Specialization, found: tuple[Captured, Captures]
    ) -> tuple[Captured, Captures]:
        """Record why a capture gives no program, if it gives none, and return it."""
        if why := found[0].obstacle:
            entry.waste(why)
            if found[0].is_setup:
                entry.eager += 1
            else:
                entry.skip(why)
        return found

    def _capture_once(
        self,
        entry: Specialization,
        run: Callable[[list[Any]], list[Any]],
        leaves: Sequence[Any],
        structure: Any,
    ) -> tuple[Captured, Captures] | None:
        """Capture a run once.

        A variable that the function rebinds in its first run may be a lazily made cache, so
        rebinding is an error only if the next captured run does it again.
        """
        moving = entry.moving_leaves(list(leaves))
        roots = [self.f, *(leaf for leaf in leaves if not is_moving(leaf))]
        for node in nodes(unflatten_arguments(structure, leaves)):
            roots += (type(node), *_static_fields(node))
        captures = entry.captures or Captures(roots, entry.inputs)
        if captures.obstacle:
            entry.refuse(captures.obstacle)
            return None
        if captures.has_twice(moving):
            entry.skip(TWICE)
            return None
        alone = not _has_other_threads()
        states = RandomStates(captures.generators)
        others = frozenset(sys._current_frames()) if entry.inputs else frozenset()
        kind = functools.partial(CaptureTrace, others=others)
        rewind()
        try:
            captured = capture(run, self.f, moving, captures.arrays, kind)
            self._check_kept(captures)
        except Exception:
            if entry.inputs:
                captures.untrace()
            raise
        impurity = _impurity(captures, states, alone)
        known, entry.was_set_up = entry.was_set_up, impurity is not None
        if impurity is not None:
            entry.forget()
            act, is_setup = impurity
            if known or not is_setup:
                raise ImpureError(f"fdbr.jit: {self.name} {act}")
            captured.is_setup = not captured.obstacle
            captured.obstacle = captured.obstacle or f"it {act}"
        if captures.mutates_what_it_reads():  # a replay would not
            entry.forget()
            captured.obstacle = "it changes a captured list or dict, which it reads"
        captures.accept_containers()
        if captures.traced:
            captured.obstacle = "it captures a value that an outer transformation traces"
        return captured, captures

    def _check_kept(self, captures: Captures) -> None:
        if (keeper := captures.keeper()) is not None:
            raise ImpureError(
                f"fdbr.jit: {self.name} stores a traced value in {keeper}, which a replay would "
                "not do; return it instead"
            )

    def _check_static(self, leaves: Sequence[Any], structure: Any) -> None:
        try:
            for node in nodes(unflatten_arguments(structure, leaves)):
                hash(_static_fields(node))
        except TypeError as error:
            raise self._unhashable(leaves, structure) from error
        for i, leaf in enumerate(leaves):
            if has_method(type(leaf), "__next__"):
                path = paths(structure)[i]
                raise TypeError(
                    f"fdbr.jit: {self.name}: the argument at {path} is a {type(leaf).__name__}, "
                    "which is used up as it is read; pass a list or an array"
                )

    def _unhashable(self, leaves: Sequence[Any], structure: Any) -> TypeError:
        for leaf, path in zip(leaves, paths(structure), strict=True):
            try:
                hash(None if is_moving(leaf) else exact(leaf))
            except Exception:
                return TypeError(
                    f"fdbr.jit: {self.name}: the leaf at {path} is a {type(leaf).__name__}, "
                    "neither array nor number; such leaves are static and must be hashable"
                )
        return TypeError(
            f"fdbr.jit: {self.name}: a static field in its arguments cannot be hashed; "
            "declare it as data, or give it a hashable value"
        )


def is_meant(error: Exception) -> bool:
    """Return whether the caller gets an error of a traced run, even if the function succeeds.

    It reports misuse of `jit`, or the handler of a signal raised it.
    """
    meant = isinstance(error, ImpureError | EscapedTracerError) or is_refusal(error)
    return meant or is_interrupt(error)


def failure_of(error: Exception) -> str:
    """Return why a function is not traced: its traced run raises, its own may not."""
    return f"a run of it that is traced raises {type(error).__name__}: {error}"[:_LONGEST]


def _without_sizes(part: Any) -> Any:
    """Return a part of a signature, and of the shape of an array only its length."""
    is_shape = type(part) is tuple and all(type(size) is int for size in part)
    return len(part) if is_shape else part


def _static_fields(node: Any) -> tuple[Any, ...]:
    """Return the values of a frozen object's static fields."""
    if not attrs.has(type(node)):
        return ()
    fixed: Any = one_level(node)[1]
    return fixed


def _impurity(captures: Captures, states: RandomStates, alone: bool) -> tuple[str, bool] | None:
    """Return an impure act of a run and whether it may be a one-time setup; `None` if it was pure.

    Parameters
    ----------
    captures, states
        What the function captured, and the states of the random generators before the run.
    alone
        Whether no other thread ran, which could have drawn the numbers or changed the array.

    Rebinding a number, as ``n += 1`` does, happens in each run and is never a setup.
    """
    if (name := states.changed()) is not None:
        act = (
            f"drew from {name}, which is not an argument: a replay would give the same numbers "
            "again. Pass a key, and use fdbr.random (or, if another thread drew from it, a "
            "generator of its own there)"
        )
        return act, not alone
    if (name := captures.rebound()) is not None:
        act = f"rebinds {name}, which a replay would not do; return the value instead"
        return act, not captures.counts()
    if (array := captures.changed_array()) is not None:
        return "changes a captured array, which a replay would not do", array.size > 1
    return None


def _has_other_threads() -> bool:
    """Return whether there are threads besides this one and fdbr's own."""
    own = threading.get_ident()
    return any(t.ident != own and not t.name.startswith("fdbr-") for t in threading.enumerate())
