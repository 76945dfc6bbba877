"""Kernels that copy elements between strided views; all copies of one rank share a kernel."""

import numpy as np

from fdbr.backends.cpu.exec.sequence import Call, Slot
from fdbr.backends.cpu.exec.views import Look, merged, steps_of

__all__ = ["copied", "filled", "ordered_look"]

_CODES = {1: "u1", 4: "i4", 8: "i8"}  # integers, because bits are copied

_FILL = """
def kernel(table, start, stop, thread):
    out = data(table, 0, {code}(0))
    for i in range(start, stop):
        out[i] = {code}(0)
"""


def ordered_look(shape: tuple[int, ...]) -> Look:
    """Return a contiguous view that starts at the first element."""
    return Look("", 0, steps_of(shape), shape, "")


def filled(slot: Slot) -> Call:
    """Return the call that fills contiguous elements with zeros."""
    code, size = _CODES[slot.dtype.itemsize], int(np.prod(slot.look.shape, dtype=int))
    return Call(_FILL.format(code=code), (slot,), size, weight=size)


def copied(source: Slot, target: Slot) -> Call:
    """Return the call that copies elements from one slot to another of equal shape and dtype."""
    size = source.dtype.itemsize
    out, look = merged(target.look, [source.look])
    kept = [axis for axis, n in enumerate(out.shape) if n != 1] or [len(out.shape) - 1]
    if not out.shape:
        kept = []
    lengths = [out.shape[axis] for axis in kept] or [1]
    steps = [[x.strides[axis] * size for axis in kept] or [size] for x in (look, out)]
    numbers = np.array([*lengths, *steps[0], *steps[1]], np.int64)
    counts = Slot(numbers, ordered_look(numbers.shape), numbers.dtype)
    return Call(
        _source(len(lengths), _CODES[size], size),
        (source, target, counts),
        1,
        weight=int(np.prod(lengths, dtype=int)),
    )


def _source(rank: int, code: str, size: int) -> str:
    lines = [
        "def kernel(table, start, stop, thread):",
        "    source, target = data(table, 0, u1(0)), data(table, 1, u1(0))",
        "    x0, y0 = address(source), address(target)",
        "    p = data(table, 2, i8(0))",
    ]
    indent = "    "
    for axis in range(rank - 1):
        lines.append(f"{indent}for axis{axis} in range(p[{axis}]):")
        indent += "    "
        lines += [
            f"{indent}x{axis + 1} = x{axis} + axis{axis} * p[{rank + axis}]",
            f"{indent}y{axis + 1} = y{axis} + axis{axis} * p[{2 * rank + axis}]",
        ]
    last = rank - 1
    lines += [
        f"{indent}n, a, b = p[{last}], p[{rank + last}], p[{2 * rank + last}]",
        f"{indent}if (a == {size}) & (b == {size}):",
        f"{indent}    from_ = within(source, x{last}, {code}(0))",
        f"{indent}    to = within(target, y{last}, {code}(0))",
        f"{indent}    for i in range(n):",
        f"{indent}        to[i] = from_[i]",
        f"{indent}else:",
        f"{indent}    for i in range(n):",
        f"{indent}        pointer(y{last} + i * b, {code}(0))[0] = at(x{last} + i * a, {code}(0))",
    ]
    return "\n".join(lines) + "\n"
