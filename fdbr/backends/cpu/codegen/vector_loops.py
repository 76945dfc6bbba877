"""Vectorisation of innermost loops during lowering, which spares LLVM its own analysis.

A loop over consecutive integers is first lowered as a vector loop: its index *counts* lanes, and
each statement is emitted once for all lanes.  Code that does not fit (elements that are not
adjacent, branches, loop-carried dependences) raises `KernelError`, and the loop is lowered to
scalar code.  Sums and extremes have an accumulator in each lane.

A short loop becomes one vector without a loop; the remainder of a longer one is a vector with lanes
masked out.
"""

import ast
import re
from collections.abc import Sequence

from fdbr.backends.cpu.codegen.held_memory import Span
from fdbr.backends.cpu.codegen.kernel_expressions import Expressions, phi
from fdbr.backends.cpu.codegen.kernel_functions import Function, Library
from fdbr.backends.cpu.codegen.llvm_values import (
    BYTES,
    AccessError,
    Counts,
    KernelError,
    Value,
    kind,
    suffix,
)
from fdbr.backends.cpu.codegen.loop_parts import Parts, gathering, target_of
from fdbr.backends.cpu.codegen.loop_pieces import (
    SHORT,
    Piece,
    check_apart,
    is_written_once,
    known_pieces,
)
from fdbr.backends.cpu.runtime.machine import vector_bytes

__all__ = ["VectorLoops"]

_FEW = 4  # trip count of a loop that LLVM's vectoriser need not try again
_AT_ONCE = 4  # accumulators that are added to independently
_MANY = 1024  # elements that may be gathered
_READS = re.compile(r" = load |@llvm\.masked\.(load|gather)\.")
_NAMES = re.compile(r"%v(\d+)\b")


class _NarrowerError(KernelError):
    """Report numbers that are longer than those in memory."""


class VectorLoops(Expressions):
    """Lower loops to vectors.

    Attributes
    ----------
    totals
        The values that the loop reduces into lanes, by name.
    how
        The LLVM reduction of each.
    spans
        The memory that the loop accesses.
    """

    head: list[str] | None = None  # where to emit loop-invariant instructions
    outside: set[str]
    last_outside = 0
    spans: list[tuple[Span, bool]]
    totals: dict[str, Value]
    how: dict[str, str]

    def vector_loop(self, node: ast.For, parts: Parts, first: Value, stop: Value) -> bool:
        """Lower a loop to vectors if possible, and return whether it was.

        If it was not, LLVM's own vectoriser is to try, unless it could not succeed either.

        A loop around short loops is itself vectorised, with gathered elements, provided that these
        are few: for more, LLVM takes long to analyse the access pattern.
        """
        narrow, gathers = not parts.innermost, self.longest(first, stop) <= _MANY
        if narrow and not gathers:
            return False
        found = [self.values[name] for name in parts.pointers if name in self.values]
        sizes = [BYTES[value.type[1:]] for value in found if value.is_pointer]
        lanes = vector_bytes() // max([*sizes, 4])
        for size in (lanes, lanes // 2):
            before = self.lines, len(self.lines), self.values, dict(self.lost), self.block
            self.gathers = gathers
            try:
                self._pieces(node, parts, first, stop, size)
            except KernelError as error:
                self.lines, length, self.values, self.lost, self.block = before
                del self.lines[length:]
                self.forget()
                if narrow:
                    return False
                if not isinstance(error, _NarrowerError):
                    short = self.longest(first, stop) <= _FEW
                    self.module.final &= short or not isinstance(error, AccessError)
                    return False
            else:
                return True
            finally:
                self.lanes, self.mask, self.there, self.head = 1, "", 1, None
                self.gathers = False
        return False

    def _pieces(self, node: ast.For, parts: Parts, first: Value, stop: Value, lanes: int) -> None:
        """Lower a loop as main loop and remainder."""
        assert isinstance(node.target, ast.Name)
        names = parts.assigned
        self.values = dict(self.values)
        self.how = self._gathered(node)
        gathered = {name: self.values[name] for name in self.how}
        weight = self._weight(parts)
        one, many = lanes, lanes * (_AT_ONCE if self.how and weight <= SHORT else 1)
        pieces = (
            known_pieces(int(first.text), int(stop.text), one, many, weight)
            if first.literal is not None and stop.literal is not None
            else self._unknown_pieces(first, stop, one, many, weight)
        )
        for piece in pieces:
            for name in names:
                self.values.pop(name, None)
            gathered = self._piece(node, piece, gathered)
        for name in names:
            self.values.pop(name, None)
        self.values.update(gathered)
        for name in (*names, node.target.id):
            if name not in self.how:
                self.lose(name, "has no value after its loop")

    def _gathered(self, node: ast.For) -> dict[str, str]:
        """Return the names into which a loop reduces values, and how."""
        found = {}
        for statement in node.body:
            name = target_of(statement)
            value = self.values.get(name)
            if value is None or value.is_pointer:
                continue
            how, _ = gathering(statement, name)
            if how and (how == "or") == (value.type == "b1"):
                found[name] = how
        return found

    def _weight(self, parts: Parts) -> int:
        """Return the approximate number of operations in an iteration."""
        total = parts.operations
        for name in parts.functions:
            found = self.scope.get(name)
            if isinstance(found, Function) and not isinstance(found, Library):
                total += len(found.tree.body)
        return total

    def _unknown_pieces(
        self, first: Value, stop: Value, one: int, many: int, weight: int
    ) -> list[Piece]:
        """Return the parts of a loop of unknown trip count."""
        first, stop = self.strong(first), self.strong(stop)
        if is_written_once(weight):
            return [Piece(first, stop, one, None, False, True, True)]
        length = self.called_on("smax", self.binary("-", stop, first), Value("i8", "0"))
        whole = self.binary("&", length, Value("i8", str(-many)))
        last = self.binary("+", first, whole)
        return [
            Piece(first, last, many, None, False, False, True),
            Piece(last, stop, one, None, many == one, True, True),
        ]

    # --- one part of a loop

    def _piece(self, node: ast.For, piece: Piece, old: dict[str, Value]) -> dict[str, Value]:
        """Lower a part of a loop, and return its accumulators, which were ``old`` before."""
        before, outer = self.block, self.lines
        here = piece.once and not piece.maybe  # there is no basic block but this one
        self.outside, self.last_outside = set(), self.count
        index = piece.first.text if piece.once else self.name()
        if piece.length is not None and not piece.once:
            begin, length = int(piece.first.text), piece.length
            self.ranges[index] = range(begin, begin + (length - 1) // piece.lanes * piece.lanes + 1)
        self.lines, self.head = [], outer if here else []
        self.lanes, self.spans = piece.lanes, []
        if not here:
            self.forget()
        starts = {name: self._start(name, value) for name, value in old.items()}
        self.totals = {
            name: start if piece.once else start._replace(text=self.name())
            for name, start in starts.items()
        }
        carried = {name: (total, starts[name]) for name, total in self.totals.items()}
        self._mask(piece, index)
        self._iteration(node, index)
        check_apart(self.spans, piece, self.ranges)
        lines, head, self.head = self.lines, self.head, None
        self.lanes, self.mask, self.there, self.lines = 1, "", 1, outer
        if here:
            self.lines += lines
            return {name: self._finish(name, value) for name, value in old.items()}
        self.lines += head
        self.forget()
        body, end, after = self.label(), self.label(), self.label()
        if piece.maybe:
            some = self.add(f"icmp slt i64 {piece.first.text}, {piece.stop.text}")
            self.branch(some, body, after)
        else:
            self.jump(body)
        self.begin(body)
        if piece.once:
            self.lines += lines
        else:
            self._repeat(piece, index, carried, lines, (before, body, end))
        found = {name: self._finish(name, value) for name, value in old.items()}
        if not piece.maybe:
            return found
        last = self.block
        self.jump(after)
        self.begin(after)
        return {name: self.joined(old[name], before, new, last) for name, new in found.items()}

    def _repeat(
        self,
        piece: Piece,
        index: str,
        carried: dict[str, tuple[Value, Value]],
        lines: list[str],
        labels: tuple[str, str, str],
    ) -> None:
        """Emit a loop around lines; ``carried`` has its accumulators and their start."""
        before, body, end = labels
        following = self.name()
        first = f"[ {piece.first.text}, %{before} ]"
        self.lines.append(f"  {index} = phi i64 {first}, [ {following}, %{body} ]")
        for name, (total, start) in carried.items():
            new = self.totals[name].text
            self.lines.append(f"  {total.text} = {phi(start, before, new, body)}")
        self.lines += lines
        self.do(f"{following} = add nsw i64 {index}, {piece.lanes}")
        self.branch(self.add(f"icmp slt i64 {following}, {piece.stop.text}"), body, end)
        self.begin(end)

    def _iteration(self, node: ast.For, index: str) -> None:
        """Emit the statements for the vector that starts at an index."""
        assert isinstance(node.target, ast.Name)
        number = index.lstrip("-").isdecimal()
        counts = Counts("", int(index)) if number else Counts(index, 0)
        self.values[node.target.id] = Value("i8", "", counts=counts)
        for statement in node.body:
            name = target_of(statement)
            if name not in self.how:
                self.statements([statement])
                continue
            how, part = gathering(statement, name)
            if part is None or how != self.how[name]:
                raise KernelError(f"{name} is gathered, and something else")
            self._gather(name, part)

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Emit statements."""
        raise NotImplementedError

    def _mask(self, piece: Piece, index: str) -> None:
        """Compute the mask of active lanes."""
        self.there = piece.lanes
        if not piece.masked:
            return
        if piece.once and piece.length is not None:
            self.there = piece.length
            lanes = [f"i1 {str(lane < piece.length).lower()}" for lane in range(piece.lanes)]
            self.mask = f"<{', '.join(lanes)}>"
            return
        left = self.binary("-", piece.stop, Value("i8", index))
        left = self.called_on("smin", left, Value("i8", str(piece.lanes)))
        short = Value("i4", self.add(f"trunc {left.typed} to i32"))
        places = ", ".join([f"i32 {lane}" for lane in range(piece.lanes)])
        self.mask = self.add(f"icmp sgt {self.spread(short, piece.lanes).typed}, <{places}>")

    # --- reductions

    def _start(self, name: str, old: Value) -> Value:
        how = self.how[name]
        if how in ("fmax", "fmin"):
            return self.spread(old, self.lanes)
        zero = Value(old.type, "false" if how == "or" else "-0.0")
        return self.spread(zero, self.lanes)

    def _gather(self, name: str, node: ast.expr) -> None:
        total, how = self.totals[name], self.how[name]
        x = self.spread(self.cast(self.value(node), total.type), self.lanes)
        if how == "fadd":
            new = self.like(x, f"fadd reassoc contract {total.typed}, {x.text}")
        elif how == "or":
            new = self.like(x, f"or {total.typed}, {x.text}")
        else:
            sign = "ogt" if how == "fmax" else "olt"
            better = self.like(x, f"fcmp nnan nsz {sign} {x.typed}, {total.text}", "b1")
            new = self.select(better, x, total, "nnan nsz")
        if self.mask:
            new = self.select(Value("b1", self.mask, lanes=self.lanes), new, total)
        self.totals[name] = new

    def _finish(self, name: str, old: Value) -> Value:
        """Reduce the lanes of an accumulator to a number."""
        total, how = self.totals[name], self.how[name]
        one, lanes = kind(total.type), total.lanes
        given = [f"{one} {old.text}"] * (how == "fadd") + [total.typed]
        types = ", ".join([one] * (how == "fadd") + [kind(total.type, lanes)])
        symbol = f"llvm.vector.reduce.{how}.{suffix(total.type, lanes)}"
        self.module.declared[f"declare {one} @{symbol}({types})"] = None
        flags = {"fadd": "reassoc contract ", "or": ""}.get(how, "nnan nsz ")
        found = Value(total.type, self.add(f"call {flags}{one} @{symbol}({', '.join(given)})"))
        return self.binary("|", old, found) if how == "or" else found

    # --- instructions

    def put(self, line: str, pure: bool) -> None:
        """Emit a line, before the loop if it is loop-invariant."""
        if self.lanes == 1 or self.head is None:
            self.lines.append(line)
            return
        if not pure and not _READS.search(line):
            raise KernelError("a call that is done number by number")
        name, _, text = line.strip().partition(" = ")
        inside = [
            number
            for number in _NAMES.findall(text)
            if int(number) > self.last_outside and f"%v{number}" not in self.outside
        ]
        if pure and not inside:
            self.outside.add(name)
            self.head.append(line)
        else:
            self.lines.append(line)

    def do(self, text: str) -> None:
        if self.lanes > 1:
            raise KernelError("what is done number by number")
        super().do(text)

    def begin(self, label: str) -> None:
        if self.lanes > 1:
            raise KernelError("a branch")
        super().begin(label)

    def called_on(self, name: str, *values: Value) -> Value:
        first = values[0]
        if first.type == "f8" and first.lanes * 8 > vector_bytes() and not self.how:
            raise _NarrowerError("numbers are longer than those in memory")
        return super().called_on(name, *values)

    def read(self, pointer: Value, index: Value) -> Value:
        if self.lanes > 1:
            self.spans.append((self.span(pointer, index), False))
        return super().read(pointer, index)

    def write(self, pointer: Value, index: Value, value: Value) -> None:
        if self.lanes > 1:
            if index.counts is None:
                raise AccessError("all turns write to one place")
            self.spans.append((self.span(pointer, index), True))
        super().write(pointer, index, value)
