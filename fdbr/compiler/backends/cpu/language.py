"""What kernels see of arrays: their elements and strides, found from the arrays' objects."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from fdbr.compiler.backends.cpu.launching import HEAD

__all__ = ["NAMES", "pointer"]

_STRIDES = HEAD + 24  # behind the number of dimensions and the address of the shape


@intrinsic
def _load_address(typingctx, address):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.intp(types.intp), generate


@intrinsic
def pointer(typingctx, address, like):  # type: ignore[no-untyped-def]
    """A pointer to numbers of a type."""
    to = types.CPointer(like)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(to))

    return to(types.intp, like), generate


@register_jitable
def data(table, index, like):  # type: ignore[no-untyped-def]
    """A pointer to the elements of the array whose object's address stands in the table."""
    return pointer(_load_address(_load_address(table + 8 * index) + HEAD), like)


@register_jitable
def stride(table, index, axis):  # type: ignore[no-untyped-def]
    """The bytes from one element to the next along an axis of an array of the table."""
    strides = _load_address(_load_address(table + 8 * index) + _STRIDES)
    return _load_address(strides + 8 * axis)


NAMES = {"data": data, "stride": stride}
"""What is called so in the kernel language."""
