"""Capture of scans as one instruction."""

from typing import Any

from fdbr import ops, tree
from fdbr.control_flow.body_tracing import Body, NoBodyError, check, stage
from fdbr.control_flow.carry import check_carry, settled
from fdbr.control_flow.eager import Iteration, joined, pair, scan_iterations
from fdbr.control_flow.scan_rules import Scan, apply
from fdbr.core.array_modules import lock
from fdbr.core.tracer import Tracer

__all__ = ["scan_staged"]


def scan_staged(
    function: str, f: Iteration, carry: Any, rows: Any, reverse: bool, size: int, unroll: int
) -> tuple[Any, Any]:
    """Capture a scan as one instruction; return the last carry and the stacked results.

    With segments or unrolled iterations, the iterations of one group are the body of a loop.

    Raises
    ------
    NoBodyError
        If the body cannot be captured by itself.
    """
    if 1 < size < rows.length:
        return _by_parts(
            function,
            lambda carry, part: scan_staged(function, f, carry, part, reverse, 0, unroll),
            *(carry, rows, reverse, size),
        )
    if 1 < unroll < rows.length:
        return _by_parts(
            function,
            lambda carry, part: scan_iterations(function, f, carry, part, reverse),
            *(carry, rows, reverse, unroll),
        )
    if unroll >= rows.length > 1:
        return scan_iterations(function, f, carry, rows, reverse)
    return _one(function, f, carry, rows, reverse)


def _one(function: str, f: Iteration, carry: Any, rows: Any, reverse: bool) -> tuple[Any, Any]:
    """Capture a scan of the function itself."""
    leaves, operands, numbers = tree.leaves(carry), rows.leaves, rows.numbers
    base = [] if numbers is None else [rows.base]
    structure = tree.structure(carry)
    form: Any = None

    def iteration(carry: Any) -> tuple[Any, Body]:
        nonlocal form

        def body(given: list[Any]) -> list[Any]:
            nonlocal form
            i, held = given[: len(base)], given[len(base) :]
            row = i[0] if i else rows.row(held[len(leaves) :])
            found, y = pair(function, f(tree.unflatten(structure, held[: len(leaves)]), row))
            outs, other = tree.flatten(found)
            ys, form_y = tree.flatten(y)
            form = other, len(outs), form_y
            return [*outs, *ys]

        like = Scan(_NOTHING, len(leaves), len(operands), rows.length, reverse, numbers)
        first = like.first([*base, *tree.leaves(carry), *operands])
        body_of_iteration = stage(body, first, checks=True)
        shown = body_of_iteration.outs[: form[1]]
        return tree.unflatten(form[0], shown), body_of_iteration

    carry, out = settled(iteration, carry, runs=False)
    check_carry(function, "f", carry, out[0])
    body = out[1]
    for leaf in body.outs:
        if isinstance(leaf, str | bytes) or not (hasattr(leaf, "dtype") or _is_number(leaf)):
            raise NoBodyError("its results are not arrays")
    scan = Scan(body, len(leaves), len(operands), rows.length, reverse, numbers)
    found = apply(scan, [*base, *tree.leaves(carry), *operands, *body.found])
    if body.is_checked:
        check(ops.all(found[-1]))
        found = found[:-1]
    body.forget()
    made = [leaf if isinstance(leaf, Tracer) else lock(leaf) for leaf in found]
    return (
        tree.unflatten(structure, made[: len(leaves)]),
        tree.unflatten(form[2], made[len(leaves) :]),
    )


_NOTHING: Any = None


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex)


def _by_parts(
    function: str, inner: Iteration, carry: Any, rows: Any, reverse: bool, size: int
) -> tuple[Any, Any]:
    """Capture a scan over groups of ``size`` iterations, and one over the remaining iterations."""
    count, left = divmod(rows.length, size)
    whole = rows.length - left
    parts, rest = rows.part(0, whole).parts(size), rows.part(whole, rows.length)

    def iteration(carry: Any, part: Any) -> Any:
        return inner(carry, parts.inside(part))

    found = []
    for last in (True, False) if reverse else (False, True):
        if not last:
            carry, ys = _one(function, iteration, carry, parts, reverse)
            ys = tree.map(lambda y: ops.reshape(y, (count * size, *y.shape[2:])), ys)
            found.append(ys)
        elif left:
            carry, ys = inner(carry, rest)
            found.append(ys)
    return carry, joined(found[::-1] if reverse else found)
