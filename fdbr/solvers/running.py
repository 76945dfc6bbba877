"""The iterations of a solver: a Python loop, a loop of a program, or a computation on the host."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from fdbr import tree
from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.control_flow.body_tracing import NoBodyError
from fdbr.control_flow.while_rules import While, apply
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, innermost, stop_gradient
from fdbr.errors.checks import refusal
from fdbr.ops import where
from fdbr.solvers.host import on_host

__all__ = ["check_captured", "choose", "compute", "is_captured", "loop"]


_hosted: ContextVar[bool] = ContextVar("hosted", default=False)
"""Whether `compute` falls back to the host where loops cannot be staged."""


def compute(
    run: Callable[..., tuple[Any, ...]],
    operands: Sequence[Any],
    outs: Sequence[tuple[tuple[int, ...], str]],
    looped: bool = True,
) -> tuple[Any, ...]:
    """``run(*operands)``, a computation with loops, on plain, captured or batched leaves.

    In a jitted function its loops become loops of the program.  If its functions decide on values,
    or it is not ``looped``, the program calls it with plain arrays instead.  Outside of jitted
    functions the examples of a batch run one by one, so that each takes the time that it needs.
    ``outs`` are the shapes and dtypes of its results.
    """
    top = innermost(operands)
    if top is None:
        return run(*operands)
    if looped and is_captured(list(operands)):
        token = _hosted.set(True)
        try:
            return run(*operands)
        except NoBodyError:
            pass
        finally:
            _hosted.reset(token)
    arrays = [i for i, leaf in enumerate(operands) if hasattr(leaf, "dtype")]

    def whole(*given: Any) -> tuple[Any, ...]:
        leaves = list(operands)
        for i, leaf in zip(arrays, given, strict=True):
            leaves[i] = leaf
        return run(*leaves)

    return on_host(whole, [operands[i] for i in arrays], outs)


def loop(
    cond: Callable[[Any], Any],
    body: Callable[..., Any],
    carry: Any,
    captured: Any = (),
    *,
    consts: Sequence[Any] = (),
    constant: bool = False,
) -> Any:
    """Run ``body(carry, *consts)`` on a tree of arrays for as long as ``cond(carry)`` holds.

    ``captured`` is a tree with the traced values that the functions use beside the carry.  They
    are not differentiated by if the loop is ``constant``.  What the functions compute of captured
    values alone is computed once, before the loop, even if there is no iteration; what they compute
    of ``consts``, which are arrays, is computed in each iteration.

    In a jitted function it is a loop of the program.  Where its functions decide on values, the
    iterations are traced one by one, or, within `compute`, the whole computation runs on the host.
    """
    leaves, structure = tree.flatten(carry)
    if is_captured((leaves, captured)):
        try:
            return _loop_of_program(cond, body, leaves, structure, consts, constant)
        except NoBodyError:
            if _hosted.get():
                raise
    while cond(carry):
        carry = body(carry, *consts)
    return carry


def _loop_of_program(
    cond: Any, body: Any, leaves: Any, structure: Any, consts: Sequence[Any], constant: bool
) -> Any:
    count = len(leaves)
    xp = array_module(*leaves)
    leaves = [xp.asarray(leaf)[()] if type(leaf) is float else leaf for leaf in leaves]
    iteration = While(
        lambda leaves: [cond(tree.unflatten(structure, leaves[:count]))],
        lambda leaves: tree.leaves(
            body(tree.unflatten(structure, leaves[:count]), *leaves[count:])
        ),
        *(leaves, consts),
    )
    seen = map(stop_gradient, iteration.found) if constant else iteration.found
    found = apply(iteration, [*leaves, *consts, *seen])
    iteration.forget()
    return tree.unflatten(structure, found)


def choose(condition: Any, x: Any, y: Any) -> Any:
    """``where(condition, x, y)`` for one condition, which costs nothing if it is known."""
    if isinstance(condition, Tracer):
        return where(condition, x, y)
    return x if condition else y


def check_captured(function: str, result: Any, operands: Any) -> None:
    """Raise the error for a result that depends on a traced value that is no operand."""
    given, found = innermost(tree.leaves(operands)), innermost(tree.leaves(result))
    if found is not None and (given is None or found.level > given.level):
        error = TypeError(
            f"fdbr.{function}: the function uses a traced value of {found}, which is not "
            f"among its arguments; pass it as one of the further arguments, fdbr.{function}(f, …, "
            "value)"
        )
        raise refusal(error)


def is_captured(values: Any) -> bool:
    """Whether any leaf of a tree is captured, below whatever other transformation."""
    return any(map(_is_captured, tree.leaves(values)))


def _is_captured(leaf: Any) -> bool:
    while isinstance(leaf, Tracer):
        if isinstance(leaf._trace, CaptureTrace):
            return True
        leaf = leaf.value
    return False
