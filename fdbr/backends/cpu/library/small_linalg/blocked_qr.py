"""Householder factorisation and triangular solves for matrices of medium size.

LAPACK's blocks are too small for these sizes to be fast.  Here a reflection makes two passes over
the rest of a matrix, four vectors of each row at once, so that the second pass finds the elements
in the cache.
"""

from typing import Any

from fdbr.backends.cpu.library.small_linalg.rows import Panel, Rows
from fdbr.backends.cpu.library.small_linalg.values import Value

__all__ = ["REFLECTION_NUMBERS", "reduced_sides", "reflections", "substitutions"]

REFLECTION_NUMBERS = ("m", "n", "q")


def reflections(dtype: Any, count: int) -> str:
    """Return a kernel for the factors ``q`` and ``r`` of ``a``, which has at least as many rows.

    ``a`` has ``m`` rows and ``n`` columns, and ``q`` has ``q``.  Signs are those of LAPACK.
    """
    rows = Rows(dtype, count, REFLECTION_NUMBERS, ("a", "q", "r"))
    m, n, columns = (rows.number[name] for name in REFLECTION_NUMBERS)
    a, q, v, scales = (rows.panel(*s) for s in ((m, n), (m, columns), (n, m), (1, n)))

    def body() -> None:
        rows.read("a", a, n)
        v.clear()

        def column(c: Value) -> None:
            scale = _reflector(rows, a, v, c)
            scales.put(0, c, scale)
            _reflect(rows, v, scale, c, a)

        rows.loop(0, n, column)
        q.clear()

        def one(i: Value) -> None:
            q.put(i, i, rows.constant(1))

        rows.loop(0, columns, one)

        def back(iteration: Value) -> None:
            c = n - 1 - iteration
            _reflect(rows, v, scales.number(0, c), c, q)

        rows.loop(0, n, back)

        _write_upper(rows, a, columns, n)
        rows.each(m, columns, lambda i, j: rows.store("q", i, j, q.number(i, j)))

    return rows.source(body)


def reduced_sides(dtype: Any, count: int) -> str:
    """Return a kernel for the factor ``r`` of ``a``, and ``out``, the first rows of ``q^T @ b``.

    The number ``q`` is that of the columns of ``b``.
    """
    rows = Rows(dtype, count, REFLECTION_NUMBERS, ("a", "b", "r", "out"))
    m, n, k = (rows.number[name] for name in REFLECTION_NUMBERS)
    a, b, v = (rows.panel(*s) for s in ((m, n), (m, k), (n, m)))

    def body() -> None:
        rows.read("a", a, n)
        rows.read("b", b, k)
        v.clear()

        def column(c: Value) -> None:
            scale = _reflector(rows, a, v, c)
            _reflect(rows, v, scale, c, a)
            _reflect(rows, v, scale, c, b, whole=True)

        rows.loop(0, n, column)
        _write_upper(rows, a, n, n)
        rows.each(n, k, lambda i, j: rows.store("out", i, j, b.number(i, j)))

    return rows.source(body)


def _write_upper(rows: Rows, a: Panel, height: Value, width: Value) -> None:
    def upper(i: Value, j: Value) -> None:
        value = rows.choose(rows.every(i > j), rows.constant(0), a.number(i, j))
        rows.store("r", i, j, value)

    rows.each(height, width, upper)


def _vector_of(rows: Rows, column: Value) -> Value:
    """Emit the index of the vector that contains a column."""
    return column >> (rows.count.bit_length() - 1)


def _reflector(rows: Rows, a: Panel, v: Panel, c: Value) -> Value:
    """Emit the Householder vector of column ``c`` as a row of ``v``; return its scale."""
    after = c + 1
    alpha = a.number(c, c)
    rows.loop(after, a.height, lambda i: v.put(c, i, a.number(i, c)))

    def largest_of(t: Value, largest: Value) -> Value:
        return rows.larger(rows.call("fabs", v[c, t]), largest)

    start, zero = _vector_of(rows, c), rows.constant(0)
    (largest,) = rows.loop(start, v.vectors, largest_of, zero)
    tail = rows.total(largest, "larger")
    unit = rows.choose(tail.equals(0), 1.0, rows.larger(tail, rows.call("fabs", alpha)))

    def squares(t: Value, total: Value) -> Value:
        part = v[c, t] / unit
        return rows.fused(part, part, total)

    (square,) = rows.loop(start, v.vectors, squares, zero)
    head = alpha / unit
    norm = rows.call("sqrt", rows.fused(head, head, rows.total(square))) * unit
    still = tail.equals(0)
    beta = rows.choose(still, alpha, -rows.call("copysign", norm, alpha))
    divisor = rows.choose(still, 1.0, alpha - beta)

    def divide(t: Value) -> None:
        v[c, t] = v[c, t] / divisor

    rows.loop(start, v.vectors, divide)
    v.put(c, c, rows.constant(1))
    return rows.choose(still, 0.0, (beta - alpha) / beta)


def _reflect(rows: Rows, v: Panel, scale: Value, c: Value, x: Panel, whole: bool = False) -> None:
    """Emit the reflection of the columns of ``x``, or of those from ``c`` on.

    Columns before ``c`` in the same vector are zeros, or below the triangle, which is not read.
    """

    def body(places: list[Value]) -> None:
        def add(i: Value, *totals: Value) -> tuple[Value, ...]:
            factor = v.number(c, i)
            pairs = zip(places, totals, strict=True)
            return tuple(rows.fused(factor, x[i, t], total) for t, total in pairs)

        totals = rows.loop(c, x.height, add, *[rows.constant(0)] * len(places))
        shares = [-(total * scale) for total in totals]

        def less(i: Value) -> None:
            factor = v.number(c, i)
            for t, share in zip(places, shares, strict=True):
                x[i, t] = rows.fused(factor, share, x[i, t])

        rows.loop(c, x.height, less)

    rows.across(rows.index(0) if whole else _vector_of(rows, c), x, body)


def substitutions(dtype: Any, count: int) -> str:
    """Return a kernel like that of `batched_qr`: ``a``, a lower triangle, ``b`` and ``out``."""
    rows = Rows(dtype, count, ("n", "k", "unit"), ("a", "b", "out"))
    n, k, unit = (rows.number[name] for name in ("n", "k", "unit"))
    x = rows.panel(n, k)

    def body() -> None:
        rows.read("b", x, k)
        ones = rows.every(unit.differs(0))

        def pivot(i: Value) -> Value:
            return rows.choose(ones, rows.constant(1), rows.load("a", i, i))

        def columns(places: list[Value]) -> None:
            def row(i: Value) -> None:
                def less(j: Value, *rest: Value) -> tuple[Value, ...]:
                    factor = -rows.load("a", i, j)
                    pairs = zip(places, rest, strict=True)
                    return tuple(rows.fused(factor, x[j, t], r) for t, r in pairs)

                rest = rows.loop(0, i, less, *[x[i, t] for t in places])
                by = pivot(i)
                for t, part in zip(places, rest, strict=True):
                    x[i, t] = part / by

            rows.loop(0, n, row)

        rows.across(rows.index(0), x, columns)
        (regular,) = rows.loop(0, n, lambda i, r: r & pivot(i).differs(0), rows.truth(True))
        rows.when(rows.any(regular ^ True), rows.fail)

        def written(i: Value, j: Value) -> None:
            found = rows.choose(regular, x.number(i, j), float("nan"))
            rows.store("out", i, j, found)

        rows.each(n, k, written)

    return rows.source(body)
