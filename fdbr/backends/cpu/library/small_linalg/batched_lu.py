"""Gaussian elimination in many small matrices side by side: solves, inverses and determinants.

Pivots are the largest elements of columns (Golub and Van Loan, "Matrix Computations", 4th edition,
2013, 3.4.1), in each lane another row.  A matrix whose pivot is zero is singular, as in LAPACK.
"""

from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.library.small_linalg.lanes import Lanes, Tile

__all__ = ["NUMBERS", "determinants", "inverses", "logarithms", "read", "solutions"]

NUMBERS = ("n", "k")


def _eliminated(lanes: Lanes, a: Tile, b: Tile | None, n: Number, k: Any) -> tuple[Number, Number]:
    """Emit the elimination that makes ``a`` upper triangular, applied to the rows of ``b``, too.

    Return masks of the regular matrices, and of those with an odd number of row exchanges.
    """

    def column(c: Number, regular: Number, odd: Number) -> tuple[Number, Number]:
        after = c + 1
        here = lanes.numbered(c)

        def larger(i: Number, best: Number, row: Number) -> tuple[Number, Number]:
            size = lanes.apply("fabs", a[i, c])
            more = size > best
            return lanes.choose(more, size, best), lanes.choose(more, lanes.numbered(i), row)

        _, row = lanes.repeat(after, n, larger, lanes.apply("fabs", a[c, c]), here)
        swapped = row.differs(here)
        with lanes.when(lanes.any(swapped)), lanes.each(after, n) as i:
            mine = row.equals(lanes.numbered(i))
            with lanes.when(lanes.any(mine)):
                _exchange_rows(lanes, mine, a, c, i, c, n)
                if b is not None:
                    _exchange_rows(lanes, mine, b, c, i, 0, k)
        pivot = a[c, c]
        with lanes.each(after, n) as i:
            share = -(a[i, c] / pivot)
            _add_row(lanes, share, a, c, i, after, n)
            if b is not None:
                _add_row(lanes, share, b, c, i, 0, k)
        return regular & pivot.differs(0), odd ^ swapped

    regular, odd = lanes.repeat(0, n, column, lanes.truths(True), lanes.truths(False))
    return regular, odd


def _exchange_rows(
    lanes: Lanes, where: Number, x: Tile, i: Number, j: Number, start: Any, stop: Any
) -> None:
    with lanes.each(start, stop) as c:
        one, other = x[i, c], x[j, c]
        x[i, c] = lanes.choose(where, other, one)
        x[j, c] = lanes.choose(where, one, other)


def _add_row(
    lanes: Lanes, factor: Number, x: Tile, source: Number, to: Number, start: Any, stop: Any
) -> None:
    """Emit ``x[to] += factor * x[source]``."""
    with lanes.each(start, stop) as c:
        x[to, c] = lanes.fused(factor, x[source, c], x[to, c])


def read(lanes: Lanes, name: str, x: Tile, lower: bool = False) -> None:
    """Emit a copy of an array, or of its lower triangle."""
    with lanes.each(0, x.rows) as i, lanes.each(0, i + 1 if lower else x.columns) as j:
        x[i, j] = lanes.get(name, i, j)


def _solved(lanes: Lanes, a: Tile, b: Tile, n: Number, k: Number) -> None:
    """Emit elimination, back substitution and stores; NaN for singular matrices."""
    regular, _ = _eliminated(lanes, a, b, n, k)
    lanes.require(regular)
    with lanes.each(0, n) as iteration:
        i = n - 1 - iteration
        with lanes.each(0, k) as c:

            def less(j: Number, total: Number) -> Number:
                return lanes.fused(-a[i, j], b[j, c], total)

            (rest,) = lanes.repeat(i + 1, n, less, b[i, c])
            found = rest / a[i, i]
            b[i, c] = found
            lanes.set("out", i, c, lanes.choose(regular, found, float("nan")))


def solutions(dtype: Any, count: int) -> str:
    """Return a kernel for ``out`` with ``a @ out = b``: the arrays ``a``, ``b``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "b", "out"))
    n, k = lanes.word["n"], lanes.word["k"]
    a, b = lanes.tile(n, n), lanes.tile(n, k)

    def body() -> None:
        read(lanes, "a", a)
        read(lanes, "b", b)
        _solved(lanes, a, b, n, k)

    return lanes.source(body)


def inverses(dtype: Any, count: int) -> str:
    """Return a kernel for inverses: the arrays ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.word["n"]
    a, b = lanes.tile(n, n), lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)
        with lanes.each(0, n) as i:
            with lanes.each(0, n) as j:
                b[i, j] = lanes.fill(0)
            b[i, i] = lanes.fill(1)
        _solved(lanes, a, b, n, n)

    return lanes.source(body)


# --- determinants -------------------------------------------------------------------


def _product(lanes: Lanes, a: Tile, n: Number) -> tuple[Number, Number, Number]:
    """Emit the determinant as mantissa, exponent and sign.

    The mantissa is in ``[sqrt(1/2), sqrt(2))``, or 0, infinite or NaN; the exponent of 2 is a
    float; the last result is the mask of negative determinants.
    """
    regular, odd = _eliminated(lanes, a, None, n, 0)
    is_double = lanes.code == "f8"
    fraction, bias, low = (52, 1023, 2.0**-1022) if is_double else (23, 127, 2.0**-126)
    lift = 60 if is_double else 30  # a power of 2 that makes subnormal numbers normal

    def factor(
        i: Number, size: Number, power: Number, negative: Number
    ) -> tuple[Number, Number, Number]:
        pivot = a[i, i]
        negative = negative ^ (pivot < 0)
        new = lanes.apply("fabs", pivot)
        short = new < low
        new = lanes.choose(short, new * 2.0**lift, new)
        power = power - lanes.choose(short, lanes.fill(lift), 0.0)
        # The exponent, or 0 for numbers that are 0, infinite or NaN, which stay as they are.
        word = new.as_bits(lanes.integer)
        up = word >> fraction
        plain = (new > 0) & (new < float("inf"))
        up = lanes.choose(plain, up - bias, 0)
        mantissa = (word - (up << fraction)).as_bits(lanes.code)
        size, power = size * mantissa, power + up.to(lanes.code)
        large = (size > 2.0**0.5) & (size < float("inf"))
        return (
            lanes.choose(large, size * 0.5, size),
            lanes.choose(large, power + 1, power),
            negative,
        )

    size, power, negative = lanes.repeat(0, n, factor, lanes.fill(1), lanes.fill(0), odd)
    return lanes.choose(regular, size, 0.0), power, negative


def determinants(dtype: Any, count: int) -> str:
    """Return a kernel for determinants: the arrays ``a``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "out"))
    n = lanes.word["n"]
    a = lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)
        size, power, negative = _product(lanes, a, n)
        size = lanes.choose(negative, -size, size)
        # Multiplied in three steps, none of which is out of range unless the result is; exponents
        # that give infinity or 0 anyway are clamped to those that can be represented.
        most = 2200.0 if lanes.code == "f8" else 300.0
        power = lanes.apply("minnum", lanes.apply("maxnum", power, -most), most)
        third = lanes.apply("trunc", power / 3)
        for part in (third, third, power - third - third):
            size = size * _power_of_two(lanes, part)
        lanes.set("out", 0, 0, size)

    return lanes.source(body)


def _power_of_two(lanes: Lanes, power: Number) -> Number:
    fraction, bias = (52, 1023) if lanes.code == "f8" else (23, 127)
    return ((power.to(lanes.integer) + bias) << fraction).as_bits(lanes.code)


def logarithms(dtype: Any, count: int) -> str:
    """Return a kernel for signs and logarithms of determinants: ``a``, ``sign``, ``out``."""
    lanes = Lanes(dtype, count, NUMBERS, ("a", "sign", "out"))
    n = lanes.word["n"]
    a = lanes.tile(n, n)

    def body() -> None:
        read(lanes, "a", a)
        size, power, negative = _product(lanes, a, n)
        sign = lanes.choose(negative, lanes.fill(-1), 1.0)
        sign = lanes.choose(size.equals(0), 0.0, sign)
        found = lanes.apply("log", size) + power * 0.6931471805599453
        lanes.set("sign", 0, 0, sign)
        lanes.set("out", 0, 0, found)

    return lanes.source(body)
