"""The innermost loop of matrix products: a tile of the result, held in registers.

A tile is some rows by some vectors; each step along the inner axis takes an element of each row
of the first operand times the vectors of a row of the second one.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fdbr.compiler.backends.cpu.vectors import lanes

__all__ = ["NAMES", "address"]


@intrinsic
def address(typingctx, pointer):  # type: ignore[no-untyped-def]
    """A pointer as a number."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.intp(pointer), generate


@intrinsic
def at(typingctx, place, like):  # type: ignore[no-untyped-def]
    """The element at an address."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = context.get_value_type(like)
        return builder.load(builder.inttoptr(args[0], kind.as_pointer()))

    return like(types.intp, like), generate


@intrinsic(prefer_literal=True)
def tile(  # type: ignore[no-untyped-def]
    typingctx, like, a, a_row, a_step, b, b_step, out, out_row, depth, rows, vectors
):
    """Write one tile; all places are addresses and all steps are in bytes.

    ``rows`` and ``vectors`` are literals.  What follows a row of ``b`` or ``out`` within a
    vector lies at the next addresses.
    """
    height, width = rows.literal_value, vectors.literal_value
    itemsize = 4 if like == types.float32 else 8
    count = lanes(f"f{itemsize}")

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        element = context.get_value_type(like)
        vector = ir.VectorType(element, count)
        zero = ir.Constant(vector, [0.0] * count)
        _, a, a_row, a_step, b, b_step, out, out_row, depth, *_ = args
        word = a.type

        def pointer(start, step, number, kind):  # type: ignore[no-untyped-def]
            place = builder.add(start, builder.mul(step, number))
            return builder.inttoptr(place, kind.as_pointer())

        def load(start, step, number, kind):  # type: ignore[no-untyped-def]
            return builder.load(pointer(start, step, number, kind), align=itemsize)

        places = [(i, j) for i in range(height) for j in range(width)]
        sums = {place: cgutils.alloca_once(builder, vector) for place in places}
        for total in sums.values():
            builder.store(zero, total)
        with cgutils.for_range(builder, depth) as loop:
            left = builder.add(a, builder.mul(loop.index, a_step))
            right = builder.add(b, builder.mul(loop.index, b_step))
            row = [load(right, word(count * itemsize), word(j), vector) for j in range(width)]
            for i in range(height):
                x = _spread(builder, load(left, a_row, word(i), element), vector)
                for j in range(width):
                    product = builder.fmul(x, row[j], flags=("contract",))
                    total = builder.load(sums[i, j])
                    total = builder.fadd(total, product, flags=("contract",))
                    builder.store(total, sums[i, j])
        for i, j in places:
            start = builder.add(out, word(j * count * itemsize))
            target = pointer(start, out_row, word(i), vector)
            builder.store(builder.load(sums[i, j]), target, align=itemsize)
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 8, rows, vectors), generate


def _spread(builder, element, vector):  # type: ignore[no-untyped-def]
    """A vector of one element."""
    none = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(none, element, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, none, mask)


NAMES = {"address": address, "at": at, "tile": tile}
"""What kernels of products may name."""
