"""The names and operations in a loop of the kernel language, found in one walk over its tree."""

import ast
from typing import Any, NamedTuple

__all__ = ["Parts", "gathering", "parts_of", "target_of"]

_PARTIAL = {"plus": "fadd", "larger": "fmax", "smaller": "fmin"}


class Parts(NamedTuple):
    """Describe the names in a loop, and its operations.

    Attributes
    ----------
    assigned
        The names that it assigns, without the loop index.
    pointers, functions
        The names of the pointers that it accesses, and of the functions that it calls.
    operations
        The number of operations.
    innermost
        Whether it contains no loop.
    """

    assigned: dict[str, None]
    pointers: set[str]
    functions: list[str]
    operations: int
    innermost: bool


def parts_of(node: ast.For | ast.While) -> Parts:
    """Analyse a loop."""
    assigned: dict[str, None] = {}
    pointers, functions = set(), []
    operations, innermost = 0, True
    stack: list[Any] = node.body[::-1]
    while stack:
        part = stack.pop()
        kind = type(part)
        if kind is ast.Name:
            if type(part.ctx) is ast.Store:
                assigned[part.id] = None
        elif kind is ast.Subscript:
            if type(part.value) is ast.Name:
                pointers.add(part.value.id)
            stack += (part.slice, part.value)
        elif kind is ast.BinOp:
            operations += 1
            stack += (part.right, part.left)
        elif kind is ast.Call:
            operations += 1
            if type(part.func) is ast.Name:
                functions.append(part.func.id)
            stack += part.args
        elif kind is ast.Assign:
            stack += (part.value, *part.targets)
        elif kind is not ast.Constant:
            operations += kind is ast.Compare or kind is ast.UnaryOp
            innermost &= kind is not ast.For and kind is not ast.While
            stack += ast.iter_child_nodes(part)
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        assigned.pop(node.target.id, None)
    return Parts(assigned, pointers, functions, operations, innermost)


def target_of(statement: ast.stmt) -> str:
    """Return the name that a statement assigns to."""
    targets = {ast.Assign: "targets", ast.AugAssign: "target"}.get(type(statement), "")
    found = getattr(statement, targets, None)
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    return found.id if isinstance(found, ast.Name) else ""


def gathering(statement: ast.stmt, name: str) -> tuple[str, ast.expr | None]:
    """Return the LLVM reduction by which a statement updates a name, and its operand."""
    if isinstance(statement, ast.AugAssign):
        return ("or", statement.value) if isinstance(statement.op, ast.BitOr) else ("", None)
    call = getattr(statement, "value", None)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return "", None
    of = call.args[0] if len(call.args) == 2 else None
    if not isinstance(of, ast.Name) or of.id != name or call.func.id not in _PARTIAL:
        return "", None
    return _PARTIAL[call.func.id], call.args[1]
