"""From a tape to its drawing."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from fdbr import tree
from fdbr.core.array_modules import owner
from fdbr.core.tape import Node as Entry
from fdbr.core.tape import _place
from fdbr.core.tracer import Tracer
from fdbr.debug.graph import Edge, Graph, Node
from fdbr.debug.hooks import annotate
from fdbr.debug.tape import Label, is_joint, parts
from fdbr.errors.checks import describe, name_of, named_as
from fdbr.errors.public import public
from fdbr.transforms.vjp import Pullback, vjp

__all__ = ["draw"]


@public("fdbr.debug")
def draw(f: Any, /, *args: Any) -> Graph:
    """Draw the tape of a function at some arguments, or of a pullback.

    Parameters
    ----------
    f
        A function of trees, to be run once; or what `fdbr.vjp` returned, and no arguments.  A
        pullback is drawn with lines, and the shapes of intermediate values, if it comes from a
        block of `annotate`.
    args
        The arguments; all that can be differentiated are inputs.

    Returns
    -------
    Graph
        A value with nodes and edges; print it, or ``save("tape.svg")``.

    Raises
    ------
    TypeError
        If there is nothing to differentiate.

    >>> import numpy as np
    >>> from fdbr import debug, ops
    >>> def loss(w, x):
    ...     return ops.sum(ops.tanh(w * x))
    >>> print(debug.draw(loss, np.ones(3), np.ones((2, 3))))
    tape of loss: 5 nodes, 4 edges, 120 B retained
      %0 = input w  float64[3]
      %1 = input x  float64[2,3]
      %2 = multiply(%0, %1)  float64[2,3]  retains 72 B  at <doctest ...>:2 in loss
      %3 = tanh(%2)  float64[2,3]  retains 48 B  at <doctest ...>:2 in loss
      %4 = sum(%3)  float64[]  output  at <doctest ...>:2 in loss
    """
    if isinstance(f, Pullback):
        if args:
            raise TypeError("fdbr.debug.draw: a pullback is drawn as it is, without arguments")
        names = [f"argument {i}" for i in range(len(f._inputs))]
        return _graph(f, names)
    if not callable(f):
        raise TypeError(f"fdbr.debug.draw: f must be a function or a pullback, not {describe(f)}")
    chosen = [i for i, arg in enumerate(args) if tree.leaves(tree.trainable(arg))]
    if not chosen:
        raise TypeError(
            f"fdbr.debug.draw: no argument of {name_of(f)} has a leaf to differentiate; give it "
            "arrays of floating or complex numbers"
        )

    @named_as(f)
    def of_chosen(*given: Any) -> Any:
        full = list(args)
        for i, value in zip(chosen, given, strict=True):
            full[i] = value
        return f(*full)

    of_chosen.__qualname__ = name_of(f)
    with annotate():
        _, pullback = vjp(of_chosen, *(args[i] for i in chosen))
    return _graph(pullback, [_parameter(f, i) for i in chosen])


def _parameter(f: Callable[..., Any], index: int) -> str:
    """The name of a function's argument."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # of functions that are not made in Python
        parameters = []
    named = parameters[: index + 1]
    if len(named) <= index or any(p.kind is p.VAR_POSITIONAL for p in named):
        return f"argument {index}"
    return named[index].name


# --- building -----------------------------------------------------------------------


def _graph(pullback: Pullback, names: list[str]) -> Graph:
    build = _Builder()
    for one, name in zip(pullback._inputs, names, strict=True):
        paths = [""] if one.structure is None else tree.paths_of(one.structure)
        for input_, path in zip(one.inputs, paths, strict=True):
            if input_ is not None:
                number, kind = input_
                node = {"input": name + path, "shape": tuple(kind.shape), "dtype": kind.dtype}
                build.facts[number] = node
                build.entries[number] = (number, (), "input")
    structure = pullback._structure
    paths = [""] if structure is None else tree.paths_of(structure)
    for (entry, kind), path in zip(pullback._ends, paths, strict=True):
        if entry is not None:
            entry = build.visible(entry)
            facts = build.facts.setdefault(entry[0], {})
            path = f"{facts['output']}, {path}" if "output" in facts else path
            facts.update(output=path, shape=tuple(kind.shape), dtype=kind.dtype)
            build.visit(entry)
    return build.graph(pullback._name)


class _Builder:
    """The entries of a tape as nodes and edges, without what is bookkeeping on it."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.facts: dict[int, dict[str, Any]] = {}  # what is known from elsewhere, by number
        self.owners: dict[int, Any] = {}

    def visit(self, entry: Entry) -> None:
        """Take in an entry and all on which it depends."""
        waiting = [entry]
        while waiting:
            entry = waiting.pop()
            if entry[0] not in self.entries:
                self.entries[entry[0]] = entry
                waiting += [parent for parent, _, _ in self._edges(entry)]

    def visible(self, entry: Entry) -> Entry:
        """The entry to draw: of a function's only output that of the function itself."""
        number, edges, name = entry
        if len(edges) == 1 and edges[0][1] is _place and edges[0][2] == (0, 1):
            (whole, _, _), *_ = edges
            return number, whole[1], name  # the output's number and label, the rules of the whole
        return entry

    def _edges(self, entry: Entry) -> list[tuple[Entry, Any, Any]]:
        """The edges to visible entries; one rule for several operands is kept at its first."""
        found = []
        for parent, pull, saved in entry[1]:
            if not is_joint(parent):
                found.append((self.visible(parent), pull, saved))
                continue
            for i, (operand, _, _) in enumerate(parent[1]):
                found.append((self.visible(operand), None if i else pull, () if i else saved))
        return found

    def graph(self, name: str) -> Graph:
        """The drawing."""
        numbers = sorted(self.entries, reverse=True)
        index = {number: i for i, number in enumerate(numbers)}
        nodes, edges = [], []
        for number in numbers:
            entry = self.entries[number]
            nodes.append(self._node(entry, index[number]))
            for parent, pull, saved in self._edges(entry):
                kept = {id(own): own for own in map(owner, _arrays((pull, saved), set()))}
                self.owners |= kept
                arrays = tuple(describe(own) for own in kept.values())
                edges.append(Edge(index[parent[0]], index[number], _size(kept), arrays))
        return Graph(name, tuple(nodes), tuple(edges), _size(self.owners))

    def _node(self, entry: Entry, index: int) -> Node:
        number, edges, name = entry
        op = str(name)
        if len(edges) == 1 and edges[0][1] is _place:
            op += f"[{edges[0][2][0]}]"
        facts: dict[str, Any] = {}
        if isinstance(name, Label):
            facts = {
                "shape": name.shape,
                "dtype": name.dtype,
                "source": name.source,
                "direction": name.direction,
                "rule": name.rule,
            }
        return Node(index, op, **(facts | self.facts.get(number, {})))


def _size(owners: dict[int, Any]) -> int:
    return sum(int(own.nbytes) for own in owners.values())


def _arrays(value: Any, seen: set[int]) -> list[Any]:
    """The arrays that something keeps: in trees, traced values, and closures of functions."""
    if hasattr(value, "nbytes") and not isinstance(value, Tracer | type):
        return [value]
    inner: list[Any]
    if isinstance(value, Tracer):
        inner = list(parts(value))
    elif isinstance(value, functools.partial):
        inner = [value.func, value.args, value.keywords]
    elif inspect.isfunction(value):
        inner = [] if id(value) in seen else _closed_over(value)
        seen.add(id(value))
    else:
        inner = [leaf for leaf in tree.leaves(value) if leaf is not value]
    return [array for one in inner for array in _arrays(one, seen)]


def _closed_over(function: Any) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # of a variable that has no value yet
            found.append(cell.cell_contents)
    return found
