"""Tables of what operations and lines of a program cost."""

import threading
from collections.abc import Iterable
from typing import Any

import attrs

from fdbr.debug.observing import Application
from fdbr.debug.sources import Source
from fdbr.errors.public import public

__all__ = ["Row", "Table", "Tally", "byte_text", "second_text"]

_KEYS = ("op", "direction", "source")


@public("fdbr.debug")
@attrs.frozen
class Row:
    """The cost of one operation at one line in one direction.

    Attributes
    ----------
    op, direction, source
        What it is about; `None` in a table that does not tell them apart, and where a line is
        not known.
    calls
        How many applications there were.
    total, largest
        What they cost together, and the most that one of them cost.
    """

    op: str | None
    direction: str | None
    source: Source | None
    calls: int
    total: float
    largest: float


@public("fdbr.debug")
@attrs.frozen
class Table:
    """Rows, of which the most expensive comes first.

    Attributes
    ----------
    rows
        A tuple of `Row`.
    unit
        ``"s"`` or ``"B"``.
    keys
        What rows are told apart by: some of ``"op"``, ``"direction"`` and ``"source"``.
    """

    rows: tuple[Row, ...]
    unit: str
    keys: tuple[str, ...] = _KEYS

    @property
    def total(self) -> float:
        """The cost of everything together."""
        return sum(row.total for row in self.rows)

    @property
    def calls(self) -> int:
        """The number of applications."""
        return sum(row.calls for row in self.rows)

    def by(self, *keys: str) -> "Table":
        """A table with one row for all that has these keys in common.

        Parameters
        ----------
        keys
            Some of ``"op"``, ``"direction"`` and ``"source"``.
        """
        unknown = set(keys) - set(self.keys)
        if unknown or not keys:
            raise ValueError(
                f"fdbr.debug: rows are told apart by some of {self.keys}, not by {keys}"
            )
        chosen = tuple(key for key in self.keys if key in keys)
        groups: dict[Any, list[Row]] = {}
        for row in self.rows:
            key = tuple(getattr(row, name) if name in chosen else None for name in _KEYS)
            groups.setdefault(key, []).append(row)
        rows = [
            Row(
                op=key[0],
                direction=key[1],
                source=key[2],
                calls=sum(row.calls for row in group),
                total=sum(row.total for row in group),
                largest=max(row.largest for row in group),
            )
            for key, group in groups.items()
        ]
        return Table(_sorted(rows), self.unit, chosen)

    def __str__(self) -> str:
        """The table as text."""
        text = second_text if self.unit == "s" else byte_text
        total = self.total
        lines = [(*self.keys, "calls", "total", "share", "largest")]
        for row in self.rows:
            share = f"{100 * row.total / total:.1f} %" if total else ""
            names = [_name(key, getattr(row, key)) for key in self.keys]
            lines.append((*names, str(row.calls), text(row.total), share, text(row.largest)))
        blank = [""] * (len(self.keys) - 1)
        lines.append(("total", *blank, str(self.calls), text(total), "", ""))
        return _aligned(lines, left=len(self.keys))


def _name(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if key == "source" and value.text:
        return f"{value}: {value.text[:60]}"
    return str(value)


def _aligned(lines: list[tuple[str, ...]], left: int) -> str:
    """Columns, of which the first are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.total, str(row.op), str(row.direction))))


class Tally:
    """The sums of which a table is made; threads may add to it."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._sums: dict[Any, tuple[int, float, float]] = {}
        self._lock = threading.Lock()

    def add(self, application: Application, amount: float) -> None:
        """Add what an application cost, to the operation whose derivative it is a part of."""
        key = (application.rule or application.op, application.direction, application.source)
        with self._lock:
            calls, total, largest = self._sums.get(key, (0, 0, 0))
            self._sums[key] = (calls + 1, total + amount, max(largest, amount))

    def table(self) -> Table:
        """The table of everything added until now."""
        with self._lock:
            found = list(self._sums.items())
        rows = [
            Row(op, direction, source, calls, total, largest)
            for (op, direction, source), (calls, total, largest) in found
        ]
        return Table(_sorted(rows), self._unit)


def second_text(seconds: float) -> str:
    """A time, for people.

    >>> second_text(0.0123)
    '12.3 ms'
    """
    return _scaled(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)))


def byte_text(count: float) -> str:
    """A number of bytes, for people.

    >>> byte_text(12), byte_text(3072)
    ('12 B', '3.00 KiB')
    """
    if count < 1024:
        return f"{int(count)} B"
    return _scaled(count, (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)))


def _scaled(amount: float, units: tuple[tuple[str, float], ...]) -> str:
    name, size = next((unit for unit in units if amount >= unit[1]), units[-1])
    digits = max(0, 2 - len(str(int(amount / size))) + 1)
    return f"{amount / size:.{digits}f} {name}"
