"""Householder factorisation and triangular solves for matrices of medium size.

LAPACK's blocks are too small for these sizes to be fast.  Here a reflection makes two passes over
the rest of a matrix, four vectors of each row at once, so that the second pass finds the elements
in the cache.
"""

from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.library.small_linalg.rows import Panel, Rows

__all__ = ["REFLECTION_NUMBERS", "reduced_sides", "reflections", "substitutions"]

REFLECTION_NUMBERS = ("m", "n", "q")


def reflections(dtype: Any, count: int) -> str:
    """Return a kernel for the factors ``q`` and ``r`` of ``a``, which has at least as many rows.

    ``a`` has ``m`` rows and ``n`` columns, and ``q`` has ``q``.  Signs are those of LAPACK.
    """
    rows = Rows(dtype, count, REFLECTION_NUMBERS, ("a", "q", "r"))
    m, n, columns = (rows.word[name] for name in REFLECTION_NUMBERS)
    a, q, v, scales = (rows.panel(*s) for s in ((m, n), (m, columns), (n, m), (1, n)))

    def body() -> None:
        rows.read_panel("a", a, n)
        v.clear()
        with rows.each(0, n) as c:
            scale = _reflector(rows, a, v, c)
            scales.put(0, c, scale)
            _reflect(rows, v, scale, c, a)
        q.clear()
        with rows.each(0, columns) as i:
            q.put(i, i, rows.fill(1))
        with rows.each(0, n) as iteration:
            c = n - 1 - iteration
            _reflect(rows, v, scales.number(0, c), c, q)
        _write_upper(rows, a, columns, n)
        with rows.both(m, columns) as (i, j):
            rows.set("q", i, j, q.number(i, j))

    return rows.source(body)


def reduced_sides(dtype: Any, count: int) -> str:
    """Return a kernel for the factor ``r`` of ``a``, and ``out``, the first rows of ``q^T @ b``.

    The number ``q`` is that of the columns of ``b``.
    """
    rows = Rows(dtype, count, REFLECTION_NUMBERS, ("a", "b", "r", "out"))
    m, n, k = (rows.word[name] for name in REFLECTION_NUMBERS)
    a, b, v = (rows.panel(*s) for s in ((m, n), (m, k), (n, m)))

    def body() -> None:
        rows.read_panel("a", a, n)
        rows.read_panel("b", b, k)
        v.clear()
        with rows.each(0, n) as c:
            scale = _reflector(rows, a, v, c)
            _reflect(rows, v, scale, c, a)
            _reflect(rows, v, scale, c, b, whole=True)
        _write_upper(rows, a, n, n)
        with rows.both(n, k) as (i, j):
            rows.set("out", i, j, b.number(i, j))

    return rows.source(body)


def _write_upper(rows: Rows, a: Panel, height: Number, width: Number) -> None:
    with rows.both(height, width) as (i, j):
        value = rows.choose(rows.every(i > j), rows.fill(0), a.number(i, j))
        rows.set("r", i, j, value)


def _reflector(rows: Rows, a: Panel, v: Panel, c: Number) -> Number:
    """Emit the Householder vector of column ``c`` as a row of ``v``; return its scale."""
    alpha = a.number(c, c)
    with rows.each(c + 1, a.height) as i:
        v.put(c, i, a.number(i, c))

    def largest_of(t: Number, largest: Number) -> Number:
        return rows.larger(rows.apply("fabs", v[c, t]), largest)

    start, zero = rows.vector_of(c), rows.fill(0)
    (largest,) = rows.repeat(start, v.vectors, largest_of, zero)
    tail = rows.folded(largest, rows.larger)
    unit = rows.choose(tail.equals(0), 1.0, rows.larger(tail, rows.apply("fabs", alpha)))

    def squares(t: Number, total: Number) -> Number:
        part = v[c, t] / unit
        return rows.fused(part, part, total)

    (square,) = rows.repeat(start, v.vectors, squares, zero)
    head, total = alpha / unit, rows.folded(square, Number.__add__)
    norm = rows.apply("sqrt", rows.fused(head, head, total)) * unit
    still = tail.equals(0)
    beta = rows.choose(still, alpha, -rows.apply("copysign", norm, alpha))
    divisor = rows.choose(still, 1.0, alpha - beta)
    with rows.each(start, v.vectors) as t:
        v[c, t] = v[c, t] / divisor
    v.put(c, c, rows.fill(1))
    return rows.choose(still, 0.0, (beta - alpha) / beta)


def _reflect(rows: Rows, v: Panel, scale: Number, c: Number, x: Panel, whole: bool = False) -> None:
    """Emit the reflection of the columns of ``x``, or of those from ``c`` on.

    Columns before ``c`` in the same vector are zeros, or below the triangle, which is not read.
    """

    def body(vectors: list[Number]) -> None:
        def add(i: Number, *totals: Number) -> list[Number]:
            factor = v.number(c, i)
            pairs = zip(vectors, totals, strict=True)
            return [rows.fused(factor, x[i, t], total) for t, total in pairs]

        totals = rows.repeat(c, x.height, add, *[rows.fill(0)] * len(vectors))
        shares = [-(total * scale) for total in totals]
        with rows.each(c, x.height) as i:
            factor = v.number(c, i)
            for t, share in zip(vectors, shares, strict=True):
                x[i, t] = rows.fused(factor, share, x[i, t])

    rows.across(0 if whole else rows.vector_of(c), x, body)


def substitutions(dtype: Any, count: int) -> str:
    """Return a kernel like that of `batched_qr`: ``a``, a lower triangle, ``b`` and ``out``."""
    rows = Rows(dtype, count, ("n", "k", "unit"), ("a", "b", "out"))
    n, k, unit = (rows.word[name] for name in ("n", "k", "unit"))
    x = rows.panel(n, k)

    def body() -> None:
        rows.read_panel("b", x, k)
        ones = rows.every(unit.differs(0))

        def pivot(i: Number) -> Number:
            return rows.choose(ones, rows.fill(1), rows.get("a", i, i))

        def columns(vectors: list[Number]) -> None:
            with rows.each(0, n) as i:

                def less(j: Number, *rest: Number) -> list[Number]:
                    factor = -rows.get("a", i, j)
                    pairs = zip(vectors, rest, strict=True)
                    return [rows.fused(factor, x[j, t], r) for t, r in pairs]

                rest = rows.repeat(0, i, less, *[x[i, t] for t in vectors])
                by = pivot(i)
                for t, part in zip(vectors, rest, strict=True):
                    x[i, t] = part / by

        rows.across(0, x, columns)
        regular = rows.repeat(0, n, lambda i, r: r & pivot(i).differs(0), rows.truths(True))[0]
        with rows.when(rows.any(~regular)):
            rows.fail()
        with rows.both(n, k) as (i, j):
            rows.set("out", i, j, rows.choose(regular, x.number(i, j), float("nan")))

    return rows.source(body)
