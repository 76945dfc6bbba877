"""Gaussian elimination in many small matrices side by side: solves, inverses and determinants.

Pivots are the largest elements of columns (Golub and Van Loan, "Matrix Computations", 4th edition,
2013, 3.4.1), in each lane another row.  A matrix whose pivot is zero is singular, as in LAPACK.
"""

from typing import Any

from fdbr.backends.cpu.library.small_linalg.lanes import Lanes, Tile
from fdbr.backends.cpu.library.small_linalg.values import Value

__all__ = ["NUMBERS", "determinants", "inverses", "logarithms", "read", "solutions"]

NUMBERS = ("n", "k")


def _eliminated(lanes: Lanes, a: Tile, b: Tile | None, n: Value, k: Any) -> tuple[Value, Value]:
    """Emit the elimination that makes ``a`` upper triangular, applied to the rows of ``b``, too.

    Return masks of the regular matrices, and of those with an odd number of row exchanges.
    """

    def column(c: Value, regular: Value, odd: Value) -> tuple[Value, Value]:
        after = c + 1
        here = lanes.numbered(c)

        def larger(i: Value, best: Value, place: Value) -> tuple[Value, Value]:
            size = lanes.call("fabs", a[i, c])
            more = size > best
            return lanes.choose(more, size, best), lanes.choose(more, lanes.numbered(i), place)

        _, place = lanes.loop(after, n, larger, lanes.call("fabs", a[c, c]), here)
        swapped = place.differs(here)

        def exchanged() -> None:
            lanes.loop(after, n, exchange)

        def exchange(i: Value) -> None:
            mine = place.equals(lanes.numbered(i))
            lanes.when(lanes.any(mine), lambda: _exchange_rows(lanes, mine, a, c, i, c, n))
            if b is not None:
                lanes.when(lanes.any(mine), lambda: _exchange_rows(lanes, mine, b, c, i, 0, k))

        lanes.when(lanes.any(swapped), exchanged)
        pivot = a[c, c]

        def row(i: Value) -> None:
            share = -(a[i, c] / pivot)
            _add_row(lanes, share, a, c, i, after, n)
            if b is not None:
                _add_row(lanes, share, b, c, i, 0, k)

        lanes.loop(after, n, row)
        return regular & pivot.differs(0), odd ^ swapped

    regular, odd = lanes.loop(0, n, column, lanes.truth(True), lanes.truth(False))
    return regular, odd


def _exchange_rows(
    lanes: Lanes, where: Value, x: Tile, i: Value, j: Value, start: Any, stop: Any
) -> None:
    def each(c: Value) -> None:
        one, other = x[i, c], x[j, c]
        x[i, c] = lanes.choose(where, other, one)
        x[j, c] = lanes.choose(where, one, other)

    lanes.loop(start, stop, each)


def _add_row(
    lanes: Lanes, factor: Value, x: Tile, source: Value, to: Value, start: Any, stop: Any
) -> None:
    """Emit ``x[to] += factor * x[source]``."""

    def each(c: Value) -> None:
        x[to, c] = lanes.fused(factor, x[source, c], x[to, c])

    lanes.loop(start, stop, each)


def read(lanes: Lanes, name: str, x: Tile, lower: bool = False) -> None:
    """Emit a copy of an array, or of its lower triangle."""

    def row(i: Value) -> None:
        def each(j: Value) -> None:
            x[i, j] = lanes.load(name, i, j)

        lanes.loop(0, i + 1 if lower else x.columns, each)

    lanes.loop(0, x.rows, row)


def _solved(lanes: Lanes, a: Tile, b: Tile, n: Value, k: Value) -> None:
    """Emit elimination, back substitution and stores; NaN for singular matrices."""
    regular, _ = _eliminated(lanes, a, b, n, k)
    lanes.fail(regular ^ True)

    def row(iteration: Value) -> None:
        i = n - 1 - iteration

        def column(c: Value) -> None:
            def less(j: Value, total: Value) -> Value:
                return lanes.fused(-a[i, j], b[j, c], total)

            (rest,) = lanes.loop(i + 1, n, less, b[i, c])
            found = rest / a[i, i]
            b[i, c] = found
            lanes.store("out", i, c, lanes.choose(regular, found, float("nan")))

        lanes.loop(0, k, column)

    lanes.loop(0, n, row)


def solutions(dtype: Any, count: int) -> str:
    """Return a kernel for ``out`` with ``a @ out = b``: the arrays ``a``, ``b``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "b", "out"))
    n, k = lanes.number["n"], lanes.number["k"]
    a, b = lanes.tile(n, n), lanes.tile(n, k)

    def body() -> None:
        read(lanes, "a", a)
        read(lanes, "b", b)
        _solved(lanes, a, b, n, k)

    return lanes.source(body)


def inverses(dtype: Any, count: int) -> str:
    """Return a kernel for inverses: the arrays ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.number["n"]
    a, b = lanes.tile(n, n), lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)

        def row(i: Value) -> None:
            def each(j: Value) -> None:
                b[i, j] = lanes.constant(0)

            lanes.loop(0, n, each)
            b[i, i] = lanes.constant(1)

        lanes.loop(0, n, row)
        _solved(lanes, a, b, n, n)

    return lanes.source(body)


# --- determinants -------------------------------------------------------------------


def _product(lanes: Lanes, a: Tile, n: Value) -> tuple[Value, Value, Value]:
    """Emit the determinant as mantissa, exponent and sign.

    The mantissa is in ``[sqrt(1/2), sqrt(2))``, or 0, infinite or NaN; the exponent of 2 is a
    float; the last result is the mask of negative determinants.
    """
    regular, odd = _eliminated(lanes, a, None, n, 0)
    fraction, bias, low = (52, 1023, 2.0**-1022) if lanes.bits == 64 else (23, 127, 2.0**-126)
    lift = 60 if lanes.bits == 64 else 30  # a power of 2 that makes subnormal numbers normal

    def factor(i: Value, size: Value, power: Value, negative: Value) -> tuple[Value, Value, Value]:
        pivot = a[i, i]
        negative = negative ^ (pivot < 0)
        new = lanes.call("fabs", pivot)
        short = new < low
        new = lanes.choose(short, new * 2.0**lift, new)
        power = power - lanes.choose(short, lanes.constant(lift), 0.0)
        # The exponent, or 0 for numbers that are 0, infinite or NaN, which stay as they are.
        word = lanes.cast("bitcast", new, lanes.integers)
        up = word >> fraction
        plain = (new > 0) & (new < float("inf"))
        up = lanes.choose(plain, up - bias, 0)
        mantissa = lanes.cast("bitcast", word - (up << fraction), lanes.vector)
        size, power = size * mantissa, power + lanes.cast("sitofp", up, lanes.vector)
        large = (size > 2.0**0.5) & (size < float("inf"))
        return (
            lanes.choose(large, size * 0.5, size),
            lanes.choose(large, power + 1, power),
            negative,
        )

    one, zero = lanes.constant(1), lanes.constant(0)
    size, power, negative = lanes.loop(0, n, factor, one, zero, odd)
    return lanes.choose(regular, size, 0.0), power, negative


def determinants(dtype: Any, count: int) -> str:
    """Return a kernel for determinants: the arrays ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.number["n"]
    a = lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)
        size, power, negative = _product(lanes, a, n)
        size = lanes.choose(negative, -size, size)
        # Multiplied in three steps, none of which is out of range unless the result is; exponents
        # that give infinity or 0 anyway are clamped to those that can be represented.
        most = 2200.0 if lanes.bits == 64 else 300.0
        power = lanes.call(
            "minnum", lanes.call("maxnum", power, lanes.constant(-most)), lanes.constant(most)
        )
        third = lanes.call("trunc", power / 3)
        for part in (third, third, power - third - third):
            size = size * _power_of_two(lanes, part)
        lanes.store("out", 0, 0, size)

    return lanes.source(body)


def _power_of_two(lanes: Lanes, power: Value) -> Value:
    fraction, bias = (52, 1023) if lanes.bits == 64 else (23, 127)
    word = lanes.cast("fptosi", power, lanes.integers) + bias
    return lanes.cast("bitcast", word << fraction, lanes.vector)


def logarithms(dtype: Any, count: int) -> str:
    """Return a kernel for signs and logarithms of determinants: ``a``, ``sign``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "sign", "out"))
    n = lanes.number["n"]
    a = lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)
        size, power, negative = _product(lanes, a, n)
        sign = lanes.choose(negative, lanes.constant(-1), 1.0)
        sign = lanes.choose(size.equals(0), 0.0, sign)
        found = lanes.call("log", size) + power * 0.6931471805599453
        lanes.store("sign", 0, 0, sign)
        lanes.store("out", 0, 0, found)

    return lanes.source(body)
