"""Calls of NumPy's BLAS by the addresses of its functions, without Python."""

import ctypes
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number
from fdbr.backends.cpu.codegen.language import HEAD
from fdbr.backends.cpu.exec.native_copies import ordered_look
from fdbr.backends.cpu.exec.sequence import Call, Slot
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of

__all__ = ["has_blas", "is_blas_product", "product_call", "vector_parts"]

_PRODUCTS = op.PRODUCTS - {op.AFFINE}
_PARTS = 4  # thread-sized parts of a product with a vector, at most
_ROWS, _PLAIN, _TURNED = 101, 111, 112  # the constants of CBLAS
_NAMES = (("scipy_cblas_{}64_", "i64"), ("cblas_{}64_", "i64"), ("cblas_{}", "i32"))


@functools.cache
def _function(name: str) -> tuple[int, str] | None:
    """Return the address of a function of NumPy's BLAS, and the type of its integers."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError, TypeError):
        return None
    for pattern, integer in _NAMES:
        found = getattr(library, pattern.format(name), None)
        if found is not None:
            address = ctypes.cast(found, ctypes.c_void_p).value
            return (address, integer) if address else None
    return None


def has_blas() -> bool:
    """Return whether the functions of NumPy's BLAS can be found."""
    return all(_function(c + name) is not None for c in "sd" for name in ("gemm", "gemv"))


@functools.cache
def _machine_code(name: str, integer: str) -> int:
    """Return a kernel that calls a BLAS function for one pair of matrices after the other."""
    # The table: both operands, the result, and numbers: the address of the BLAS function, its
    # integer arguments, and the distances between consecutive matrices in bytes.
    code, wide = f"f{4 if name[0] == 's' else 8}", "i8" if integer == "i64" else "i4"
    is_gemm = name.endswith("gemm")
    orders, sizes = (2, 6) if is_gemm else (1, 5)
    kernel = Kernel()
    table = kernel.register("%table", "*i8")

    def elements(i: int, type: str) -> Number:
        data = kernel.pointer_to(kernel.load(table + i) + HEAD, "i8")
        return kernel.pointer_to(kernel.load(data), type)

    operands, numbers = [elements(i, code) for i in range(3)], elements(3, "i8")
    first, *words = [kernel.load(numbers + i) for i in range(1 + orders + sizes + 3)]
    ways = [kernel.constant(_ROWS, "i4"), *[word.to("i4") for word in words[:orders]]]
    given, steps = [word.to(wide) for word in words[orders:-3]], words[-3:]
    *extents, of_a, of_b, of_c = given
    one, zero = kernel.constant(1, code), kernel.constant(0, code)
    with kernel.each(kernel.start, kernel.stop) as i:
        a, b, c = [x.by(i * step) for x, step in zip(operands, steps, strict=True)]
        function = kernel.pointer_to(first, "u1")
        kernel.call_address(function, *ways, *extents, one, a, of_a, b, of_b, zero, c, of_c)
    return address_of(kernel.text())


def is_blas_product(step: Instruction) -> bool:
    """Return whether a step is a floating product of matrices or vectors that the BLAS computes."""
    if step.primitive not in _PRODUCTS or not has_blas():
        return False
    kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
    out = kinds[-1]
    if any(kind.dtype != out.dtype or not kind.size for kind in kinds):
        return False
    if CODES.get(out.dtype) not in ("f4", "f8") or not all(kind.is_array for kind in kinds[:2]):
        return False
    if any(len(kind.shape) < 1 for kind in kinds[:2]):
        return False
    lead = out.shape[:-2] if min(len(kinds[0].shape), len(kinds[1].shape)) > 1 else ()
    if not lead:
        return max(len(kind.shape) for kind in kinds[:2]) <= 2
    return all(kind.shape[:-2] == lead or math.prod(kind.shape[:-2]) == 1 for kind in kinds[:2])


@attrs.frozen
class _Matrix:
    """An operand: its slot, its strides between rows, columns, and matrices."""

    slot: Slot
    shape: tuple[int, int]
    down: int
    along: int
    next: int

    def turned(self) -> "_Matrix":
        return _Matrix(self.slot, self.shape[::-1], self.along, self.down, self.next)

    def leading(self) -> tuple[bool, int] | None:
        """Return whether memory holds its transpose, and the leading dimension, or `None`."""
        rows, columns = self.shape
        if (self.along == 1 or columns == 1) and (self.down >= columns or rows == 1):
            return False, max(self.down if rows > 1 else columns, columns, 1)
        if (self.down == 1 or rows == 1) and (self.along >= rows or columns == 1):
            return True, max(self.along if columns > 1 else rows, rows, 1)
        return None


def product_call(step: Instruction, a: Slot, b: Slot, out: Slot, in_order: Any) -> Call:
    """Return the call of the BLAS for a product; ``in_order`` makes an operand contiguous."""
    swapped = step.primitive is op.MATMUL_TRANSPOSED
    one = _matrix(a, False, False, in_order)
    other = _matrix(b, True, swapped, in_order)
    (m, k), n = one.shape, other.shape[1]
    count = max(1, math.prod(out.look.shape) // (m * n))
    letter = "s" if out.dtype.itemsize == 4 else "d"
    name = letter + ("gemv" if 1 in (m, n) else "gemm")
    if n == 1 or m == 1:
        matrix, vector = (one, other) if n == 1 else (other.turned(), one.turned())
        turned, step_ = matrix.leading() or (False, 1)
        rows, columns = matrix.shape[::-1] if turned else matrix.shape
        increment = vector.down if vector.shape[0] > 1 else 1
        numbers = [_TURNED if turned else _PLAIN, rows, columns, step_, increment, 1]
        slots = matrix.slot, vector.slot, out
        steps = matrix.next, vector.next, m * n
        if count == 1:
            count = max(1, vector_parts(m * n, k))
            part = m * n // count
            numbers[1 + turned] = part
            steps = part * matrix.down, 0, part
    else:
        found = [matrix.leading() or (False, 1) for matrix in (one, other)]
        ways = [_TURNED if turned else _PLAIN for turned, _ in found]
        numbers = [*ways, m, n, k, *(step_ for _, step_ in found), n]
        slots = one.slot, other.slot, out
        steps = one.next, other.next, m * n
    function = _function(name)
    assert function is not None
    sizes = [step_ * out.dtype.itemsize for step_ in steps]
    table = np.array([function[0], *numbers, *sizes], np.int64)
    given = Slot(table, ordered_look(table.shape), table.dtype)
    code = _machine_code(name, function[1])
    return Call(code, (*slots, given), count, weight=count * m * n * k // 4 + 50)


def vector_parts(size: int, depth: int) -> int:
    """Return into how many equal parts to divide a matrix's product with a vector.

    The BLAS computes each of them on one thread.  The result is 0 if there are no such parts, and
    for a large matrix: a sequence copies one that is not contiguous, which takes longer then than
    the call of Python that is saved.
    """
    least = -(-size * depth // max(TUNING.blas_alone_vector, 1))
    if least > _PARTS:
        return 0
    return next((n for n in range(least, min(size, 4 * least) + 1) if size % n == 0), 0)


def _matrix(slot: Slot, second: bool, swapped: bool, in_order: Any) -> _Matrix:
    """Return an operand as matrices with a layout that the BLAS supports, copied if need be."""
    found = _seen(slot, second, swapped)
    if found is None or found.leading() is None:
        found = _seen(in_order(slot), second, swapped)
    assert found is not None
    return found


def _seen(slot: Slot, second: bool, swapped: bool) -> _Matrix | None:
    shape, strides = slot.look.shape, slot.look.strides
    if len(shape) == 1:
        matrix = _Matrix(slot, (1, shape[0]), shape[0], strides[0], 0)
        return matrix.turned() if second else matrix
    following = _step(shape[:-2], strides[:-2])
    if following is None:
        return None
    matrix = _Matrix(slot, (shape[-2], shape[-1]), strides[-2], strides[-1], following)
    return matrix.turned() if swapped else matrix


def _step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the one stride that all axes can be traversed with; `None` if there is none."""
    pairs = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
    for (_, outer), (n, inner) in itertools.pairwise(pairs):
        if outer != inner * n:
            return None
    return pairs[-1][1] if pairs else 0
