"""LLVM modules and functions, and the instructions in them.

Common subexpressions within a basic block are emitted once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fdbr.backends.cpu.codegen.held_memory import Held

__all__ = ["Cell", "Instructions", "Module"]

_IMPURE = frozenset({"alloca", "load", "call", "phi", "atomicrmw"})


class Module:
    """Collect the functions, declarations and metadata of a kernel's LLVM module."""

    def __init__(self) -> None:
        self.declared: dict[str, None] = {}
        self.functions: dict[Any, Any] = {}  # name and result type, by signature
        self.texts: list[str] = []
        self.notes: dict[str, str] = {}
        self.domain = self.note("distinct !{*}")
        self.scopes: list[str] = []
        self.marks: dict[Any, str] = {}
        self.final = True  # whether no optimisation passes are needed
        self.vectors = True  # whether loops may be emitted as vectors

    def text(self) -> str:
        """Return the text of the module."""
        notes = [f"{name} = {text}" for text, name in self.notes.items()]
        return "\n".join([*self.declared, *self.texts, *notes])

    def note(self, text: str) -> str:
        """Return the name of a new metadata node; a star in the text is replaced by that name."""
        name = f"!{len(self.notes)}"
        return self.notes.setdefault(text.replace("*", name), name)

    def apart(self, memory: Any) -> str:
        """Return the metadata of accesses to memory that does not alias other such memory."""
        if memory not in self.marks:
            scope = self.note(f"distinct !{{*, {self.domain}}}")
            others = self.note(f"!{{{', '.join(self.scopes)}}}")
            self.scopes.append(scope)
            self.marks[memory] = f", !alias.scope {self.note(f'!{{{scope}}}')}, !noalias {others}"
        return self.marks[memory]


class Cell:
    """Hold a variable that changes in an intrinsic's loops: its type and its current register."""

    __slots__ = ("text", "type")

    def __init__(self, type: str, text: str) -> None:
        self.type, self.text = type, text


class Instructions:
    """Collect the instructions of a function under construction.

    Attributes
    ----------
    flags
        The fast-math flags of floating-point operations.
    block
        The label of the current basic block.
    lanes
        The number of lanes in a vector loop; 1 elsewhere.
    mask, there
        The mask of active lanes, if not all are active, and their number.
    gathers
        Whether vector accesses may gather elements that are not adjacent.
    held
        The memory elements whose values are known.
    """

    def __init__(self, module: Module, flags: str = "") -> None:
        self.module = module
        self.flags = f"{flags} " if flags else ""
        self.lines: list[str] = []
        self.cells: list[Cell] = []
        self.count = 0
        self.block = "entry"
        self.lanes, self.mask, self.there = 1, "", 1
        self.gathers = False
        self.known: dict[str, str] = {}  # registers of expressions computed in this block
        self.held = Held()
        self.ranges: dict[str, range] = {}  # the known ranges of integers, by name

    def name(self) -> str:
        """Return a new, unique register name."""
        self.count += 1
        return f"%v{self.count}"

    def add(self, text: str) -> str:
        """Emit an instruction, and return the register of its result."""
        how = text.partition(" ")[0]
        function = text.partition("@")[2] if how == "call" else ""
        pure = how not in _IMPURE or (function[:5] == "llvm." and function[5:11] != "masked")
        found = self.known.get(text) if pure else None
        if found is None:
            self.count += 1
            found = f"%v{self.count}"
            self.put(f"  {found} = {text}", pure)
            if pure:
                self.known[text] = found
            elif how == "atomicrmw" or (how == "call" and function[:5] != "llvm."):
                self.held.clear()
        return found

    def put(self, line: str, pure: bool) -> None:
        """Emit a line; a ``pure`` one may be moved to wherever its operands are known."""
        self.lines.append(line)

    def do(self, text: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(f"  {text}")
        if not text.startswith("br "):
            self.held.clear()

    def label(self) -> str:
        """Return a new label."""
        self.count += 1
        return f"b{self.count}"

    def begin(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.block = label
        self.forget()

    def forget(self) -> None:
        """Forget all values that were computed or read before."""
        self.known = {}
        self.held.clear()

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, mark: str = "") -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{mark}")

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """Emit a call of an LLVM function, with types and arguments."""
        types = ", ".join([f"{type} immarg" if type == "i32" else type for type, _ in args])
        self.module.declared[f"declare {result} @{name}({types})"] = None
        text = f"call {result} @{name}({', '.join([f'{type} {x}' for type, x in args])})"
        if result != "void":
            return self.add(text)
        self.lines.append(f"  {text}")
        return ""

    @contextmanager
    def loop(self, first: str, stop: str, step: Any = 1) -> Iterator[str]:
        """Emit a loop over the integers from ``first`` to before ``stop``; yields the index's name.

        The values of the ``cells`` are carried from iteration to iteration.
        """
        before, body, after = self.block, self.label(), self.label()
        self.branch(self.add(f"icmp slt i64 {first}, {stop}"), body, after)
        self.begin(body)
        index, following, at = self.name(), self.name(), len(self.lines)
        starts = [cell.text for cell in self.cells]
        names = [self.name() for _ in self.cells]
        for cell, name in zip(self.cells, names, strict=True):
            cell.text = name
        yield index
        end, news = self.block, [cell.text for cell in self.cells]
        pairs = [("i64", index, first, following)]
        pairs += [
            (cell.type, name, start, new)
            for cell, name, start, new in zip(self.cells, names, starts, news, strict=True)
        ]
        self.lines[at:at] = [
            f"  {name} = phi {type} [ {start}, %{before} ], [ {new}, %{end} ]"
            for type, name, start, new in pairs
        ]
        self.do(f"{following} = add nsw i64 {index}, {step}")
        self.branch(self.add(f"icmp slt i64 {following}, {stop}"), body, after)
        self._join(after, starts, before, news, end)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Emit instructions that are executed only if a condition holds."""
        before, body, after = self.block, self.label(), self.label()
        self.branch(condition, body, after)
        self.begin(body)
        starts = [cell.text for cell in self.cells]
        yield
        end, news = self.block, [cell.text for cell in self.cells]
        self.jump(after)
        self._join(after, starts, before, news, end)

    def _join(
        self, label: str, starts: Sequence[str], first: str, news: Sequence[str], second: str
    ) -> None:
        """Begin the block in which cells get phis of their values from two blocks."""
        self.begin(label)
        for cell, start, new in zip(self.cells, starts, news, strict=True):
            text = f"phi {cell.type} [ {start}, %{first} ], [ {new}, %{second} ]"
            cell.text = start if start == new else self.add(text)
