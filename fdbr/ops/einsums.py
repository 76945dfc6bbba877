"""Einstein summation, as a sequence of contractions of two operands.

First the subscripts are expanded: an ellipsis becomes unused letters, and a letter that an operand
repeats becomes the diagonal of two axes.  Then each step contracts two operands; its transposes
are contractions again.
"""

import functools
import math
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import fit, multilinear
from fdbr.ops.declare.unbroadcast import accumulate, as_factors
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, diagonal, moveaxis, permute_dims, reshape
from fdbr.pytrees.dtypes import is_added
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["einsum", "inner_of_rows", "wide_product"]

_WINDOW = 8  # operands among which the cheapest pair is searched, which bounds the search


@public("fdbr.ops")
def einsum(subscripts: str, /, *operands: ArrayLike) -> Array:
    """Einstein summation over named axes, as `numpy.einsum`.

    Parameters
    ----------
    subscripts
        One group of letters for each operand, separated by commas, and the result's letters after
        ``->``; without it, the letters that appear once, in alphabetical order.  ``...`` means
        leading axes that broadcast.  A letter repeated in an operand takes its diagonal; letters
        missing in the result are summed over.
    operands
        One array for each group.

    Raises
    ------
    ValueError
        If the subscripts are malformed or do not fit the operands' shapes.
    TypeError
        If the subscripts are not a string.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.einsum("ij,kj->ik", np.ones((2, 3)), np.ones((4, 3))).shape
    (2, 4)
    >>> ops.einsum("ii", np.eye(3))
    np.float64(3.0)
    """
    arrays = [asarray(operand) for operand in operands]
    if not isinstance(subscripts, str):
        raise TypeError("fdbr.ops.einsum: the first argument must be the subscripts, a string")
    groups, result, wrong = _parse(subscripts, tuple([x.ndim for x in arrays]))
    if wrong:
        raise _malformed(subscripts, arrays, wrong)
    arrays = as_factors(arrays)
    terms = [_take_diagonals(x, group) for x, group in zip(arrays, groups, strict=True)]
    _check_lengths(subscripts, terms, arrays)
    if len(terms) > 2:
        _reduce(terms, result)
    if len(terms) == 2:
        (x, of_x), (y, of_y) = terms
        return _contract(x, y, of_x=of_x, of_y=of_y, to=result)
    x, group = terms[0]
    if len(group) > len(result):
        x = accumulate(x, tuple([i for i, c in enumerate(group) if c not in result]))
    rest = [c for c in group if c in result]
    return permute_dims(x, tuple(rest.index(c) for c in result)) if rest != list(result) else x


@functools.lru_cache(maxsize=1 << 10)
def _parse(subscripts: str, dimensions: tuple[int, ...]) -> tuple[list[str], str, str]:
    """Return the letters of operands and result, without ellipses, and a message if malformed."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    groups = left.split(",")
    if len(groups) != len(dimensions):
        return [], "", f"{len(groups)} groups for {len(dimensions)} operands"
    unused = [c for c in string.ascii_letters if c not in subscripts]
    ranks = [n - len(g.replace("...", "")) for g, n in zip(groups, dimensions, strict=True)]
    broadcast_letters = unused[
        : max((r for g, r in zip(groups, ranks, strict=True) if "..." in g), default=0)
    ]
    expanded = []
    for group, rank in zip(groups, ranks, strict=True):
        if rank < 0 or (rank and "..." not in group):
            return [], "", f"{group!r} does not fit its operand's dimensions"
        expanded.append(
            group.replace("...", "".join(broadcast_letters[len(broadcast_letters) - rank :]))
        )
    letters = "".join(expanded)
    if arrow:
        result = right.replace("...", "".join(broadcast_letters))
    else:
        single = sorted(
            c for c in set(letters) if letters.count(c) == 1 and c not in broadcast_letters
        )
        result = "".join(broadcast_letters) + "".join(single)
    if not all(c in string.ascii_letters for c in letters + result):
        return [], "", "only letters, commas, '...' and '->' may appear"
    if len(set(result)) < len(result) or not set(result) <= set(letters):
        return [], "", "the result repeats a letter or has one that no operand has"
    return expanded, result, ""


def _malformed(subscripts: str, arrays: list[Any], why: str) -> ValueError:
    operands = ", ".join(map(describe, arrays))
    return ValueError(f"fdbr.ops.einsum: {subscripts!r}: {why} (operands: {operands})")


def _take_diagonals(x: Any, group: str) -> tuple[Any, str]:
    """Replace repeated letters of an operand by diagonals."""
    if len(set(group)) == len(group):
        return x, group
    for letter in dict.fromkeys(group):
        while group.count(letter) > 1:
            i = group.index(letter)
            j = group.index(letter, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ValueError(
                    f"fdbr.ops.einsum: {letter!r} names axes of lengths {x.shape[i]} and "
                    f"{x.shape[j]} of one operand, {describe(x)}"
                )
            x = diagonal(moveaxis(x, (i, j), (-2, -1)))
            group = "".join(c for k, c in enumerate(group) if k not in (i, j)) + letter
    return x, group


def _check_lengths(subscripts: str, terms: list[tuple[Any, str]], arrays: list[Any]) -> None:
    lengths: dict[str, int] = {}
    for x, group in terms:
        for letter, n in zip(group, x.shape, strict=True):
            if lengths.setdefault(letter, n) == 1:
                lengths[letter] = n
            elif n not in (1, lengths[letter]):
                raise _malformed(
                    subscripts, arrays, f"{letter!r} is both {lengths[letter]} and {n} long"
                )


def _reduce(terms: list[tuple[Any, str]], result: str) -> None:
    """Contract operands until two are left."""
    counts_of = Counter(result)  # the number of operands with each letter, and the result
    counts_of.update(c for _, group in terms for c in group)
    while len(terms) > 2:
        i, j = _cheapest_pair(terms[:_WINDOW])
        (x, of_x), (y, of_y) = terms[i], terms.pop(j)
        counts_of.subtract(of_x + of_y)
        kept = "".join(dict.fromkeys(c for c in of_x + of_y if counts_of[c]))
        counts_of.update(kept)
        terms[i] = _contract(x, y, of_x=of_x, of_y=of_y, to=kept), kept


def _cheapest_pair(terms: list[tuple[Any, str]]) -> tuple[int, int]:
    """Find the two operands whose contraction takes the fewest multiplications."""

    def cost(pair: tuple[int, int]) -> int:
        lengths: dict[str, int] = {}
        for x, group in (terms[k] for k in pair):
            for c, n in zip(group, x.shape, strict=True):
                lengths[c] = max(n, lengths.get(c, 1))
        return math.prod(lengths.values())

    pairs = [(i, j) for j in range(len(terms)) for i in range(j)]
    return min(pairs, key=cost)


def _batch_contract(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    of_x, of_y, to = params["of_x"], params["of_y"], params["to"]
    letter = next(c for c in string.ascii_letters if c not in of_x + of_y + to)
    of_x, of_y = (letter * flag + group for flag, group in zip(batched, (of_x, of_y), strict=True))
    return apply(*values, of_x=of_x, of_y=of_y, to=letter + to)


@multilinear(
    x=lambda ct, y, shape, dtype, of_x, of_y, to: _transpose(ct, y, to, of_y, of_x, shape, dtype),
    y=lambda ct, x, shape, dtype, of_x, of_y, to: _transpose(ct, x, to, of_x, of_y, shape, dtype),
    batch=_batch_contract,
)
def _contract(xp: Any, x: ArrayLike, y: ArrayLike, *, of_x: str, of_y: str, to: str) -> Array:
    """Contract two operands by one batched matrix product.

    If no letter is summed, the result is an elementwise product.
    """
    if of_x == of_y and of_x[:-1] == to and of_x and (found := inner_of_rows(x, y)) is not None:
        return found
    plan = _plan(of_x, of_y, to)
    x = accumulate(x, plan.alone_x) if plan.alone_x else x
    y = accumulate(y, plan.alone_y) if plan.alone_y else y
    b, r, p = plan.counts
    if not p:
        (order_x, key_x), (order_y, key_y) = plan.wide
        x, y = _transposed(xp, x, order_x)[key_x], _transposed(xp, y, order_y)[key_y]
        return wide_product(x, y)
    x, y = _transposed(xp, x, plan.order_x), _transposed(xp, y, plan.order_y)
    if p == 1 and x.ndim == y.ndim == b + 1 and (found := inner_of_rows(x, y)) is not None:
        return found
    lengths = [max(m, n) for m, n in zip(x.shape[b + r :], y.shape[b : b + p], strict=True)]
    if lengths != list(x.shape[b + r :]):
        x = xp.broadcast_to(x, (*x.shape[: b + r], *lengths))
    if lengths != list(y.shape[b : b + p]):
        y = xp.broadcast_to(y, (*y.shape[:b], *lengths, *y.shape[b + p :]))
    shape_r, shape_c, inner = x.shape[b : b + r], y.shape[b + p :], math.prod(lengths)
    out = xp.matmul(
        x.reshape((*x.shape[:b], math.prod(shape_r), inner)),
        y.reshape((*y.shape[:b], inner, math.prod(shape_c))),
    )
    if is_added(x.dtype) and is_added(y.dtype):  # `matmul` of bfloat16 gives float32
        out = out.astype(xp.result_type(x, y))
    out = out.reshape((*out.shape[:b], *shape_r, *shape_c))
    return _transposed(xp, out, plan.order)[()]


class _Plan(NamedTuple):
    """The plan for contracting two operands.

    Attributes
    ----------
    alone_x, alone_y
        The axes that only this operand has; they are summed over first.
    counts
        The numbers of batch, row, and contracted letters.
    order_x, order_y
        The permutations of the other axes to (batch, rows, contracted) and (batch, contracted,
        columns); `None` if they are in that order.
    order
        The permutation of the product's axes to those of the result.
    wide
        For an elementwise product: each operand's permutation to the order of the result, and the
        key that inserts an axis for each missing letter.
    """

    alone_x: tuple[int, ...]
    alone_y: tuple[int, ...]
    counts: tuple[int, int, int]
    order_x: tuple[int, ...] | None
    order_y: tuple[int, ...] | None
    order: tuple[int, ...] | None
    wide: tuple[Any, Any]


@functools.lru_cache(maxsize=1 << 10)
def _plan(of_x: str, of_y: str, to: str) -> _Plan:
    """Plan the contraction of operands with these letters."""
    alone_x = tuple(i for i, c in enumerate(of_x) if c not in of_y + to)
    alone_y = tuple(i for i, c in enumerate(of_y) if c not in of_x + to)
    of_x = "".join(c for c in of_x if c in of_y + to)
    of_y = "".join(c for c in of_y if c in of_x + to)
    batch = [c for c in to if c in of_x and c in of_y]
    rows = [c for c in to if c not in of_y]
    columns = [c for c in to if c not in of_x]
    pairs = [c for c in of_x if c in of_y and c not in to]
    return _Plan(
        alone_x,
        alone_y,
        (len(batch), len(rows), len(pairs)),
        _order(of_x, [*batch, *rows, *pairs]),
        _order(of_y, [*batch, *pairs, *columns]),
        _order([*batch, *rows, *columns], to),
        (_wide(of_x, to), _wide(of_y, to)),
    )


def _order(letters: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    order = tuple(letters.index(c) for c in wanted)
    return None if order == tuple(range(len(order))) else order


def _wide(group: str, to: str) -> tuple[Any, Any]:
    own = [c for c in to if c in group]
    return _order(group, own), tuple(slice(None) if c in group else None for c in to)


def _transposed(xp: Any, x: Any, order: tuple[int, ...] | None) -> Any:
    if order is None:
        return x
    return xp.transpose(x, order)


@Routine
def inner_of_rows(x: Any, y: Any) -> Any:
    """Compute inner products along the last axes; `None` where a matrix product does it as well."""
    return None


@Routine
def wide_product(x: Any, y: Any) -> Any:
    """Compute ``x * y`` of arrays of one rank that broadcast, as factors of an outer product."""
    return array_module(x, y).multiply(x, y)


def _transpose(
    ct: Any, other: Any, of_ct: str, of_other: str, to: str, shape: tuple[int, ...], dtype: Any
) -> Any:
    """The transpose of a contraction: a contraction, broadcast along axes summed alone."""
    available = [c for c in to if c in of_ct or c in of_other]
    out = _contract(ct, other, of_x=of_ct, of_y=of_other, to="".join(available))
    lengths = iter(out.shape)
    kept = [next(lengths) if c in available else 1 for c in to]
    expanded = [n if m == 1 else m for m, n in zip(kept, shape, strict=True)]
    if expanded != kept:
        out = broadcast_to(reshape(out, kept), expanded)
    return fit(out, (shape, dtype))
