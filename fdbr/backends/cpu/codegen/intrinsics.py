# mypy: disable-error-code="no-untyped-def"
"""Intrinsics of the kernel language that emit one instruction or a few.

Mathematical functions (`exp`, `tanh` and so on) are not intrinsics: they are formulas traced from
the value functions of operations (`formulas`).
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
    """Reinterpret an integer's bits as a floating-point number."""
    type = "f4" if bits.type == "i4" else "f8"
    return builder.like(bits, f"bitcast {bits.typed} to {kind(type, bits.lanes)}", type)


@intrinsic
def bits(builder: Builder, x: Value) -> Value:
    """Reinterpret a floating-point number's bits as an integer."""
    type = "i4" if x.type == "f4" else "i8"
    return builder.like(x, f"bitcast {x.typed} to {kind(type, x.lanes)}", type)


@intrinsic
def select(builder: Builder, condition: Value, chosen: Value, otherwise: Value) -> Value:
    """Emit ``chosen if condition else otherwise`` as a select: branches prevent vectorisation."""
    return builder.select(condition, chosen, otherwise)


def _of_reals(name: str) -> Any:
    """Return an intrinsic that calls an LLVM function of floating-point numbers of one type."""

    def write(builder: Builder, *values: Value) -> Value:
        first, *_ = values = tuple(builder.alike(*values))
        if first.type not in ("f4", "f8"):
            raise KernelError(f"{name} is for f4 and f8, not for {first.type}")
        return builder.called_on(name, *values)

    return intrinsic(write)


def _of_two(order: str) -> Any:
    """Return NumPy's maximum or minimum: NaN if either is NaN, and the second of equal numbers.

    `llvm.maximum` and `llvm.minimum` are not used because they order zeros by their signs.
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
    """Add to a partial sum with reassociation allowed, so that a loop of additions vectorises."""
    return total + x


def _extreme(comparison: str) -> Any:
    @intrinsic
    def partial(builder: Builder, extreme: Value, x: Value) -> Value:
        """Return the next partial extreme of numbers that are not NaN.

        LLVM vectorises the reduction because the select too has the fast-math flags.
        """
        if x.type != extreme.type or x.type not in ("f4", "f8"):
            raise KernelError(f"no extreme is of {extreme.type} and {x.type}")
        extreme, x = builder.alike(extreme, x)
        better = builder.like(x, f"fcmp nnan nsz o{comparison} {x.typed}, {extreme.text}", "b1")
        return builder.select(better, x, extreme, "nnan nsz")

    return partial


def scalar(name: str) -> Any:
    """Return the intrinsic that calls a scalar function in double precision."""

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
