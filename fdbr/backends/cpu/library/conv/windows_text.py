"""LLVM code of kernels over the elements of windows; vectors hold neighbouring windows."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.vector_types import VectorTypes
from fdbr.ops.nn.windows import Geometry

__all__ = ["WindowText", "Windows", "correlated", "summed", "windows_of"]

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


class WindowText(VectorTypes):
    """A kernel under construction, for windows of one geometry.

    Parameters
    ----------
    dtype, windows, operands
        The dtype, the geometry of windows, and the number of operands.
    lanes
        The number of elements in a vector.
    further
        The names of further words at the end of the table.
    """

    def __init__(
        self,
        dtype: Any,
        windows: Windows,
        operands: int,
        lanes: int = 0,
        further: Sequence[str] = (),
    ) -> None:
        self.windows, self.rank = windows, len(windows.kernel)
        super().__init__(dtype.itemsize, lanes or 64 // dtype.itemsize)
        self.zero = f"{self.many} zeroinitializer"
        self.lines: list[str] = []
        self.count = 0
        names = [f"p{i}" for i in range(operands + 1)] + ["outputs", "per", "inputs"]
        names += [f"size{i}" for i in range(self.rank)] + [f"count{i}" for i in range(self.rank)]
        names += further
        self.lines.append(words(names, names[: operands + 1]))
        self.out = f"%p{operands}"
        self.volume = self.product([f"%size{i}" for i in range(self.rank)])
        self.windowed = self.product([f"%count{i}" for i in range(self.rank)])

    def add(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def product(self, values: Sequence[Any]) -> str:
        total = str(values[0])
        for value in values[1:]:
            total = self.add(f"mul i64 {total}, {value}")
        return total

    def moved(self, start: Any, *pairs: tuple[Any, Any]) -> str:
        """Emit ``start`` plus some products."""
        total = str(start)
        for pair in pairs:
            total = self.add(f"add i64 {total}, {self.product(pair)}")
        return total

    def at(self, base: str, index: str) -> str:
        return self.add(f"getelementptr {self.one}, ptr {base}, i64 {index}")

    def everywhere(self, number: str, kind: str, one: str) -> str:
        """Emit a number in all lanes of a vector."""
        head = self.add(f"insertelement {kind} poison, {one} {number}, i64 0")
        return self.add(f"shufflevector {kind} {head}, {kind} poison, {self.first}")

    def number(self, place: str) -> str:
        """Emit the load of a number, in all lanes of a vector."""
        one = self.add(f"load {self.one}, ptr {place}, align {self.size}")
        return self.everywhere(one, self.many, self.one)

    def loop(
        self,
        start: str,
        stop: str,
        step: int,
        carried: Sequence[str],
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """Emit a loop that runs at least once; return the vectors it carries, at its end."""
        self.count += 1
        name = f"l{self.count}"
        self.do(f"br label %{name}.before")
        self.lines.append(f"{name}.before:")
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i64 [{start}, %{name}.before], [%{name}.n, %{name}.end]")
        for k, value in enumerate(carried):
            pair = f"[{value}, %{name}.before], [%{name}.e{k}, %{name}.end]"
            self.do(f"%{name}.c{k} = phi {self.many} {pair}")
        made = body(f"%{name}.i", [f"%{name}.c{k}" for k in range(len(carried))])
        self.do(f"br label %{name}.end")
        self.lines.append(f"{name}.end:")
        for k, value in enumerate(made):
            self.do(f"%{name}.e{k} = bitcast {self.many} {value} to {self.many}")
        self.do(f"%{name}.n = add i64 %{name}.i, {step}")
        self.do(f"%{name}.more = icmp slt i64 %{name}.n, {stop}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.after")
        self.lines.append(f"{name}.after:")
        return [f"%{name}.e{k}" for k in range(len(carried))]

    def mask(self, first: str, stop: str = "") -> str:
        """Emit the mask of windows that exist from one on, or of indices below another one."""
        left = self.add(f"sub i64 {stop or f'%count{self.rank - 1}'}, {first}")
        splat = self.everywhere(left, self.whole, "i64")
        return self.add(f"icmp slt {self.whole} {self.lane}, {splat}")

    def columns(self, first: str) -> list[list[tuple[str, str, str]]]:
        """Emit for each position along the last axis the start, indices and mask of its elements.

        For stride 2 there are two vectors, half of whose elements are needed.
        """
        *_, steps = zip(*self.windows, strict=True)
        kernel, stride, padding, dilation = steps
        end = self.everywhere(f"%size{self.rank - 1}", self.whole, "i64")
        step, several = (1, 2) if stride == 2 else (stride, 1)
        lanes = ", ".join(f"i64 {k * step}" for k in range(self.lanes))
        found: list[list[tuple[str, str, str]]] = []
        for k in range(kernel):
            found.append([])
            for v in range(several):
                start = self.moved(k * dilation - padding + v * self.lanes, (first, stride))
                splat = self.everywhere(start, self.whole, "i64")
                places = self.add(f"add {self.whole} <{lanes}>, {splat}")
                inside = self.add(f"icmp ult {self.whole} {places}, {end}")
                found[-1].append((start, places, inside))
        return found

    def rows(
        self, carried: Sequence[str], body: Callable[[list[str], list[str]], Sequence[str]]
    ) -> list[str]:
        """Emit loops over the windows along all axes but the last."""

        def nested(places: list[str], carried: Sequence[str]) -> Sequence[str]:
            if len(places) == self.rank - 1:
                return body(places, list(carried))
            stop = f"%count{len(places)}"
            return self.loop("0", stop, 1, carried, lambda i, c: nested([*places, i], c))

        return list(nested([], carried))

    def row(self, places: list[str]) -> str:
        """Emit the number of a row of windows."""
        total = "0"
        for axis, place in enumerate(places):
            total = self.moved(place, (total, f"%count{axis}"))
        return total

    def window_rows(self, places: list[str]) -> list[tuple[str, str]]:
        """Emit for each position along the leading axes the start of a row, and if it exists."""
        found = []
        for position in np.ndindex(self.windows.kernel[:-1]):
            total, inside = "0", "true"
            for axis, k in enumerate(position):
                _, stride, padding, dilation = (part[axis] for part in self.windows)
                place = self.moved(k * dilation - padding, (places[axis], stride))
                here = self.add(f"icmp ult i64 {place}, %size{axis}")
                inside = self.add(f"and i1 {inside}, {here}")
                total = self.moved(place, (total, f"%size{axis}"))
            found.append((self.product([total, f"%size{self.rank - 1}"]), inside))
        return found

    def elements(self, base: str, row: tuple[str, str], columns: list[tuple[str, str, str]]) -> str:
        """Emit the elements at one kernel position, with 0 outside."""
        return self.every_other([self.vector(base, row, column) for column in columns])

    def every_other(self, parts: Sequence[str]) -> str:
        """Emit every other element of two consecutive vectors; a single vector as it is."""
        if len(parts) == 1:
            return parts[0]
        order = ", ".join(f"i32 {2 * k}" for k in range(self.lanes))
        given = ", ".join(f"{self.many} {part}" for part in parts)
        return self.add(f"shufflevector {given}, <{self.lanes} x i32> <{order}>")

    def vector(self, base: str, row: tuple[str, str], column: tuple[str, str, str]) -> str:
        """Emit a load of elements of a row, with 0 for those outside of it."""
        (begin, exists), (start, places, inside) = row, column
        given = "zeroinitializer"
        mask = self.add(f"select i1 {exists}, {self.flags} {inside}, {self.flags} {given}")
        end = f"i32 {self.size}, {self.flags} {mask}, {self.zero}"
        if self.windows.stride[-1] <= 2:
            place = self.at(self.at(base, begin), start)
            return self.add(
                f"call {self.many} @llvm.masked.load.{self.suffix}.p0(ptr {place}, {end})"
            )
        place = self.at(base, begin)
        kind = f"<{self.lanes} x ptr>"
        every = self.add(f"getelementptr {self.one}, ptr {place}, {self.whole} {places}")
        name = f"@llvm.masked.gather.{self.suffix}.v{self.lanes}p0"
        return self.add(f"call {self.many} {name}({kind} {every}, {end})")

    def fma(self, x: str, y: str, z: str) -> str:
        given = ", ".join(f"{self.many} {value}" for value in (x, y, z))
        return self.add(f"call {self.many} @llvm.fma.{self.suffix}({given})")

    def store_sum(self, place: str, total: str) -> None:
        """Emit the sum of a vector's elements, halves first in a fixed order, and store it."""
        step = self.lanes // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            order = f"<{self.lanes} x i32> <{order}>"
            other = self.add(f"shufflevector {self.many} {total}, {self.many} poison, {order}")
            total = self.add(f"fadd {self.many} {total}, {other}")
            step //= 2
        one = self.add(f"extractelement {self.many} {total}, i64 0")
        self.do(f"store {self.one} {one}, ptr {place}, align {self.size}")

    def text(self, body: Callable[[str, str, str], None]) -> str:
        """Return the kernel, each part of which does some pairs of example and output block."""

        def unit(u: str, carried: list[str]) -> Sequence[str]:
            example = self.add(f"udiv i64 {u}, %outputs")
            output = self.moved(u, (example, self.add("sub i64 0, %outputs")))
            group = self.add(f"udiv i64 {output}, %per")
            groups = self.add("udiv i64 %outputs, %per")
            parts = self.moved(group, (example, groups))
            base = self.at("%p0", self.product([parts, "%inputs", self.volume]))
            body(u, output, base)
            return []

        self.loop("%start", "%stop", 1, [], unit)
        self.do("ret void")
        return self.declared() + HEAD + "\n".join(self.lines) + "\n}\n"


def summed(dtype: Any, windows: Windows, operands: int, block: int) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.conv.windows.over_windows`."""
    t = WindowText(dtype, windows, operands)
    positions = math.prod(windows.kernel)
    last = f"%count{t.rank - 1}"

    def body(u: str, output: str, base: str) -> None:
        first, weights, outs = [], [], []
        for k in range(block):
            mine = t.moved(k, (output, block))
            first.append(t.number(t.at("%p2", mine)) if operands == 3 else "zeroinitializer")
            weights.append(t.at("%p1", t.product([mine, "%inputs", positions])))
            outs.append(t.at(t.out, t.product([t.moved(k, (u, block)), t.windowed])))

        def vector(j: str, carried: list[str]) -> Sequence[str]:
            mask, columns = t.mask(j), t.columns(j)

            def row(places: list[str], carried: list[str]) -> Sequence[str]:
                rows = t.window_rows(places)

                def channel(i: str, totals: list[str]) -> Sequence[str]:
                    of_x = t.at(base, t.product([i, t.volume]))
                    skipped = t.product([i, positions])
                    for k, (a, b) in enumerate(itertools.product(rows, columns)):
                        x, place = t.elements(of_x, a, b), t.moved(k, (skipped, 1))
                        totals = [
                            t.fma(t.number(t.at(weight, place)), x, total)
                            for weight, total in zip(weights, totals, strict=True)
                        ]
                    return totals

                totals = t.loop("0", "%inputs", 1, first, channel)
                place = t.moved(j, (t.row(places), last))
                for out, total in zip(outs, totals, strict=True):
                    end = f"ptr {t.at(out, place)}, i32 {t.size}, {t.flags} {mask}"
                    t.do(f"call void @llvm.masked.store.{t.suffix}.p0({t.many} {total}, {end})")
                return []

            t.rows([], row)
            return []

        t.loop("0", last, t.lanes, [], vector)

    return t.text(body)


def correlated(dtype: Any, windows: Windows, operands: int, block: int) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.conv.windows.by_position`."""
    t = WindowText(dtype, windows, operands)
    positions = math.prod(windows.kernel)
    wide, last = windows.kernel[-1], f"%count{t.rank - 1}"

    def body(u: str, output: str, base: str) -> None:
        mine = [t.moved(k, (u, block)) for k in range(block)]
        given = [t.at("%p1", t.product([k, t.windowed])) for k in mine]

        def channel(i: str, carried: list[str]) -> Sequence[str]:
            of_x = t.at(base, t.product([i, t.volume]))
            here = [t.moved(i, (k, "%inputs")) for k in mine]
            for begin in range(0, positions, _AT_ONCE):
                numbers = range(begin, min(begin + _AT_ONCE, positions))
                none = ["zeroinitializer"] * (len(numbers) * block)
                body = functools.partial(vector, numbers, of_x)
                totals = t.loop("0", last, t.lanes, none, body)
                for n, (k, place) in enumerate(itertools.product(numbers, here)):
                    t.store_sum(t.at(t.out, t.moved(k, (place, positions))), totals[n])
            return []

        def vector(numbers: range, of_x: str, j: str, totals: list[str]) -> Sequence[str]:
            mask, columns = t.mask(j), t.columns(j)

            def row(places: list[str], totals: list[str]) -> Sequence[str]:
                rows, place = t.window_rows(places), t.moved(j, (t.row(places), last))
                end = f"i32 {t.size}, {t.flags} {mask}, {t.zero}"
                ys = [
                    t.add(f"call {t.many} @llvm.masked.load.{t.suffix}.p0(ptr {y}, {end})")
                    for y in [t.at(y, place) for y in given]
                ]
                rest = iter(totals)
                found = []
                for k in numbers:
                    x = t.elements(of_x, rows[k // wide], columns[k % wide])
                    found += [t.fma(y, x, next(rest)) for y in ys]
                return found

            return t.rows(totals, row)

        t.loop("0", "%inputs", 1, [], channel)

    return t.text(body)
