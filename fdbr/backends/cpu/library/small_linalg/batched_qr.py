"""Factorisations of many small matrices side by side, and triangular solves."""

from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.library.small_linalg.batched_lu import NUMBERS, read
from fdbr.backends.cpu.library.small_linalg.lanes import Lanes, Tile

__all__ = ["REFLECTION_NUMBERS", "reflections", "roots", "substitutions"]

REFLECTION_NUMBERS = ("m", "n", "least", "q")


def roots(dtype: Any, count: int) -> str:
    """Return a kernel for Cholesky factors, which reads lower triangles: ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.word["n"]
    a = lanes.tile(n, n)

    def column(c: Number, definite: Number) -> Number:
        def known(i: Number) -> Number:
            def less(j: Number, total: Number) -> Number:
                return lanes.fused(-a[i, j], a[c, j], total)

            return lanes.repeat(0, c, less, a[i, c])[0]

        square = known(c)
        root = lanes.apply("sqrt", square)
        a[c, c] = root
        inverse = 1 / root
        with lanes.each(c + 1, n) as i:
            a[i, c] = known(i) * inverse
        return definite & ((square > 0) | square.differs(square))  # NaN is not a failure

    def body() -> None:
        read(lanes, "a", a, lower=True)
        (definite,) = lanes.repeat(0, n, column, lanes.truths(True))
        lanes.require(definite)
        nan = float("nan")
        with lanes.each(0, n) as i:
            with lanes.each(0, i + 1) as j:
                lanes.set("out", i, j, lanes.choose(definite, a[i, j], nan))
            with lanes.each(i + 1, n) as j:
                lanes.set("out", i, j, lanes.choose(definite, lanes.fill(0), nan))

    return lanes.source(body)


def substitutions(dtype: Any, count: int) -> str:
    """Return a kernel for ``out`` with ``a @ out = b``, where ``a`` is lower triangular.

    The arrays are ``a``, ``b``, ``out``.  If the number ``unit`` is not 0, the diagonal is taken as
    ones.
    """
    lanes = Lanes(dtype, count, (*NUMBERS, "unit"), ("a", "b", "out"))
    n, k, unit = (lanes.word[name] for name in (*NUMBERS, "unit"))
    a, b = lanes.tile(n, n), lanes.tile(n, k)

    def row(i: Number, regular: Number) -> Number:
        pivot = lanes.choose(lanes.every(unit.differs(0)), lanes.fill(1), a[i, i])
        with lanes.each(0, k) as c:

            def less(j: Number, total: Number) -> Number:
                return lanes.fused(-a[i, j], b[j, c], total)

            (rest,) = lanes.repeat(0, i, less, lanes.get("b", i, c))
            b[i, c] = rest / pivot
        return regular & pivot.differs(0)

    def body() -> None:
        read(lanes, "a", a, lower=True)
        (regular,) = lanes.repeat(0, n, row, lanes.truths(True))
        lanes.require(regular)
        with lanes.each(0, n) as i, lanes.each(0, k) as c:
            lanes.set("out", i, c, lanes.choose(regular, b[i, c], float("nan")))

    return lanes.source(body)


# --- QR -----------------------------------------------------------------------------


def reflections(dtype: Any, count: int) -> str:
    """Return a kernel for the factors ``q`` and ``r`` of ``a``, by Householder reflections.

    ``a`` has ``m`` rows and ``n`` columns, ``least`` is the smaller of both, and ``q`` has ``q``
    columns.  Signs are those of LAPACK's ``geqrf``.
    """
    lanes = Lanes(dtype, count, REFLECTION_NUMBERS, ("a", "q", "r"))
    m, n, least, columns = (lanes.word[name] for name in REFLECTION_NUMBERS)
    a, q, scales = lanes.tile(m, n), lanes.tile(m, columns), lanes.tile(1, least)

    def body() -> None:
        read(lanes, "a", a)
        with lanes.each(0, least) as c:
            _reflect(lanes, a, scales, c, m, n)
        _unfold(lanes, a, q, scales, least)
        with lanes.each(0, columns) as i, lanes.each(0, n) as j:
            lanes.set("r", i, j, lanes.choose(lanes.every(i > j), lanes.fill(0), a[i, j]))
        with lanes.each(0, m) as i, lanes.each(0, columns) as j:
            lanes.set("q", i, j, q[i, j])

    return lanes.source(body)


def _reflect(lanes: Lanes, a: Tile, scales: Tile, c: Number, m: Number, n: Number) -> None:
    """Emit the reflection of the rest of column ``c`` onto its first element, applied to ``a``."""
    after = c + 1

    def larger(i: Number, largest: Number) -> Number:
        size = lanes.apply("fabs", a[i, c])
        # NaN counts as larger than any number.
        return lanes.choose((size < largest) | size.equals(largest), largest, size)

    alpha = a[c, c]
    (tail,) = lanes.repeat(after, m, larger, lanes.fill(0))
    largest = lanes.larger(tail, lanes.apply("fabs", alpha))
    unit = lanes.choose(tail.equals(0), 1.0, largest)

    def add(i: Number, total: Number) -> Number:
        part = a[i, c] / unit
        return lanes.fused(part, part, total)

    first = alpha / unit
    (square,) = lanes.repeat(after, m, add, first * first)
    norm = lanes.apply("sqrt", square) * unit
    beta = -lanes.apply("copysign", norm, alpha)
    still = tail.equals(0)
    scale = lanes.choose(still, 0.0, (beta - alpha) / beta)
    divisor = lanes.choose(still, 1.0, alpha - beta)
    scales[0, c] = scale
    a[c, c] = lanes.choose(still, alpha, beta)
    with lanes.each(after, m) as i:
        a[i, c] = a[i, c] / divisor
    with lanes.each(after, n) as j:
        _apply(lanes, a, scale, c, a, j)


def _apply(lanes: Lanes, a: Tile, scale: Number, c: Number, x: Tile, j: Number) -> None:
    """Emit the reflection of column ``c``, applied to column ``j`` of ``x``."""
    after = c + 1

    def along(i: Number, total: Number) -> Number:
        return lanes.fused(a[i, c], x[i, j], total)

    (total,) = lanes.repeat(after, a.rows, along, x[c, j])
    share = total * scale
    x[c, j] = x[c, j] - share
    with lanes.each(after, a.rows) as i:
        x[i, j] = lanes.fused(-share, a[i, c], x[i, j])


def _unfold(lanes: Lanes, a: Tile, q: Tile, scales: Tile, least: Number) -> None:
    """Emit the product of all reflections, applied to the first columns of the identity."""
    with lanes.each(0, q.rows) as i, lanes.each(0, q.columns) as j:
        q[i, j] = lanes.choose(lanes.every(i.equals(j)), lanes.fill(1), 0.0)
    with lanes.each(0, least) as iteration:
        c = least - 1 - iteration
        with lanes.each(c, q.columns) as j:
            _apply(lanes, a, scales[0, c], c, q, j)
