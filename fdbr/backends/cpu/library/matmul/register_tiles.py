"""The innermost loop of matrix products: a tile of the result is held in registers.

A tile is some rows by some vectors; each step along the inner axis multiplies an element of each
row of the first operand by the vectors of a row of the second one.
"""

from fdbr.backends.cpu.codegen.kernel_functions import intrinsic
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import KernelError, Value
from fdbr.backends.cpu.codegen.vector_text import Vectors

__all__ = ["NAMES"]


@intrinsic
def tile(
    builder: Builder,
    like: Value,
    a: Value,
    a_row: Value,
    a_step: Value,
    b: Value,
    b_step: Value,
    out: Value,
    out_row: Value,
    depth: Value,
    rows: Value,
    vectors: Value,
) -> None:
    """Write one tile; all positions are addresses, and all strides are in bytes.

    ``rows`` and ``vectors`` are literals.  The elements of a row of ``b`` or ``out`` in one vector
    are contiguous.
    """
    height, width = rows.literal, vectors.literal
    if height is None or width is None:
        raise KernelError("the rows and vectors of a tile are literals")
    v = Vectors(builder, like.type)
    places = [(i, j) for i in range(height) for j in range(width)]
    sums = dict(zip(places, v.cells(len(places)), strict=True))
    down = [v.times(i, a_row) for i in range(height)]
    with builder.loop("0", builder.cast(depth, "i8").text) as index:
        left, right = v.stepped(a, a_step, index), v.stepped(b, b_step, index)
        row = [v.load(right, j * v.bytes) for j in range(width)]
        for i in range(height):
            x = v.spread(v.number(left, down[i]))
            for j in range(width):
                v.add_product(sums[i, j], x, row[j])
    for i, j in places:
        v.store(sums[i, j].text, v.stepped(out, out_row, i), j * v.bytes)
    v.let_go()


NAMES = {"tile": tile}
"""The names that kernels of products may use."""
