"""Factorisations of many small matrices side by side, and triangular solves."""

from typing import Any

from fdbr.backends.cpu.library.small_linalg.batched_lu import NUMBERS, read
from fdbr.backends.cpu.library.small_linalg.lanes import Lanes, Tile
from fdbr.backends.cpu.library.small_linalg.values import Value

__all__ = ["REFLECTION_NUMBERS", "reflections", "roots", "substitutions"]

REFLECTION_NUMBERS = ("m", "n", "least", "q")


def roots(dtype: Any, count: int) -> str:
    """Return a kernel for Cholesky factors, which reads lower triangles: ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.number["n"]
    a = lanes.tile(n, n)

    def column(c: Value, definite: Value) -> Value:
        def known(i: Value) -> Value:
            def less(j: Value, total: Value) -> Value:
                return lanes.fused(-a[i, j], a[c, j], total)

            return lanes.loop(0, c, less, a[i, c])[0]

        square = known(c)
        root = lanes.call("sqrt", square)
        a[c, c] = root
        inverse = 1 / root

        def row(i: Value) -> None:
            a[i, c] = known(i) * inverse

        lanes.loop(c + 1, n, row)
        return definite & ((square > 0) | square.differs(square))  # NaN is not a failure

    def body() -> None:
        read(lanes, "a", a, lower=True)
        (definite,) = lanes.loop(0, n, column, lanes.truth(True))
        lanes.fail(definite ^ True)

        def row(i: Value) -> None:
            def below(j: Value) -> None:
                lanes.store("out", i, j, lanes.choose(definite, a[i, j], float("nan")))

            def above(j: Value) -> None:
                nothing = lanes.choose(definite, lanes.constant(0), float("nan"))
                lanes.store("out", i, j, nothing)

            lanes.loop(0, i + 1, below)
            lanes.loop(i + 1, n, above)

        lanes.loop(0, n, row)

    return lanes.source(body)


def substitutions(dtype: Any, count: int) -> str:
    """Return a kernel for ``out`` with ``a @ out = b``, where ``a`` is lower triangular.

    The arrays are ``a``, ``b``, ``out``.  If the number ``unit`` is not 0, the diagonal is taken as
    ones.
    """
    lanes = Lanes(dtype, count, (*NUMBERS, "unit"), ("a", "b", "out"))
    n, k, unit = (lanes.number[name] for name in (*NUMBERS, "unit"))
    a, b = lanes.tile(n, n), lanes.tile(n, k)

    def row(i: Value, regular: Value) -> Value:
        pivot = lanes.choose(lanes.every(unit.differs(0)), lanes.constant(1), a[i, i])

        def column(c: Value) -> None:
            def less(j: Value, total: Value) -> Value:
                return lanes.fused(-a[i, j], b[j, c], total)

            (rest,) = lanes.loop(0, i, less, lanes.load("b", i, c))
            b[i, c] = rest / pivot

        lanes.loop(0, k, column)
        return regular & pivot.differs(0)

    def body() -> None:
        read(lanes, "a", a, lower=True)
        (regular,) = lanes.loop(0, n, row, lanes.truth(True))
        lanes.fail(regular ^ True)

        def written(i: Value) -> None:
            def each(c: Value) -> None:
                lanes.store("out", i, c, lanes.choose(regular, b[i, c], float("nan")))

            lanes.loop(0, k, each)

        lanes.loop(0, n, written)

    return lanes.source(body)


# --- QR -----------------------------------------------------------------------------


def reflections(dtype: Any, count: int) -> str:
    """Return a kernel for the factors ``q`` and ``r`` of ``a``, by Householder reflections.

    ``a`` has ``m`` rows and ``n`` columns, ``least`` is the smaller of both, and ``q`` has ``q``
    columns.  Signs are those of LAPACK's ``geqrf``.
    """
    lanes = Lanes(dtype, count, REFLECTION_NUMBERS, ("a", "q", "r"))
    m, n, least, columns = (lanes.number[name] for name in REFLECTION_NUMBERS)
    a, q, scales = lanes.tile(m, n), lanes.tile(m, columns), lanes.tile(1, least)

    def body() -> None:
        read(lanes, "a", a)
        lanes.loop(0, least, lambda c: _reflect(lanes, a, scales, c, m, n))
        _unfold(lanes, a, q, scales, least)

        def row(i: Value) -> None:
            def each(j: Value) -> None:
                lower = lanes.every(i > j)
                lanes.store("r", i, j, lanes.choose(lower, lanes.constant(0), a[i, j]))

            lanes.loop(0, n, each)

        lanes.loop(0, columns, row)

        def given(i: Value) -> None:
            def each(j: Value) -> None:
                lanes.store("q", i, j, q[i, j])

            lanes.loop(0, columns, each)

        lanes.loop(0, m, given)

    return lanes.source(body)


def _reflect(lanes: Lanes, a: Tile, scales: Tile, c: Value, m: Value, n: Value) -> None:
    """Emit the reflection of the rest of column ``c`` onto its first element, applied to ``a``."""
    after = c + 1

    def larger(i: Value, largest: Value) -> Value:
        size = lanes.call("fabs", a[i, c])
        # NaN counts as larger than any number.
        return lanes.choose((size < largest) | size.equals(largest), largest, size)

    alpha = a[c, c]
    (tail,) = lanes.loop(after, m, larger, lanes.constant(0))
    largest = larger_of(lanes, tail, lanes.call("fabs", alpha))
    unit = lanes.choose(tail.equals(0), 1.0, largest)

    def add(i: Value, total: Value) -> Value:
        part = a[i, c] / unit
        return lanes.fused(part, part, total)

    first = alpha / unit
    (square,) = lanes.loop(after, m, add, first * first)
    norm = lanes.call("sqrt", square) * unit
    beta = -lanes.call("copysign", norm, alpha)
    still = tail.equals(0)
    scale = lanes.choose(still, 0.0, (beta - alpha) / beta)
    divisor = lanes.choose(still, 1.0, alpha - beta)
    scales[0, c] = scale
    a[c, c] = lanes.choose(still, alpha, beta)

    def divide(i: Value) -> None:
        a[i, c] = a[i, c] / divisor

    lanes.loop(after, m, divide)
    lanes.loop(after, n, lambda j: _apply(lanes, a, scale, c, a, j))


def larger_of(lanes: Lanes, x: Value, y: Value) -> Value:
    """Emit the larger of two non-negative numbers; NaN if one of them is."""
    return lanes.choose((y < x) | x.differs(x), x, y)


def _apply(lanes: Lanes, a: Tile, scale: Value, c: Value, x: Tile, j: Value) -> None:
    """Emit the reflection of column ``c``, applied to column ``j`` of ``x``."""
    after = c + 1

    def along(i: Value, total: Value) -> Value:
        return lanes.fused(a[i, c], x[i, j], total)

    (total,) = lanes.loop(after, a.rows, along, x[c, j])
    share = total * scale
    x[c, j] = x[c, j] - share

    def less(i: Value) -> None:
        x[i, j] = lanes.fused(-share, a[i, c], x[i, j])

    lanes.loop(after, a.rows, less)


def _unfold(lanes: Lanes, a: Tile, q: Tile, scales: Tile, least: Value) -> None:
    """Emit the product of all reflections, applied to the first columns of the identity."""

    def row(i: Value) -> None:
        def each(j: Value) -> None:
            q[i, j] = lanes.choose(lanes.every(i.equals(j)), lanes.constant(1), 0.0)

        lanes.loop(0, q.columns, each)

    lanes.loop(0, q.rows, row)

    def back(iteration: Value) -> None:
        c = least - 1 - iteration
        lanes.loop(c, q.columns, lambda j: _apply(lanes, a, scales[0, c], c, q, j))

    lanes.loop(0, least, back)
