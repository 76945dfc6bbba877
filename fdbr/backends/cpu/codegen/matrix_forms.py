"""Linear algebra of small matrices, in kernels of small arrays.

The algorithms are those of `batched_lu` and `batched_qr` in `library.small_linalg`, applied to one
matrix of a stack at a time.
"""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.small_writer import Writer
from fdbr.backends.cpu.exec.views import Look
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.core.primitive import Primitive

__all__ = ["MATRIX_FORMS"]

_SIDE = 8  # rows and columns; larger matrices are left to LAPACK
_Lines = list[str]


def _fits(step: Instruction) -> bool:
    """Return whether all operands are small real matrices of one dtype, in stacks of one shape."""
    kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
    first = kinds[0]
    if first.dtype.kind != "f" or any(kind.dtype != first.dtype for kind in kinds):
        return False
    if any(len(kind.shape) < 2 for kind in kinds[: len(step.operands)]):
        return False
    leads = {kind.shape[:-2] for kind in kinds[: len(step.operands)]}
    sides = [n for kind in kinds for n in kind.shape[-2:]]
    return len(leads) == 1 and max(sides, default=0) <= _SIDE


def _has_cofactors(step: Instruction) -> bool:
    return _fits(step) and kind_of(step.operands[0]).shape[-1] <= 3


def _has_determinant(step: Instruction) -> bool:
    x, out = kind_of(step.operands[0]), step.outs[0].kind
    square = x.dtype.kind == "f" and x.dtype == out.dtype and len(x.shape) >= 2
    return bool(square and x.shape[-1] <= _SIDE)


def _indented(lines: _Lines, by: int = 1) -> _Lines:
    return ["    " * by + line for line in lines]


def _twice(rows: str, columns: str, lines: _Lines) -> _Lines:
    """Return a loop over the elements ``r, j`` of a matrix."""
    return [f"for r in range({rows}):", f"    for j in range({columns}):", *_indented(lines, 2)]


class _Square:
    """Hold a copy of a square matrix in scratch memory, with elements ``w(r, c)``."""

    def __init__(self, writer: Writer, code: str, n: int) -> None:
        self.n = n
        self.memory, self.start = writer.room(code, n * n)

    def __call__(self, row: str, column: str) -> str:
        return f"{self.memory}[{self.start} + ({row}) * {self.n} + {column}]"

    def read(self, look: Look, at: list[str]) -> _Lines:
        rank = len(look.shape)
        given = look.at([*at, "r", "j"], rank)
        return _twice(str(self.n), str(self.n), [f"{self('r', 'j')} = {given}"])


def _eliminated(w: _Square, right: Callable[[str, str], str], k: int) -> _Lines:
    """Eliminate to upper triangular form, with the right side; sets ``regular`` and ``odd``."""

    def exchanged(x: Callable[[str, str], str], count: int) -> _Lines:
        one, other = x("c", "j"), x("p", "j")
        swap = [f"t = {one}", f"{one} = {other}", f"{other} = t"]
        return [f"for j in range({count}):", *_indented(swap)] if count else []

    def added(x: Callable[[str, str], str], first: str, count: int) -> _Lines:
        line = f"{x('r', 'j')} = {x('r', 'j')} - f * {x('c', 'j')}"
        return [f"for j in range({first}, {count}):", f"    {line}"] if count else []

    larger = [
        f"size = abs({w('r', 'c')})",
        "p = select(size > best, r, p)",
        "best = select(size > best, size, best)",
    ]
    less = [
        f"f = {w('r', 'c')} / {w('c', 'c')}",
        *added(w, "c + 1", w.n),
        *added(right, "0", k),
    ]
    column = [
        "p = c",
        f"best = abs({w('c', 'c')})",
        f"for r in range(c + 1, {w.n}):",
        *_indented(larger),
        "if p != c:",
        *_indented([*exchanged(w, w.n), *exchanged(right, k)]),
        "odd = odd ^ (p != c)",
        f"regular = regular & ({w('c', 'c')} != 0)",
        f"for r in range(c + 1, {w.n}):",
        *_indented(less),
    ]
    return ["regular = True", "odd = False", f"for c in range({w.n}):", *_indented(column)]


def _checked(
    step: Instruction, out: Callable[[str, str], str], n: int, k: int, code: str
) -> _Lines:
    """Return the lines for a singular matrix: the operation raises its error, or returns NaN."""
    if step.params.get("strict", True):
        return ["bad |= regular == False"]
    line = f"{out('r', 'j')} = select(regular, {out('r', 'j')}, {code}(nan))"
    return _twice(str(n), str(k), [line])


def _solved(w: _Square, out: Callable[[str, str], str], k: int) -> _Lines:
    """Substitute backwards."""
    one = [
        f"t = {out('c', 'j')}",
        f"for r in range(c + 1, {w.n}):",
        f"    t = t - {w('c', 'r')} * {out('r', 'j')}",
        f"{out('c', 'j')} = t / {w('c', 'c')}",
    ]
    return [f"for c in range({w.n - 1}, -1, -1):", f"    for j in range({k}):", *_indented(one, 2)]


def _element(target: Look, at: list[str]) -> Callable[[str, str], str]:
    return lambda row, column: target.place([*at, f"({row})", f"({column})"])


def _write_solve(writer: Writer, step: Instruction) -> None:
    looks = list(map(writer.look, step.operands))
    target = writer.target(step.outs[0])
    *lead, n, k = target.shape
    code = target.code
    w = _Square(writer, code, n)

    def body(at: list[str]) -> _Lines:
        out = _element(target, at)
        if len(looks) == 2:
            side = looks[1].at([*at, "r", "j"], len(target.shape))
        else:
            side = f"select(r == j, {code}(1), {code}(0))"
        return [
            *w.read(looks[0], at),
            *_twice(str(n), str(k), [f"{out('r', 'j')} = {side}"]),
            *_eliminated(w, out, k),
            *_solved(w, out, k),
            *_checked(step, out, n, k, code),
        ]

    writer.loop(tuple(lead), body)


def _write_determinant(writer: Writer, step: Instruction) -> None:
    """Emit the product of the diagonal; where that overflows, the operation itself is run."""
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    n, code = source.shape[-1], target.code
    w = _Square(writer, code, n)
    tiny = float(1.2e-38 if code == "f4" else 2.3e-308)

    def body(at: list[str]) -> _Lines:
        return [
            *w.read(source, at),
            *_eliminated(w, lambda row, column: "", 0),
            f"t = select(odd, {code}(-1), {code}(1))",
            f"for c in range({n}):",
            f"    t = t * {w('c', 'c')}",
            f"bad |= regular & ((isfinite(t) == False) | (abs(t) < {code}({tiny})))",
            f"{target.place(at)} = select(regular, t, {code}(0))",
        ]

    writer.loop(target.shape, body)


def _write_cofactors(writer: Writer, step: Instruction) -> None:
    """Emit cofactors of up to three rows as sums of products, even of singular matrices."""
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    *lead, n, _ = target.shape

    def body(at: list[str]) -> _Lines:
        def x(row: int, column: int) -> str:
            return source.at([*at, str(row % n), str(column % n)], len(source.shape))

        lines = []
        for i in range(n):
            for j in range(n):
                if n == 1:
                    text = f"{target.code}(1)"
                elif n == 2:
                    text = x(1 - i, 1 - j) if i == j else f"-{x(1 - i, 1 - j)}"
                else:
                    plus = f"{x(i + 1, j + 1)} * {x(i + 2, j + 2)}"
                    text = f"{plus} - {x(i + 1, j + 2)} * {x(i + 2, j + 1)}"
                lines.append(f"{target.place([*at, str(i), str(j)])} = {text}")
        return lines

    writer.loop(tuple(lead), body)


def _write_cholesky(writer: Writer, step: Instruction) -> None:
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    *lead, n, _ = target.shape
    code = target.code

    def body(at: list[str]) -> _Lines:
        out = _element(target, at)

        def x(row: str, column: str) -> str:
            return source.at([*at, row, column], len(source.shape))

        known = [
            f"t = {x('r', 'c')}",
            "for j in range(c):",
            f"    t = t - {out('r', 'j')} * {out('c', 'j')}",
        ]
        return [
            *_twice(str(n), str(n), [f"{out('r', 'j')} = {code}(0)"]),
            f"for c in range({n}):",
            f"    d = {x('c', 'c')}",
            "    for j in range(c):",
            f"        d = d - {out('c', 'j')} * {out('c', 'j')}",
            "    bad |= (d > 0) == False",
            "    d = sqrt(d)",
            f"    {out('c', 'c')} = d",
            f"    for r in range(c + 1, {n}):",
            *_indented([*known, f"{out('r', 'c')} = t / d"], 2),
        ]

    writer.loop(tuple(lead), body)


def _write_substitution(writer: Writer, step: Instruction) -> None:
    a, b = map(writer.look, step.operands)
    target = writer.target(step.outs[0])
    *lead, n, k = target.shape
    lower, unit = step.params["lower"], step.params["unit"]

    def body(at: list[str]) -> _Lines:
        out = _element(target, at)
        rank = len(target.shape)
        inner = "range(c)" if lower else f"range(c + 1, {n})"
        pivot = a.at([*at, "c", "c"], rank)
        one = [
            f"t = {b.at([*at, 'c', 'j'], rank)}",
            f"for r in {inner}:",
            f"    t = t - {a.at([*at, 'c', 'r'], rank)} * {out('r', 'j')}",
            f"{out('c', 'j')} = t" if unit else f"{out('c', 'j')} = t / {pivot}",
        ]
        iterations = f"range({n})" if lower else f"range({n - 1}, -1, -1)"
        check = [] if unit else [f"    regular = regular & ({pivot} != 0)"]
        return [
            "regular = True",
            f"for c in {iterations}:",
            *check,
            f"    for j in range({k}):",
            *_indented(one, 2),
            *([] if unit else _checked(step, out, n, k, target.code)),
        ]

    writer.loop(tuple(lead), body)


def _write_half(writer: Writer, step: Instruction) -> None:
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    code = target.code

    def body(at: list[str]) -> _Lines:
        *_, r, c = at
        text = source.at(at, len(at))
        share = f"select({r} == {c}, {code}(0.5), {code}(1))"
        return [f"{target.place(at)} = select({r} < {c}, {code}(0), {share} * {text})"]

    writer.loop(target.shape, body)


# --- parts of matrices --------------------------------------------------------------


def _is_part(step: Instruction) -> bool:
    return kind_of(step.operands[0]).dtype == step.outs[0].kind.dtype


def _write_triangle(writer: Writer, step: Instruction) -> None:
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    k, sign = step.params["k"], ">=" if step.params["upper"] else "<="

    def body(at: list[str]) -> _Lines:
        *_, r, c = at
        value = f"select(({c}) - ({r}) {sign} {k}, {source.at(at, len(at))}, {_zero(target)})"
        return [f"{target.place(at)} = {_stored(value, target)}"]

    writer.loop(target.shape, body)


def _zero(look: Look) -> str:
    return "False" if look.code == "b1" else f"{look.code}(0)"


def _stored(text: str, look: Look) -> str:
    return f"u1({text})" if look.code == "b1" else text


def _write_diagonal(writer: Writer, step: Instruction) -> None:
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    down, along = _moved(step)

    def body(at: list[str]) -> _Lines:
        *lead, i = at
        value = source.at([*lead, f"({i} + {down})", f"({i} + {along})"], len(at) + 1)
        return [f"{target.place(at)} = {_stored(value, target)}"]

    writer.loop(target.shape, body)


def _write_embedded(writer: Writer, step: Instruction) -> None:
    source, target = writer.look(step.operands[0]), writer.target(step.outs[0])
    down, along = _moved(step)
    zero = f"{'u1' if target.code == 'b1' else target.code}(0)"
    writer.loop(target.shape, lambda at: [f"{target.place(at)} = {zero}"])

    def body(at: list[str]) -> _Lines:
        *lead, i = at
        where = target.place([*lead, f"({i} + {down})", f"({i} + {along})"])
        return [f"{where} = {_stored(source.at(at, len(at)), target)}"]

    writer.loop(source.shape, body)


def _moved(step: Instruction) -> tuple[int, int]:
    """Return the row and the column in which a diagonal starts."""
    offset = step.params["offset"]
    return max(0, -offset), max(0, offset)


MATRIX_FORMS: dict[Primitive, tuple[Any, Any]] = {
    op.SOLVE: (_fits, _write_solve),
    op.INV: (_fits, _write_solve),
    op.DET: (_has_determinant, _write_determinant),
    op.COFACTORS: (_has_cofactors, _write_cofactors),
    op.CHOLESKY: (_fits, _write_cholesky),
    op.SUBSTITUTE: (_fits, _write_substitution),
    op.HALF_TRIANGLE: (_fits, _write_half),
    op.TRIANGLE: (_is_part, _write_triangle),
    op.DIAGONAL: (_is_part, _write_diagonal),
    op.EMBED_DIAGONAL: (_is_part, _write_embedded),
}
"""By the names of primitives: which steps fit, and what writes them."""
