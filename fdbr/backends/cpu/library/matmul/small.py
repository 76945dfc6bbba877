"""Products of small matrices, of many or of one, and of few rows with a matrix, as kernels.

There NumPy calls the BLAS for one small product after the other, on one thread, or on threads that
have hardly anything to do.  A kernel takes operands as they lie in memory, whatever their steps;
only a second operand whose rows have gaps is laid out in order first, one matrix at a time.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.vectors import lanes, product_tile
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.backends.cpu.runtime.launching import thread_count
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of

__all__ = ["is_small_product", "product_lines", "write_product"]

_LONGEST = 128  # of a small matrix, or of a first operand for a second one that is
_SMALL = 1 << 14  # elements of a matrix up to which threads have too little to do
_FEW_ROWS = 32  # of a first operand up to which a matrix is read as fast as it is multiplied
_LARGE = 1 << 18  # elements of a matrix up to which it stays in the processor's own memory
_MANY = 8  # products from which on their second operand is laid out in order once for all
_NARROW = 16  # columns below which there is no vector of every processor
_WORTH = 4_000_000  # multiplications from which on more threads than one pay


def is_small_product(step: Instruction, uses: int = 1) -> bool:
    """Whether a kernel does a product, of floating arrays of one dtype, faster than the BLAS.

    ``uses`` is how many steps read the second operand: if they are many, it pays to lay it out
    in order for them.
    """
    a, b = (kind_of(operand).shape for operand in step.operands[:2])
    kind = step.outs[0].kind
    code = CODES.get(kind.dtype)
    if code not in ("f4", "f8") or len(step.operands) > 2 or not kind.size:
        return False
    rows, depth, columns = _lengths(step)
    if columns < _NARROW or not depth:
        return False
    if len(kind.shape) == 2:
        ordered = step.primitive is op.MATMUL or uses >= _MANY
        few = ordered and rows <= _FEW_ROWS and depth * columns <= _LARGE
        small = (ordered or rows > _FEW_ROWS) and rows <= _LONGEST and depth * columns <= _SMALL
        return rows > 1 and (few or small) and _has_wide_vectors()
    small = max(rows, depth, columns) <= _LONGEST
    return small and len(a) > 1 < len(b) and math.prod(kind.shape[:-2]) > 1


def _has_wide_vectors() -> bool:
    """Whether one thread of a kernel does what the BLAS does on two with its shorter vectors."""
    return product_tile()[0] >= 8


def _lengths(step: Instruction) -> tuple[int, int, int]:
    """The rows of the first operand, its columns, and those of the second one."""
    *_, rows, columns = step.outs[0].kind.shape
    return rows, kind_of(step.operands[0]).shape[-1], columns


def write_product(step: Instruction, ordered: bool = False) -> Written:
    """The kernel for a product; each of its rows is the product of two matrices.

    A second operand that is ``ordered`` lies as the product has it, transposed or not.
    """
    kind = step.outs[0].kind
    code, size = CODES[kind.dtype], kind.dtype.itemsize
    rows, depth, columns = _lengths(step)
    lead = kind.shape[:-2]
    turned = step.primitive is op.MATMUL_TRANSPOSED and not ordered
    rank = [len(kind_of(operand).shape) for operand in step.operands]
    down, along = (rank[1] - 1, rank[1] - 2) if turned else (rank[1] - 2, rank[1] - 1)
    lines = [f"{name} = address(data(table, {i}, {code}(0)))" for i, name in enumerate("abc")]
    lines += [
        f"am, ak = stride(table, 0, {rank[0] - 2}), stride(table, 0, {rank[0] - 1})",
        f"bk, bn = stride(table, 1, {down}), stride(table, 1, {along})",
        f"cm = stride(table, 2, {len(lead)})",
        f"p = data(table, 3, {code}(0))",
        f"direct = bn == {size}",
        f"bs = bk if direct else {columns * size}",
        "for r in range(start, stop):",
    ]
    for number, name in enumerate("abc"):
        operand = (*step.operands, step.outs[0])[number]
        places = _offset(number, kind_of(operand).shape[:-2], lead)
        lines.append(f"    {name}r = {name}{places}")
    first = f"thread * {depth * columns}"
    lines += [
        "    if not direct:",
        f"        for k in range({depth}):",
        f"            for n in range({columns}):",
        f"                p[{first} + k * {columns} + n] = at(br + k * bk + n * bn, {code}(0))",
        f"        br = address(p) + {first} * {size}",
        *("    " + line for line in _tiles(rows, depth, columns, code, size)),
    ]
    source = "def kernel(table, start, stop, thread):\n" + "".join(f"    {s}\n" for s in lines)
    scratch = Output(None, (depth, columns), kind.dtype, True, 1)
    result = Output(step.outs[0], kind.shape, kind.dtype, False, 1)
    count = math.prod(lead)
    return Written(source, step.operands, (result, scratch), count, rows * depth * columns)


def _offset(number: int, shape: tuple[int, ...], lead: tuple[int, ...]) -> str:
    """The offset of an operand's address for row ``r`` of the domain."""
    terms, after = "", 1
    for axis in range(len(lead) - 1, -1, -1):
        own = axis - (len(lead) - len(shape))
        if own >= 0 and shape[own] != 1:
            index = "r" if after == 1 else f"(r // {after})"
            index = f"{index} % {lead[axis]}" if axis else index
            terms += f" + {index} * stride(table, {number}, {own})"
        after *= lead[axis]
    return terms


def _tiles(rows: int, depth: int, columns: int, code: str, size: int) -> list[str]:
    """The loops over the tiles of one product.

    Where tiles do not fill it, the last ones lie over those before, and do some of it again.
    """
    most_rows, most_vectors = product_tile()
    height = math.ceil(rows / math.ceil(rows / most_rows))
    count = lanes(code)
    width = most_vectors if columns >= most_vectors * count else 1
    whole, rest = divmod(columns, width * count)
    starts = [(f"range({whole})", f"j * {width * count * size}", width)]
    if rest:
        last = width if rest > count else 1
        starts.append(("range(1)", str((columns - last * count) * size), last))
    lines = []
    for blocks, start, vectors in starts:
        lines += [
            f"for j in {blocks}:",
            f"    for i in range({math.ceil(rows / height)}):",
            f"        first = min(i * {height}, {rows - height})",
            f"        tile({code}(0), ar + first * am, am, ak, br + {start}, bs, "
            f"cr + first * cm + {start}, cm, {depth}, {height}, {vectors})",
        ]
    return lines


def product_lines(writer: Any, step: Instruction, out: str) -> list[str]:
    """The statements that write a product to ``out``, an array that there is."""
    once = len(step.outs[0].kind.shape) == 2
    written = write_product(step, once)
    threads = 1
    if written.rows * written.weight >= _WORTH:
        threads = max(1, min(thread_count(), written.rows))
    scratch = written.outputs[1]
    dtype = writer.constant(scratch.dtype, "d")
    a, b = map(writer.operand, step.operands)
    lines: list[str] = []
    if once and step.primitive is not op.MATMUL:
        b, lines = _in_order(writer, b)
    transposed = step.primitive is op.MATMUL_TRANSPOSED and not once

    def by_numpy(a: Any, b: Any, out: Any, _: Any) -> None:
        np.matmul(a, b.swapaxes(-1, -2) if transposed else b, out=out)

    run = writer.kernel(written, threads, lambda: by_numpy)
    axis = -2 if transposed else -1
    gaps = f"{b}.strides[{axis}] != {scratch.dtype.itemsize}"
    return [
        *lines,
        f"m = np.empty({(threads, *scratch.shape)!r}, {dtype}) if {gaps} else {b}",
        f"{run}({a}, {b}, {out}, m)",
        "del m",
    ]


def _in_order(writer: Any, weight: str) -> tuple[str, list[str]]:
    """A transposed matrix laid out in order, and the statement that does it the first time."""
    name = f"{weight}_turned"
    if name in writer.turned:
        return name, []
    writer.turned.add(name)
    return name, [f"{name} = np.ascontiguousarray({weight}.T)"]
