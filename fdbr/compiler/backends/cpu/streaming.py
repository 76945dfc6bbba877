"""Writing past the caches, for results so large that they will not be there when they are read.

An ordinary store reads the line of memory that it changes first, and drives others out of the
caches; these do neither.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from fdbr.compiler.backends.cpu.register_tiles import address

__all__ = ["NAMES"]

_BYTES = 16  # of one store: allocators align memory to that, and whole lines are put together


@intrinsic
def _store_past(typingctx, to, source):  # type: ignore[no-untyped-def]
    """Store 16 bytes, to an address that is a multiple of it, from any other."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        vector = ir.VectorType(ir.IntType(8), _BYTES).as_pointer()
        value = builder.load(builder.inttoptr(args[1], vector), align=1)
        stored = builder.store(value, builder.inttoptr(args[0], vector), align=_BYTES)
        mark = builder.module.add_metadata([ir.IntType(32)(1)])
        stored.set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@register_jitable
def stream(out, first, scratch, start, count, size):  # type: ignore[no-untyped-def]
    """Copy elements, each of some bytes, past the caches."""
    to = address(out) + first * size
    head = min((-to) % _BYTES // size, count)
    whole = (count - head) * size // _BYTES
    for i in range(head):
        out[first + i] = scratch[start + i]
    source = address(scratch) + (start + head) * size
    for i in range(whole):
        _store_past(to + head * size + i * _BYTES, source + i * _BYTES)
    for i in range(head + whole * _BYTES // size, count):
        out[first + i] = scratch[start + i]


@intrinsic
def settle(typingctx):  # type: ignore[no-untyped-def]
    """Wait until others see what was stored past the caches."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


NAMES = {"stream": stream, "settle": settle}
"""What is called so in the kernel language."""
