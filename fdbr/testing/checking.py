"""Checks of fdbr's derivatives of a function, in every mode and order."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import array_module, is_array, to_numpy
from fdbr.core.devices import is_host
from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public
from fdbr.ops.dtypes import as_weak
from fdbr.testing.chain import Link, cotangents, cotangents_in, tangent_out, tangents
from fdbr.testing.comparing import difference, element, tolerance
from fdbr.testing.examples import SCALES, Batch, batches
from fdbr.testing.numeric import columns, differentiated, slots
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import vjp

__all__ = ["check_grads"]

MODES = ("vjp", "jvp", "vmap")
DERIVATIVES: dict[str, Callable[..., Link]] = {"vjp": cotangents_in, "jvp": tangent_out}

# By the bytes of a real number: what differences of values can tell, and how far two ways of
# computing the same thing may be apart.
DIFFERENCES = {2: 5e-2, 4: 2e-4, 8: 1e-7}
ROUNDINGS = {2: 5e-2, 4: 2e-4, 8: 1e-9}
BY_DIFFERENCES = "is {}, but {} by differences of values"
WITHOUT_VMAP = "is {}, but {} without vmap"


@public("fdbr.testing")
def check_grads(
    f: Callable[..., Any],
    *args: Any,
    order: int = 2,
    modes: Sequence[str] = MODES,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check fdbr's derivatives of a function: in every mode, up to an order.

    For the first order the results of ``f`` are contracted with fixed random cotangents
    (``"vjp"``), or differentiated along fixed random tangents (``"jvp"``).  For the next
    order these derivatives are the functions to check, so that with both modes order 2 checks
    `vjp` and `jvp` of `vjp` and of `jvp`.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree with at least one floating leaf.
    args
        The point at which to check, away from kinks and poles.  Leaves that are not floating,
        or lie in a `buffer` field, are held constant.  Arrays may lie on different devices as
        far as ``f`` itself can take them.
    order
        How many derivatives of derivatives to check; 0 checks values under `vmap` alone.
    modes
        By which transformations:

        - ``"vjp"``: the gradient against differences of values;
        - ``"jvp"``: the tangent against differences of values, and against ``"vjp"`` where
          both are chosen;
        - ``"vmap"``: ``f`` and its derivatives on a batch of three inputs around the arguments,
          and the derivatives of ``f`` on the batch, against a loop; for every subset of batched
          arguments if there are up to three.
    rtol, atol
        How far a derivative may be off: by ``atol + rtol * abs(derivative)``.  ``rtol`` is by
        default 1e-7 for float64, 2e-4 for float32 and 5e-2 for float16 (for `vmap` and between
        modes 1e-9 for float64), and ``atol`` is ``rtol`` times the largest of the derivatives,
        or of 1.

    Raises
    ------
    AssertionError
        If a derivative is wrong: the message says in which mode and order, by which argument and
        element, and by how much.
    TypeError
        If no argument has a leaf to differentiate, or ``f`` returns nothing floating.
    ValueError
        If a mode is not known.

    >>> import fdbr, numpy as np
    >>> check_grads(lambda p: np.tanh(p["w"] @ p["x"]), {"w": np.eye(2), "x": np.ones(2)})
    >>> check_grads(lambda x: x * fdbr.stop_gradient(x), 3.0)
    Traceback (most recent call last):
        ...
    AssertionError: fdbr.testing.check_grads of <lambda>: mode vjp, order 1: the gradient by
    args[0]: it is ..., but ... by differences of values: they differ by ..., and ... is allowed
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or isinstance(modes, str):
        raise ValueError(f"fdbr.testing.check_grads: modes {modes!r} are not among {MODES}")
    _Check(f, args, order, modes, (rtol, atol)).run()


class _Check:
    """One call of `check_grads`."""

    def __init__(
        self, f: Any, args: Any, order: int, modes: Sequence[str], tolerances: Any
    ) -> None:
        self.name = f"fdbr.testing.check_grads of {name_of(f)}"
        self.args = args
        self.order = order
        self.modes = [mode for mode in DERIVATIVES if mode in modes]
        self.by_differences = bool(self.modes)
        self.modes = self.modes or list(DERIVATIVES)
        self.batches = list(batches(args)) if "vmap" in modes else []
        self.rtol, self.atol = tolerances
        self.loops: dict[Any, list[list[Any]]] = {}
        leaves = zip(tree.leaves(args), differentiated(args), strict=True)
        self.chosen = [leaf for leaf, choose in leaves if choose]
        if not self.chosen:
            raise TypeError(
                f"{self.name}: the arguments have no leaf to differentiate; leaves must be "
                f"floating or complex and outside buffers, and these are {tree.structure(args)}"
            )

        @functools.wraps(f, updated=())
        def flat(*args: Any) -> list[Any]:
            return tree.leaves(f(*args))

        out = f(*args)
        if not any(map(tree.is_inexact, tree.leaves(out))):
            raise TypeError(f"{self.name}: there is no floating result, but {tree.structure(out)}")
        self.root = Link(flat, None, (), [f"the result{path}" for path in tree.paths(out)])

    def run(self) -> None:
        """Check link after link, from ``f`` on to the highest order."""
        links = [self.root]
        for order in range(self.order + 1):
            following: list[Link] = []
            for link in links:
                next_ones = {}
                if order < self.order:
                    next_ones = {
                        mode: DERIVATIVES[mode](link, self.args, order + 1) for mode in self.modes
                    }
                    following += next_ones.values()
                    if self.by_differences:
                        self.compare_with_differences(link, next_ones, order + 1)
                for batch in self.batches:
                    self.compare_with_loop(link, next_ones, order, batch)
            links = following

    def allowed(self, table: dict[int, float], desired: Sequence[Any]) -> tuple[float, float]:
        """The relative and the absolute tolerance for some derivatives."""
        hosts = [to_numpy(d) for d in desired]
        largest = [float(np.abs(d).max(initial=0.0, where=np.isfinite(d))) for d in hosts]
        usual = tolerance(table, *(np.asarray(to_numpy(leaf)) for leaf in self.chosen))
        rtol = usual if self.rtol is None else self.rtol
        return rtol, rtol * max(1.0, *largest) if self.atol is None else self.atol

    # --- differences of values ------------------------------------------------------

    def compare_with_differences(
        self, link: Link, derivatives: dict[str, Link], order: int
    ) -> None:
        out = link.call(*self.args)
        desired = _by_differences(link, self.args, order)
        found = {mode: one.call(*self.args) for mode, one in derivatives.items()}
        for mode, derivative in derivatives.items():
            where = f"{self.name}: mode {derivative.under()}, order {order}"
            likes = self.chosen if mode == "vjp" else _floating(out)
            allowed = self.allowed(DIFFERENCES, desired[mode])
            everything = zip(derivative.names, found[mode], desired[mode], likes, strict=True)
            for name, mine, other, like in everything:
                _check_kind(mine, like, f"{where}: {name}")
                problem = difference(to_numpy(mine), other, *allowed, BY_DIFFERENCES)
                if problem and mode == "jvp":
                    problem += _worst_direction(link, self.args, allowed)
                if problem:
                    raise AssertionError(f"{where}: {name}: {problem}")
        if len(found) == 2:
            self.compare_modes(link, out, found, order)

    def compare_modes(
        self, link: Link, out: list[Any], found: dict[str, list[Any]], order: int
    ) -> None:
        """The result's tangent and the gradient are two halves of one number."""
        forward = _products(cotangents(out, order), found["jvp"])
        backward = _products(tangents(self.args, order), found["vjp"])
        size = max(1.0, *(float(np.abs(product).sum()) for product in (*forward, *backward)))
        limit = sum(self.allowed(ROUNDINGS, [np.array(size)])) * (len(forward) + len(backward))
        one, other = (float(sum(p.sum() for p in products)) for products in (forward, backward))
        if abs(one - other) > limit:
            raise AssertionError(
                f"{self.name}: modes {link.under('jvp')} and {link.under('vjp')}, order {order}, "
                f"disagree: the cotangents times the tangents of the result are {one}, but the "
                f"gradients times the tangents of the arguments are {other}: they differ by "
                f"{abs(one - other):.3g}, and {limit:.3g} is allowed"
            )

    # --- batches --------------------------------------------------------------------

    def compare_with_loop(
        self, link: Link, derivatives: dict[str, Link], order: int, batch: Batch
    ) -> None:
        vectorised = batch.vectorised(link.call)
        rows = self.loop(link, batch)
        if link.scaled is None:
            self.compare_batch(vectorised(*batch.values), rows, link, batch, order)
        else:
            self.compare_batch(batch.scaled(link.scaled), _scaled(rows), link, batch, order)
        for mode, derivative in derivatives.items():
            rows = self.loop(derivative, batch)
            if mode == "vjp":
                gradients = _pull_batch(vectorised, batch, order + 1)
                rows = [
                    row if own else functools.reduce(operator.add, row)
                    for row, own in zip(_scaled(rows), batch.batched, strict=True)
                ]
            else:
                gradients = _push_batch(vectorised, self.args, batch, order + 1)
            outside = dataclasses.replace(derivative, chain=(mode, "vmap", *link.chain))
            self.compare_batch(gradients, rows, outside, batch, order + 1)

    def loop(self, link: Link, batch: Batch) -> list[list[Any]]:
        """For each leaf of a link's result that of every example, one after the other."""
        key = (batch.name, link.chain)
        if key not in self.loops:
            each = [link.call(*batch.example(i)) for i in range(len(SCALES))]
            self.loops[key] = [list(row) for row in zip(*each, strict=True)]
        return self.loops[key]

    def compare_batch(self, found: Any, desired: Any, link: Link, batch: Batch, order: int) -> None:
        chain = link.chain if "vmap" in link.chain else ("vmap", *link.chain)
        where = f"{self.name}: mode {' of '.join(chain)}, order {order}, {batch.name} batched"
        flat = [part for row in desired for part in (row if type(row) is list else [row])]
        allowed = self.allowed(ROUNDINGS, flat)
        for name, mine, row in zip(link.names, found, desired, strict=True):
            if type(row) is list:
                parts = [(f"{name}, example {i}", mine[i], row[i]) for i in range(len(row))]
            else:
                parts = [(f"{name}, which the examples share", mine, row)]
            for what, part, other in parts:
                _check_kind(part, other, f"{where}: {what}")
                problem = difference(to_numpy(part), to_numpy(other), *allowed, WITHOUT_VMAP)
                if problem:
                    raise AssertionError(f"{where}: {what}: {problem}")


# --- derivatives by differences -----------------------------------------------------


def _by_differences(link: Link, args: Any, seed: int) -> dict[str, list[Any]]:
    """The expected derivatives of a link, by mode."""

    def values(*args: Any) -> list[Any]:
        return [to_numpy(leaf) for leaf in _floating(link.call(*args))]

    out = link.call(*args)
    weights = [to_numpy(w) for w in cotangents(out, seed) if w is not None]
    steps: list[Any] = [None if t is None else to_numpy(t) for t in tangents(args, seed)]
    gradients = slots(args)
    tangent_out = [np.zeros(w.shape, complex if w.dtype.kind == "c" else float) for w in weights]
    for (leaf, place, unit), column in columns(values, args):
        contracted = sum((w * c).real.sum() for w, c in zip(weights, column, strict=True))
        gradients[leaf][place] += contracted * unit.conjugate()
        step = steps[leaf][place]
        step = step.real if unit == 1 else step.imag
        tangent_out = [p + step * c for p, c in zip(tangent_out, column, strict=True)]
    return {"vjp": [slope for slope in gradients if slope is not None], "jvp": tangent_out}


def _worst_direction(link: Link, args: Any, allowed: tuple[float, float]) -> str:
    """Along which element of which argument the forward derivative is wrong."""

    def values(*args: Any) -> list[Any]:
        return [to_numpy(leaf) for leaf in _floating(link.call(*args))]

    rtol, atol = allowed
    worst, said = 0.0, ""
    paths = tree.paths(args)
    for (leaf, place, unit), column in columns(values, args):
        basis = [None if t is None else 0 * t for t in tangents(args, 0)]
        basis[leaf] = basis[leaf] + _one_at(basis[leaf], place, unit)
        _, tangent = jvp(link.call, args, tree.unflatten(tree.structure(args), basis))
        for mine, other in zip(tree.leaves(tangent), column, strict=True):
            away = float(np.max(np.abs(to_numpy(mine) - other) - rtol * np.abs(other), initial=0))
            if away > max(worst, atol):
                what = f"args{paths[leaf]}" + (f", {element(place)}" if place else "")
                problem = difference(to_numpy(mine), other, rtol, atol, BY_DIFFERENCES)
                worst, said = away, f"; it is wrong along {what}, where {problem}"
    return said


def _one_at(like: Any, place: Any, unit: Any) -> Any:
    host = np.zeros(like.shape, like.dtype)
    host[place] = unit
    xp = array_module(like)
    return host[()] if is_host(xp) else xp.asarray(host)


# --- derivatives of a batch ---------------------------------------------------------


def _pull_batch(f: Any, batch: Batch, seed: int) -> list[Any]:
    """The gradient of a batch's results, by all its values."""
    out, pullback = vjp(lambda values: f(*values), batch.values)
    weights = cotangents([leaf[0] for leaf in out], seed)
    stacked = [
        w if w is None else array_module(w).stack([as_weak(s, w) * w for s in SCALES])
        for w in weights
    ]
    (gradients,) = pullback(stacked)
    return gradients


def _push_batch(f: Any, args: Any, batch: Batch, seed: int) -> list[Any]:
    """The tangent of a batch's results: the same for all examples."""
    steps = [t for t in tangents(args, seed) if t is not None]
    for i, own in enumerate(batch.batched):
        if own:
            xp = array_module(batch.values[i])  # of a number it is that of the other arguments
            steps[i] = xp.stack([xp.asarray(steps[i])] * len(SCALES))
    return tree.leaves(jvp(f, batch.values, steps)[1])


def _scaled(rows: list[list[Any]]) -> list[list[Any]]:
    return [[as_weak(s, part) * part for s, part in zip(SCALES, row, strict=True)] for row in rows]


# --- small things -------------------------------------------------------------------


def _floating(leaves: list[Any]) -> list[Any]:
    return [leaf for leaf in leaves if tree.is_inexact(leaf)]


def _products(weights: list[Any], values: list[Any]) -> list[Any]:
    """The real parts of products, in double precision."""
    given = [to_numpy(w).astype(complex) for w in weights if w is not None]
    return [(w * to_numpy(v)).real for w, v in zip(given, values, strict=True)]


def _check_kind(found: Any, like: Any, where: str) -> None:
    if _shape(found) != _shape(like) or _dtype(found) != _dtype(like):
        raise AssertionError(f"{where} is {describe(found)}, for {describe(like)}")
    placed = is_array(like) and not isinstance(like, np.generic)  # those go with any module
    if placed and array_module(found) is not array_module(like):
        raise AssertionError(
            f"{where} is {type(found).__qualname__}, for {type(like).__qualname__}"
        )


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _dtype(value: Any) -> Any:
    return getattr(value, "dtype", None) or np.dtype(type(value))
