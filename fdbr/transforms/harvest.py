"""Intermediate values of a function: `mark` names them, and `harvest` returns them.

Each run of a function whose marks are collected has a `_Found` in a context variable.
Transformations whose traced values represent many values (a batch, the iterations of a loop, a
program) run the function by `through`, which returns the marked values as further results.  Values
of a function that is differentiated are lowered from its trace where they are marked.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from fdbr import ops
from fdbr.core import tracer
from fdbr.core.array_modules import lock
from fdbr.core.higher_order import HigherOrder
from fdbr.core.tape import ReverseTracer
from fdbr.core.tracer import Trace, Tracer
from fdbr.errors.checks import describe, named_as
from fdbr.errors.layer_path import layer_path
from fdbr.errors.public import public
from fdbr.pytrees import structure as tree
from fdbr.transforms.jvp import ForwardTracer

__all__ = [
    "alone",
    "are_collected",
    "harvest",
    "mark",
    "marked",
    "refused",
    "through",
    "through_loop",
    "uncollected",
    "watched_level",
]

Gathered = tuple[dict[str, Any], dict[str, Any]]
"""The values that a run has marked, and the cotangents that they got in it."""


class _Cotangent:
    """The cotangent of a marked value, summed over backward passes."""

    __slots__ = ("into", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, Any] = {}  # the cotangents of the leaves, by their number
        self.into: _Cotangent | None = None  # the same value's cotangent in the enclosing run

    def add(self, leaf: int, cotangent: Any) -> None:
        cell = self
        while cell.into is not None:
            cell = cell.into
        before = cell.parts.get(leaf)
        cell.parts[leaf] = cotangent if before is None else before + cotangent

    def tree(self, like: Any) -> Any:
        """Return a tree of the marked value's structure, `None` at leaves without a cotangent."""
        leaves, structure = tree.flatten(like)
        return tree.unflatten(structure, [self.parts.get(i) for i in range(len(leaves))])

    @property
    def has_arrived(self) -> bool:
        return bool(self.parts)


class _Rows:
    """The stacked cotangents of a value that each iteration of a loop has marked."""

    __slots__ = ("iterations",)

    def __init__(self, iterations: list[_Cotangent]) -> None:
        self.iterations = iterations

    def tree(self, like: Any) -> Any:
        leaves, structure = tree.flatten(like)
        return tree.unflatten(structure, [self._stacked(i) for i in range(len(leaves))])

    def _stacked(self, leaf: int) -> Any:
        rows = [iteration.parts.get(leaf) for iteration in self.iterations]
        some = next((row for row in rows if row is not None), None)
        if some is None:
            return None
        zero = ops.zeros_like(some)
        return ops.stack([zero if row is None else row for row in rows])

    @property
    def has_arrived(self) -> bool:
        return any(iteration.has_arrived for iteration in self.iterations)


class _Found:
    """Marks of one run of a function.

    Attributes
    ----------
    level
        Traces of a higher level have begun in this run.
    watched
        Traces of a higher level have begun in the run of `harvest` that returns cotangents; `None`
        if it returns none.
    """

    __slots__ = ("cells", "known", "level", "values", "watched")

    def __init__(self, level: int, watched: int | None) -> None:
        self.level = level
        self.watched = watched
        self.values: dict[str, Any] = {}
        self.known: dict[str, Any] = {}
        self.cells: dict[str, Any] = {}

    def take(self, name: str, value: Any) -> Any:
        """Record a marked value, and return it such that its cotangent is recorded too."""
        key = self.free(name)
        if self.watched is not None:
            cell = self.cells[key] = _Cotangent()
            leaves, structure = tree.flatten(value)
            seen = [
                _MARK.apply(leaf, level=self.watched, cell=cell, number=i)
                for i, leaf in enumerate(leaves)
            ]
            value = tree.unflatten(structure, seen)
        self.values[key] = tree.map(functools.partial(_lowered, self.level, name), value)
        return value

    def free(self, name: str) -> str:
        """Return the name, with a number if it is taken."""
        if name not in self.values:
            return name
        numbers = (f"{name}#{i}" for i in itertools.count(1))
        return next(key for key in numbers if key not in self.values)

    def gathered(self) -> Gathered:
        """Return the marked values and their cotangents, lowered from the traces of this run."""
        for key, cell in list(self.cells.items()):
            if cell.has_arrived:
                self.known[key] = cell.tree(self.values[key])
                del self.cells[key]
        off = functools.partial(_lowered, self.level, "the cotangent of a mark")
        return self.values, {key: tree.map(off, known) for key, known in self.known.items()}

    def add(self, gathered: Gathered, cells: dict[str, Any]) -> None:
        """Add what an inner run has gathered; ``cells`` receive the cotangents that come later."""
        values, known = gathered
        for name, value in values.items():
            key = self.free(name)
            off = functools.partial(_lowered, self.level, name)
            self.values[key] = tree.map(off, value)
            if name in known:
                self.known[key] = tree.map(off, known[name])
            elif name in cells:
                self.cells[key] = cells[name]


_found: ContextVar[_Found | None] = ContextVar("marks", default=None)
_refusal: ContextVar[str] = ContextVar("refusal of marks", default="")


def are_collected() -> bool:
    """Whether marks are collected in this context."""
    return _found.get() is not None


@public("fdbr")
def mark(name: str, value: Any) -> Any:
    """Return the same value, under a name by which `harvest` finds it.

    Outside of `harvest` it does nothing else.

    Parameters
    ----------
    name
        A name, such as ``"hidden"``.  In a layer's call it is prefixed with the layer's path in the
        model: ``"blocks[2].attention/weights"``.
    value
        A tree of arrays, or of numbers.

    Returns
    -------
    tree
        ``value``.

    Raises
    ------
    TypeError
        If ``name`` is not a string.
    ValueError
        In the body of a `while_loop` inside `harvest`, because a `while_loop` keeps no values of
        its iterations.

    >>> import fdbr
    >>> def f(x):
    ...     y = fdbr.mark("square", x**2)
    ...     return 3.0 * y
    >>> f(2.0)
    12.0
    >>> fdbr.harvest(f)(2.0)
    (12.0, {'square': 4.0})
    """
    if _found.get() is None:
        return value
    path = layer_path()
    return marked(f"{path}/{name}" if path else name, value)


def marked(name: str, value: Any) -> Any:
    """Apply `mark` with a complete name."""
    found = _found.get()
    if found is None:
        return value
    if refusal := _refusal.get():
        raise ValueError(f"fdbr.mark: {name!r} {refusal}")
    return found.take(name, value)


@public("fdbr")
def harvest(f: Callable[..., Any], *, cotangents: bool = False) -> Callable[..., Any]:
    """Return a function that returns the result of ``f`` and the values that it has marked.

    It works through every transformation.  A value marked under `vmap` has the batch as its first
    axis, and one in a `scan` the iterations; under `jit` and `checkpoint` it is as without them.
    If ``f`` differentiates, the marked values are those of its forward pass.

    Parameters
    ----------
    f
        A function that calls `mark`, or whose callees do.
    cotangents
        Whether to return the cotangents of the marked values too.  These are the cotangents in the
        backward passes within ``f``, as in ``harvest(value_and_grad(loss), cotangents=True)``:
        derivatives of the scalar that is differentiated, summed if there are several backward
        passes, and `None` if none has reached the value.

    Returns
    -------
    function
        It returns ``(result, marks)``, or ``(result, marks, cotangents)``.  Both are dicts from the
        names of `mark` to trees.  A repeated name gets a number: ``"h"``, ``"h#1"``.

    Raises
    ------
    TypeError
        If ``f`` is not a function.

    >>> import fdbr, numpy as np
    >>> def loss(w):
    ...     return np.sum(fdbr.mark("h", np.tanh(w)) ** 2)
    >>> gradient, marks, cotangents = fdbr.harvest(fdbr.grad(loss), cotangents=True)(np.zeros(2))
    >>> marks, cotangents
    ({'h': array([0., 0.])}, {'h': array([0., 0.])})
    """
    if not isinstance(cotangents, bool):
        raise TypeError(
            f"fdbr.harvest: cotangents must be True or False, not {describe(cotangents)}"
        )
    gathering = alone(f, cotangents)

    @named_as(f)
    def harvested(*args: Any, **kwargs: Any) -> Any:
        out, (values, known) = gathering(*args, **kwargs)
        values = tree.map(_published, values)
        if not cotangents:
            return out, values
        return out, values, {key: tree.map(_published, known.get(key)) for key in values}

    return harvested


def alone(f: Callable[..., Any], watched: bool) -> Callable[..., Any]:
    """Return a function that returns the result of ``f`` and what it gathers; see `harvest`."""

    @named_as(f)
    def gathering(*args: Any, **kwargs: Any) -> tuple[Any, Gathered]:
        level = tracer.next_level()
        found = _Found(level, level if watched else None)
        return _run(found, f, args, kwargs), found.gathered()

    return gathering


def through(
    apply: Callable[[Callable[..., Any]], tuple[Any, Gathered]], f: Any, parts: str = ""
) -> Any:
    """Return the result of a transformation of ``f``, and add its marks to the enclosing run.

    ``apply(g)`` transforms and calls a function that returns ``(result, gathered)``, and returns
    such a pair.  It may run ``g`` again later, for a backward pass.  If ``parts`` names the
    transformation, each run of ``g`` computes other examples.
    """
    outer = _found.get()
    assert outer is not None
    cells: dict[str, Any] = {}
    out, gathered = apply(_inner(f, outer, cells, parts))
    outer.add(gathered, cells)
    return out


def through_loop(apply: Callable[[Callable[..., Any]], tuple[Any, Gathered]], f: Any) -> Any:
    """Apply `through` to a loop whose body takes the number of the iteration first."""
    outer = _found.get()
    assert outer is not None
    iterations: dict[int, dict[str, Any]] = {}

    def iteration(number: int, *args: Any) -> Any:
        cells = iterations[number] = {}
        return _inner(f, outer, cells)(*args)

    out, gathered = apply(iteration)
    names = dict.fromkeys(name for cells in iterations.values() for name in cells)
    order = sorted(iterations)
    stacks = {name: _Rows([iterations[i].get(name, _Cotangent()) for i in order]) for name in names}
    outer.add(gathered, stacks)
    return out


def watched_level() -> int | None:
    """Return the lowest level of traces within the run whose cotangents are collected."""
    found = _found.get()
    return None if found is None else found.watched


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Ignore marks in this block, except in functions that collect their own."""
    token = _found.set(None)
    try:
        yield
    finally:
        _found.reset(token)


@contextlib.contextmanager
def refused(why: str) -> Iterator[None]:
    """Raise an error at marks in this block if they are collected."""
    token = _refusal.set(why)
    try:
        yield
    finally:
        _refusal.reset(token)


def _inner(f: Any, outer: _Found, cells: dict[str, Any], parts: str = "") -> Callable[..., Any]:
    """Return a function that returns the result of ``f`` and what it gathers.

    ``cells`` receive the cotangents that arrive after it has returned.
    """

    @named_as(f)
    def gathering(*args: Any, **kwargs: Any) -> tuple[Any, Gathered]:
        found = _Found(tracer.next_level(), outer.watched)
        out, gathered = _run(found, f, args, kwargs), found.gathered()
        for name, cell in found.cells.items():
            kept = cells.setdefault(name, cell)
            if kept is not cell:
                if parts:
                    raise ValueError(
                        f"fdbr.harvest: the examples of {parts} take different paths, so the "
                        f"cotangents of {name} cannot be joined; differentiate inside of it"
                    )
                _redirect(cell, kept)
        return out, gathered

    return gathering


def _redirect(cell: Any, kept: Any) -> None:
    """Send the cotangents of one run to those of another run of the same function."""
    if isinstance(cell, _Rows):
        for iteration, other in zip(cell.iterations, kept.iterations, strict=True):
            iteration.into = other
    else:
        cell.into = kept


def _run(found: _Found, f: Any, args: Any, kwargs: Any) -> Any:
    marks, refusal = _found.set(found), _refusal.set("")
    try:
        return f(*args, **kwargs)
    finally:
        _refusal.reset(refusal)
        _found.reset(marks)


def _lowered(level: int, name: str, leaf: Any) -> Any:
    """Lower a leaf from the traces that differentiate within a run."""
    while isinstance(leaf, Tracer) and leaf._trace.level > level:
        if not isinstance(leaf, ReverseTracer | ForwardTracer):
            raise ValueError(
                f"fdbr.harvest: {name} represents many values in fdbr.{leaf._trace.origin[0]}, "
                "which cannot be collected; harvest inside of it, and return what was marked"
            )
        leaf = leaf.value
    return leaf


def _published(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Tracer) else lock(leaf)


class _Mark(HigherOrder):
    """The identity, which records the cotangent of a leaf in a cell.

    Only traces within the run that asks for cotangents apply it, and of those that record a tape
    the innermost one.
    """

    __slots__ = ()

    def apply(self, leaf: Any, *, level: int, cell: _Cotangent, number: int) -> Any:
        if not isinstance(leaf, Tracer) or leaf._trace.level <= level:
            return leaf
        (out,) = super().apply(leaf, level=level, cell=cell, number=number)
        return out


def _reverse(trace: Trace, values: Any, tracked: Any, level: int, cell: Any, number: int) -> Any:
    def vjp(cotangents: list[Any]) -> list[Any]:
        if cotangents[0] is not None:
            cell.add(number, cotangents[0])
        return cotangents

    return values, vjp


_MARK: _Mark = _Mark(
    "mark",
    lambda xp, leaf, **_: (leaf,),
    reverse=_reverse,
    forward=lambda trace, values, tangents, **params: ([_MARK.apply(*values, **params)], tangents),
    batch=lambda trace, values, batched, **params: ([_MARK.apply(*values, **params)], batched),
    capture=lambda trace, operands, **_: operands,
)
