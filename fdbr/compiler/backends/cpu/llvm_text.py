"""Values and instructions in LLVM's language, as kernels are translated to it.

The types of values are called as dtypes are: ``f4``, ``f8``, ``i4``, ``i8``, ``u1``, and ``b1`` for
truth values; a pointer to numbers has a star before their type.  They mix as NumPy's do: numbers
that are written down take the type of what they meet, ``f4`` and ``i8`` make ``f8``.
"""

import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Builder", "KernelError", "Module", "TYPES", "Value"]

TYPES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "u1": "i8", "b1": "i1"}
"""The types of numbers, and what LLVM calls them."""

_RANK = {"b1": 0, "u1": 1, "i4": 2, "i8": 3, "f4": 4, "f8": 5}
_BITS = {"b1": 1, "u1": 8, "i4": 32, "i8": 64, "f4": 32, "f8": 64}
_FLOATS = "f4", "f8"
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul"}
_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_LOGIC = {"&": "and", "|": "or", "^": "xor"}
_ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class KernelError(Exception):
    """A kernel says what its language does not have.

    Attributes
    ----------
    where
        The function and the line in it, once they are known.
    """

    where: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.where is None else f"{self.where}: {text}"


class Value(NamedTuple):
    """A value of a kernel.

    Attributes
    ----------
    type
        Its type.
    text
        What LLVM calls it.
    literal
        The number that is written down, if it is one: its type is weak.
    apart
        What marks the reads and writes of a pointer's elements, see `Module.apart`.
    """

    type: str
    text: str
    literal: Any = None
    apart: str = ""

    @property
    def is_pointer(self) -> bool:
        return self.type[0] == "*"

    @property
    def typed(self) -> str:
        """It with its type, as LLVM writes it."""
        return f"{'ptr' if self.is_pointer else TYPES[self.type]} {self.text}"


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


class Builder:
    """The instructions of a function in the making.

    Attributes
    ----------
    flags
        What the compiler may do with floating operations.
    block
        The label of the block that is being written.
    """

    def __init__(self, module: Module, flags: str = "") -> None:
        self.module = module
        self.flags = f"{flags} " if flags else ""
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.count = 0
        self.block = "entry"

    # --- text

    def name(self) -> str:
        """A name that nothing else has."""
        self.count += 1
        return f"%v{self.count}"

    def add(self, text: str) -> str:
        """The name of an instruction's result."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self) -> str:
        """A name for a block."""
        self.count += 1
        return f"b{self.count}"

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, mark: str = "") -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{mark}")

    def call(self, name: str, result: str, *args: str) -> str:
        """A call of one of LLVM's functions; the arguments have their types before them."""
        types = ", ".join(arg.rpartition(" ")[0] for arg in args)
        self.module.declared[f"declare {result} @{name}({types})"] = None
        return self.add(f"call {result} @{name}({', '.join(args)})")

    def slot(self, type: str) -> str:
        """Memory for what changes: the compiler finds a register for it."""
        self.count += 1
        self.slots.append(f"  %v{self.count} = alloca {type}")
        return f"%v{self.count}"

    @contextmanager
    def loop(self, first: str, stop: str) -> Iterator[str]:
        """Write what is done for each integer from one to before another; gives its name."""
        before, body, after = self.block, self.label(), self.label()
        self.branch(self.add(f"icmp slt i64 {first}, {stop}"), body, after)
        self.begin(body)
        index, following, at = self.name(), self.name(), len(self.lines)
        yield index
        self.lines.insert(
            at, f"  {index} = phi i64 [ {first}, %{before} ], [ {following}, %{self.block} ]"
        )
        self.do(f"{following} = add nsw i64 {index}, 1")
        self.branch(self.add(f"icmp slt i64 {following}, {stop}"), body, after)
        self.begin(after)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Write what is done if something holds."""
        body, after = self.label(), self.label()
        self.branch(condition, body, after)
        self.begin(body)
        yield
        self.jump(after)
        self.begin(after)

    # --- numbers

    def literal(self, number: Any) -> Value:
        """A number that is written down."""
        if isinstance(number, bool):
            return Value("b1", "true" if number else "false")
        type = "i8" if isinstance(number, int) else "f8"
        return Value(type, _written(number, type), number)

    def strong(self, value: Value) -> Value:
        """The same value, of which nobody knows that it was written down."""
        return value if value.literal is None else Value(value.type, value.text)

    def cast(self, value: Value, type: str) -> Value:
        """A number in another type."""
        if value.literal is not None:
            number = value.literal
            return Value(type, _written(number if type in _FLOATS else int(number), type))
        if value.type == type:
            return value
        if value.is_pointer or type == "b1":
            raise KernelError(f"no {value.type} is a {type}")
        how = _conversion(value.type, type)
        return Value(type, self.add(f"{how} {value.typed} to {TYPES[type]}"))

    def truth(self, value: Value) -> Value:
        """Whether a number is not zero."""
        return value if value.type == "b1" else self.compare("!=", value, self.literal(0))

    def alike(self, *values: Value) -> list[Value]:
        """Values in their common type."""
        type = values[0].type
        if any(value.is_pointer for value in values):
            if any(value.type != type for value in values):
                raise KernelError("a pointer and something else have no common type")
            return list(values)
        strong = [v.type for v in values if v.literal is None]
        type = _common(strong or [v.type for v in values])
        if type not in _FLOATS and any(v.literal is not None and v.type == "f8" for v in values):
            type = "f8"
        elif type == "b1" and len(strong) < len(values):
            type = "i8"
        return [self.cast(value, type) for value in values]

    def binary(self, sign: str, a: Value, b: Value) -> Value:
        """Two numbers and one of Python's operators."""
        if a.literal is not None and b.literal is not None and sign in _FOLDED:
            return self.literal(_FOLDED[sign](a.literal, b.literal))
        if sign == "/":
            a, b = self.alike(a, b)
            return self._floating("fdiv", *(self._real(x) for x in (a, b)))
        literal = b.literal
        a, b = self.alike(a, b)
        if sign in _ARITHMETIC:
            if a.type in _FLOATS:
                return self._floating(f"f{_ARITHMETIC[sign]}", a, b)
            if a.type == "b1":
                a, b = self.cast(a, "i8"), self.cast(b, "i8")
            return self._whole(_ARITHMETIC[sign], a, b)
        if sign in _LOGIC and a.type not in _FLOATS:
            return self._whole(_LOGIC[sign], a, b)
        if a.type in ("i4", "i8"):
            if sign in ("<<", ">>"):
                return self._whole("shl" if sign == "<<" else "ashr", a, b)
            if sign in ("//", "%"):
                return self._divided(sign, a, b, literal is not None and literal > 0)
        raise KernelError(f"{a.type} {sign} {b.type} is nothing")

    def _floating(self, name: str, a: Value, b: Value) -> Value:
        return Value(a.type, self.add(f"{name} {self.flags}{a.typed}, {b.text}"))

    def _whole(self, name: str, a: Value, b: Value) -> Value:
        return Value(a.type, self.add(f"{name} {a.typed}, {b.text}"))

    def _real(self, x: Value) -> Value:
        return x if x.type in _FLOATS else self.cast(x, "f8")

    def _divided(self, sign: str, a: Value, b: Value, positive: bool) -> Value:
        """The quotient rounded down, or what remains: the processor rounds towards zero."""
        rest = self._whole("srem", a, b)
        zero = self.cast(self.literal(0), a.type)
        if positive:
            below = self.compare("<", rest, zero)
        else:
            apart = self.compare("<", self._whole("xor", rest, b), zero)
            below = self._whole("and", apart, self.compare("!=", rest, zero))
        if sign == "//":
            return self._whole("sub", self._whole("sdiv", a, b), self.cast(below, a.type))
        return self.select(below, self._whole("add", rest, b), rest)

    def negative(self, x: Value) -> Value:
        if x.literal is not None:
            return self.literal(-x.literal)
        if x.type in _FLOATS:
            return Value(x.type, self.add(f"fneg {self.flags}{x.typed}"))
        return self.binary("-", self.literal(0), x)

    def invert(self, x: Value) -> Value:
        x = self.strong(x)
        if x.is_pointer or x.type in _FLOATS:
            raise KernelError(f"~ of {x.type} is nothing")
        return Value(x.type, self.add(f"xor {x.typed}, {'true' if x.type == 'b1' else '-1'}"))

    def compare(self, sign: str, a: Value, b: Value) -> Value:
        """Two numbers compared; what is no number equals nothing."""
        a, b = self.alike(a, b)
        if a.type in _FLOATS:
            how = {"==": "oeq", "!=": "une"}.get(sign) or f"o{_ORDERS[sign]}"
            return Value("b1", self.add(f"fcmp {self.flags}{how} {a.typed}, {b.text}"))
        sort = "u" if a.type in ("u1", "b1") else "s"
        how = {"==": "eq", "!=": "ne"}.get(sign) or sort + _ORDERS[sign]
        return Value("b1", self.add(f"icmp {how} {a.typed}, {b.text}"))

    def select(self, condition: Value, chosen: Value, otherwise: Value, flags: str = "") -> Value:
        """One value or the other, without a branch."""
        chosen, otherwise = self.alike(chosen, otherwise)
        flags = f"{flags} " if flags else ""
        text = f"select {flags}{self.truth(condition).typed}, {chosen.typed}, {otherwise.typed}"
        return Value(chosen.type, self.add(text))

    # --- memory

    def element(self, pointer: Value, index: Value) -> str:
        """The address of an element."""
        if not pointer.is_pointer:
            raise KernelError(f"{pointer.type} has no elements")
        if index.is_pointer or index.type in _FLOATS:
            raise KernelError(f"{index.type} is no index")
        index = self.cast(index, "i8")
        return self.add(
            f"getelementptr inbounds {TYPES[pointer.type[1:]]}, {pointer.typed}, i64 {index.text}"
        )

    def read(self, pointer: Value, index: Value) -> Value:
        place, type = self.element(pointer, index), pointer.type[1:]
        return Value(type, self.add(f"load {TYPES[type]}, ptr {place}{pointer.apart}"))

    def write(self, pointer: Value, index: Value, value: Value) -> None:
        place = self.element(pointer, index)
        typed = self.cast(value, pointer.type[1:]).typed
        self.do(f"store {typed}, ptr {place}{pointer.apart}")

    def pointer(self, address: Value) -> str:
        """A number as a pointer."""
        return self.add(f"inttoptr {self.cast(address, 'i8').typed} to ptr")


def _common(types: Sequence[str]) -> str:
    """The type of what is computed from numbers of some types."""
    highest = max(types, key=_RANK.__getitem__)
    return "f8" if highest == "f4" and ("i4" in types or "i8" in types) else highest


def _conversion(of: str, to: str) -> str:
    signed = "s" if of in ("i4", "i8") else "u"
    if of in _FLOATS:
        if to in _FLOATS:
            return "fpext" if to == "f8" else "fptrunc"
        return "fptoui" if to == "u1" else "fptosi"
    if to in _FLOATS:
        return f"{signed}itofp"
    if _BITS[of] > _BITS[to]:
        return "trunc"
    return f"{signed if signed == 's' else 'z'}ext"


def _written(number: Any, type: str) -> str:
    """A number as LLVM reads it: floating ones by the bits of a double."""
    if type not in _FLOATS:
        return str(number) if type != "b1" else str(bool(number)).lower()
    with np.errstate(over="ignore"):
        exact = float(np.dtype(type).type(number))
    return "0x" + struct.pack(">d", exact).hex().upper()
