"""Kernels that gather elements at indices, and scatter or add them there.

They process the moved elements line by line: a *line* is contiguous in the index and in the result.
Indices are checked for a *piece* of a line at a time; pieces whose indices are all in range take a
loop without checks.
"""

import functools
from collections.abc import Callable

from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number, Variable

__all__ = ["TABLE", "gathering", "scattering"]

TABLE = "x index out count line lines base step stack bytes apart which total wrong".split()
"""The words of a kernel's table."""

_CODES = {0: "u1", 1: "u1", 2: "u2", 4: "i4", 8: "i8", 16: "i8"}
_LANES = 16  # elements that are added at once
_PIECE = 1 << 9  # indices that are checked before they are used
_AT_ONCE = 4  # elements that are moved in an iteration
_CHECKED = 8  # indices that are checked at once


class _Lines(Kernel):
    """A kernel that moves elements along lines.

    Parameters
    ----------
    word
        The type of indices.
    size, code
        The bytes of an element, or 0 for any number of bytes; its type, by default of its bytes.
    along
        Whether each element has an index, rather than each row.
    """

    def __init__(self, word: str, size: int, along: bool, code: str = "") -> None:
        code = code or _CODES[size]
        super().__init__(TABLE, {"x": code, "index": word, "out": code})
        self.size, self.along, self.width = size, along, 2 if size == 16 else 1
        self.code, self.index_code = code, word
        self._bound = self.word["count"].to(word).spread(_CHECKED)
        self.bad = Variable(self.constant(False, "b1"))

    def element(self, pointer: Number, index: Number) -> Number:
        """Emit the address of an element."""
        return pointer + index * self.width

    def take(self, at: Number) -> Number:
        """Emit a load of an element, which need not be aligned."""
        return self.load(at, self.width, align=1)

    def line(
        self,
        row: Number,
        first: Number,
        stop: Number,
        of_rows: Number,
        move: Callable[[Number, Number], None],
        low: Number,
        share: Number,
    ) -> None:
        """Emit the moves of a line's elements from one to another, by index and by address.

        ``of_rows`` are those that the indices are of.  Only indices of the ``share`` rows from
        ``low`` on are used.
        """
        word = self.word
        r = row // word["lines"]
        begin = row * word["line"]
        inside = (row - r * word["lines"]) * word["line"]
        self._indices = word["index"] + (r * word["base"] + inside - begin)
        of_rows = self.element(of_rows, r * word["stack"])

        def moved(v: Number, j: Number) -> None:
            step = 1 if self.size and not self.along else word["step"]
            at = j * step + (v - begin) if self.along else j * step
            move(v, self.element(of_rows, at))

        with self.each(first, stop, _PIECE) as piece:
            end = self.apply("smin", piece + _PIECE, stop)
            if not self.size:
                self._checked(piece, end, moved, low, share)
                return
            valid = self._are_valid(piece, end, share)
            with self.when(~valid):
                self._checked(piece, end, moved, low, share)
            with self.when(valid):
                whole = piece + ((end - piece) & -_AT_ONCE)
                with self.each(piece, whole, _AT_ONCE) as v:
                    for k, j in enumerate([self._row(v + k) for k in range(_AT_ONCE)]):
                        moved(v + k, j)
                with self.each(whole, end) as v:
                    moved(v, self._row(v))

    def _row(self, v: Number) -> Number:
        """Emit the index of an element."""
        return self.load(self._indices + v).to("i8")

    def _are_valid(self, piece: Number, end: Number, share: Number) -> Number:
        """Emit whether all indices of a piece are in bounds and not negative."""
        count, last, bound = self.word["count"], end - _CHECKED, self._bound

        def check(v: Number, inside: Number) -> Number:
            at = self._indices + self.apply("smin", v, last)
            return inside & self.load(at, _CHECKED).within(bound)

        def checked() -> Number:
            every = self.constant(True, "b1", _CHECKED)
            (inside,) = self.repeat(piece, end, check, every, step=_CHECKED)
            return ~self.any(~inside)

        tried = (piece <= last) & share.equals(count)
        return self.computed_if(tried, checked, self.constant(False, "b1"))

    def _checked(
        self,
        piece: Number,
        end: Number,
        moved: Callable[[Number, Number], None],
        low: Number,
        share: Number,
    ) -> None:
        """Emit a loop over a piece that checks each index before using it."""
        count = self.word["count"]
        with self.each(piece, end) as v:
            row = self._row(v)
            row = self.choose(row < 0, row + count, row)
            self.bad.value = self.bad.value | ~row.within(count)
            with self.when((row - low).within(share)):
                moved(v, row)

    def whole(self) -> str:
        """Return the kernel."""
        with self.when(self.bad.value):
            self.store(self.register("%wrong.at", "*i8"), 1)
        return self.text()


@functools.cache  # because generating the text takes long
def gathering(word: str, size: int, along: bool) -> str:
    """Return a kernel that reads elements of ``size`` bytes; of any number of bytes for 0."""
    kernel = _Lines(word, size, along)
    x, out, line, count = (kernel.word[name] for name in ("x", "out", "line", "bytes"))

    def move(v: Number, at: Number) -> None:
        if size:
            kernel.store(kernel.element(out, v), kernel.take(at), align=1)
        else:
            kernel.copy(out + v * count, at, count)

    with kernel.when(kernel.start < kernel.stop):
        begin = kernel.start // line
        with kernel.each(begin, (kernel.stop - 1) // line + 1) as row:
            first = kernel.apply("smax", row * line, kernel.start)
            stop = kernel.apply("smin", row * line + line, kernel.stop)
            kernel.line(row, first, stop, x, move, kernel.index(0), kernel.word["count"])
    return kernel.whole()


@functools.cache
def scattering(word: str, size: int, along: bool, added: str) -> str:
    """Return a kernel that writes or adds elements of ``size`` bytes, or rows.

    ``added`` is the type of elements that are added.
    """
    kernel = _Lines(word, size, along, added)
    names = ("x", "out", "line", "lines", "bytes", "apart", "which", "total", "count")
    x, out, line, lines, length, apart, which, total, count = (kernel.word[n] for n in names)

    def part_of(number: int, most: Number) -> tuple[Number, Number]:
        mine = which.equals(number)
        return kernel.choose(mine, kernel.start, 0), kernel.choose(mine, kernel.stop, most)

    def move(v: Number, at: Number) -> None:
        source = kernel.element(x, v * apart)
        if size:
            value = kernel.take(source)
            kernel.store(at, kernel.take(at) + value if added else value, align=1)
        elif added:
            add(at, source)
        else:
            kernel.copy(at, source, length)

    def add(at: Number, source: Number) -> None:
        whole = length & -_LANES
        for start, stop, lanes in ((0, whole, _LANES), (whole, length, 1)):
            with kernel.each(start, stop, lanes) as c:
                old = kernel.load(at + c, lanes, align=1)
                new = old + kernel.load(source + c, lanes, align=1)
                kernel.store(at + c, new, align=1)

    stacks, columns, rows = part_of(0, total), part_of(1, line), part_of(2, count)
    share = rows[1] - rows[0]
    with kernel.each(stacks[0] * lines, stacks[1] * lines) as row:
        begin = row * line
        kernel.line(row, begin + columns[0], begin + columns[1], out, move, rows[0], share)
    return kernel.whole()
