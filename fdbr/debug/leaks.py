"""The search for traced values that outlive their transformation."""

import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

import attrs

from fdbr.core.tracer import Trace, Tracer
from fdbr.debug.observing import Observer
from fdbr.debug.sources import Source, user_source
from fdbr.debug.watching import observing
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = ["Leak", "LeakCheck", "LeakError", "leak_check"]


@public("fdbr.debug")
@attrs.frozen
class Leak:
    """A traced value that outlived its transformation.

    Attributes
    ----------
    transformation, function
        Whose it is: of ``grad`` of ``loss``, say.
    kind
        Its dtype and shape.
    source
        Where it was made; `None` where that is not known, as for arguments of the function.
    holders
        What refers to it.
    """

    transformation: str
    function: str
    kind: str
    source: Source | None
    holders: tuple[str, ...]

    def __str__(self) -> str:
        origin = "probably an argument" if self.source is None else f"made at {self.source}"
        held = f"; held by {', '.join(self.holders)}" if self.holders else ""
        return f"{self.kind} of {self.transformation}({self.function}), {origin}{held}"


class LeakError(RuntimeError):
    """Traced values outlived their transformation.

    Attributes
    ----------
    leaks
        A tuple of `Leak`.
    """

    def __init__(self, leaks: tuple[Leak, ...]) -> None:
        several = len(leaks) > 1
        count = f"{len(leaks)} traced values" if several else "a traced value"
        lines = "".join(f"\n  {leak}" for leak in leaks)
        super().__init__(
            f"fdbr.debug.leak_check: {count} outlived {'their' if several else 'its'} "
            "transformation, and with it all that the history keeps; return values instead of "
            f"storing them, or store fdbr.stop_gradient(value){lines}"
        )
        self.leaks = leaks


@public("fdbr.debug")
class LeakCheck(Observer):
    """The findings of `leak_check`.

    Attributes
    ----------
    leaks
        A tuple of `Leak`, after the block.
    """

    def __init__(self) -> None:
        self.leaks: tuple[Leak, ...] = ()
        self._levels: set[int] = set()
        self._made: dict[int, tuple[Source | None, Any]] = {}

    def began(self, trace: Trace) -> None:
        self._levels.add(trace.level)

    def made(self, out: Any) -> None:
        source = user_source()
        for tracer in out if type(out) is tuple else (out,):
            if isinstance(tracer, Tracer):
                self._note(tracer, source)

    def _note(self, tracer: Tracer, source: Source | None) -> None:
        key = id(tracer)
        gone = weakref.ref(tracer, lambda _: self._made.pop(key, None))
        self._made[key] = (source, gone)

    def search(self) -> None:
        """Look for traced values that are still there."""
        gc.collect()
        everything = gc.get_objects()
        found = [one for one in everything if issubclass(type(one), Tracer) and self._ended(one)]
        needed = _needed(everything) if found else set()
        found = [tracer for tracer in found if id(tracer) not in needed]
        ours = {id(everything), id(found)}
        del everything
        # What only other leaks keep, in their history, is no news.
        history = _reachable([one for tracer in found for one in gc.get_referents(tracer)])
        leaks = []
        for tracer in found:
            holders = [one for one in gc.get_referrers(tracer) if id(one) not in ours]
            outside = [
                one
                for one in holders
                if id(one) not in history and not issubclass(type(one), Tracer)
            ]
            if outside or not holders:
                leaks.append(self._leak(tracer, _names(outside, tracer)))
        self.leaks = tuple(leaks)

    def _ended(self, tracer: Tracer) -> bool:
        trace = getattr(tracer, "_trace", None)
        return trace is not None and trace.level in self._levels and not trace.running

    def _leak(self, tracer: Tracer, holders: tuple[str, ...]) -> Leak:
        source, _ = self._made.get(id(tracer), (None, None))
        transformation, function = tracer._trace.origin
        return Leak(transformation, function, describe(tracer), source, holders)


@public("fdbr.debug")
@contextmanager
def leak_check(*, error: bool = True) -> Iterator[LeakCheck]:
    """Find traced values that outlive the transformation that made them.

    At the end of the block all traced values of transformations that began, and ended, in it are
    searched for.  Each keeps the memory of its whole history, and raises an error when it is
    used.  After an exception in the block nothing is searched for.

    Parameters
    ----------
    error
        Whether to raise an error; else look at the ``leaks`` of what the block was given.

    Raises
    ------
    LeakError
        If there are any.  It names transformation, function, the line where the value was made,
        and what holds it.

    >>> import fdbr
    >>> from fdbr import debug
    >>> seen = []
    >>> def loss(x):
    ...     seen.append(x * 2.0)
    ...     return x**2
    >>> with debug.leak_check():
    ...     slope = fdbr.grad(loss)(3.0)
    Traceback (most recent call last):
        ...
    fdbr.debug.leaks.LeakError: fdbr.debug.leak_check: a traced value outlived its ...
      float64[] of grad(loss), made at <doctest ...>:2 in loss; held by a list of 1
    """
    check = LeakCheck()
    with observing(check):
        yield check
    check.search()
    if error and check.leaks:
        raise LeakError(check.leaks)


def _needed(everything: list[Any]) -> set[int]:
    """The identities of what `checkpoint` needs to run a function again."""
    return _reachable(
        [
            one
            for one in everything
            if type(one) is FunctionType
            and one.__module__ == "fdbr.transforms.checkpoint"
            and one.__name__ == "pull"
        ]
    )


def _reachable(waiting: list[Any]) -> set[int]:
    """The identities of all that some objects refer to, directly or not, and of themselves."""
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FrameType):
            continue
        seen.add(id(one))
        if type(one) is FunctionType:  # not into its module
            waiting += [*(one.__closure__ or ()), *(one.__defaults__ or ())]
        else:
            waiting += gc.get_referents(one)
    return seen


def _names(holders: list[Any], tracer: Tracer) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name(one, tracer) for one in holders))


def _name(holder: Any, tracer: Tracer) -> str:
    """Describe in words the object that holds a value."""
    if type(holder) is dict:
        names = [str(name) for name, value in holder.items() if value is tracer]
        module = sys.modules.get(str(holder.get("__name__")))
        if module is not None and vars(module) is holder:
            return f"the global {', '.join(names)} of {module.__name__}"
        return f"a dict at {', '.join(map(repr, names))}"
    if isinstance(holder, CellType):
        return "the closure of a function"
    if isinstance(holder, FrameType):
        return f"a local variable of {holder.f_code.co_name}"
    if isinstance(holder, list | tuple | set):
        return f"a {type(holder).__name__} of {len(holder)}"
    return f"a {type(holder).__name__}"
