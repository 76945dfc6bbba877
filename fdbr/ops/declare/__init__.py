"""Declarations of operations: a value, and the rules that its kind derives.

An operation is declared in one place, as a function of an array module and its operands,
under a decorator that names its kind and states its derivative once, in fdbr's own terms:

- `elementwise`: the partial derivative in each operand;
- `linear`: the transpose in each operand; the operation is linear in all of them together;
- `joining` and `indexed`: `linear`, for any number of operands, and with indices;
- `multilinear`: the transpose in each operand; it is linear in each of them alone;
- `several`: the partial derivatives of several outputs, element by element;
- `opaque`: the reverse and the forward rule of each operand;
- `constant`: the derivative is zero wherever it exists;
- `reduction`: what becomes of each element, and of two of them; no derivative is stated.

A statement says by its parameter names what it needs: an operand, ``out`` (the value),
``shape``, ``dtype`` or ``like`` (of the operand that is differentiated), or a keyword of the
operation.  What it names is kept for the backward pass, and nothing else.

Beside its derivative an operation states how it acts on a whole batch at once, ``batch``: see
`fdbr.ops.declare.batches`.  For elementwise operations that follows.

Statements are written with operators, array methods and `fdbr.ops`, so they work on traced
values too, and derivatives of derivatives come by themselves.
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
