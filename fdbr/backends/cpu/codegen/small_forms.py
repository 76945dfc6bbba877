"""Code generators for operations that kernels of small arrays support beside elementwise ones."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.matrix_forms import MATRIX_FORMS
from fdbr.backends.cpu.codegen.small_writer import Writer, stored_from
from fdbr.backends.cpu.codegen.written import checked, literal, stored
from fdbr.backends.cpu.exec.views import Look, looked, sliced, steps_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.compiler.ir.subarrays import placed
from fdbr.compiler.passes.rules.views import view_of
from fdbr.core.primitive import Primitive

__all__ = ["Form", "form_of", "is_of_numbers", "write_number"]

_LONGEST = 256  # elements up to which a sequential sum is as accurate as NumPy's pairwise one
_TINY = 256  # multiplications up to which a BLAS call costs more than the product
_STEPS = {"sum": "plus", "mean": "plus", "max": "larger", "min": "smaller"}


@attrs.frozen
class Form:
    """Describe how a kernel of small arrays computes an operation.

    Attributes
    ----------
    fits
        Return whether a step is supported, given that all its operands and results are small and
        have dtypes that kernels support.
    write
        Emit the statements.  They set ``bad`` to have the operation itself run, which raises an
        error.
    only_in_loops
        Whether NumPy computes the operation outside of loops, where a kernel of it and of its
        neighbours saves little and may round otherwise than NumPy.
    """

    fits: Callable[[Instruction], bool]
    write: Callable[[Writer, Instruction], None]
    only_in_loops: bool = False


def _is_copy(step: Instruction) -> bool:
    first, *others = map(kind_of, (*step.operands, *step.outs))
    if any(kind.dtype != first.dtype for kind in others):
        return False
    if step.primitive not in (op.SLICE, op.UNSLICE):
        return True
    shape = step.params.get("shape", kind_of(step.operands[0]).shape)
    return view_of(shape, step.params["key"]) is not None


def _is_join(step: Instruction) -> bool:
    return all(kind_of(value).dtype.kind == "f" for value in step.operands) or _is_copy(step)


def _is_reduction(step: Instruction) -> bool:
    operand, out = kind_of(step.operands[0]), step.outs[0].kind
    if step.primitive.facts.fold == "sum" and operand.dtype.kind in "bi":
        return bool(out.dtype == np.int64)
    if operand.size > _LONGEST * out.size:
        return False
    return bool(operand.dtype == out.dtype and operand.dtype.kind == "f")


def _is_of_booleans(step: Instruction) -> bool:
    return kind_of(step.operands[0]).dtype == step.outs[0].kind.dtype == np.bool_


def _is_at_labels(step: Instruction) -> bool:
    """Return whether a step changes one element in each row of a matrix."""
    first, values, label, out = map(kind_of, (*step.operands, *step.outs))
    if len(first.shape) != 2 or not values.shape == label.shape == first.shape[:1]:
        return False
    return first.dtype == values.dtype == out.dtype and label.dtype.kind == "i"


_VALUES = {op.GATHER: 0, op.SCATTER: 0, op.REPLACE: 1, op.INCREASE: 1, op.ERASE: 0}
"""The operand with the values at index arrays; the index arrays come after it."""


def _is_indexed(step: Instruction) -> bool:
    """Return whether a step reads or writes elements at index arrays for the leading axes."""
    primitive, out = step.primitive, step.outs[0].kind
    kinds = list(map(kind_of, step.operands))
    values, places = kinds[_VALUES[primitive]], kinds[_VALUES[primitive] + 1 :]
    whole = step.params["shape"] if primitive is op.SCATTER else kinds[0].shape
    key = step.params["key"]
    if type(key) is not tuple or not places or any(p.shape != places[0].shape for p in places):
        return False
    if not all(map(_is_slot, key[: len(places)])) or any(map(_is_partial, key[len(places) :])):
        return False
    region = (*places[0].shape, *whole[len(places) :])
    if primitive is op.GATHER:
        values = out
    elif out.shape != whole:
        return False
    dtypes = {kind.dtype for kind in (kinds[0], values, out)}
    fits = primitive is op.ERASE or values.shape == region
    return fits and len(dtypes) == 1 and all(place.dtype.kind == "i" for place in places)


def _is_slot(part: Any) -> bool:
    return part is not None and part is not Ellipsis and type(part) not in (int, slice)


def _is_partial(part: Any) -> bool:
    return type(part) is not slice or part != slice(None)


def _look(writer: Writer, step: Instruction) -> None:
    out, source = step.outs[0], writer.look(step.operands[0])
    found = looked(source, step)
    if found is not None and out not in writer.small.outs:
        writer.looks[out] = found
    else:
        writer.copy(found or source, writer.target(out), found is None)


def _take_at_labels(writer: Writer, step: Instruction) -> None:
    source, values, labels = map(writer.look, step.operands)
    target = writer.target(step.outs[0])
    writer.copy(source, target)

    def changed(at: list[str]) -> list[str]:
        lines, places = _checked([labels], source.shape[1:], at)
        where = target.place([*at, *places])
        return [*lines, f"{where} = {where} - {values.at(at, 1)}"]

    writer.loop(labels.shape, changed)


def _index(writer: Writer, step: Instruction) -> None:
    primitive, looks = step.primitive, list(map(writer.look, step.operands))
    target, source = writer.target(step.outs[0]), looks[0]
    number = _VALUES[primitive]
    values, places = looks[number], looks[number + 1 :]
    array = source if primitive is op.GATHER else target
    rank = len(places[0].shape)
    zero = f"{stored(step.outs[0].kind.dtype)}(0)"
    if primitive is op.SCATTER:
        writer.loop(target.shape, lambda at: [f"{target.place(at)} = {zero}"])
    elif primitive is not op.GATHER:
        writer.copy(source, target)

    def indexed(at: list[str]) -> list[str]:
        lines, found = _checked(places, array.shape, at[:rank])
        there = [*found, *at[rank:]]
        if primitive is op.GATHER:
            return [*lines, stored_from(source, there, target.place(at))]
        where = target.place(there)
        if primitive is op.ERASE:
            return [*lines, f"{where} = {zero}"]
        if primitive is op.REPLACE:
            return [*lines, stored_from(values, at, where)]
        return [*lines, f"{where} = {where} + {values.at(at, len(at))}"]

    writer.loop((*places[0].shape, *array.shape[len(places) :]), indexed)


def _checked(looks: list[Look], shape: Sequence[int], at: list[str]) -> tuple[list[str], list[str]]:
    """Return the statements that read indices into a shape and check their bounds.

    Also return the names of the indices, which are in range even if the check fails.
    """
    lines, names = [], []
    for axis, (look, n) in enumerate(zip(looks, shape, strict=False)):
        name = f"k{axis}"
        lines += [
            f"{name} = i8({look.at(at, len(at))})",
            f"{name} = select({name} < 0, {name} + {n}, {name})",
            f"bad |= ({name} < 0) | ({name} >= {n})",
            f"{name} = min(max({name}, 0), {n - 1})",
        ]
        names.append(name)
    return lines, names


def _reduce(writer: Writer, step: Instruction) -> None:
    name, out = step.primitive.facts.fold or step.primitive.name, step.outs[0]
    if step.primitive in (op.SUM_OF_ROWS, op.EUCLIDEAN):
        name = "sum"
    source = writer.look(step.operands[0])
    target = writer.target(out)
    code = target.code
    axes = frozenset(step.params.get("axes", (0,)))
    count = math.prod(source.shape[axis] for axis in axes)
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    strides = dict(zip(kept, steps_of(tuple(source.shape[a] for a in kept)), strict=True))
    outer = tuple(source.shape[axis] if axis in kept else 1 for axis in range(len(source.shape)))
    inner = tuple(source.shape[axis] if axis in axes else 1 for axis in range(len(source.shape)))
    begin = {"max": f"{code}(-inf)", "min": f"{code}(inf)"}.get(name, f"{code}(0)")

    if code == "b1":
        begin = "False"

    def body(at: list[str]) -> list[str]:
        lines = [f"t = {begin}", "nan_in = False"]
        indices, indent = list(at), ""
        for axis, n in enumerate(inner):
            if n != 1:
                lines.append(f"{indent}for j{axis} in range({n}):")
                indices[axis] = f"j{axis}"
                indent += "    "
        text = source.at(indices, len(indices))
        if code == "b1":
            lines.append(f"{indent}t |= {text if name == 'any' else f'not {text}'}")
        elif code == "i8":
            lines.append(f"{indent}t = t + i8({text})")
        else:
            term = f"{text} * {text}" if step.primitive is op.EUCLIDEAN else text
            lines.append(f"{indent}t = {_STEPS[name]}(t, {term})")
        if name in ("max", "min"):
            lines.append(f"{indent}nan_in |= {text} != {text}")
        terms = [f"{at[axis]} * {strides[axis]}" for axis in kept if at[axis] != "0"]
        where = f"{target.memory}[{' + '.join([*terms, str(target.start)])}]"
        total = f"t / {code}({count})" if name == "mean" else "t"
        if step.primitive is op.EUCLIDEAN:
            total = "sqrt(t)"
        if code == "b1":
            total = "u1(t)" if name == "any" else "u1(not t)"
        if name in ("max", "min"):
            total = f"select(nan_in, {code}(nan), t)"
        return [*lines, f"{where} = {total}"]

    writer.loop(outer, body)


def _is_search(step: Instruction) -> bool:
    axis = step.params["axis"]
    return axis is None or type(axis) is int


def _search(writer: Writer, step: Instruction) -> None:
    """Emit the search for the first largest or smallest elements; NaN is both."""
    source, out = writer.look(step.operands[0]), step.outs[0]
    target, rank, axis = writer.target(out), len(source.shape), step.params["axis"]
    axes = range(rank) if axis is None else [axis % rank]
    sign = ">" if step.primitive is op.ARGMAX else "<"
    outer = tuple([1 if i in axes else n for i, n in enumerate(source.shape)])
    places = steps_of(outer)

    def body(at: list[str]) -> list[str]:
        lines = ["k = i8(0)", "n = i8(0)"]
        indices, indent = list(at), ""
        for i in axes:
            indices[i] = "0"
        numbers = (
            f"i8({source.at(indices, rank)})" if source.code == "b1" else source.at(indices, rank)
        )
        lines.append(f"best = {numbers}")
        for i in axes:
            indices[i] = f"j{i}"
            lines.append(f"{indent}for j{i} in range({source.shape[i]}):")
            indent += "    "
        text = source.at(indices, rank)
        lines += [
            f"{indent}x = {f'i8({text})' if source.code == 'b1' else text}",
            f"{indent}better = (x {sign} best) | ((x != x) & (best == best))",
            f"{indent}k = select(better, n, k)",
            f"{indent}best = select(better, x, best)",
            f"{indent}n = n + 1",
        ]
        terms = [f"{i} * {n}" for i, n in zip(at, places, strict=True) if i != "0"]
        return [*lines, f"{target.memory}[{' + '.join([*terms, str(target.start)])}] = k"]

    writer.loop(outer, body)


def _is_division(step: Instruction) -> bool:
    """Return whether a step divides integers with a remainder, in machine words."""
    kinds = [kind_of(value) for value in (*step.operands, *step.outs)]
    return all(kind.dtype == np.int64 for kind in kinds)


def _divide(writer: Writer, step: Instruction) -> None:
    """Emit divisions; where NumPy warns, the operation itself is run."""
    a, b = map(writer.look, step.operands)
    target = writer.target(step.outs[0])
    sign = _DIVISIONS[step.primitive]

    def body(at: list[str]) -> list[str]:
        return [
            f"x = i8({a.at(at, len(at))})",
            f"y = i8({b.at(at, len(at))})",
            "fine = (y != 0) & (y != -1)",
            "bad |= not fine",
            "y = select(fine, y, i8(1))",
            f"{target.place(at)} = x {sign} y",
        ]

    writer.loop(target.shape, body)


def _put_together(writer: Writer, step: Instruction) -> None:
    out, looks = step.outs[0], [writer.look(operand) for operand in step.operands]
    target = writer.target(out)
    if step.primitive in op.EMBEDDINGS:
        zero = f"{stored(out.kind.dtype)}(0)"
        writer.loop(target.shape, lambda at: [f"{target.place(at)} = {zero}"])
    for look, (_, key) in zip(looks, placed(step), strict=True):
        writer.copy(look, sliced(target, key))


def _pads(step: Instruction) -> bool:
    return _is_copy(step) and all(min(pair) >= 0 for pair in step.params["widths"])


def _is_tiny_product(step: Instruction) -> bool:
    """Return whether a product is so small that a BLAS call costs more than the product."""
    a, b, out = map(kind_of, (*step.operands, *step.outs))
    ranks = len(a.shape), len(b.shape)
    if out.dtype.kind != "f" or not min(ranks) or (max(ranks) > 2 and min(ranks) < 2):
        return False
    each = math.prod(out.shape[-2:]) * a.shape[-1]  # multiplications for each matrix of a stack
    return bool(a.dtype == b.dtype == out.dtype and each <= _TINY)


def _multiply(writer: Writer, step: Instruction) -> None:
    a, b = map(writer.look, step.operands)
    target = writer.target(step.outs[0])
    depth, code = a.shape[-1], target.code
    down, along = (1, 0) if step.primitive is op.MATMUL_TRANSPOSED else (0, 1)

    def body(at: list[str]) -> list[str]:
        lead = at[:-2] if min(len(a.shape), len(b.shape)) > 1 else []
        row = [at[len(lead)]] if len(a.shape) > 1 else []
        column = [at[-1]] if len(b.shape) > 1 else []
        place = ["k", *column] if down < along else [*column, "k"]
        left, right = [*lead, *row, "k"], [*lead, *place]
        term = f"{a.at(left, len(left))} * {b.at(right, len(right))}"
        return [
            f"t = {code}(0)",
            f"for k in range({depth}):",
            f"    t = plus(t, {term})",
            f"{target.place(at)} = t",
        ]

    writer.loop(target.shape, body)


_DIVISIONS = {op.FLOOR_DIVIDE: "//", op.REMAINDER: "%"}
_INFIX = {
    op.ADD: "+",
    op.SUBTRACT: "-",
    op.MULTIPLY: "*",
    op.LESS: "<",
    op.LESS_EQUAL: "<=",
    op.GREATER: ">",
    op.GREATER_EQUAL: ">=",
    op.EQUAL: "==",
    op.NOT_EQUAL: "!=",
}
_OVERFLOWS = {
    "+": "(({0} ^ {2}) & ({1} ^ {2})) < 0",
    "-": "(({0} ^ {1}) & ({0} ^ {2})) < 0",
    "*": " | ".join(f"({{{i}}} >= {1 << 31}) | ({{{i}}} <= {-1 << 31})" for i in (0, 1)),
}
"""Conditions under which a result of integers may not be the exact one, which Python computes."""


def is_of_numbers(step: Any) -> bool:
    """Return whether a step computes a Python number that a loop's kernel can compute."""
    if type(step) is not Instruction or len(step.outs) != 1:
        return False
    if step.primitive in _DIVISIONS:
        return _is_division(step)
    if step.primitive not in _INFIX:
        return False
    *kinds, out = map(kind_of, (*step.operands, *step.outs))
    if not all(kind.type in (int, float) for kind in kinds):
        return False
    if step.primitive in op.COMPARISONS:  # Python does not round integers for comparisons
        return out.type is bool and len({kind.type for kind in kinds}) == 1
    return out.type in (int, float)


def _number(writer: Writer, operand: Any, code: str) -> str:
    """Return a number in a dtype; float64 has Python integers of any size, rounded."""
    if type(operand) is not Variable:
        return literal(float(operand) if code == "f8" else checked(operand), code)
    text = writer.look(operand).at([], 0)
    return text if code == CODES[operand.kind.dtype] else f"{code}({text})"


def write_number(writer: Writer, step: Instruction) -> None:
    """Emit the statements of a step of Python numbers."""
    if step.primitive in _DIVISIONS:
        _divide(writer, step)
        return
    sign, code = _INFIX[step.primitive], CODES[step.outs[0].kind.dtype]
    kinds = list(map(kind_of, step.operands))
    whole = all(kind.type is int for kind in kinds)
    floats = code != "b1" and not whole
    given = [_number(writer, x, "f8" if floats else CODES[kind_of(x).dtype]) for x in step.operands]
    target = writer.target(step.outs[0]).place([])
    names = [f"x{i}" for i in range(len(given))]
    writer.lines += [f"{name} = {text}" for name, text in zip(names, given, strict=True)]
    result = f"{names[0]} {sign} {names[1]}"
    if code == "b1":
        writer.lines.append(f"{target} = u1({result})")
        return
    writer.lines.append(f"x2 = {result}")
    if whole:
        writer.lines.append(f"bad |= {_OVERFLOWS[sign].format(*names, 'x2')}")
    writer.lines.append(f"{target} = x2")


_DIVISION = Form(_is_division, _divide, only_in_loops=True)
_FOLD = Form(_is_reduction, _reduce)
_FORMS: dict[Primitive, Form] = {
    **dict.fromkeys(op.VIEWS, Form(_is_copy, _look)),
    **dict.fromkeys(op.JOINS, Form(_is_join, _put_together)),
    op.UNSLICE: Form(_is_copy, _put_together),
    op.SUBTRACT_AT_LABELS: Form(_is_at_labels, _take_at_labels),
    **dict.fromkeys(_VALUES, Form(_is_indexed, _index, True)),
    op.GATHER: Form(_is_indexed, _index),
    **dict.fromkeys(op.PRODUCTS - {op.AFFINE}, Form(_is_tiny_product, _multiply)),
    **dict.fromkeys((op.EUCLIDEAN, op.SUM_OF_ROWS), Form(_is_reduction, _reduce, True)),
    **dict.fromkeys((op.ARGMAX, op.ARGMIN), Form(_is_search, _search, True)),
    **dict.fromkeys((op.ALL, op.ANY), Form(_is_of_booleans, _reduce, True)),
    op.PAD_ZEROS: Form(_pads, _put_together),
    **{name: Form(*parts) for name, parts in MATRIX_FORMS.items()},
}
"""By primitives."""


def form_of(step: Instruction) -> Form | None:
    """Return the code generator of a step that is not elementwise, or `None`."""
    if step.primitive in _DIVISIONS and step.outs[0].kind.dtype.kind == "i":
        return _DIVISION
    return _FOLD if step.primitive.facts.fold else _FORMS.get(step.primitive)
