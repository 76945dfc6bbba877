"""Decorators that declare operations: a value and a derivative, from which all rules follow.

An operation is a function of an array module and its operands.  Its decorator says what form
the derivative has and takes the derivative itself, stated once:

- `elementwise`: the partial derivative in each operand;
- `linear`: the transpose in each operand; the operation is linear in all of them together;
- `joining` and `indexed`: `linear`, for any number of operands, and with indices;
- `multilinear`: the transpose in each operand; the operation is linear in each of them alone;
- `several`: the partial derivatives of several outputs, element by element;
- `opaque`: the vjp and the jvp rule of each operand;
- `constant`: the derivative is zero wherever it exists;
- `reduction`: how elements are mapped and combined; the derivative follows.

A derivative is a function whose parameter names say what it needs: an operand, ``out`` (the
value), ``shape``, ``dtype`` or ``like`` (of the operand that is differentiated), or a keyword of
the operation.  Only these are saved for the backward pass.

An operation also states its batching rule, ``batch``: see `fdbr.ops.declare.batches`.
Elementwise operations get theirs by default.

Derivatives are written with operators, array methods and `fdbr.ops`, so they accept traced
values, and higher derivatives follow.
"""

from fdbr.ops.declare.batches import aligned, leading, prefixed, shifted
from fdbr.ops.declare.elementwise import elementwise
from fdbr.ops.declare.linear import indexed, joining, linear
from fdbr.ops.declare.multilinear import multilinear
from fdbr.ops.declare.opaque import constant, opaque, several
from fdbr.ops.declare.reduction import reduction
from fdbr.ops.declare.rules import Rule, Unknown
from fdbr.ops.declare.unbroadcast import dtype_of, fit, shape_of

__all__ = [
    "Rule",
    "Unknown",
    "aligned",
    "constant",
    "dtype_of",
    "elementwise",
    "fit",
    "indexed",
    "joining",
    "leading",
    "linear",
    "multilinear",
    "opaque",
    "prefixed",
    "reduction",
    "several",
    "shape_of",
    "shifted",
]
