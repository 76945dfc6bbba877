"""Hooks on operations: timers, memory profiles, printing, and whatever a user likes.

All are context managers.  They nest, and see what their thread or task does in the block.
"""

import difflib
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from fdbr.core.array_modules import array_module, owner
from fdbr.core.devices import cuda_of
from fdbr.core.primitive import registry
from fdbr.debug.observing import Application, Observer
from fdbr.debug.tables import Row, Table, Tally
from fdbr.debug.tape import parts
from fdbr.debug.watching import observing
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops import on_demand  # noqa: F401, which declares the other operations

__all__ = ["Profile", "annotate", "hook", "memory", "printing", "timer"]


class _OnArrays(Observer):
    """One who is told of each application to arrays, once: of no parts of these."""

    def sees(self, application: Application, inside: bool) -> bool:
        return not (inside or application.traced or application.composite)


class _Hook(_OnArrays):
    def __init__(self, before: Any, after: Any, nested: bool, only: frozenset[str] | None) -> None:
        self._before, self._after, self._nested, self._only = before, after, nested, only

    def sees(self, application: Application, inside: bool) -> bool:
        if self._only is not None and application.op not in self._only:
            return False
        return self._nested or super().sees(application, inside)

    def before(self, application: Application) -> None:
        if self._before is not None:
            self._before(application)

    def after(self, application: Application, out: Any, seconds: float, given: Any) -> None:
        if self._after is not None:
            self._after(application, out)


@public("fdbr.debug")
@contextmanager
def hook(
    before: Callable[[Application], object] | None = None,
    after: Callable[[Application, Any], object] | None = None,
    *,
    nested: bool = False,
    only: Any = None,
) -> Iterator[None]:
    """Call functions before and after every application of an operation to arrays.

    Whatever transformations are at work, in the end operations, and the rules of operations, are
    applied to arrays; that is what a hook sees.

    Parameters
    ----------
    before
        ``before(application)``; see `Application`.  What it raises ends the computation.
    after
        ``after(application, out)``, where ``out`` is the result.
    nested
        Whether to be told of every single application: also of those that are parts of others,
        such as the operations of which a reverse rule is made, of rules that are applied to
        traced values, and of functions with rules of their own.
    only
        Of which operations to be told: one, by its name or the function of `fdbr.ops`, or a list
        of them.  Of all, if it is not given.

    Raises
    ------
    ValueError, TypeError
        If there is no operation of such a name, or ``only`` is something else.

    >>> import fdbr
    >>> from fdbr import debug, ops
    >>> with debug.hook(before=lambda a: print(a.direction, a)):
    ...     slope = fdbr.grad(lambda x: ops.exp(x) + 1.0)(0.0)
    forward exp(float 0.0)
    forward add(float 1.0, float 1.0)
    backward add(float64[])
    backward exp(float64[], float 1.0)
    >>> with debug.hook(before=lambda a: print(a.direction, a), only=ops.exp):
    ...     slope = fdbr.grad(lambda x: ops.exp(x) + 1.0)(0.0)
    forward exp(float 0.0)
    backward exp(float64[], float 1.0)
    """
    with observing(_Hook(before, after, nested, _chosen("hook", only))):
        yield


def _chosen(function: str, only: Any) -> frozenset[str] | None:
    """The names of the operations that are to be observed; `None` for all."""
    if only is None:
        return None
    several = only if isinstance(only, list | tuple | set | frozenset) else [only]
    return frozenset(_name(function, one) for one in several)


def _name(function: str, operation: Any) -> str:
    """The name of an operation, which is given by it or by itself."""
    operation = getattr(operation, "primitive", operation)
    name = operation if isinstance(operation, str) else getattr(operation, "name", None)
    if name is None and callable(operation):
        name = getattr(operation, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(
            f"fdbr.debug.{function}: only must be an operation, its name, or a list of these, not "
            f"{describe(operation)}"
        )
    if name not in registry and "(" not in name:  # as in custom_vjp(f)
        near = difflib.get_close_matches(name, registry, 3)
        raise ValueError(
            f"fdbr.debug.{function}: {name!r} is no operation of its own"
            + (f"; there are {near}" if near else "; debug.printing shows which there are")
        )
    return name


@public("fdbr.debug")
@contextmanager
def printing(
    file: TextIO | None = None, *, nested: bool = False, only: Any = None
) -> Iterator[None]:
    """Print a line for every application of an operation to arrays.

    Parameters
    ----------
    file
        Where to; standard output, if not given.
    nested, only
        As for `hook`.

    >>> import numpy as np
    >>> from fdbr import debug, ops
    >>> with debug.printing():
    ...     y = ops.tanh(np.zeros(3))
    forward tanh(float64[3]) -> float64[3]  at <doctest ...>:2 in <module>
    """

    def show(application: Application, out: Any) -> None:
        where = f"  at {application.source}" if application.source else ""
        part = f" in the rule of {application.rule}" if application.rule else ""
        print(
            f"{application.direction} {application}{part} -> {_result(out)}{where}",
            file=file or sys.stdout,
        )

    with observing(_Hook(None, show, nested, _chosen("printing", only))):
        yield


def _result(out: Any) -> str:
    if type(out) in (tuple, list):
        return f"({', '.join(map(_result, out))})"
    return describe(out)


# --- profiles -----------------------------------------------------------------------


@public("fdbr.debug")
class Profile:
    """The cost of operations in a block: a table that grows while the block runs."""

    def __init__(self, unit: str) -> None:
        self.tally = Tally(unit)

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.tally.table()

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its rows, the most expensive first."""
        return self.table.rows

    @property
    def total(self) -> float:
        """The cost of everything together."""
        return self.table.total

    def by(self, *keys: str) -> Table:
        """The table with rows put together; see `Table.by`."""
        return self.table.by(*keys)

    def __str__(self) -> str:
        return str(self.table)


class _Timer(Observer):
    programs = True

    def __init__(self, profile: Profile) -> None:
        self._tally = profile.tally

    def sees(self, application: Application, inside: bool) -> bool:
        return application.within is None

    def wait(self, values: Any) -> None:
        # A GPU computes while the program continues.
        cuda = cuda_of(array_module(*parts(values)))
        if cuda is not None:
            cuda.get_current_stream().synchronize()

    def after(self, application: Application, out: Any, seconds: float, given: Any) -> None:
        self._tally.add(application, seconds)


@public("fdbr.debug")
@contextmanager
def timer() -> Iterator[Profile]:
    """Measure what time operations take, for each operation, direction and line.

    What a derivative rule does counts for the operation whose rule it is, at the line where that
    was applied in the forward pass.  A function with a rule of its own, and `checkpoint`, count
    what they do beside the operations in them.  The time between operations, the bookkeeping of
    transformations and of the hooks themselves do not count.  Work on a GPU is waited for.

    Of a jitted function the program is measured, step by step: what a kernel does is one row,
    called by its operations, at the line of the last of them whose line is known.  (Inside of
    another transformation the function itself is.)

    Returns
    -------
    context manager
        It gives a `Profile`: print it, or read its ``rows``; ``by("op")`` and the like put rows
        together.

    >>> import fdbr, numpy as np
    >>> from fdbr import debug, ops
    >>> with debug.timer() as times:
    ...     slope = fdbr.grad(lambda x: ops.sum(ops.tanh(x)))(np.ones(1000))
    >>> sorted((row.op, row.direction, row.calls) for row in times.rows)
    [('sum', 'backward', 1), ('sum', 'forward', 1), ('tanh', 'backward', 1), ('tanh', 'forward', 1)]
    >>> print(times.by("op"))
    op    calls  total  share  largest
    ...
    total ...
    """
    profile = Profile("s")
    with observing(_Timer(profile)):
        yield profile


class _Memory(_OnArrays):
    programs = True

    def __init__(self, profile: Profile) -> None:
        self._tally = profile.tally

    def after(self, application: Application, out: Any, seconds: float, given: Any) -> None:
        old = {id(owner(value)) for value in parts(list(application.operands))}
        made = {id(own): own for own in map(owner, parts(out)) if id(own) not in old}
        size = sum(getattr(own, "nbytes", 0) for own in made.values() if hasattr(own, "shape"))
        self._tally.add(application, size)


class _Temporary(_OnArrays):
    programs = True

    def __init__(self, profile: Profile) -> None:
        self._tally = profile.tally

    def before(self, application: Application) -> int:
        tracemalloc.reset_peak()
        return tracemalloc.get_traced_memory()[0]

    def after(self, application: Application, out: Any, seconds: float, given: int) -> None:
        self._tally.add(application, max(0, tracemalloc.get_traced_memory()[1] - given))


@public("fdbr.debug")
@contextmanager
def memory(*, temporary: bool = False) -> Iterator[Profile]:
    """Measure what memory operations take, for each operation, direction and line.

    It is the memory of the arrays that they make, on whatever device; a view of an operand takes
    none.

    Parameters
    ----------
    temporary
        Whether to measure, instead, the most memory that each application holds at once beyond
        what there was before, including what it needs in between.  This asks `tracemalloc`,
        which knows of NumPy's arrays only and counts all threads; it is slow, and its own
        peak starts anew.

    Returns
    -------
    context manager
        It gives a `Profile`, as `timer` does.

    >>> import numpy as np
    >>> from fdbr import debug, ops
    >>> with debug.memory() as sizes:
    ...     y = ops.exp(np.ones(1000))
    ...     z = ops.reshape(y, (10, 100))
    >>> [(row.op, row.total) for row in sizes.rows]
    [('exp', 8000), ('reshape', 0)]
    """
    profile = Profile("B")
    if not temporary:
        with observing(_Memory(profile)):
            yield profile
        return
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        with observing(_Temporary(profile)):
            yield profile
    finally:
        if started:
            tracemalloc.stop()


@public("fdbr.debug")
@contextmanager
def annotate() -> Iterator[None]:
    """Note shapes, dtypes and lines on the tapes that are recorded in the block.

    A pullback from such a block is drawn with them.  All other blocks of `fdbr.debug` do the
    same beside what they are for.

    >>> import fdbr, numpy as np
    >>> from fdbr import debug
    >>> with debug.annotate():
    ...     y, pullback = fdbr.vjp(np.sin, np.ones(2))
    >>> [(node.op, node.shape) for node in debug.draw(pullback).nodes]
    [('input', (2,)), ('sin', (2,))]
    """
    with observing(Observer()):
        yield
