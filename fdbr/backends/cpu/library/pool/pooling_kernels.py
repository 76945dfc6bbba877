"""Kernels of the largest elements of windows.

Neighbouring windows share rows.  So first the maximum of each column is computed for all columns at
once, and then from these the maximum of each window.  A row of column maxima is in a thread's own
memory, with its padding.
"""

import functools
from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.codegen.node_values import code_of
from fdbr.backends.cpu.library.conv.window_kernels import WindowKernel, Windows

__all__ = ["at_winners", "largest", "to_winners"]


class _Line:
    """A row of numbers in a thread's own memory, with the padding that windows need."""

    def __init__(self, kernel: WindowKernel, outside: Number) -> None:
        self.kernel, self.low = kernel, kernel.windows.padding[-1]
        room = kernel.word["room"]
        self.base = kernel.allocate(kernel.code, room)
        with kernel.each(0, room, kernel.width) as i:
            kernel.store(self.base + i, outside)

    def write(self, first: Number, numbers: Number) -> None:
        """Emit a store of the values of some columns."""
        self.kernel.store(self.base + (first + self.low), numbers)

    def read(self, column: int, first: Number) -> Number:
        """Emit a load of the numbers at one window position, from the window ``first`` on."""
        kernel = self.kernel
        step, width = kernel.windows.stride[-1], kernel.width
        start = self.base + (first * step + column * kernel.windows.dilation[-1])
        if step <= 2:
            return kernel.every_other([kernel.load(start + k * width, width) for k in range(step)])
        return kernel.load(start + kernel.count_up(width, step))


def _larger(x: Number, m: Number) -> Number:
    """Emit whether ``x`` replaces ``m``: it is larger, or the first NaN."""
    return ~(x <= m) & m.equals(m)


def _same(x: Number, m: Number) -> Number:
    """Emit whether both are equal, or both NaN."""
    return x.equals(m) | (x.differs(x) & m.differs(m))


@functools.cache
def largest(dtype: Any, windows: Windows, lanes: int, which: bool) -> str:
    """Return the kernel of `library.pool.pooling.largest`; with ``which``, that of `winners`."""
    code = code_of(dtype)
    kernel = WindowKernel(dtype, windows, [code, "u1" if which else code], lanes, ["room"])
    lowest, zero = kernel.fill(-float("inf")), kernel.zero
    first, last = kernel.sizes[-1], kernel.counts[-1]
    values = _Line(kernel, lowest)
    numbers = _Line(kernel, zero) if which else None
    few = kernel.allocate("u1", lanes, align=16) if which else None

    def taken(flag: Number, x: Number, m: Number, n: Any, k: Any) -> tuple[Number, Any]:
        return kernel.choose(flag, x, m), kernel.choose(flag, n, k) if which else k

    def body(unit: Number, output: Number, base: Number) -> None:
        def row(indices: list[Number]) -> None:
            rows = kernel.window_rows(indices)
            with kernel.each(0, first, lanes) as j:
                mask, m, k = kernel.before(j, first), lowest, zero
                for n, (begin, exists) in enumerate(rows):
                    there = kernel.choose(exists, mask, kernel.constant(False, "b1", lanes))
                    x = kernel.load(base + begin + j, lanes, there, otherwise=lowest)
                    m, k = taken(_larger(x, m), x, m, kernel.fill(n), k)
                values.write(j, m)
                if numbers:
                    numbers.write(j, k)
            begin = unit * kernel.windowed + kernel.row(indices) * last
            with kernel.each(0, last, lanes) as j:
                along(begin + j, j)

        kernel.rows(row)

    def along(at: Number, j: Number) -> None:
        m = k = n = zero
        for c in range(windows.kernel[-1]):
            x = values.read(c, j)
            if numbers:
                n = numbers.read(c, j) * windows.kernel[-1] + c
            if not c:
                m, k = x, n
                continue
            flag = _larger(x, m)
            if which:  # of equal elements the first one wins, which may be in a later column
                flag = flag | ((n < k) & _same(x, m))
            m, k = taken(flag, x, m, n, k)
        if few is None:
            kernel.store(kernel.out + at, m, kernel.before(j, last))
            return
        kernel.store(few, k.to("u1"), align=16)
        kernel.copy(kernel.out + at, few, kernel.apply("smin", last - j, kernel.index(lanes)))

    return kernel.source(body)


def _each(
    kernel: WindowKernel, unit: Number, move: Callable[[Number, Number, Number], None]
) -> None:
    """Emit a loop that moves an element for each window, from the last window to the first.

    ``move`` emits how, from the number of the window, the index of its winner in the array, and
    whether that is inside.
    """
    last = kernel.counts[-1]

    def row(indices: list[Number]) -> None:
        counts = zip(kernel.counts, indices, strict=False)
        back = [count - 1 - index for count, index in counts]
        begin = unit * kernel.windowed + kernel.row(back) * last
        with kernel.each(0, last) as i:
            window([*back, last - 1 - i], begin)

    def window(indices: list[Number], begin: Number) -> None:
        number = begin + indices[-1]
        rest, inside = kernel.load(kernel.given[1] + number).to("i8"), kernel.constant(True, "b1")
        found: list[Number] = []
        for axis in reversed(range(kernel.rank)):
            length, stride, padding, dilation = (part[axis] for part in kernel.windows)
            index = indices[axis] * stride + rest % length * dilation - padding
            rest = rest // length
            inside = inside & index.within(kernel.sizes[axis])
            found.insert(0, index)
        total = kernel.index(0)
        for index, size in zip(found, kernel.sizes, strict=True):
            total = total * size + index
        move(number, total + unit * kernel.volume, inside)

    kernel.rows(row)


@functools.cache
def to_winners(dtype: Any, windows: Windows, apart: bool) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.pool.pooling.to_winners`."""
    code = code_of(dtype)
    kernel = WindowKernel(dtype, windows, [code, "u1", code])

    def move(number: Number, index: Number, inside: Number) -> None:
        with kernel.when(inside):
            value, at = kernel.load(kernel.given[0] + number), kernel.out + index
            kernel.store(at, value if apart else kernel.load(at) + value)

    def body(unit: Number, output: Number, base: Number) -> None:
        kernel.clear(kernel.out + unit * kernel.volume, kernel.volume * dtype.itemsize)
        _each(kernel, unit, move)

    return kernel.source(body)


@functools.cache
def at_winners(dtype: Any, windows: Windows) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.pool.pooling.at_winners`."""
    code = code_of(dtype)
    kernel = WindowKernel(dtype, windows, [code, "u1", code])

    def move(number: Number, index: Number, inside: Number) -> None:
        kernel.store(kernel.out + number, 0.0)
        with kernel.when(inside):
            kernel.store(kernel.out + number, kernel.load(kernel.given[0] + index))

    return kernel.source(lambda unit, output, base: _each(kernel, unit, move))
