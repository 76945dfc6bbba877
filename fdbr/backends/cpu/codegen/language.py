"""Intrinsics by which kernels access arrays: elements and strides, read from the array objects."""

from fdbr.backends.cpu.codegen.kernel_functions import intrinsic
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import Value

__all__ = ["HEAD", "NAMES", "STRIDES"]

# The first field of a NumPy array object after CPython's header is the address of its data: that is
# the layout of NumPy's C interface, `PyArrayObject_fields`.
HEAD: int = object.__basicsize__
STRIDES = HEAD + 24  # after the number of dimensions and the shape's address


def _entry(builder: Builder, table: Value, index: Value) -> Value:
    """Load an integer from a table."""
    offset = builder.binary("*", index, builder.literal(8))
    place = builder.pointer(builder.binary("+", table, offset))
    return Value("i8", builder.add(f"load i64, ptr {place}"))


def _field(builder: Builder, address: Value, offset: int) -> Value:
    """Load an integer at a byte offset from an address."""
    place = builder.pointer(builder.binary("+", address, builder.literal(offset)))
    return Value("i8", builder.add(f"load i64, ptr {place}"))


@intrinsic
def pointer(builder: Builder, address: Value, like: Value) -> Value:
    """Return an address as a pointer to numbers of a type."""
    return Value(f"*{like.type}", builder.pointer(address))


@intrinsic
def within(builder: Builder, array: Value, address: Value, like: Value) -> Value:
    """Return a typed pointer to an address within the memory of an array of the table."""
    return Value(f"*{like.type}", builder.pointer(address), None, array.apart)


@intrinsic
def data(builder: Builder, table: Value, index: Value, like: Value) -> Value:
    """Return a pointer to the elements of the array object whose address is in the table.

    The arrays of a table do not alias, unless all of them are only read.
    """
    place = builder.pointer(_field(builder, _entry(builder, table, index), HEAD))
    apart = "" if index.literal is None else builder.module.apart(index.literal)
    return Value(f"*{like.type}", place, None, apart)


@intrinsic
def stride(builder: Builder, table: Value, index: Value, axis: Value) -> Value:
    """Return an array's stride along an axis, in bytes."""
    return _entry(builder, _field(builder, _entry(builder, table, index), STRIDES), axis)


@intrinsic
def word(builder: Builder, table: Value, index: Value) -> Value:
    """Load an integer from a table."""
    return _entry(builder, table, index)


@intrinsic
def address(builder: Builder, pointer: Value) -> Value:
    """Return a pointer as an integer."""
    return Value("i8", builder.add(f"ptrtoint {pointer.typed} to i64"))


@intrinsic
def at(builder: Builder, place: Value, like: Value) -> Value:
    """Load the element at an address."""
    return builder.read(Value(f"*{like.type}", builder.pointer(place)), builder.literal(0))


@intrinsic
def take(builder: Builder, table: Value, index: Value) -> Value:
    """Take the next value of a counter in the table, atomically among threads."""
    offset = builder.binary("*", index, builder.literal(8))
    counter = builder.pointer(builder.binary("+", table, offset))
    return Value("i8", builder.add(f"atomicrmw add ptr {counter}, i64 1 monotonic"))


@intrinsic
def called(builder: Builder, address: Value, *args: Value) -> Value:
    """Call the C function of integers at an address; the result is an integer."""
    given = ", ".join([builder.cast(arg, "i8").typed for arg in args])
    return Value("i8", builder.add(f"call i64 {builder.pointer(address)}({given})"))


NAMES = {
    "data": data,
    "stride": stride,
    "pointer": pointer,
    "within": within,
    "word": word,
    "take": take,
    "address": address,
    "at": at,
    "called": called,
}
"""The names of the kernel language."""
