"""The functions that the kernel language has: those that are written in it, and intrinsics.

An *intrinsic* writes its instructions itself.  A *function* is Python's, in the kernel language;
it becomes one of LLVM's for the types of the arguments that it is called with, and disappears where
it is called.
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
    """The tree of a text of Python's.

    Up to 3.12, CPython counts how deep the trees are that all threads are making in one number, and
    raises SystemError where they have got in each other's way.
    """
    for _ in range(_TRIALS):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


class Intrinsic:
    """A function that writes its instructions itself."""

    def __init__(self, write: Callable[..., Value | None]) -> None:
        self.write = write
        self.code = write.__code__

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        least, several = self.code.co_argcount - 1, bool(self.code.co_flags & inspect.CO_VARARGS)
        return count >= least if several else count == least


class Function:
    """A function written in the kernel language, and called from it.

    Attributes
    ----------
    scope
        What it may name.
    flags
        What LLVM may do with its floating operations.
    tree
        Its text, taken apart.
    """

    def __init__(self, tree: ast.FunctionDef, scope: dict[str, Any], flags: str = "") -> None:
        self.tree, self.scope, self.flags = tree, scope, flags

    def takes(self, count: int) -> bool:
        return count == len(self.tree.args.args)


class Library(Function):
    """A function that stands in a module of Python's."""

    def __init__(self, python: Callable[..., Any], flags: str) -> None:
        self.python, self.scope, self.flags = python, python.__globals__, flags

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:  # type: ignore[override]
        found = parsed(textwrap.dedent(inspect.getsource(self.python))).body[0]
        assert isinstance(found, ast.FunctionDef)
        return found


def intrinsic(write: Callable[..., Value | None]) -> Any:
    """A function of a builder and of values, which writes what kernels that call it do."""
    return Intrinsic(write)


def function(*flags: str) -> Callable[[Callable[..., Any]], Any]:
    """A function in the kernel language, for arguments of all types for which it has a meaning.

    The ``flags`` say what LLVM may do with its floating operations.
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
    """One of LLVM's functions of a floating number."""

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
