"""Patterns of terms of a sum that one operation can add up.

A pattern is a function ``form(terms, lookup)`` that yields `Merged` terms.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Kind, Program, Variable, is_variable, kind_of
from fdbr.compiler.passes.rules.views import View, part_of
from fdbr.compiler.passes.steps import last_remats
from fdbr.core.primitive import Primitive

__all__ = ["FORMS", "Lookup", "Merged"]

_FEW = 4  # terms from which on merging pays
_LOW = 128  # rows of a term up to which summing one by one costs more than concatenating


@attrs.frozen(eq=False)
class Merged:
    """Terms of a sum, and ``steps(out, remat)``, which computes their sum."""

    terms: Sequence[Variable]
    steps: Callable[[Variable, int], list[Instruction]]


class Lookup:
    """Finds the steps that define variables, their positions, and whether others read them."""

    def __init__(self, program: Program, reads: dict[Variable, int]) -> None:
        self._reads = reads
        self._makers: dict[Any, Instruction] = {}
        self._places: dict[Any, int] = {}
        self._remats = last_remats(program)
        for place, step in enumerate(program.steps):
            for out in step.outs:
                self._places[out] = place
                if type(step) is Instruction:
                    self._makers[out] = step

    def maker(self, operand: Any, primitive: Primitive) -> Instruction | None:
        """Return the instruction that defines an operand, if it applies a primitive."""
        found = self._makers.get(operand) if is_variable(operand) else None
        return found if found is not None and found.primitive is primitive else None

    def term(self, operand: Any, primitive: Primitive) -> Instruction | None:
        """Return the instruction that defines a term, if only its sum reads it."""
        maker = self.maker(operand, primitive)
        return maker if maker is not None and self._reads[operand] == 1 else None

    def place(self, operand: Any) -> int:
        """Return the position of the step that defines an operand; -1 for inputs and constants."""
        return self._places.get(operand, -1) if is_variable(operand) else -1

    def remat(self, operand: Any) -> int:
        """Return the last rematerialisation scope that an operand depends on."""
        return self._remats.get(operand, 0) if is_variable(operand) else 0


def _is_matrix(operand: Any) -> bool:
    kind = kind_of(operand)
    return kind.is_array and len(kind.shape) == 2


def _applied(
    primitive: Primitive, operands: Sequence[Any], kind: Kind, remat: int, **params: Any
) -> Instruction:
    return Instruction(primitive, tuple(operands), params, (Variable(kind),), False, remat)


def _joined(parts: Sequence[Any], remat: int) -> Instruction:
    """Concatenate arrays of one dtype along the first axis."""
    first = kind_of(parts[0])
    rows = sum(kind_of(part).shape[0] for part in parts)
    kind = first.array((rows, *first.shape[1:]))
    return _applied(op.CONCAT, parts, kind, remat, axis=0)


# --- products -----------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Product:
    """A term ``a.T @ b``."""

    out: Variable
    a: Any
    b: Any


def products(terms: Sequence[Any], lookup: Lookup) -> Iterator[Merged]:
    """Merge products of a transposed matrix and another, such as gradients of a shared weight.

    Concatenated they are one product, which adds up in registers; but concatenating copies.
    Measured on one thread in float32: 35 terms with (rows, columns of a, of b) = (20, 800, 200)
    take 0.7 of the time, with (20, 10000, 200) 0.6, (64, 256, 256) 0.9, (256, 256, 256) 1.0 and
    (1024, 256, 256) 1.2; so rows must be few relative to the elements of the sum.  Two or three
    terms gain nothing.
    """
    groups: dict[Any, list[_Product]] = {}
    for term in terms:
        maker = lookup.term(term, op.MATMUL)
        product = _product(term, maker, lookup) if maker is not None else None
        if product is not None:
            remats = lookup.remat(product.a), lookup.remat(product.b)
            dtypes = kind_of(product.a).dtype, kind_of(product.b).dtype
            groups.setdefault((remats, dtypes), []).append(product)
    for group in groups.values():
        if len(group) >= _FEW:
            # Ordered by age, so that equal concatenations by other groups are shared.
            group.sort(key=lambda p: _first_and_last(lookup.place(p.a), lookup.place(p.b)))
            yield Merged([p.out for p in group], _product_steps(group))


def _first_and_last(a: int, b: int) -> tuple[int, int]:
    return min(a, b), -max(a, b)


def _product(term: Variable, maker: Instruction, lookup: Lookup) -> _Product | None:
    left, b = maker.operands
    turned = lookup.maker(left, op.PERMUTE)
    if turned is not None:
        a = turned.operands[0]
    elif type(left) is np.ndarray:
        a = left.T
    else:
        return None
    if not (_is_matrix(a) and _is_matrix(b)):
        return None
    (rows, m), (_, n) = kind_of(a).shape, kind_of(b).shape
    return _Product(term, a, b) if 0 < rows * (m + n) <= m * n else None


def _product_steps(group: list[_Product]) -> Callable[[Variable, int], list[Instruction]]:
    def steps(out: Variable, remat: int) -> list[Instruction]:
        a, b = _joined([p.a for p in group], remat), _joined([p.b for p in group], remat)
        kind = a.outs[0].kind
        turned = kind.array(kind.shape[::-1])
        left = _applied(op.PERMUTE, a.outs, turned, remat, axes=(1, 0))
        operands = (left.outs[0], b.outs[0])
        return [a, b, left, Instruction(op.MATMUL, operands, {}, (out,), False, remat)]

    return steps


# --- sums of rows -------------------------------------------------------------------


def row_sums(terms: Sequence[Any], lookup: Lookup) -> Iterator[Merged]:
    """Merge sums over the first axis, such as gradients of a shared bias: one sum of all rows."""
    groups: dict[Any, list[tuple[Variable, Any]]] = {}
    for term in terms:
        maker = lookup.term(term, op.SUM)
        if maker is None or maker.params["axes"] != (0,) or maker.params["keepdims"]:
            continue
        (rows,) = maker.operands
        kind = kind_of(rows)
        if kind.dtype.kind in "fc" and kind.is_array and kind.shape[0] <= _LOW:
            groups.setdefault((lookup.remat(rows), kind.dtype), []).append((term, rows))
    for group in groups.values():
        if len(group) >= _FEW:
            group.sort(key=lambda pair: -lookup.place(pair[1]))
            yield Merged([term for term, _ in group], _row_steps([rows for _, rows in group]))


def _row_steps(rows: list[Any]) -> Callable[[Variable, int], list[Instruction]]:
    def steps(out: Variable, remat: int) -> list[Instruction]:
        whole = _joined(rows, remat)
        params = {"axes": (0,), "keepdims": False}
        return [whole, Instruction(op.SUM, whole.outs, params, (out,), False, remat)]

    return steps


# --- rows of a table ----------------------------------------------------------------


def tables(terms: Sequence[Any], lookup: Lookup) -> Iterator[Merged]:
    """Merge sums of rows into a table, such as gradients of a shared embedding."""
    groups: dict[Any, list[tuple[Variable, Instruction]]] = {}
    for term in terms:
        maker = lookup.term(term, op.ADD_ROWS)
        if maker is None:
            continue
        rows, indices = map(kind_of, maker.operands)
        if rows.is_array and indices.is_array and indices.shape and rows.size <= term.kind.size:
            remat = lookup.remat(maker.operands[0])
            key = (remat, rows.dtype, rows.shape[1:], indices.dtype, indices.shape[1:])
            groups.setdefault(key, []).append((term, maker))
    for group in groups.values():
        if len(group) > 1:  # pays from two on, as each table is larger than its rows
            group.sort(key=lambda pair: -lookup.place(pair[1].operands[0]))
            yield Merged([term for term, _ in group], _table_steps([m for _, m in group]))


def _table_steps(makers: list[Instruction]) -> Callable[[Variable, int], list[Instruction]]:
    def steps(out: Variable, remat: int) -> list[Instruction]:
        rows = _joined([maker.operands[0] for maker in makers], remat)
        indices = _joined([maker.operands[1] for maker in makers], remat)
        operands = (rows.outs[0], indices.outs[0])
        first = makers[0]
        return [
            rows,
            indices,
            Instruction(first.primitive, operands, first.params, (out,), False, remat),
        ]

    return steps


# --- slices of an array -------------------------------------------------------------


@attrs.frozen(eq=False)
class _Part:
    """A term that is zero outside of a range on one axis, and there equals ``x``.

    ``at`` is one index, along an axis that ``x`` does not have, or a range.
    """

    out: Variable
    x: Any
    axis: int
    at: Any


def parts(terms: Sequence[Any], lookup: Lookup) -> Iterator[Merged]:
    """Merge slices among zeros that are adjacent: concatenate the slices.

    They are the gradients of slicing: of the gates of a cell, or of the steps of a sequence.
    """
    groups: dict[Any, list[_Part]] = {}
    for term in terms:
        maker = lookup.term(term, op.UNSLICE)
        part = _part(term, maker) if maker is not None else None
        if part is not None:
            remat = lookup.remat(part.x)
            groups.setdefault((remat, part.axis, type(part.at)), []).append(part)
    for (_, axis, _), group in groups.items():
        run = _run(group)
        if run is not None:
            shape = group[0].out.kind.shape
            yield Merged([part.out for part in group], _part_steps(group, axis, run, shape))


def _part(term: Variable, maker: Instruction) -> _Part | None:
    found = part_of(maker.params["shape"], maker.params["key"])
    return _Part(term, maker.operands[0], *found) if found and term.kind.size else None


def _run(group: list[_Part]) -> range | None:
    """Return the range that slices fill without gaps, some perhaps more than once."""
    spans = {_span(part) for part in group}
    if len(spans) < 2:
        return None
    ordered = sorted(spans)
    if any(a[1] != b[0] for a, b in itertools.pairwise(ordered)):
        return None
    return range(ordered[0][0], ordered[-1][1])


def _span(part: _Part) -> tuple[int, int]:
    return (part.at, part.at + 1) if type(part.at) is int else (part.at.start, part.at.stop)


def _part_steps(
    group: list[_Part], axis: int, run: range, shape: tuple[int, ...]
) -> Callable[[Variable, int], list[Instruction]]:
    def steps(out: Variable, remat: int) -> list[Instruction]:
        made: list[Instruction] = []
        sums: dict[tuple[int, int], Any] = {}
        for part in sorted(group, key=_span):
            span, x = _span(part), part.x
            if span in sums:
                made.append(_applied(op.ADD, (sums[span], x), _of_sum(x), remat))
                x = made[-1].outs[0]
            sums[span] = x
        join = op.STACK if type(group[0].at) is int else op.CONCAT
        length = tuple(len(run) if i == axis else n for i, n in enumerate(shape))
        kind = Kind(out.kind.type, length, out.kind.dtype)
        made.append(_applied(join, tuple(sums.values()), kind, remat, axis=axis))
        if length != shape:
            view = View(
                tuple(run if i == axis else range(n) for i, n in enumerate(shape)),
                tuple(range(len(shape))),
            )
            params = {"shape": shape, "key": view.key(shape)}
            made.append(Instruction(op.UNSLICE, made[-1].outs, params, (out,), False, remat))
            return made
        last = made.pop()
        return [
            *made,
            Instruction(last.primitive, last.operands, last.params, (out,), False, remat),
        ]

    return steps


def _of_sum(x: Any) -> Kind:
    """Return the aval of a sum of two values like ``x``; without axes it is a scalar."""
    kind = kind_of(x)
    return kind if kind.shape else Kind(kind.dtype.type, (), kind.dtype)


FORMS: tuple[Callable[[Sequence[Any], Lookup], Iterator[Merged]], ...] = (
    products,
    row_sums,
    tables,
    parts,
)
