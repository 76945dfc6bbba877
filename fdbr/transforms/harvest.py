"""Values from deep inside a function: `mark` names them where they arise, `harvest` returns them.

Each run of a function whose marks are collected has a `_Found`, which a context variable holds.
Transformations in which values stand for others (a batch, a turn of a loop, a program) run the
function through `through`: what was marked inside comes out of them as a result.  The values of a
function that is differentiated are taken off its trace where they are marked.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from fdbr import ops, tree
from fdbr.core import tracer
from fdbr.core.array_modules import lock
from fdbr.core.tape import ReverseTracer
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, named_as
from fdbr.errors.layer_path import layer_path
from fdbr.errors.public import public
from fdbr.transforms.jvp import ForwardTracer

__all__ = [
    "alone",
    "are_collected",
    "harvest",
    "mark",
    "marked",
    "refused",
    "through",
    "turn_by_turn",
    "uncollected",
    "watched_level",
]

Gathered = tuple[dict[str, Any], dict[str, Any]]
"""Of a run: the values that were marked, and the cotangents that they had in it."""


class _Cotangent:
    """The cotangent of a marked value: the sum of what backward passes bring."""

    __slots__ = ("into", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, Any] = {}  # of each leaf, by its number
        self.into: _Cotangent | None = None  # what stands for it outside of its run

    def add(self, leaf: int, cotangent: Any) -> None:
        cell = self
        while cell.into is not None:
            cell = cell.into
        before = cell.parts.get(leaf)
        cell.parts[leaf] = cotangent if before is None else before + cotangent

    def tree(self, like: Any) -> Any:
        """A tree of the marked value's structure; `None` where nothing came."""
        leaves, structure = tree.flatten(like)
        return tree.unflatten(structure, [self.parts.get(i) for i in range(len(leaves))])

    @property
    def came(self) -> bool:
        return bool(self.parts)


class _Rows:
    """The cotangents of a value that each turn of a loop has marked, stacked."""

    __slots__ = ("turns",)

    def __init__(self, turns: list[_Cotangent]) -> None:
        self.turns = turns

    def tree(self, like: Any) -> Any:
        leaves, structure = tree.flatten(like)
        return tree.unflatten(structure, [self._stacked(i) for i in range(len(leaves))])

    def _stacked(self, leaf: int) -> Any:
        rows = [turn.parts.get(leaf) for turn in self.turns]
        some = next((row for row in rows if row is not None), None)
        if some is None:
            return None
        zero = ops.zeros_like(some)
        return ops.stack([zero if row is None else row for row in rows])

    @property
    def came(self) -> bool:
        return any(turn.came for turn in self.turns)


class _Found:
    """Marks of one run of a function.

    Attributes
    ----------
    level
        Traces of a higher level began in this run.
    watched
        Traces of a higher level began in the run of `harvest` that asks for cotangents; `None` if
        it asks for none.
    """

    __slots__ = ("cells", "known", "level", "values", "watched")

    def __init__(self, level: int, watched: int | None) -> None:
        self.level = level
        self.watched = watched
        self.values: dict[str, Any] = {}
        self.known: dict[str, Any] = {}
        self.cells: dict[str, Any] = {}

    def take(self, name: str, value: Any) -> Any:
        """Note a marked value; the same value, whose cotangent is noted when it comes."""
        key = self.free(name)
        if self.watched is not None:
            cell = self.cells[key] = _Cotangent()
            leaves, structure = tree.flatten(value)
            seen = [_seen(leaf, self.watched, cell, i) for i, leaf in enumerate(leaves)]
            value = tree.unflatten(structure, seen)
        self.values[key] = tree.map(functools.partial(_taken_off, self.level, name), value)
        return value

    def free(self, name: str) -> str:
        """The name, with the number of its repetition if it is there already."""
        if name not in self.values:
            return name
        numbers = (f"{name}#{i}" for i in itertools.count(1))
        return next(key for key in numbers if key not in self.values)

    def gathered(self) -> Gathered:
        """The marked values, and the cotangents that have come, off the traces of this run."""
        for key, cell in list(self.cells.items()):
            if cell.came:
                self.known[key] = cell.tree(self.values[key])
                del self.cells[key]
        off = functools.partial(_taken_off, self.level, "the cotangent of a mark")
        return self.values, {key: tree.map(off, known) for key, known in self.known.items()}

    def add(self, gathered: Gathered, cells: dict[str, Any]) -> None:
        """Note what a run within has gathered; ``cells`` have the cotangents that will come."""
        values, known = gathered
        for name, value in values.items():
            key = self.free(name)
            off = functools.partial(_taken_off, self.level, name)
            self.values[key] = tree.map(off, value)
            if name in known:
                self.known[key] = tree.map(off, known[name])
            elif name in cells:
                self.cells[key] = cells[name]


_found: ContextVar[_Found | None] = ContextVar("marks", default=None)
_refusal: ContextVar[str] = ContextVar("refusal of marks", default="")


def are_collected() -> bool:
    """Whether marks are collected at present."""
    return _found.get() is not None


@public("fdbr")
def mark(name: str, value: Any) -> Any:
    """The same value, with a name by which `harvest` finds it; alone, it does nothing.

    Parameters
    ----------
    name
        A name, such as ``"hidden"``.  In a layer's call the layer's path in the model stands before
        it: ``"blocks[2].attention/weights"``.
    value
        A tree of arrays, or of numbers.

    Returns
    -------
    tree
        ``value``.

    Raises
    ------
    TypeError
        If ``name`` is no string.
    ValueError
        Where marks are collected, in the body of a `while_loop`, which gives no value of each turn.

    >>> import fdbr
    >>> def f(x):
    ...     y = fdbr.mark("square", x**2)
    ...     return 3.0 * y
    >>> f(2.0)
    12.0
    >>> fdbr.harvest(f)(2.0)
    (12.0, {'square': 4.0})
    """
    if not isinstance(name, str):
        raise TypeError(f"fdbr.mark: name must be a string, not {describe(name)}")
    if _found.get() is None:
        return value
    path = layer_path()
    return marked(f"{path}/{name}" if path else name, value)


def marked(name: str, value: Any) -> Any:
    """`mark` with the whole name."""
    found = _found.get()
    if found is None:
        return value
    if refusal := _refusal.get():
        raise ValueError(f"fdbr.mark: {name!r} {refusal}")
    return found.take(name, value)


@public("fdbr")
def harvest(f: Callable[..., Any], *, cotangents: bool = False) -> Callable[..., Any]:
    """A function that returns what ``f`` returns, and the values that were marked on the way.

    It goes through every transformation: a value that is marked under `vmap` has the axis of the
    batch first, in a `scan` that of the turns; under `jit` and `checkpoint` it is what it is
    outside.  ``f`` may differentiate: then the marked values are those of its forward pass.

    Parameters
    ----------
    f
        A function that calls `mark`, or whose callees do.
    cotangents
        Whether to return the derivatives with respect to the marked values, too.  They are what the
        backward passes within ``f`` brought there, as in
        ``harvest(value_and_grad(loss), cotangents=True)``: with respect to the scalar that is
        differentiated, added up if there are several passes, and `None` where none came by.

    Returns
    -------
    function
        ``(result, marks)``, or ``(result, marks, cotangents)``, where both are dicts from names
        (`mark` says which) to trees.  A name that comes again gets a number: ``"h"``, ``"h#1"``.

    Raises
    ------
    TypeError
        If ``f`` is no function.

    >>> import fdbr, numpy as np
    >>> def loss(w):
    ...     return np.sum(fdbr.mark("h", np.tanh(w)) ** 2)
    >>> gradient, marks, slopes = fdbr.harvest(fdbr.grad(loss), cotangents=True)(np.zeros(2))
    >>> marks, slopes
    ({'h': array([0., 0.])}, {'h': array([0., 0.])})
    """
    if not callable(f):
        raise TypeError(f"fdbr.harvest: f must be a function, not {describe(f)}")
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
    """A function that returns what ``f`` returns, and what it gathers; see `harvest`."""

    @named_as(f)
    def gathering(*args: Any, **kwargs: Any) -> tuple[Any, Gathered]:
        level = tracer.next_level()
        found = _Found(level, level if watched else None)
        return _run(found, f, args, kwargs), found.gathered()

    return gathering


def through(
    apply: Callable[[Callable[..., Any]], tuple[Any, Gathered]], f: Any, parts: str = ""
) -> Any:
    """The result of a transformation of ``f``, and its marks among those of the run around it.

    ``apply(g)`` is the transformation of a function that returns ``(result, gathered)``, and must
    return the same.  It may run ``g`` again later on, for a backward pass; if ``parts`` names it,
    each run is of another part of the examples.
    """
    outer = _found.get()
    assert outer is not None
    cells: dict[str, Any] = {}
    out, gathered = apply(_inner(f, outer, cells, parts))
    outer.add(gathered, cells)
    return out


def turn_by_turn(apply: Callable[[Callable[..., Any]], tuple[Any, Gathered]], f: Any) -> Any:
    """`through` for a loop whose function is given the number of each turn first."""
    outer = _found.get()
    assert outer is not None
    turns: dict[int, dict[str, Any]] = {}

    def turn(number: int, *args: Any) -> Any:
        cells = turns[number] = {}
        return _inner(f, outer, cells)(*args)

    out, gathered = apply(turn)
    names = dict.fromkeys(name for cells in turns.values() for name in cells)
    order = sorted(turns)
    stacks = {name: _Rows([turns[i].get(name, _Cotangent()) for i in order]) for name in names}
    outer.add(gathered, stacks)
    return out


def watched_level() -> int | None:
    """The level from which on traces are within the run whose cotangents are asked for."""
    found = _found.get()
    return None if found is None else found.watched


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Have marks do nothing, but where a function within collects its own."""
    token = _found.set(None)
    try:
        yield
    finally:
        _found.reset(token)


@contextlib.contextmanager
def refused(why: str) -> Iterator[None]:
    """Have marks refused, where they are collected."""
    token = _refusal.set(why)
    try:
        yield
    finally:
        _refusal.reset(token)


def _inner(f: Any, outer: _Found, cells: dict[str, Any], parts: str = "") -> Callable[..., Any]:
    """A function that returns what ``f`` returns, and what it gathers.

    ``cells`` get the cotangents that are still to come when it has returned, in whatever run.
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
                        f"fdbr.harvest: the examples of {parts} take different ways, so the "
                        f"cotangents of {name} do not come together; differentiate inside of it"
                    )
                _lead(cell, kept)
        return out, gathered

    return gathering


def _lead(cell: Any, kept: Any) -> None:
    """Have the cotangents of one run come to where those of another run of the same would."""
    if isinstance(cell, _Rows):
        for turn, other in zip(cell.turns, kept.turns, strict=True):
            turn.into = other
    else:
        cell.into = kept


def _run(found: _Found, f: Any, args: Any, kwargs: Any) -> Any:
    marks, refusal = _found.set(found), _refusal.set("")
    learner = tracer.learning.set(None)  # it would run functions again for the sake of their ways
    try:
        return f(*args, **kwargs)
    finally:
        tracer.learning.reset(learner)
        _refusal.reset(refusal)
        _found.reset(marks)


def _taken_off(level: int, name: str, leaf: Any) -> Any:
    """A leaf without the traces of what differentiates within a run."""
    while isinstance(leaf, Tracer) and leaf._trace.level > level:
        if not isinstance(leaf, ReverseTracer | ForwardTracer):
            raise ValueError(
                f"fdbr.harvest: {name} stands for many values in fdbr.{leaf._trace.origin[0]}, "
                "which cannot be collected; harvest inside of it, and return what was marked"
            )
        leaf = leaf.value
    return leaf


def _published(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Tracer) else lock(leaf)


def _seen(leaf: Any, level: int, cell: _Cotangent, number: int) -> Any:
    """A leaf whose cotangent comes by the cell, if it is differentiated within."""
    if not isinstance(leaf, Tracer) or leaf._trace.level <= level:
        return leaf
    if isinstance(leaf, ReverseTracer):

        def pull(cotangents: list[Any]) -> list[Any]:
            if cotangents[0] is not None:
                cell.add(number, cotangents[0])
            return [cotangents[0]]

        return leaf._trace.joint("mark", (leaf.value,), [leaf.node], pull)[0]
    below = _seen(leaf.value, level, cell, number)
    if below is leaf.value:
        return leaf
    if isinstance(leaf, ForwardTracer):
        return ForwardTracer(leaf._trace, below, leaf.tangent)
    kind: Any = type(leaf)
    return kind(leaf._trace, below)
