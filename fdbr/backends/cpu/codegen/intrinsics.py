# mypy: disable-error-code="no-untyped-def"
"""Functions of the kernel language that are one instruction, or a few.

Functions of numbers (`exp`, `tanh` and their kin) are none of them: they come from the values of
operations, as formulas of these (`formulas`).
"""

from math import inf, nan
from typing import Any

from fdbr.backends.cpu.codegen.kernel_functions import BUILTINS, function, intrinsic, of_real
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import KernelError, Value, kind
from fdbr.backends.cpu.runtime import scalars

__all__ = ["NAMES"]

f4, f8, i4, i8 = (BUILTINS[name] for name in ("f4", "f8", "i4", "i8"))


@intrinsic
def number(builder: Builder, bits: Value) -> Value:
    """The floating number of the same bits."""
    type = "f4" if bits.type == "i4" else "f8"
    return builder.like(bits, f"bitcast {bits.typed} to {kind(type, bits.lanes)}", type)


@intrinsic
def bits(builder: Builder, x: Value) -> Value:
    """The integer of the same bits."""
    type = "i4" if x.type == "f4" else "i8"
    return builder.like(x, f"bitcast {x.typed} to {kind(type, x.lanes)}", type)


@intrinsic
def select(builder: Builder, condition: Value, chosen: Value, otherwise: Value) -> Value:
    """``chosen if condition else otherwise`` without a branch, which could stop vectorisation."""
    return builder.select(condition, chosen, otherwise)


def _of_reals(name: str) -> Any:
    """One of LLVM's functions of several floating numbers of one type."""

    def write(builder: Builder, *values: Value) -> Value:
        first, *_ = values = tuple(builder.alike(*values))
        if first.type not in ("f4", "f8"):
            raise KernelError(f"{name} is for f4 and f8, not for {first.type}")
        return builder.called_on(name, *values)

    return intrinsic(write)


def _of_two(order: str) -> Any:
    """NumPy's larger or smaller one: NaN if one is, and the second of equal ones.

    `llvm.maximum` and `llvm.minimum` order zeros by their signs.
    """

    def write(builder: Builder, x: Value, y: Value) -> Value:
        x, y = builder.alike(x, y)
        if x.type not in ("f4", "f8"):
            raise KernelError(f"no extreme is of {x.type} and {y.type}")
        beyond = builder.like(x, f"fcmp o{order} {x.typed}, {y.text}", "b1")
        none = builder.like(x, f"fcmp uno {x.typed}, {x.text}", "b1")
        taken = builder.like(x, f"or {beyond.typed}, {none.text}", "b1")
        return builder.select(taken, x, y)

    return intrinsic(write)


@function()
def isfinite(x):
    return x - x == 0


@function("reassoc", "contract")
def plus(total, x):
    """The next partial sum; their order is free, so that a loop of them vectorises."""
    return total + x


def _extreme(comparison: str) -> Any:
    @intrinsic
    def partial(builder: Builder, extreme: Value, x: Value) -> Value:
        """The next partial extreme of numbers that are not NaN.

        LLVM knows it as one, and vectorises it, where the choice too has the flags that say so.
        """
        if x.type != extreme.type or x.type not in ("f4", "f8"):
            raise KernelError(f"no extreme is of {extreme.type} and {x.type}")
        extreme, x = builder.alike(extreme, x)
        better = builder.like(x, f"fcmp nnan nsz o{comparison} {x.typed}, {extreme.text}", "b1")
        return builder.select(better, x, extreme, "nnan nsz")

    return partial


def scalar(name: str) -> Any:
    """A function of single numbers in double precision, which is called as it is."""

    def write(builder: Builder, *values: Value) -> Value:
        if any(value.varies for value in values):
            raise KernelError(f"{name} is called number by number")
        given = [builder.cast(value, "f8").typed for value in values]
        given += ["i32 0"] * scalars.is_cython(name)
        types = ", ".join(value.split()[0] for value in given)
        symbol = scalars.NAME.format(name)
        builder.module.declared[
            f"declare double @{symbol}({types}) nounwind willreturn memory(none)"
        ] = None
        return Value("f8", builder.add(f"call double @{symbol}({', '.join(given)})"))

    return intrinsic(write)


NAMES = {
    "scalar": scalar,
    "number": number,
    "bits": bits,
    "select": select,
    "isfinite": isfinite,
    "plus": plus,
    "larger": _extreme("gt"),
    "smaller": _extreme("lt"),
    "fma": _of_reals("fma"),
    "maximum": _of_two("gt"),
    "minimum": _of_two("lt"),
    **{name: of_real(name) for name in ("sqrt", "floor", "ceil", "trunc", "rint")},
    "inf": inf,
    "nan": nan,
}
"""The names that kernels may use."""
