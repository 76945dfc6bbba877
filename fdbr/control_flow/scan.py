"""`scan` and `fori_loop`: loops whose number of iterations is known before they begin."""

import math
import sys
from collections.abc import Callable
from typing import Any

from fdbr import tree
from fdbr.compiler.capture.tracers import capturing
from fdbr.control_flow.body_tracing import NoBodyError
from fdbr.control_flow.capture import scan_staged
from fdbr.control_flow.carry import first_carry, kept
from fdbr.control_flow.eager import Counter, Numbered, Rows, pair, scan_iterations, segments
from fdbr.core.array_modules import is_array
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.transforms import harvest

__all__ = ["fori_loop", "scan", "segment_size"]


@public("fdbr")
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: int | bool | None = None,
) -> tuple[Any, Any]:
    """Carry a value through a loop over the rows of arrays, and stack the results of iterations.

    It is this loop, with trees instead of arrays::

        def scan(f, init, xs):
            carry, ys = init, []
            for x in xs:
                carry, y = f(carry, x)
                ys.append(y)
            return carry, np.stack(ys)

    It runs as a Python loop, under every transformation.

    In a jitted function it is one instruction, whose body is traced once for any number of
    iterations; so are its derivatives and batched versions.  If the body branches on a value of
    the iteration or has a side effect, its iterations are traced one by one instead, and `report`
    of the jitted function says so.

    Parameters
    ----------
    f
        A pure function ``f(carry, x) -> (carry, y)`` of trees.  The carry that it returns has the
        structure, shapes and dtypes of the one that it gets; every ``y`` has one structure and
        the same shapes, or is `None`.
    init
        The first carry, a tree of arrays and numbers.  Python numbers are weak: they take the
        dtype that the first iteration gives them.
    xs
        A tree of arrays of one length; ``x`` is the tree of their rows along the first axis.
        `None` if ``f`` needs none; then ``length`` is required.
    length
        The number of iterations, if ``xs`` is `None`.
    reverse
        Whether the loop starts with the last row.  ``ys`` are still in the order of ``xs``.
    unroll
        How many iterations a jitted program runs at once, each of them traced.  Values do not
        depend on it, and it has no effect outside of `jit`.
    checkpoint
        How much is kept for a backward pass.  `None`: as a surrounding `checkpoint` says, or else
        everything.  An integer: only the carries between segments of so many iterations, each of
        which is run again in the backward pass.  `True`: segments of about the square root of the
        number of iterations, which need the least memory.

    Returns
    -------
    carry
        The last carry.
    ys
        The results of iterations, stacked along a new first axis.  Without an iteration, ``f`` is
        run on rows of zeros to find out its shapes.

    Raises
    ------
    TypeError
        If ``f`` does not return a pair; if structure, shapes or dtypes of the carry change, or the
        structure of ``y``; if a leaf is neither array nor number.
    ValueError
        If lengths differ, or none is given; if ``y`` changes its shape.

    >>> import fdbr, numpy as np
    >>> fdbr.scan(lambda c, x: (c + x, c * x), 0.0, np.array([1.0, 2.0, 3.0]))
    (np.float64(6.0), array([0., 2., 9.]))
    >>> fdbr.grad(lambda a: fdbr.scan(lambda c, _: (a * c, None), 1.0, length=3)[0])(2.0)
    np.float64(12.0)
    """
    carry = first_carry("scan", "init", init)
    rows = _rows(xs, length)
    size = segment_size("scan", checkpoint, rows.length)
    return _run("scan", f, carry, rows, reverse, size, _iterations_at_once("scan", unroll))


def _run(
    function: str, f: Any, carry: Any, rows: Any, reverse: bool, size: int, unroll: int
) -> Any:
    """Run the loop: as one instruction during capture, or else in Python."""
    if harvest.are_collected():
        return _marking(function, f, carry, rows, reverse, size, unroll)
    return _loop(function, f, carry, rows, reverse, size, unroll)


def _marking(
    function: str, f: Any, carry: Any, rows: Any, reverse: bool, size: int, unroll: int
) -> Any:
    """Run the loop with harvested marks as further results of each iteration."""
    watched = harvest.watched_level() is not None

    def loop(iteration: Any) -> Any:
        def one(carry: Any, x: Any) -> Any:
            (carry, y), found = iteration(*x[:1], carry, x[1]) if watched else iteration(carry, x)
            return carry, (y, found)

        if watched:  # in Python, because each iteration's marks get their own cotangents
            carry_, (ys, found) = scan_iterations(function, one, carry, Numbered(rows), reverse)
        else:
            carry_, (ys, found) = _loop(function, one, carry, rows, reverse, size, unroll)
        return (carry_, ys), found

    def checked(carry: Any, x: Any) -> Any:
        return pair(function, f(carry, x))

    return (harvest.through_loop if watched else harvest.through)(loop, checked)


def _loop(
    function: str, f: Any, carry: Any, rows: Any, reverse: bool, size: int, unroll: int
) -> Any:
    captured = capturing.get()
    if captured is not None and rows.length:
        try:
            return scan_staged(function, f, carry, rows, reverse, size, unroll)
        except NoBodyError as why:
            captured.unrolled[f"fdbr.{function} is traced iteration by iteration: {why}"] = None
    if size:
        return segments(function, f, carry, rows, reverse, size)
    return scan_iterations(function, f, carry, rows, reverse)


@public("fdbr")
def fori_loop(
    lower: int,
    upper: int,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool = 1,
    checkpoint: int | bool | None = None,
) -> Any:
    """Carry a value through a loop over integers.

    It is this loop, under every transformation::

        def fori_loop(lower, upper, body_fun, init_val):
            val = init_val
            for i in range(lower, upper):
                val = body_fun(i, val)
            return val

    In a jitted function it is one instruction, as `scan` is.

    Parameters
    ----------
    lower, upper
        The first integer, and the one before which the loop ends.
    body_fun
        A pure function ``body_fun(i, val) -> val`` of trees, whose result has the structure,
        shapes and dtypes of ``val``.  ``i`` is a Python integer, which is weak.
    init_val
        The first value, a tree of arrays and numbers; see `scan`.
    unroll, checkpoint
        As in `scan`.

    Returns
    -------
    val
        The last value.

    Raises
    ------
    TypeError
        If ``lower`` or ``upper`` is not an integer, or the structure, shapes or dtypes of the
        value change.

    >>> import fdbr, numpy as np
    >>> fdbr.fori_loop(1, 5, lambda i, product: i * product, 1)
    24
    >>> fdbr.grad(lambda x: fdbr.fori_loop(0, 3, lambda i, val: val * x + i, x))(2.0)
    np.float64(33.0)
    """
    numbers = range(integer("fdbr.fori_loop", "lower", lower), _stop(upper))
    carry = first_carry("fori_loop", "init_val", init_val)
    at_once = _iterations_at_once("fori_loop", unroll)
    size = segment_size("fori_loop", checkpoint, len(numbers))

    def iteration(val: Any, i: Any) -> tuple[Any, Any]:
        return body_fun(i, val), None

    return _run("fori_loop", iteration, carry, Counter(numbers), False, size, at_once)[0]


def _stop(upper: Any) -> int:
    return integer("fdbr.fori_loop", "upper", upper)


# --- arguments ----------------------------------------------------------------------


def _rows(xs: Any, length: Any) -> Rows:
    """Return the rows to iterate over; raise if there are none."""
    leaves, structure = tree.flatten(xs)
    lengths: dict[int, str] = {}
    for leaf, path in zip(leaves, tree.paths_of(structure), strict=True):
        shape = leaf.shape if isinstance(leaf, Tracer) or is_array(leaf) else ()
        if not shape:
            raise TypeError(
                f"fdbr.scan: xs{path and ' at ' + path} is {describe(leaf)}, which has no rows; "
                "let f capture a value that is the same in every iteration"
            )
        lengths.setdefault(shape[0], f"xs{path}")
    if length is not None:
        lengths.setdefault(integer("fdbr.scan", "length", length, least=0), "length")
    if len(lengths) > 1:
        found = ", ".join(f"{n} of {name}" for n, name in lengths.items())
        raise ValueError(f"fdbr.scan: lengths differ: {found}")
    if not lengths:
        raise ValueError("fdbr.scan: xs has no array that tells the length; give length")
    return Rows([kept(leaf) for leaf in leaves], structure, next(iter(lengths)))


def _iterations_at_once(function: str, unroll: Any) -> int:
    """Return the number of iterations that a program runs at once."""
    if isinstance(unroll, bool):
        return sys.maxsize if unroll else 1
    return integer(f"fdbr.{function}", "unroll", unroll, least=1)


def segment_size(function: str, checkpoint: Any, length: int) -> int:
    """Return the number of iterations in a segment; 0 if nothing is recomputed."""
    if checkpoint is None or checkpoint is False:
        return 0
    if checkpoint is True:
        return max(1, math.isqrt(length))
    return integer(f"fdbr.{function}", "checkpoint", checkpoint, least=1)
