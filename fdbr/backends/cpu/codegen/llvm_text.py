"""LLVM functions under construction: arithmetic and memory accesses."""

from fdbr.backends.cpu.codegen.held_memory import Span
from fdbr.backends.cpu.codegen.llvm_instructions import Module
from fdbr.backends.cpu.codegen.llvm_numbers import Numbers, integer
from fdbr.backends.cpu.codegen.llvm_values import (
    BYTES,
    TYPES,
    AccessError,
    Counts,
    KernelError,
    Value,
    kind,
    suffix,
)

__all__ = ["Builder", "Module"]


class Builder(Numbers):
    """Emit the instructions of a function."""

    def element(self, pointer: Value, index: Value) -> str:
        """Return the address of an element, or of the first element of a vector.

        For elements that are not adjacent, it is a vector of addresses.
        """
        if not pointer.is_pointer:
            raise KernelError(f"{pointer.type} has no elements")
        if index.is_pointer or index.type[0] == "f":
            raise KernelError(f"{index.type} is no index")
        if index.lanes > 1:
            raise AccessError("elements that lie apart are no vector")
        at = self.cast(index, "i8") if index.counts is None else self.first(index)
        address = f"getelementptr inbounds {TYPES[pointer.type[1:]]}, ptr"
        place = self.add(f"{address} {pointer.text}, i64 {at.text}")
        if self.is_apart(index):
            return self.add(f"{address} {place}, <{self.lanes} x i64> {self.steps(index)}")
        return place

    def is_apart(self, index: Value) -> bool:
        """Return whether the elements of a vector are not adjacent."""
        if index.counts is None or index.counts.step == 1:
            return False
        if not self.gathers:
            raise AccessError("elements that lie apart are no vector")
        return True

    def read(self, pointer: Value, index: Value) -> Value:
        place, type = self.element(pointer, index), pointer.type[1:]
        if self.is_apart(index):
            return self._gathered_from(place, type)
        span = self.span(pointer, index)
        found = self.held.read(span, self.add)
        if found is None:
            many, bound = kind(type, span.lanes), BYTES[type]
            if self.mask and span.lanes > 1:
                mask = f"<{span.lanes} x i1>", self.mask
                given = ("ptr", place), ("i32", str(bound)), mask, (many, "zeroinitializer")
                text = self.call(f"llvm.masked.load.{suffix(type, span.lanes)}.p0", many, *given)
            else:
                text = self.add(f"load {many}, ptr {place}, align {bound}{pointer.apart}")
            found = Value(type, text, lanes=span.lanes)
            self.held.keep(span, found)
        return found

    def write(self, pointer: Value, index: Value, value: Value) -> None:
        place, type = self.element(pointer, index), pointer.type[1:]
        span, bound = self.span(pointer, index), BYTES[type]
        value = self.strong(self.cast(value, type))
        if value.varies and span.lanes == 1:
            raise KernelError("a vector is written to one place")
        value = self.spread(value, span.lanes)
        if self.is_apart(index):
            self._scattered_to(place, value)
            return
        if self.mask and span.lanes > 1:
            many, mask = kind(type, span.lanes), (f"<{span.lanes} x i1>", self.mask)
            given = (many, value.text), ("ptr", place), ("i32", str(bound)), mask
            self.call(f"llvm.masked.store.{suffix(type, span.lanes)}.p0", "void", *given)
        else:
            self.lines.append(f"  store {value.typed}, ptr {place}, align {bound}{pointer.apart}")
        self.held.write(span, value)

    def _gathered_from(self, places: str, type: str) -> Value:
        """Gather the elements at a vector of addresses."""
        many, lanes = kind(type, self.lanes), self.lanes
        given = (f"<{lanes} x ptr>", places), ("i32", str(BYTES[type])), self._mask_or_all()
        name = f"llvm.masked.gather.{suffix(type, lanes)}.v{lanes}p0"
        return Value(type, self.call(name, many, *given, (many, "zeroinitializer")), lanes=lanes)

    def _scattered_to(self, places: str, value: Value) -> None:
        """Scatter elements to a vector of addresses."""
        type, lanes = value.type, self.lanes
        given = (f"<{lanes} x ptr>", places), ("i32", str(BYTES[type])), self._mask_or_all()
        name = f"llvm.masked.scatter.{suffix(type, lanes)}.v{lanes}p0"
        self.call(name, "void", (kind(type, lanes), value.text), *given)
        self.held.clear()

    def _mask_or_all(self) -> tuple[str, str]:
        """Return the mask of the active lanes."""
        return f"<{self.lanes} x i1>", self.mask or "splat (i1 true)"

    def span(self, pointer: Value, index: Value) -> Span:
        """Return the span of memory that an access covers."""
        known, reach, lanes = index.counts, self.there, self.lanes
        if known is None:
            number, reach, lanes = integer(index), 1, 1
            known = Counts("", number) if number is not None else Counts(index.text, 0)
        name, more, step = known
        return Span(pointer.apart, pointer.text, name, more, reach, lanes, step)

    def pointer(self, address: Value) -> str:
        """Return an integer as a pointer."""
        if address.varies:
            raise KernelError("addresses are no vector")
        return self.add(f"inttoptr {self.cast(address, 'i8').typed} to ptr")
