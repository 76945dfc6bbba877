"""Modules and functions in LLVM's language, and the instructions in them.

What is computed twice in a row of instructions without a branch is computed once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fdbr.backends.cpu.codegen.held_memory import Held

__all__ = ["Cell", "Instructions", "Module"]

_IMPURE = frozenset({"load", "call", "phi", "atomicrmw"})


class Module:
    """The module of a kernel: its functions, and declarations of LLVM's own."""

    def __init__(self) -> None:
        self.declared: dict[str, None] = {}
        self.functions: dict[Any, Any] = {}  # the name and the type of the result, by signature
        self.texts: list[str] = []
        self.notes: dict[str, str] = {}
        self.domain = self.note("distinct !{*}")
        self.scopes: list[str] = []
        self.marks: dict[Any, str] = {}
        self.final = True  # whether nobody has to improve it
        self.vectors = True  # whether loops may be written in vectors

    def text(self) -> str:
        """All of it."""
        notes = [f"{name} = {text}" for text, name in self.notes.items()]
        return "\n".join([*self.declared, *self.texts, *notes])

    def note(self, text: str) -> str:
        """The name of a piece of metadata; a star stands for its own name."""
        name = f"!{len(self.notes)}"
        return self.notes.setdefault(text.replace("*", name), name)

    def apart(self, memory: Any) -> str:
        """The metadata of accesses to memory that does not alias other such memory."""
        if memory not in self.marks:
            scope = self.note(f"distinct !{{*, {self.domain}}}")
            others = self.note(f"!{{{', '.join(self.scopes)}}}")
            self.scopes.append(scope)
            self.marks[memory] = f", !alias.scope {self.note(f'!{{{scope}}}')}, !noalias {others}"
        return self.marks[memory]


class Cell:
    """A variable that changes in an intrinsic's loops: its type, and its register at present."""

    __slots__ = ("text", "type")

    def __init__(self, type: str, text: str) -> None:
        self.type, self.text = type, text


class Instructions:
    """The instructions of a function in the making.

    Attributes
    ----------
    flags
        What the compiler may do with floating operations.
    block
        The label of the block that is being written.
    lanes
        How many numbers a vector has, in a loop of vectors; 1 elsewhere.
    mask, there
        Which of them there are, if not all, and how many.
    gathers
        Whether they may be of elements that lie apart.
    held
        What is known of memory.
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
        self.known: dict[str, str] = {}  # what was computed in this block
        self.held = Held()
        self.ranges: dict[str, range] = {}  # where integers lie, by name, if that is known

    def name(self) -> str:
        """A name that nothing else has."""
        self.count += 1
        return f"%v{self.count}"

    def add(self, text: str) -> str:
        """The name of an instruction's result."""
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
        """Write a line; one that is ``pure`` may stand wherever its operands are known."""
        self.lines.append(line)

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")
        if not text.startswith("br "):
            self.held.clear()

    def label(self) -> str:
        """A name for a block."""
        self.count += 1
        return f"b{self.count}"

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label
        self.forget()

    def forget(self) -> None:
        """Take nothing for known that was computed or read before."""
        self.known = {}
        self.held.clear()

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, mark: str = "") -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{mark}")

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A call of one of LLVM's functions, with types and arguments."""
        types = ", ".join([f"{type} immarg" if type == "i32" else type for type, _ in args])
        self.module.declared[f"declare {result} @{name}({types})"] = None
        text = f"call {result} @{name}({', '.join([f'{type} {x}' for type, x in args])})"
        if result != "void":
            return self.add(text)
        self.lines.append(f"  {text}")
        return ""

    @contextmanager
    def loop(self, first: str, stop: str) -> Iterator[str]:
        """Write what is done for each integer from one to before another; gives its name.

        What the ``cells`` hold is carried from turn to turn.
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
        self.do(f"{following} = add nsw i64 {index}, 1")
        self.branch(self.add(f"icmp slt i64 {following}, {stop}"), body, after)
        self._join(after, starts, before, news, end)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Write what is done if something holds."""
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
        """Begin the block in which cells hold what comes from one block or from another."""
        self.begin(label)
        for cell, start, new in zip(self.cells, starts, news, strict=True):
            text = f"phi {cell.type} [ {start}, %{first} ], [ {new}, %{second} ]"
            cell.text = start if start == new else self.add(text)
