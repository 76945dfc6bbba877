"""`while_loop`: a loop that ends when a condition is false."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.compiler.capture.tracers import capturing
from fdbr.control_flow.body_tracing import NoBodyError, check
from fdbr.control_flow.carry import check_carry, first_carry, is_weak, kept, settled
from fdbr.control_flow.while_rules import While, apply
from fdbr.core.tracer import holds
from fdbr.errors.checks import describe, integer, recoverable
from fdbr.errors.public import public
from fdbr.transforms import harvest
from fdbr.transforms.checkpoint import checkpoint as recomputed

__all__ = ["while_loop"]

_BOOL = np.dtype(bool)


@public("fdbr")
def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    checkpoint: int | None = None,
) -> Any:
    """Carry a value through a loop while a condition holds.

    It is this loop::

        def while_loop(cond_fun, body_fun, init_val):
            val = init_val
            while cond_fun(val):
                val = body_fun(val)
            return val

    Unlike in JAX, reverse mode works: the tape records the iterations that were run.  Under
    `vmap`, examples with different numbers of iterations take different paths (see `vmap`), so
    each ends where it would end alone.

    In a jitted function it is one instruction, whose functions are traced once, and the number of
    iterations may differ between calls.  Its gradient stores the value of each iteration only
    while it is computed.  A batch continues until all examples have ended; those that have ended
    keep their value.  If a function branches on a value of the iteration or has a side effect, or
    if a gradient of the loop is differentiated, the iterations are traced one by one instead, and
    `report` of the jitted function says so.

    Parameters
    ----------
    cond_fun
        A pure function of the value, whose result is a boolean.
    body_fun
        A pure function ``body_fun(val) -> val`` of trees, whose result has the structure, shapes
        and dtypes of ``val``.
    init_val
        The first value, a tree of arrays and numbers; Python numbers take the dtype that the first
        iteration gives them.  Without an iteration, ``body_fun`` is run once to find it out.
    checkpoint
        `None`, or after how many iterations the value is stored for a backward pass, which runs
        the iterations between again; nothing else is stored then.  In a jitted function it is not
        needed.

    Returns
    -------
    val
        The last value.

    Raises
    ------
    TypeError
        If ``cond_fun`` does not return a scalar of dtype bool, or the structure, shapes or dtypes
        of the value change.

    >>> import fdbr, numpy as np
    >>> def sqrt(x):
    ...     far = lambda y: abs(y * y - x) > 1e-12
    ...     return fdbr.while_loop(far, lambda y: (y + x / y) / 2, x)
    >>> bool(np.isclose(fdbr.grad(sqrt)(4.0), 0.25))
    True
    """
    with harvest.refused(
        "is marked in fdbr.while_loop, which returns nothing per iteration; mark it in a scan, or "
        "carry it"
    ):
        return _loop(cond_fun, body_fun, init_val, checkpoint)


def _loop(cond_fun: Any, body_fun: Any, init_val: Any, checkpoint: int | None) -> Any:
    val = first_carry("while_loop", "init_val", init_val)
    captured = capturing.get()
    if captured is not None:
        try:
            return _staged(cond_fun, body_fun, val)
        except NoBodyError as why:
            captured.unrolled[f"fdbr.while_loop is traced iteration by iteration: {why}"] = None
    if checkpoint is None:
        return tree.map(kept, _iterations(cond_fun, body_fun, None, val)[0])
    most = integer("fdbr.while_loop", "checkpoint", checkpoint, least=1)
    if not _holds(cond_fun(val)):
        return tree.map(kept, _without_iteration(body_fun, val))
    # Python numbers take their dtypes before the first segment.
    val, _ = settled(lambda val: (body_fun(val), None), val)
    run = recomputed(functools.partial(_iterations, cond_fun, body_fun, most))
    goes_on = True
    while goes_on:
        val, goes_on = run(val)
    return tree.map(kept, val)


def _staged(cond_fun: Any, body_fun: Any, val: Any) -> Any:
    """Capture the loop as one instruction."""
    structure = tree.structure(val)
    form: Any = None

    def cond(leaves: list[Any]) -> list[Any]:
        answer = cond_fun(tree.unflatten(structure, leaves))
        _check_answer(answer)
        return [answer]

    def body(leaves: list[Any]) -> list[Any]:
        nonlocal form
        outs, form = tree.flatten(body_fun(tree.unflatten(structure, leaves)))
        return outs

    def iteration(val: Any) -> tuple[Any, While]:
        try:
            loop = While(cond, body, tree.leaves(val), (), checks=True)
        except recoverable() as error:  # running the loop raises a better one in an iteration
            raise NoBodyError(f"its body raises {type(error).__name__}") from error
        return tree.unflatten(form, loop.body.outs[: form.num_leaves]), loop

    val, (made, loop) = settled(iteration, val, runs=False)
    check_carry("while_loop", "body_fun", val, made)
    leaves = tree.leaves(val)
    if loop.body.is_checked:
        loop = _with_checks(cond, body, leaves)
        leaves = [*leaves, np.True_]
    found = apply(loop, [*leaves, *loop.found])
    if loop.body.is_checked:
        check(found[-1])
        found = found[:-1]
    loop.forget()
    return tree.unflatten(structure, [kept(leaf) for leaf in found])


def _with_checks(cond: Any, body: Any, leaves: list[Any]) -> While:
    """Capture a loop whose body checks values.

    It carries whether all checks hold, and ends when one does not.
    """

    def goes_on(given: list[Any]) -> list[Any]:
        (answer,) = cond(given[:-1])
        return [ops.logical_and(answer, given[-1])]

    def checked(given: list[Any]) -> list[Any]:
        holds(given[-1])  # the checks of earlier iterations
        return body(given[:-1])

    return While(goes_on, checked, [*leaves, np.True_], (), checks=True)


def _iterations(cond_fun: Any, body_fun: Any, most: int | None, val: Any) -> tuple[Any, bool]:
    """Return the value after at most ``most`` iterations, and whether there may be more."""
    count = 0
    while _holds(cond_fun(val)):
        if count == most:
            return val, True
        old = val
        if count:
            val = body_fun(old)
        else:
            old, (val, _) = settled(lambda val: (body_fun(val), None), old)
        check_carry("while_loop", "body_fun", old, val)
        count += 1
    return val if count else _without_iteration(body_fun, val), False


def _without_iteration(body_fun: Any, val: Any) -> Any:
    """Return the first value with the dtypes that Python numbers would take, as if compiled."""
    if not any(map(is_weak, tree.leaves(val))):
        return val
    try:
        with np.errstate(all="ignore"):  # it is run only to find out dtypes
            return settled(lambda val: (body_fun(val), None), val, runs=False)[0]
    except recoverable():  # such as an index out of bounds, which an iteration would raise
        return val


def _holds(answer: Any) -> bool:
    """Return the outcome of a condition."""
    _check_answer(answer)
    return bool(answer)


def _check_answer(answer: Any) -> None:
    """Raise if a condition's result is not a boolean scalar."""
    if answer is True or answer is False:
        return
    if getattr(answer, "dtype", None) != _BOOL or answer.shape != ():
        raise TypeError(
            "fdbr.while_loop: cond_fun must return a truth value, a scalar of dtype bool, not "
            f"{describe(answer)}; to test all elements, use np.all(…) or np.any(…)"
        )
