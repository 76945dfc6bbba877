"""Formulas of elements as text of the kernel language: Python with typed casts ``f4``, ``f8``.

A short formula becomes an expression where its element is computed; a longer one becomes a
function in the kernel's source.
"""

from collections import Counter
from collections.abc import Sequence

from fdbr.backends.cpu.codegen.formulas import CODES, formula_of, joining_formulas
from fdbr.compiler.ir.program import Instruction
from fdbr.compiler.ir.reductions import join_of
from fdbr.core.expr import Node, every

__all__ = ["Elements", "cast", "cost"]

_FEW = 4  # operations of a formula that is inlined as an expression
_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "iadd": "+",
    "isub": "-",
    "imul": "*",
    "iand": "&",
    "ior": "|",
    "ixor": "^",
    "shl": "<<",
    "ashr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_CALLS = {"float": "number"}  # names that differ in the kernel language


def cost(step: Instruction) -> int:
    """Return the approximate cost of one element, in additions."""
    if join_of(step) is not None:
        return sum(formula.cost for formula in joining_formulas(step) or ())
    found = formula_of(step)
    return 1 if found is None else found.cost


def cast(text: str, code: str, to: str) -> str:
    """Return the text of a value converted from one dtype to another."""
    if code == to:
        return text
    return f"({text} != 0)" if to == "b1" else f"{to}({text})"


class Elements:
    """Collect the element formulas of one kernel, and the functions that compute them.

    Attributes
    ----------
    functions
        The names of the functions, by their text.
    scalars
        The scalar functions that they call for each number.
    refuses
        Whether statements set ``bad`` to make NumPy compute the result instead.
    """

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.scalars: set[str] = set()
        self.refuses = False

    @property
    def source(self) -> str:
        """Return the source of the functions."""
        scalars = [f"{_scalar(name)} = scalar({name!r})\n" for name in sorted(self.scalars)]
        return "".join([*scalars, *(f"def {name}({text}" for text, name in self.functions.items())])

    def element(
        self, step: Instruction, texts: Sequence[str], codes: Sequence[str], lines: list[str]
    ) -> str:
        """Return the expression for one element of a result, given expressions for the operands.

        Statements that must come before it are appended to ``lines``.
        """
        formula = formula_of(step)
        assert formula is not None, step.primitive.name
        given = {
            i: cast(text, code, CODES[dtype])
            for i, (text, code, dtype) in enumerate(
                zip(texts, codes, formula.operands, strict=True)
            )
            if dtype is not None
        }
        if formula.condition is not None:
            self.refuses = True
            lines.append(f"bad |= not {self._computed(formula.condition, given)}")
        return self._computed(formula.root, given)

    def joined(self, step: Instruction, a: Sequence[str], b: Sequence[str]) -> list[str]:
        """Return expressions that combine two states of a reduction, given those of their parts."""
        formulas = joining_formulas(step)
        assert formulas is not None, step.params
        given = dict(enumerate([*a, *b]))
        return [self._computed(formula.root, given) for formula in formulas]

    def _computed(self, root: Node, given: dict[int, str]) -> str:
        nodes = every([root])
        self.scalars.update(node.detail for node in nodes if node.op == "scalar")
        if _is_short(nodes, given):
            return _nested(root, given)
        used = [i for i in given if any(_is_operand(node, i) for node in nodes)]
        text = _body(nodes, used)
        name = self.functions.setdefault(text, f"formula{len(self.functions)}")
        return f"{name}({', '.join(given[i] for i in used)})"


def _is_operand(node: Node, place: int) -> bool:
    return node.op == "operand" and node.detail[0] == place


def _is_short(nodes: Sequence[Node], given: dict[int, str]) -> bool:
    """Return whether nodes make a short expression in which nothing is computed twice."""
    if sum(bool(node.args) for node in nodes) > _FEW:
        return False
    uses = Counter(arg for node in nodes for arg in node.args)
    for node in nodes:
        named = node.op == "operand" and given[node.detail[0]].isidentifier()
        if uses[node] > 1 and node.op != "constant" and not named:
            return False
    return True


def _nested(node: Node, given: dict[int, str]) -> str:
    if node.op == "operand":
        return given[node.detail[0]]
    return _written(node, [_nested(arg, given) for arg in node.args])


def _body(nodes: Sequence[Node], used: Sequence[int]) -> str:
    """Return a function's parameters and statements, one for each node; the last is the result."""
    names: dict[Node, str] = {}
    lines = [f"{', '.join(f'x{i}' for i in used)}):"]
    for node in nodes:
        if node.op == "operand":
            names[node] = f"x{node.detail[0]}"
            continue
        text = _written(node, [names[arg] for arg in node.args])
        if node.op == "constant":
            names[node] = text
        elif node is nodes[-1]:
            lines.append(f"    return {text}")
        else:
            names[node] = f"t{len(lines)}"
            lines.append(f"    {names[node]} = {text}")
    return "\n".join([*lines, ""])


def _written(node: Node, args: Sequence[str]) -> str:
    """Return a node as an expression of its arguments."""
    code = CODES[node.dtype]
    if node.op == "constant":
        number = node.detail[0]
        return repr(bool(number)) if code == "b1" else f"{code}({number!r})"
    if node.op in _INFIX:
        return f"({args[0]} {_INFIX[node.op]} {args[1]})"
    if node.op == "neg":
        return f"(-{args[0]})"
    if node.op == "not":
        return f"(not {args[0]})"
    if node.op in ("cast", "number"):
        return f"{code}({args[0]})"
    name = _scalar(node.detail) if node.op == "scalar" else _CALLS.get(node.op, node.op)
    return f"{name}({', '.join(args)})"


def _scalar(name: str) -> str:
    """Return the name by which a source calls a scalar function."""
    return f"scalar_{name}"
