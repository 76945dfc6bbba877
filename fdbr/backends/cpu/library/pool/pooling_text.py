"""LLVM code of kernels of the largest elements of windows.

Neighbouring windows share rows.  So first the maximum of each column is computed for all columns at
once, and then from these the maximum of each window.  A row of column maxima is in a thread's own
memory, with its padding.
"""

import functools
from collections.abc import Sequence
from typing import Any

from fdbr.backends.cpu.library.conv.windows_text import Windows, WindowText

__all__ = ["at_winners", "largest", "to_winners"]

_COPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)\n"
_CLEAR = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)\n"


class _Rows:
    """A row of numbers in a thread's own memory, with the padding that windows need."""

    def __init__(self, t: WindowText, outside: str) -> None:
        self.t, self.low = t, t.windows.padding[-1]
        self.place = t.add(f"alloca {t.one}, i64 %room, align 64")
        t.loop("0", "%room", t.lanes, [], lambda i, _: self._filled(i, outside))

    def _filled(self, i: str, value: str) -> Sequence[str]:
        self._store(self.t.at(self.place, i), value)
        return []

    def _store(self, place: str, value: str) -> None:
        self.t.do(f"store {self.t.many} {value}, ptr {place}, align {self.t.size}")

    def write(self, first: str, value: str) -> None:
        """Emit a store of the values of some columns."""
        self._store(self.t.at(self.place, self.t.add(f"add i64 {first}, {self.low}")), value)

    def read(self, column: int, first: str) -> str:
        """Emit a load of the numbers at one window position, from the window ``first`` on."""
        t = self.t
        step, apart = t.windows.stride[-1], t.windows.dilation[-1]
        start = t.at(self.place, t.moved(column * apart, (first, step)))
        if step <= 2:
            return t.every_other(
                [
                    t.add(f"load {t.many}, ptr {t.at(start, str(k * t.lanes))}, align {t.size}")
                    for k in range(step)
                ]
            )
        lanes = ", ".join(f"i64 {k * step}" for k in range(t.lanes))
        every = t.add(f"getelementptr {t.one}, ptr {start}, {t.whole} <{lanes}>")
        name = f"@llvm.masked.gather.{t.suffix}.v{t.lanes}p0"
        mask = t.everywhere("true", t.flags, "i1")
        end = f"i32 {t.size}, {t.flags} {mask}, {t.zero}"
        return t.add(f"call {t.many} {name}(<{t.lanes} x ptr> {every}, {end})")


def _chosen(t: WindowText, flag: str, first: str, second: str) -> str:
    return t.add(f"select {t.flags} {flag}, {t.many} {first}, {t.many} {second}")


def _number(t: WindowText, n: int) -> str:
    return t.everywhere(f"{n}.0", t.many, t.one)


def _larger(t: WindowText, x: str, m: str) -> str:
    """Emit whether ``x`` replaces ``m``: it is larger, or the first NaN."""
    above = t.add(f"fcmp ugt {t.many} {x}, {m}")
    known = t.add(f"fcmp ord {t.many} {m}, {m}")
    return t.add(f"and {t.flags} {above}, {known}")


def _same(t: WindowText, x: str, m: str) -> str:
    """Emit whether both are equal, or both NaN."""
    equal = t.add(f"fcmp oeq {t.many} {x}, {m}")
    unknown = t.add(f"fcmp uno {t.many} {x}, {x}")
    neither = t.add(f"fcmp uno {t.many} {m}, {m}")
    both = t.add(f"and {t.flags} {unknown}, {neither}")
    return t.add(f"or {t.flags} {equal}, {both}")


@functools.cache
def largest(dtype: Any, windows: Windows, lanes: int, which: bool) -> str:
    """Return the kernel of `library.pool.pooling.largest`; with ``which``, that of `winners`."""
    t = WindowText(dtype, windows, 1, lanes, ["room"])
    lowest = t.everywhere("0xFFF0000000000000", t.many, t.one)
    number = functools.partial(_number, t)
    first, last = f"%size{t.rank - 1}", f"%count{t.rank - 1}"
    values = _Rows(t, lowest)
    rows = _Rows(t, "zeroinitializer") if which else None
    few = t.add(f"alloca <{lanes} x i8>, align 16") if which else ""

    def body(u: str, output: str, base: str) -> None:
        start = t.product([u, t.windowed])

        def row(places: list[str], carried: list[str]) -> Sequence[str]:
            parts = t.window_rows(places)
            t.loop("0", first, lanes, [], functools.partial(columns, parts))
            t.loop("0", last, lanes, [], functools.partial(along, t.row(places)))
            return []

        def columns(parts: list[tuple[str, str]], j: str, carried: list[str]) -> Sequence[str]:
            mask = t.mask(j, first)
            m, k = lowest, "zeroinitializer"
            for n, (begin, exists) in enumerate(parts):
                flags = f"{t.flags} {mask}, {t.flags} zeroinitializer"
                there = t.add(f"select i1 {exists}, {flags}")
                place = t.at(t.at(base, begin), j)
                end = f"ptr {place}, i32 {t.size}, {t.flags} {there}, {t.many} {lowest}"
                x = t.add(f"call {t.many} @llvm.masked.load.{t.suffix}.p0({end})")
                m, k = taken(x, m, number(n), k, _larger(t, x, m))
            values.write(j, m)
            if rows:
                rows.write(j, k)
            return []

        def taken(x: str, m: str, n: str, k: str, flag: str) -> tuple[str, str]:
            return _chosen(t, flag, x, m), _chosen(t, flag, n, k) if which else k

        def along(row: str, j: str, carried: list[str]) -> Sequence[str]:
            m = k = ""
            for c in range(windows.kernel[-1]):
                x, n = values.read(c, j), ""
                if rows:
                    n = t.add(f"fmul {t.many} {rows.read(c, j)}, {number(windows.kernel[-1])}")
                    n = t.add(f"fadd {t.many} {n}, {number(c)}")
                if not c:
                    m, k = x, n
                    continue
                flag = _larger(t, x, m)
                if which:  # of equal elements the first one wins, which may be in a later column
                    before = t.add(f"fcmp olt {t.many} {n}, {k}")
                    tie = t.add(f"and {t.flags} {before}, {_same(t, x, m)}")
                    flag = t.add(f"or {t.flags} {flag}, {tie}")
                m, k = taken(x, m, n, k, flag)
            place = t.moved(j, (row, last), (start, 1))
            if not which:
                end = f"ptr {t.at(t.out, place)}, i32 {t.size}, {t.flags} {t.mask(j)}"
                t.do(f"call void @llvm.masked.store.{t.suffix}.p0({t.many} {m}, {end})")
                return []
            small = t.add(f"fptoui {t.many} {k} to <{lanes} x i8>")
            t.do(f"store <{lanes} x i8> {small}, ptr {few}, align 16")
            left = t.add(f"sub i64 {last}, {j}")
            fits = t.add(f"icmp slt i64 {left}, {lanes}")
            many = t.add(f"select i1 {fits}, i64 {left}, i64 {lanes}")
            there = t.add(f"getelementptr i8, ptr {t.out}, i64 {place}")
            t.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {there}, ptr {few}, i64 {many}, i1 false)")
            return []

        t.rows([], row)

    return _COPY + t.text(body)


def _each(t: WindowText, u: str, move: Any) -> None:
    """Emit a loop that moves an element for each window, from the last window to the first.

    ``move`` emits how, from the number of the window, the index of its winner in the array, and
    whether that is inside.
    """
    last = f"%count{t.rank - 1}"
    skipped = t.product([u, t.windowed])

    def row(places: list[str], carried: list[str]) -> Sequence[str]:
        ends = [t.add(f"sub i64 %count{axis}, 1") for axis in range(t.rank - 1)]
        back = [t.add(f"sub i64 {end}, {p}") for end, p in zip(ends, places, strict=True)]
        begin = t.moved("0", (t.row(back), last), (skipped, 1))
        t.loop("0", last, 1, [], lambda i, _: window([*back, i], begin))
        return []

    def window(places: list[str], begin: str) -> Sequence[str]:
        places[-1] = t.add(f"sub i64 {t.add(f'sub i64 {last}, 1')}, {places[-1]}")
        number = t.add(f"add i64 {begin}, {places[-1]}")
        word = t.add(f"load i8, ptr {t.add(f'getelementptr i8, ptr %p1, i64 {number}')}")
        rest, inside = t.add(f"zext i8 {word} to i64"), "true"
        found: list[str] = []
        for axis in reversed(range(t.rank)):
            length, stride, padding, dilation = (part[axis] for part in t.windows)
            position = t.add(f"urem i64 {rest}, {length}")
            rest = t.add(f"udiv i64 {rest}, {length}")
            place = t.moved(-padding, (places[axis], stride), (position, dilation))
            here = t.add(f"icmp ult i64 {place}, %size{axis}")
            inside = t.add(f"and i1 {inside}, {here}")
            found.insert(0, place)
        total = "0"
        for axis, place in enumerate(found):
            total = t.moved(place, (total, f"%size{axis}"))
        move(number, t.moved(total, (u, t.volume)), inside)
        return []

    t.rows([], row)


def _where(t: WindowText, flag: str, body: Any) -> None:
    """Emit instructions that run only if a flag is set."""
    t.count += 1
    name = f"w{t.count}"
    t.do(f"br i1 {flag}, label %{name}, label %{name}.after")
    t.lines.append(f"{name}:")
    body()
    t.do(f"br label %{name}.after")
    t.lines.append(f"{name}.after:")


@functools.cache
def to_winners(dtype: Any, windows: Windows, apart: bool) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.pool.pooling.to_winners`."""
    t = WindowText(dtype, windows, 2)

    def body(u: str, output: str, base: str) -> None:
        here = t.at(t.out, t.product([u, t.volume]))
        count = t.product([t.volume, t.size])
        t.do(f"call void @llvm.memset.p0.i64(ptr {here}, i8 0, i64 {count}, i1 false)")
        _each(t, u, move)

    def move(number: str, place: str, inside: str) -> None:
        def added() -> None:
            value = t.add(f"load {t.one}, ptr {t.at('%p0', number)}, align {t.size}")
            there = t.at(t.out, place)
            if not apart:
                old = t.add(f"load {t.one}, ptr {there}, align {t.size}")
                value = t.add(f"fadd {t.one} {old}, {value}")
            t.do(f"store {t.one} {value}, ptr {there}, align {t.size}")

        _where(t, inside, added)

    return _CLEAR + t.text(body)


@functools.cache
def at_winners(dtype: Any, windows: Windows) -> str:
    """Return the kernel of `fdbr.backends.cpu.library.pool.pooling.at_winners`."""
    t = WindowText(dtype, windows, 2)

    def move(number: str, place: str, inside: str) -> None:
        there = t.at(t.out, number)
        t.do(f"store {t.one} 0.0, ptr {there}, align {t.size}")

        def read() -> None:
            value = t.add(f"load {t.one}, ptr {t.at('%p0', place)}, align {t.size}")
            t.do(f"store {t.one} {value}, ptr {there}, align {t.size}")

        _where(t, inside, read)

    return t.text(lambda u, output, base: _each(t, u, move))
