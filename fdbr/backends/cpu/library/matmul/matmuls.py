"""Matrix products on the threads of kernels.

NumPy's BLAS has threads of its own.  They wait for each other within a product, so one that gets no
processor, because the thread of another library spins on it, delays all; and they keep spinning
after a product, and take processors from the threads of kernels.  Here a product is divided into
units, and each thread takes the next one, so nobody waits for a late thread.  An element of the
result is the same sum in the same order on any number of threads.
"""

import functools
import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen import vectors
from fdbr.backends.cpu.runtime.compiling import address_of
from fdbr.backends.cpu.runtime.launching import launch_on, thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Step, kind_of
from fdbr.core.expr import FLOATS
from fdbr.core.primitive import Primitive
from fdbr.ops.nn.window_products import products_by, spreads_by, window_products, window_spreads

__all__ = ["VALUES", "is_threaded", "is_worth_threads", "multiply"]

_ROWS = 48, 256  # rows of a unit, at least and at most
_KEPT = 1024  # cached implementations; bounds the memory

# Words: the next unit, and their number; the array objects; see `_product`.  The terms of a sum are
# added in groups that stay in the cache.  Earlier partial sums are in one buffer of the unit and
# new ones in another, so that tiles may overlap.
_PRODUCT = """tile = product({code!r}, {high}, {wide})
turn = turned({code!r})
def kernel(table, start, stop, thread):
    units, rows, columns, depth = word(table, 1), word(table, 6), word(table, 7), word(table, 8)
    part, most, inner = word(table, 9), word(table, 10), word(table, 11)
    a_row, a_step = word(table, 12), word(table, 13)
    b_row, b_along = word(table, 14), word(table, 15)
    zeros = (address(data(table, 5, u1(0))) + thread * word(table, 16) + 63) // 64 * 64
    other = zeros + {line}
    one = other + (part + {high}) * {line}
    packed = one + (part + {high}) * {line}
    if most == depth:
        packed = other
    zero = pointer(zeros, {code}(0))
    for x in range({block}):
        zero[x] = {code}(0)
    across, downs = (columns + {block} - 1) // {block}, (rows + part - 1) // part
    unit = take(table, 0)
    while unit < units:
        which = unit // (across * downs)
        m, n = which // inner, which % inner
        a = address(data(table, 2, u1(0))) + m * word(table, 17) + n * word(table, 18)
        b0 = address(data(table, 3, u1(0))) + m * word(table, 19) + n * word(table, 20)
        j = min(unit % across * {block}, columns - {block})
        out = address(data(table, 4, u1(0))) + (which * rows * columns + j) * {size}
        first = unit // across % downs * part
        end = min(first + part, rows)
        begin, begin_row = zeros, 0
        k = 0
        while k < depth:
            span = min(most, depth - k)
            b, b_step = b0 + j * b_along + k * b_row, b_row
            if b_along != {size}:
                y = 0
                while y < span:
                    y = min(y, span - {lanes})
                    for w in range({wide}):
                        from_w, to_w = b + w * {lanes} * b_along, packed + w * {lanes} * {size}
                        turn(from_w + y * {size}, b_along, to_w + y * {line}, {line})
                    y += {lanes}
                b, b_step = packed, {line}
            elif b_row != {line} and end - first >= {many}:
                for y in range(span):
                    at, there = b + y * b_row, packed + y * {line}
                    from_y, to_y = pointer(at, {code}(0)), pointer(there, {code}(0))
                    for x in range({block}):
                        to_y[x] = from_y[x]
                b, b_step = packed, {line}
            to, to_row, lift = other, {line}, first - {high}
            if k + span >= depth:
                to, to_row, lift = out, columns * {size}, 0
            i = first
            while i < end:
                i = min(i, rows - {high})
                old, new = begin + (i - first + {high}) * begin_row, to + (i - lift) * to_row
                tile(a + i * a_row, a_row, a_step, b, b_step, old, begin_row, new, to_row, span)
                i += {high}
            begin, begin_row = other, {line}
            one, other = other, one
            a += span * a_step
            k += span
        unit = take(table, 0)
"""

_INNER = """tile = inner({code!r}, {high}, {wide})
def kernel(table, start, stop, thread):
    units, rows, columns, depth = word(table, 1), word(table, 6), word(table, 7), word(table, 8)
    a_row, b_row = word(table, 9), word(table, 10)
    a, b = address(data(table, 2, u1(0))), address(data(table, 3, u1(0)))
    out = address(data(table, 4, u1(0)))
    scratch = address(data(table, 5, u1(0))) + thread * {high} * {wide} * {size}
    found = pointer(scratch, {code}(0))
    across = (columns + {wide} - 1) // {wide}
    unit = take(table, 0)
    while unit < units:
        j = min(unit % across * {wide}, columns - {wide})
        i = min(unit // across * {high}, rows - {high})
        tile(a + i * a_row, a_row, b + j * b_row, b_row, scratch, depth)
        total = pointer(out + (i * columns + j) * {size}, {code}(0))
        for r in range({high}):
            for c in range({wide}):
                total[r * columns + c] = found[r * {wide} + c]
        unit = take(table, 0)
"""

_TEXTS = {"product": _PRODUCT, "inner": _INNER}

Way = Callable[[Any, Any, Any], None]
"""Writes a product of arrays of known shapes and strides to a third one."""


def multiply(a: Any, b: Any, out: Any = None) -> Any:
    """Compute ``a @ b`` of matrices or stacks of them, written to ``out`` if that is given.

    >>> multiply(np.eye(2), np.ones((2, 3))).shape
    (2, 3)
    """
    key = a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype
    way = _ways.get(key)
    if way is None:
        if len(_ways) >= _KEPT:
            _ways.clear()
        way = _ways[key] = _way_of(a, b)
    if way is _by_numpy or (out is not None and not out.flags.c_contiguous):
        return np.matmul(a, b, out=out) if a.ndim > 2 or b.ndim > 2 else np.dot(a, b, out=out)
    if out is None:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    way(a, b, out)
    return out


_ways: dict[Any, Way] = {}


def _by_numpy(a: Any, b: Any, out: Any) -> None:
    np.matmul(a, b, out=out)


def _way_of(a: Any, b: Any) -> Way:
    """Return the fastest implementation of a product, by the shapes and strides of its operands."""
    problem = _problem(a, b)
    if problem is None or a.dtype != b.dtype or a.dtype.str not in ("<f4", "<f8"):
        return _by_numpy
    vector, size = vectors.lanes(a.dtype.str[1:]), a.itemsize
    if problem.columns >= vector and b.strides[-1] == size:
        return _product(problem)
    single = a.ndim == b.ndim == 2
    few = problem.rows < vectors.product_tiles()[0][0] or problem.columns < vector
    if a.strides[-1] == b.strides[-2] == size and problem.depth >= vector:
        if few:
            return _inner(problem) if single else _by_numpy
        return _product(problem)
    if not single:
        return _by_numpy
    return _copied(problem, a, b)


def _copied(problem: "_Problem", a: Any, b: Any) -> Way:
    """Return the implementation that copies the fewest elements: an operand, or the product."""
    vector, size = vectors.lanes(problem.code), problem.size
    ways: list[tuple[int, Callable[[], Way]]] = []
    if b.strides[0] == size and problem.depth >= vector:
        ways.append((a.size, lambda: _first_in_order(_way_of(np.empty(a.shape, a.dtype), b))))
    if problem.columns >= vector:
        ways.append((b.size, lambda: _second_in_order(_way_of(a, np.empty(b.shape, b.dtype)))))
    if problem.rows >= vector and a.strides[0] == size:
        product = problem.rows * problem.columns
        ways.append((product, lambda: _turned(_way_of(b.T, a.T))))
    return min(ways, key=lambda way: way[0])[1]() if ways else _by_numpy


@attrs.frozen
class _Problem:
    """Matrices to be multiplied, with their number and memory layout.

    Attributes
    ----------
    counts
        The numbers of pairs along two merged leading axes.
    a, b
        The strides of the operands in bytes: to the next pairs, rows and columns.
    """

    code: str
    counts: tuple[int, int]
    rows: int
    depth: int
    columns: int
    a: tuple[int, int, int, int]
    b: tuple[int, int, int, int]

    @property
    def size(self) -> int:
        return int(self.code[1])

    @property
    def work(self) -> int:
        return math.prod(self.counts) * self.rows * self.depth * self.columns


def _problem(a: Any, b: Any) -> _Problem | None:
    """Return the problem of two arrays; `None` if they are empty or have too many axes."""
    rank = max(a.ndim, b.ndim) - 2
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    steps = [np.broadcast_to(x, (*lead, *x.shape[-2:])).strides[:rank] for x in (a, b)]
    axes = _merged(lead, *steps)
    if len(axes) > 2 or not a.size or not b.size:
        return None
    (m, *m_steps), (n, *n_steps) = [*[(1, 0, 0)] * (2 - len(axes)), *axes]
    first, second = zip(m_steps, n_steps, strict=True)
    sizes = a.shape[-2], a.shape[-1], b.shape[-1]
    last = (*first, *a.strides[-2:]), (*second, *b.strides[-2:])
    return _Problem(a.dtype.str[1:], (m, n), *sizes, *last)


def _merged(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the leading axes with both arrays' strides, merged where possible."""
    found: list[tuple[int, int, int]] = []
    for count, down, along in zip(shape, a, b, strict=True):
        if found and found[-1][1:] == (count * down, count * along):
            found[-1] = found[-1][0] * count, down, along
        elif count != 1:
            found.append((count, down, along))
    return found


def _product(problem: _Problem) -> Way:
    """Compute by tiles of vectors of the second operand's rows, which are packed if need be."""
    p, lanes, threads = problem, vectors.lanes(problem.code), thread_count()
    high, wide = _tile(p.rows, p.columns, lanes)
    line = wide * lanes * p.size
    across, count = -(-p.columns // (wide * lanes)), math.prod(p.counts)
    downs = -(-TUNING.thread_units * threads // (across * count))
    part = min(max(p.rows // downs, _ROWS[0]), _ROWS[1])
    part = math.ceil(p.rows / math.ceil(p.rows / part) / high) * high  # units of similar size
    most = math.ceil(p.depth / math.ceil(p.depth * line / TUNING.matmul_panel))
    while 0 < p.depth % most < lanes:  # packing works on squares of vectors
        most += 1
    units = across * count * -(-p.rows // part)
    adds = most < p.depth
    room = (1 + 2 * adds * (part + high) + most) * line + 64
    words = [p.rows, p.columns, p.depth, part, most, p.counts[1]]
    words += [*p.a[2:], *p.b[2:], room, *p.a[:2], *p.b[:2]]
    return _launcher("product", p, (high, wide), units, words, room)


def _inner(problem: _Problem) -> Way:
    """Compute by inner products of rows, for one pair of matrices with contiguous rows."""
    p = problem
    high, wide = map(min, vectors.inner_tile(), (p.rows, p.columns))
    units = -(-p.rows // high) * -(-p.columns // wide)
    words = [p.rows, p.columns, p.depth, p.a[2], p.b[3]]
    return _launcher("inner", p, (high, wide), units, words, high * wide * p.size)


def _turned(way: Way) -> Way:
    """Compute the product of the transposed matrices in the other order, and transpose it."""

    def run(a: Any, b: Any, out: Any) -> None:
        turned = np.empty(out.shape[::-1], out.dtype)
        way(b.T, a.T, turned)
        out[...] = turned.T

    return run


def _first_in_order(way: Way) -> Way:
    return lambda a, b, out: way(np.ascontiguousarray(a), b, out)


def _second_in_order(way: Way) -> Way:
    return lambda a, b, out: way(a, np.ascontiguousarray(b), out)


def _launcher(
    text: str, problem: _Problem, tile: tuple[int, int], units: int, words: list[int], room: int
) -> Way:
    """Return an implementation by a kernel, with ``room`` bytes of scratch for each thread."""
    threads = min(thread_count(), units) if problem.work >= TUNING.matmul_thread else 1
    kernel = _kernel(text, problem.code, *tile)
    table = array("q", (0, units, 0, 0, 0, 0, *words))
    syrk = problem.rows == problem.columns and problem.a[2:] == problem.b[:1:-1]

    def run(a: Any, b: Any, out: Any) -> None:
        if syrk and a.ctypes.data == b.ctypes.data:
            np.matmul(a, b, out=out)  # a symmetric product, for which the BLAS does half the work
            return
        scratch = np.empty(threads * room, np.uint8)
        given = table[:]
        given[2], given[3], given[4], given[5] = id(a), id(b), id(out), id(scratch)
        launch_on(threads, kernel, given.buffer_info()[0], threads)

    return run


@functools.cache
def _kernel(text: str, code: str, high: int, wide: int) -> int:
    """Return the address of a kernel with tiles of ``high`` rows and ``wide`` vectors."""
    lanes, size = vectors.lanes(code), np.dtype(code).itemsize
    block = wide * lanes
    names = {"code": code, "high": high, "wide": wide, "lanes": lanes, "size": size}
    names["many"] = 8 * high  # rows for which packing the second operand pays
    return address_of(_TEXTS[text].format(**names, block=block, line=block * size))


def _tile(rows: int, columns: int, lanes: int) -> tuple[int, int]:
    """Return the tile with the lowest estimated time, including overlaps at the edges."""
    tiles = vectors.product_tiles()
    fitting = [(high, wide) for high, wide in tiles if high <= rows and wide * lanes <= columns]
    if not fitting:
        high = min(rows, tiles[0][0])
        return high, min(columns // lanes, max(2, 16 // high), 8)

    def time(tile: tuple[int, int]) -> int:
        high, wide = tile
        return (
            -(-rows // high)
            * -(-columns // (wide * lanes))
            * (high * wide + TUNING.matmul_tile_step)
        )

    return min(fitting, key=time)


# --- in programs --------------------------------------------------------------------


def is_threaded(step: Step) -> bool:
    """Return whether a step is a floating matrix product for which the BLAS would use threads."""
    if not isinstance(step, Instruction) or step.primitive not in op.PRODUCTS:
        return False
    first, second = map(kind_of, step.operands[:2])
    out = step.outs[0].kind
    if first.dtype != second.dtype or out.dtype not in FLOATS or first.dtype != out.dtype:
        return False
    if not (first.is_array and second.is_array) or min(len(first.shape), len(second.shape)) < 2:
        return False
    *_, rows, columns = out.shape
    return is_worth_threads(rows, columns, first.shape[-1])


def is_worth_threads(rows: int, columns: int, depth: int) -> bool:
    """Return whether a product of these sizes is worth several threads."""
    return rows * columns * depth > (
        TUNING.blas_alone if min(rows, columns) > 1 else TUNING.blas_alone_vector
    )


def _matmul(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    return multiply(x, y, out)


def _matmul_transposed(xp: Any, x: Any, weight: Any, out: Any = None) -> Any:
    return multiply(x, weight.swapaxes(-1, -2), out)


def _affine(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    return multiply(x, weight.T) + bias


def _sum_of_rows(xp: Any, x: Any) -> Any:
    """Multiply a row of ones by the matrix, as the value does where no kernel sums."""
    if (
        x.ndim == 2
        and x.dtype in FLOATS
        and x.size > TUNING.blas_alone_vector
        and x.nbytes < TUNING.kernel_bytes
    ):
        return multiply(np.ones((1, len(x)), x.dtype), x)[0]
    return op.SUM_OF_ROWS.host(xp, x)


def _window_products(xp: Any, x: Any, *, windows: Any) -> Any:
    return products_by(multiply, xp, x, windows)


def _window_spreads(xp: Any, ct: Any, *, windows: Any) -> Any:
    return spreads_by(multiply, xp, ct, windows)


VALUES: dict[Primitive, Callable[..., Any]] = {
    op.MATMUL: _matmul,
    op.MATMUL_TRANSPOSED: _matmul_transposed,
    op.AFFINE: _affine,
    op.SUM_OF_ROWS: _sum_of_rows,
    window_products.primitive: _window_products,
    window_spreads.primitive: _window_spreads,
}
"""The CPU's implementations of products, by primitive."""
