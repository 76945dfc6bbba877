"""Arithmetic in LLVM.

Types are promoted as NumPy promotes them: literals are weakly typed, and ``f4`` with ``i8`` gives
``f8``.  A scalar that is combined with a vector is broadcast to its lanes.
"""

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.backends.cpu.codegen.llvm_instructions import Instructions
from fdbr.backends.cpu.codegen.llvm_values import BITS, Counts, KernelError, Value, kind, suffix

__all__ = ["Numbers", "integer"]

_RANK = {"b1": 0, "u1": 1, "i4": 2, "i8": 3, "f4": 4, "f8": 5}
_FLOATS = "f4", "f8"
_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul"}
_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_LOGIC = {"&": "and", "|": "or", "^": "xor"}
_ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Numbers(Instructions):
    """Emit arithmetic."""

    def literal(self, number: Any) -> Value:
        """Return a literal number as a weakly typed value."""
        if isinstance(number, bool):
            return Value("b1", "true" if number else "false")
        type = "i8" if isinstance(number, int) else "f8"
        return Value(type, _written(number, type), number)

    def strong(self, value: Value) -> Value:
        """Return the same value, no longer weakly typed."""
        return value if value.literal is None else Value(value.type, value.text)

    def cast(self, value: Value, type: str) -> Value:
        """Convert a value to another type."""
        if value.literal is not None:
            number = value.literal
            return Value(type, _written(number if type in _FLOATS else int(number), type))
        if value.type == type:
            return value
        if value.is_pointer or type == "b1":
            raise KernelError(f"no {value.type} is a {type}")
        value, how = self.spread(value), _conversion(value.type, type)
        return self.like(value, f"{how} {value.typed} to {kind(type, value.lanes)}", type)

    def like(self, value: Value, text: str, type: str = "") -> Value:
        """Return the result of an instruction as a value with the lanes of another."""
        return Value(type or value.type, self.add(text), lanes=value.lanes)

    def spread(self, value: Value, lanes: int = 1) -> Value:
        """Broadcast a value to the given lanes, or expand the lane indices that it counts."""
        if value.counts is not None:
            first = self.spread(self.first(value), self.lanes)
            return self.like(first, f"add nsw {first.typed}, {self.steps(value)}")
        if value.lanes > 1 or lanes == 1:
            return value
        many = kind(value.type, lanes)
        if not value.text.startswith("%"):
            return Value(value.type, f"splat ({value.typed})", lanes=lanes)
        head = self.add(f"insertelement {many} poison, {value.typed}, i64 0")
        text = f"shufflevector {many} {head}, {many} poison, <{lanes} x i32> zeroinitializer"
        return Value(value.type, self.add(text), lanes=lanes)

    def steps(self, value: Value) -> str:
        """Return the vector of offsets from the first lane, for a value that counts lanes."""
        assert value.counts is not None
        step = value.counts.step
        if type(step) is int:
            return f"<{', '.join(f'i64 {k * step}' for k in range(self.lanes))}>"
        every = self.spread(Value("i8", step), self.lanes)
        lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return self.add(f"mul nsw {every.typed}, <{lanes}>")

    def first(self, value: Value) -> Value:
        """Return the first lane of a value that counts lanes."""
        assert value.counts is not None
        name, more, _ = value.counts
        return (
            self.binary("+", Value("i8", name), Value("i8", str(more)))
            if name
            else (Value("i8", str(more)))
        )

    def truth(self, value: Value) -> Value:
        """Return whether a number is not zero."""
        return value if value.type == "b1" else self.compare("!=", value, self.literal(0))

    def alike(self, *values: Value) -> list[Value]:
        """Convert values to their common type."""
        type = values[0].type
        if any(value.is_pointer for value in values):
            if any(value.type != type for value in values):
                raise KernelError("a pointer and something else have no common type")
            return list(values)
        values = tuple([self.spread(value) for value in values])
        lanes = max([value.lanes for value in values])
        strong = [v.type for v in values if v.literal is None]
        type = _common(strong or [v.type for v in values])
        if type not in _FLOATS and any(v.literal is not None and v.type == "f8" for v in values):
            type = "f8"
        elif type == "b1" and len(strong) < len(values):
            type = "i8"
        return [self.spread(self.cast(value, type), lanes) for value in values]

    def binary(self, sign: str, a: Value, b: Value) -> Value:
        """Apply a binary operator of Python's."""
        if a.literal is not None and b.literal is not None and sign in _FOLDED:
            return self.literal(_FOLDED[sign](a.literal, b.literal))
        found = self.counted(sign, a, b)
        if found is not None:
            return found
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
        return self.like(a, f"{name} {self.flags}{a.typed}, {b.text}")

    def _whole(self, name: str, a: Value, b: Value) -> Value:
        found = self.like(a, f"{name} {a.typed}, {b.text}")
        if a.type == "i8" and a.lanes == 1 and name in ("add", "sub", "mul"):
            self._ranged(found.text, name, a, b)
        return found

    def _ranged(self, text: str, name: str, a: Value, b: Value) -> None:
        """Record the range of a sum, difference or product."""
        first, second = self.range_of(a), self.range_of(b)
        if first and second:
            sign = {"add": "+", "sub": "-", "mul": "*"}[name]
            ends = first[0], first[-1], second[0], second[-1]
            made = [_FOLDED[sign](x, y) for x in ends[:2] for y in ends[2:]]
            self.ranges[text] = range(min(made), max(made) + 1)

    def range_of(self, value: Value) -> range | None:
        """Return the range in which an integer is, if that is known."""
        number = integer(value)
        return self.ranges.get(value.text) if number is None else range(number, number + 1)

    def longest(self, first: Value, stop: Value) -> float:
        """Return an upper bound of a loop's trip count."""
        begin, end = self.range_of(first), self.range_of(stop)
        return math.inf if begin is None or end is None else end[-1] - begin[0]

    def counted(self, sign: str, a: Value, b: Value) -> Value | None:
        """Fold an operation on constants or lane counts, or return `None` if that fails."""
        if a.type != "i8" or b.type != "i8":
            return None
        first, second = integer(a), integer(b)
        if first is not None and second is not None and sign in _FOLDED:
            return Value("i8", str(_FOLDED[sign](first, second)))
        if (first == 0 and sign == "+") or (second == 1 and sign == "*"):
            return self.strong(b if sign == "+" else a)
        if (second == 0 and sign in "+-") or (first == 1 and sign == "*"):
            return self.strong(a if sign in "+-" else b)
        if sign == "+" and b.counts is not None and a.counts is None:
            a, b, second = b, a, first
        if sign == "*" and b.counts is not None and first is not None:
            a, b, second = b, a, first
        if a.counts is not None and b.counts is not None and sign == "+":
            return self._added(a.counts, b.counts)
        if a.counts is None or b.varies:
            return None
        if sign == "*":
            return None if second is None else self._multiplied(a.counts, second)
        if sign not in "+-":
            return None
        name, more, step = a.counts
        if second is not None:
            return Value("i8", "", counts=Counts(name, _FOLDED[sign](more, second), step))
        if not name and sign == "+":
            return Value("i8", "", counts=Counts(b.text, more, step))
        if not name:
            name, more = str(more), 0
        moved = self._whole("add" if sign == "+" else "sub", Value("i8", name), b)
        return Value("i8", "", counts=Counts(moved.text, more, step))

    def _added(self, a: Counts, b: Counts) -> Value:
        """Return the sum of two values that count lanes."""
        name = a.name or b.name
        if a.name and b.name:
            name = self._whole("add", Value("i8", a.name), Value("i8", b.name)).text
        return Value("i8", "", counts=Counts(name, a.more + b.more, a.step + b.step))

    def _multiplied(self, counts: Counts, factor: int) -> Value:
        """Return the multiple of a value that counts lanes."""
        name, more, step = counts
        if not factor:
            return Value("i8", "0")
        if name:
            name = self._whole("mul", Value("i8", name), Value("i8", str(factor))).text
        return Value("i8", "", counts=Counts(name, more * factor, step * factor))

    def _real(self, x: Value) -> Value:
        return x if x.type in _FLOATS else self.cast(x, "f8")

    def _divided(self, sign: str, a: Value, b: Value, positive: bool) -> Value:
        """Emit floor division or modulo; the processor's instructions round towards zero."""
        if a.lanes > 1:
            raise KernelError("processors divide integers one by one")
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
            return self.like(x, f"fneg {self.flags}{x.typed}")
        return self.binary("-", self.literal(0), x)

    def invert(self, x: Value) -> Value:
        x = self.spread(self.strong(x))
        if x.is_pointer or x.type in _FLOATS:
            raise KernelError(f"~ of {x.type} is nothing")
        ones = self.spread(Value(x.type, "true" if x.type == "b1" else "-1"), x.lanes)
        return self.like(x, f"xor {x.typed}, {ones.text}")

    def compare(self, sign: str, a: Value, b: Value) -> Value:
        """Compare two numbers; NaN equals nothing."""
        a, b = self.alike(a, b)
        if a.type in _FLOATS:
            how = {"==": "oeq", "!=": "une"}.get(sign) or f"o{_ORDERS[sign]}"
            return self.like(a, f"fcmp {self.flags}{how} {a.typed}, {b.text}", "b1")
        sort = "u" if a.type in ("u1", "b1") else "s"
        how = {"==": "eq", "!=": "ne"}.get(sign) or sort + _ORDERS[sign]
        return self.like(a, f"icmp {how} {a.typed}, {b.text}", "b1")

    def select(self, condition: Value, chosen: Value, otherwise: Value, flags: str = "") -> Value:
        """Select one of two values without a branch."""
        chosen, otherwise = self.alike(chosen, otherwise)
        condition, flags = self.truth(condition), f"{flags} " if flags else ""
        chosen, otherwise = (self.spread(x, condition.lanes) for x in (chosen, otherwise))
        text = f"select {flags}{condition.typed}, {chosen.typed}, {otherwise.typed}"
        return self.like(chosen, text)

    def called_on(self, name: str, *values: Value) -> Value:
        """Call an LLVM function of numbers on values of one type and lane count."""
        first = values[0]
        type = kind(first.type, first.lanes)
        given = [(type, value.text) for value in values]
        text = self.call(f"llvm.{name}.{suffix(first.type, first.lanes)}", type, *given)
        return Value(first.type, text, lanes=first.lanes)


def _common(types: Sequence[str]) -> str:
    """Return the type to which some types are promoted."""
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
    if BITS[of] > BITS[to]:
        return "trunc"
    return f"{signed if signed == 's' else 'z'}ext"


def _written(number: Any, type: str) -> str:
    """Return a number in LLVM's syntax: floating-point ones by the bits of a double."""
    if type not in _FLOATS:
        return str(number) if type != "b1" else str(bool(number)).lower()
    return "0x" + struct.pack(">d", _rounded(float(number), type)).hex().upper()


def _rounded(number: float, type: str) -> float:
    """Round a number to the precision of a type; beyond its largest number it is infinity."""
    try:
        exact: float = struct.unpack("f", struct.pack("f", number))[0] if type == "f4" else number
    except OverflowError:
        return math.copysign(math.inf, number)
    return exact


def integer(value: Value) -> int | None:
    """Return the constant integer that a value is known to be, or `None`."""
    if value.literal is not None:
        return int(value.literal)
    return int(value.text) if value.text.lstrip("-").isdecimal() else None
