"""Kernels of small matrix products, single or batched, and of few rows with a matrix.

NumPy calls the BLAS for one small product after the other, on one thread, or on threads that have
hardly any work.  A kernel accepts operands with any strides; only a second operand whose rows are
not contiguous is copied, one matrix at a time.
"""

import math
from typing import Any

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.vectors import lanes, product_tile
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.backends.cpu.runtime.launching import thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of

__all__ = ["is_small_product", "product_lines", "write_product"]


def is_small_product(step: Instruction, uses: int = 1) -> bool:
    """Return whether a kernel computes a floating product faster than the BLAS.

    ``uses`` is the number of steps that read the second operand: if there are many, making it
    contiguous for them pays.
    """
    a, b = (kind_of(operand).shape for operand in step.operands[:2])
    kind = step.outs[0].kind
    code = CODES.get(kind.dtype)
    if code not in ("f4", "f8") or len(step.operands) > 2 or not kind.size:
        return False
    rows, depth, columns = _lengths(step)
    if columns < TUNING.small_columns or not depth:
        return False
    if len(kind.shape) == 2:
        ordered = step.primitive is op.MATMUL or uses >= TUNING.small_copies
        few = ordered and rows <= TUNING.small_rows and depth * columns <= TUNING.small_cached
        small = (
            (ordered or rows > TUNING.small_rows)
            and rows <= TUNING.small_side
            and depth * columns <= TUNING.small_thread
        )
        return rows > 1 and (few or small) and _has_wide_vectors()
    small = max(rows, depth, columns) <= TUNING.small_side
    return small and len(a) > 1 < len(b) and math.prod(kind.shape[:-2]) > 1


def _has_wide_vectors() -> bool:
    """Return whether a kernel's thread is as fast as two of the BLAS with shorter vectors."""
    return product_tile()[0] >= 8


def _lengths(step: Instruction) -> tuple[int, int, int]:
    """Return the rows and columns of the first operand, and the columns of the second one."""
    *_, rows, columns = step.outs[0].kind.shape
    return rows, kind_of(step.operands[0]).shape[-1], columns


def write_product(step: Instruction, ordered: bool = False) -> Written:
    """Return the kernel of a product; each of its rows is the product of two matrices.

    An ``ordered`` second operand has the layout of the untransposed product.
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
    """Return the offset of an operand's address for row ``r`` of the domain."""
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
    """Return the loops over the tiles of one product.

    If tiles do not fill it, the last ones overlap those before, and compute some elements twice.
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
    """Return the statements that write a product to ``out``, an existing array."""
    once = len(step.outs[0].kind.shape) == 2
    written = write_product(step, once)
    threads = 1
    if written.rows * written.weight >= TUNING.small_thread_work:
        threads = max(1, min(thread_count(), written.rows))
    scratch = written.outputs[1]
    dtype = writer.constant(scratch.dtype, "d")
    a, b = map(writer.operand, step.operands)
    lines: list[str] = []
    if once and step.primitive is not op.MATMUL:
        b, lines = _in_order(writer, b)
    transposed = step.primitive is op.MATMUL_TRANSPOSED and not once
    run = writer.kernel(written, threads)
    axis = -2 if transposed else -1
    gaps = f"{b}.strides[{axis}] != {scratch.dtype.itemsize}"
    return [
        *lines,
        f"m = np.empty({(threads, *scratch.shape)!r}, {dtype}) if {gaps} else {b}",
        f"{run}({a}, {b}, {out}, m)",
        "del m",
    ]


def _in_order(writer: Any, weight: str) -> tuple[str, list[str]]:
    """Return a transposed matrix made contiguous, and the statement that copies it at first use."""
    name = f"{weight}_turned"
    if name in writer.turned:
        return name, []
    writer.turned.add(name)
    return name, [f"{name} = np.ascontiguousarray({weight}.T)"]
