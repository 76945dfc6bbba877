"""Tiles of matrix products: as many results as fit into registers, accumulated there.

LLVM would not find them by itself: vectors of a chosen length, with an accumulator for each through
the whole loop.  All addresses and distances are in bytes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fdbr.backends.cpu.codegen.kernel_functions import intrinsic
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import Value
from fdbr.backends.cpu.codegen.vector_text import Vectors

__all__ = ["NAMES"]


def product(code: str, high: int, wide: int) -> Any:
    """Return a function that computes a tile of ``a @ b``, where rows of ``b`` are contiguous.

    It computes ``out[i, j] = begin[i, j] + sum(a[i, k] * b[k, j])`` for ``high`` rows ``i`` and
    ``wide`` vectors ``j``, with the sum over ``depth`` terms ``k``.
    """

    @intrinsic
    def tile(
        builder: Builder,
        a: Value,
        a_row: Value,
        a_step: Value,
        b: Value,
        b_row: Value,
        begin: Value,
        begin_row: Value,
        out: Value,
        out_row: Value,
        depth: Value,
    ) -> None:
        v = Vectors(builder, code)
        starts = [v.stepped(begin, begin_row, i) for i in range(high)]
        cells = [[v.cell(v.load(row, j * v.bytes)) for j in range(wide)] for row in starts]
        rows = [v.times(i, a_row) for i in range(high)]
        with builder.loop("0", depth.text) as index:
            left, right = v.stepped(a, a_step, index), v.stepped(b, b_row, index)
            vectors = [v.load(right, j * v.bytes) for j in range(wide)]
            for i in range(high):
                factor = v.spread(v.number(left, rows[i]))
                for cell, vector in zip(cells[i], vectors, strict=True):
                    v.add_product(cell, factor, vector)
        for i in range(high):
            row = v.stepped(out, out_row, i)
            for j, cell in enumerate(cells[i]):
                v.store(cell.text, row, j * v.bytes)
        v.let_go()

    return tile


def inner(code: str, high: int, wide: int) -> Any:
    """Return a function that computes a tile of ``a @ b.T``, where rows of both are contiguous.

    It computes ``out[i, j] = sum(a[i, k] * b[j, k])`` for ``high`` rows ``i`` and ``wide`` rows
    ``j``, with the sum over ``depth`` terms ``k``.
    """

    @intrinsic
    def tile(
        builder: Builder,
        a: Value,
        a_row: Value,
        b: Value,
        b_row: Value,
        out: Value,
        depth: Value,
    ) -> None:
        v = Vectors(builder, code)
        cells = [v.cells(wide) for _ in range(high)]
        lefts = [v.stepped(a, a_row, i) for i in range(high)]
        rights = [v.stepped(b, b_row, j) for j in range(wide)]
        count = builder.add(f"udiv {depth.typed}, {v.count}")
        rest = builder.add(f"urem {depth.typed}, {v.count}")

        def add_products(at: str, load: Callable[..., str]) -> None:
            vectors = [load(left, at) for left in lefts]
            for j in range(wide):
                right = load(rights[j], at)
                for i in range(high):
                    v.add_product(cells[i][j], vectors[i], right)

        with builder.loop("0", count) as index:
            add_products(v.times(v.bytes, index), v.load)
        with builder.where(builder.add(f"icmp ne i64 {rest}, 0")):
            add_products(v.times(v.bytes, count), partial(v.load_some, rest))
        for i in range(high):
            for j, cell in enumerate(cells[i]):
                v.store_number(v.total(cell.text), out, (i * wide + j) * v.size)
        v.let_go()

    return tile


def turned(code: str) -> Any:
    """Return a function that transposes a square of as many rows as vectors have elements.

    Each round interleaves the first half of the rows with the second one.
    """

    @intrinsic
    def iteration(builder: Builder, x: Value, x_row: Value, out: Value, out_row: Value) -> None:
        v = Vectors(builder, code)
        rows = [v.load(v.stepped(x, x_row, i)) for i in range(v.count)]
        for _ in range(v.count.bit_length() - 1):
            pairs = zip(rows[: v.count // 2], rows[v.count // 2 :], strict=True)
            rows = [half for one, other in pairs for half in v.interleaved(one, other)]
        for i, row in enumerate(rows):
            v.store(row, v.stepped(out, out_row, i))

    return iteration


NAMES = {"inner": inner, "product": product, "turned": turned}
