"""Kernels over the elements of windows; vectors hold neighbouring windows."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number
from fdbr.backends.cpu.codegen.node_values import code_of
from fdbr.ops.nn.windows import Geometry

__all__ = ["WindowKernel", "Windows", "correlated", "summed", "windows_of"]

_AT_ONCE = 12  # kernel positions whose sums fit into registers


class Windows(NamedTuple):
    """The geometry of windows: an entry for each spatial axis in each field; padding before."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


@functools.lru_cache(1 << 10)  # more geometries than a network has
def windows_of(geometry: Geometry) -> Windows:
    """Convert a geometry to the form for kernels, which do not need the padding at the end."""
    before = tuple([low for low, _ in geometry.padding])
    return Windows(geometry.kernel, geometry.stride, before, geometry.dilation)


class _Row(NamedTuple):
    """A row of an array that windows read: its first element, and whether it exists."""

    begin: Number
    exists: Number


class _Column(NamedTuple):
    """Elements of a row that a vector of windows reads: the first, all, and which exist."""

    first: Number
    every: Number
    exist: Number


class WindowKernel(Kernel):
    """A kernel under construction, for windows of one geometry.

    Parameters
    ----------
    dtype, windows
        The dtype, and the geometry of windows.
    codes
        The types of the operands' elements, and the result's.
    lanes
        The number of elements in a vector.
    further
        The names of further words at the end of the table.
    """

    def __init__(
        self,
        dtype: Any,
        windows: Windows,
        codes: Sequence[str],
        lanes: int = 0,
        further: Sequence[str] = (),
    ) -> None:
        self.windows, self.rank = windows, len(windows.kernel)
        self.code, self.width = code_of(dtype), lanes or 64 // dtype.itemsize
        pointers = {f"p{i}": code for i, code in enumerate(codes)}
        names = [*pointers, "outputs", "per", "inputs"]
        names += [f"size{i}" for i in range(self.rank)] + [f"count{i}" for i in range(self.rank)]
        super().__init__([*names, *further], pointers)
        *self.given, self.out = (self.word[name] for name in pointers)
        self.inputs = self.word["inputs"]
        self.sizes = [self.word[f"size{i}"] for i in range(self.rank)]
        self.counts = [self.word[f"count{i}"] for i in range(self.rank)]
        self.volume, self.windowed = (
            functools.reduce(Number.__mul__, extents) for extents in (self.sizes, self.counts)
        )
        self.zero = self.fill(0)

    def fill(self, number: float) -> Number:
        """Return a number in every lane."""
        return self.constant(number, self.code, self.width)

    def number(self, at: Number) -> Number:
        """Emit the load of a number, in all lanes of a vector."""
        return self.load(at).spread(self.width)

    def before(self, first: Number, stop: Number) -> Number:
        """Emit the mask of a vector's indices, from one on, that are less than another."""
        return self.count_up(self.width) < (stop - first).spread(self.width)

    def columns(self, first: Number) -> list[list[_Column]]:
        """Emit for each position along the last axis the elements of windows from one on.

        For stride 2 there are two vectors, half of whose elements are needed.
        """
        *_, (kernel, stride, padding, dilation) = zip(*self.windows, strict=True)
        step, several = (1, 2) if stride == 2 else (stride, 1)
        end = self.sizes[-1].spread(self.width)
        found: list[list[_Column]] = []
        for k in range(kernel):
            found.append([])
            for v in range(several):
                start = first * stride + (k * dilation - padding + v * self.width)
                every = self.count_up(self.width, step) + start.spread(self.width)
                found[-1].append(_Column(start, every, every.within(end)))
        return found

    def rows(self, body: Callable[..., Any], *carried: Number) -> list[Number]:
        """Emit loops over the windows along all axes but the last."""

        def nested(indices: list[Number], *carried: Number) -> Any:
            if len(indices) == self.rank - 1:
                return body(indices, *carried)
            stop = self.counts[len(indices)]
            return self.repeat(0, stop, lambda i, *c: nested([*indices, i], *c), *carried)

        return nested([], *carried) or []

    def row(self, indices: Sequence[Number]) -> Number:
        """Emit the number of a row of windows."""
        total = self.index(0)
        for index, count in zip(indices, self.counts, strict=False):
            total = total * count + index
        return total

    def window_rows(self, indices: Sequence[Number]) -> list[_Row]:
        """Emit the row for each position along the leading axes."""
        found = []
        for position in np.ndindex(self.windows.kernel[:-1]):
            total, exists = self.index(0), self.constant(True, "b1")
            for axis, k in enumerate(position):
                _, stride, padding, dilation = (part[axis] for part in self.windows)
                index = indices[axis] * stride + (k * dilation - padding)
                exists = exists & index.within(self.sizes[axis])
                total = total * self.sizes[axis] + index
            found.append(_Row(total * self.sizes[-1], exists))
        return found

    def elements(self, base: Number, row: _Row, columns: list[_Column]) -> Number:
        """Emit the elements at one kernel position, with 0 outside."""
        return self.every_other([self.vector(base, row, column) for column in columns])

    def every_other(self, parts: Sequence[Number]) -> Number:
        """Emit every other element of two consecutive vectors; a single vector as it is."""
        if len(parts) == 1:
            return parts[0]
        return self.shuffled(*parts, [2 * k for k in range(self.width)])

    def vector(self, base: Number, row: _Row, column: _Column) -> Number:
        """Emit a load of elements of a row, with 0 for those outside of it."""
        mask = self.choose(row.exists, column.exist, self.constant(False, "b1", self.width))
        at = base + row.begin + (column.first if self.windows.stride[-1] <= 2 else column.every)
        return self.load(at, self.width, mask)

    def source(self, body: Callable[[Number, Number, Number], None]) -> str:
        """Return the kernel, each part of which does some pairs of example and output block."""
        outputs, per = self.word["outputs"], self.word["per"]
        with self.each(self.start, self.stop) as unit:
            example, output = unit // outputs, unit % outputs
            group = example * (outputs // per) + output // per
            body(unit, output, self.given[0] + group * self.inputs * self.volume)
        return self.text()


def summed(dtype: Any, windows: Windows, operands: int, block: int) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.conv.windows.over_windows`."""
    kernel = WindowKernel(dtype, windows, [code_of(dtype)] * (operands + 1))
    positions, last = math.prod(windows.kernel), kernel.counts[-1]

    def body(unit: Number, output: Number, base: Number) -> None:
        first, weights, outs = [], [], []
        for k in range(block):
            mine = output * block + k
            first.append(kernel.number(kernel.given[2] + mine) if operands == 3 else kernel.zero)
            weights.append(kernel.given[1] + mine * kernel.inputs * positions)
            outs.append(kernel.out + (unit * block + k) * kernel.windowed)
        with kernel.each(0, last, kernel.width) as j:
            mask, columns = kernel.before(j, last), kernel.columns(j)

            def row(indices: list[Number]) -> None:
                rows = kernel.window_rows(indices)

                def channel(i: Number, *totals: Number) -> Sequence[Number]:
                    of_x, skipped = base + i * kernel.volume, i * positions
                    for k, (a, b) in enumerate(itertools.product(rows, columns)):
                        x, at = kernel.elements(of_x, a, b), skipped + k
                        totals = tuple(
                            kernel.apply("fma", kernel.number(weight + at), x, total)
                            for weight, total in zip(weights, totals, strict=True)
                        )
                    return totals

                totals = kernel.repeat(0, kernel.inputs, channel, *first)
                at = kernel.row(indices) * last + j
                for out, total in zip(outs, totals, strict=True):
                    kernel.store(out + at, total, mask)

            kernel.rows(row)

    return kernel.source(body)


def correlated(dtype: Any, windows: Windows, operands: int, block: int) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.conv.windows.by_position`."""
    kernel = WindowKernel(dtype, windows, [code_of(dtype)] * (operands + 1))
    positions, wide, last = math.prod(windows.kernel), windows.kernel[-1], kernel.counts[-1]

    def body(unit: Number, output: Number, base: Number) -> None:
        mine = [unit * block + k for k in range(block)]
        given = [kernel.given[1] + k * kernel.windowed for k in mine]
        with kernel.each(0, kernel.inputs) as i:
            of_x, here = base + i * kernel.volume, [k * kernel.inputs + i for k in mine]
            for begin in range(0, positions, _AT_ONCE):
                numbers = range(begin, min(begin + _AT_ONCE, positions))
                vectors = functools.partial(vector, numbers, of_x, given)
                none = [kernel.zero] * (len(numbers) * block)
                totals = kernel.repeat(0, last, vectors, *none, step=kernel.width)
                for total, (k, index) in zip(totals, itertools.product(numbers, here), strict=True):
                    total = kernel.folded(total, Number.__add__)
                    kernel.store(kernel.out + (index * positions + k), kernel.lane(total))

    def vector(
        numbers: range, of_x: Number, given: list[Number], j: Number, *totals: Number
    ) -> list[Number]:
        mask, columns = kernel.before(j, last), kernel.columns(j)

        def row(indices: list[Number], *totals: Number) -> list[Number]:
            rows, at = kernel.window_rows(indices), kernel.row(indices) * last + j
            ys = [kernel.load(y + at, kernel.width, mask) for y in given]
            rest, found = iter(totals), []
            for k in numbers:
                x = kernel.elements(of_x, rows[k // wide], columns[k % wide])
                found += [kernel.apply("fma", y, x, next(rest)) for y in ys]
            return found

        return kernel.rows(row, *totals)

    return kernel.source(body)
