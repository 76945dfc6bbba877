"""The functions of the kernel language: those that are written in it, and intrinsics.

An *intrinsic* emits its instructions itself.  A *function* is Python code in the kernel language;
it becomes an LLVM function for the types of the arguments that it is called with, and is always
inlined.
"""

import ast
import contextlib
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import TYPES, KernelError, Value

__all__ = ["BUILTINS", "Function", "Intrinsic", "function", "intrinsic", "of_real", "parsed"]

_TRIALS = 20


def parsed(text: str) -> ast.Module:
    """Parse Python source to a syntax tree.

    Up to 3.12, CPython counts the recursion depth of all threads' parsers in one variable, and
    raises SystemError where concurrent parses disturb it, so the call is retried.
    """
    for _ in range(_TRIALS):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


class Intrinsic:
    """Describe a function that emits its own instructions."""

    def __init__(self, write: Callable[..., Value | None]) -> None:
        self.write = write
        self.code = write.__code__

    def takes(self, count: int) -> bool:
        """Return whether the intrinsic accepts so many arguments."""
        least, several = self.code.co_argcount - 1, bool(self.code.co_flags & inspect.CO_VARARGS)
        return count >= least if several else count == least


class Function:
    """Describe a function that is written in the kernel language and called from it.

    Attributes
    ----------
    scope
        The globals that its code may use.
    flags
        The fast-math flags of its floating-point operations.
    tree
        Its syntax tree.
    """

    def __init__(self, tree: ast.FunctionDef, scope: dict[str, Any], flags: str = "") -> None:
        self.tree, self.scope, self.flags = tree, scope, flags

    def takes(self, count: int) -> bool:
        return count == len(self.tree.args.args)


class Library(Function):
    """Describe a function of the kernel language that is defined in a Python module."""

    def __init__(self, python: Callable[..., Any], flags: str) -> None:
        self.python, self.scope, self.flags = python, python.__globals__, flags

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:  # type: ignore[override]
        found = parsed(textwrap.dedent(inspect.getsource(self.python))).body[0]
        assert isinstance(found, ast.FunctionDef)
        return found


def intrinsic(write: Callable[..., Value | None]) -> Any:
    """Declare a function of a builder and values as an intrinsic."""
    return Intrinsic(write)


def function(*flags: str) -> Callable[[Callable[..., Any]], Any]:
    """Declare a function in the kernel language, generic over the types of its arguments.

    The ``flags`` are the fast-math flags of its floating-point operations.
    """
    return lambda python: Library(python, " ".join(flags))


def _cast(type: str) -> Intrinsic:
    return Intrinsic(lambda builder, x: builder.strong(builder.cast(x, type)))


def _of_integers(name: str) -> Callable[..., Value]:
    def write(builder: Builder, *values: Value) -> Value:
        out, *rest = builder.alike(*values)
        if out.type != "i8":
            raise KernelError(f"{name} is for i8, not for {out.type}")
        for value in rest:
            out = builder.called_on(f"s{name}", out, value)
        return out

    return write


def _absolute(builder: Builder, x: Value) -> Value:
    if x.type in ("f4", "f8"):
        return _FABS.write(builder, x)
    return builder.select(builder.compare("<", x, builder.literal(0)), builder.negative(x), x)


def of_real(name: str) -> Any:
    """Return an intrinsic that calls an LLVM function of one floating-point number."""

    def write(builder: Builder, x: Value) -> Value:
        if x.type not in ("f4", "f8"):
            raise KernelError(f"{name} is for f4 and f8, not for {x.type}")
        return builder.called_on(name, builder.strong(x))

    return Intrinsic(write)


_FABS = of_real("fabs")
BUILTINS: dict[str, Any] = {
    **{type: _cast(type) for type in TYPES if type != "b1"},
    "abs": Intrinsic(_absolute),
    "max": Intrinsic(_of_integers("max")),
    "min": Intrinsic(_of_integers("min")),
}
"""The functions that can be called everywhere."""
