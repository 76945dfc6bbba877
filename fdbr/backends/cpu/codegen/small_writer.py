"""Kernels of small arrays in the making: where values lie, and loops over their elements."""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.element_code import Elements
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.written import Output
from fdbr.backends.cpu.exec.views import Look, steps_of
from fdbr.compiler.ir.program import Small, Variable, kind_of

__all__ = ["Writer", "stored_from"]


class Writer:
    """The statements of a kernel, and the memory that they name.

    Attributes
    ----------
    lines
        The statements.  Where they set ``bad``, the function itself is run: it raises an error.
    elements
        What computes elements.
    """

    def __init__(
        self, small: Small, lying: Callable[[Variable], Look | None] | None = None
    ) -> None:
        self.small = small
        self.lying = lying
        self.lines: list[str] = []
        self.elements = Elements()
        self.inputs: dict[Any, tuple[str, Any]] = {}
        self.outputs: list[Output] = []
        self.looks: dict[Any, Look] = {}
        self.scratch: dict[str, int] = {}

    def look(self, operand: Any) -> Look:
        """The place of an operand's elements."""
        key = operand if type(operand) is Variable else id(operand)
        if key not in self.looks:
            kind = kind_of(operand)
            name = f"a{len(self.inputs)}"
            self.inputs[key] = (name, operand)
            shape = kind.shape
            found = self.lying(operand) if self.lying and type(operand) is Variable else None
            steps = steps_of(shape) if found is None else found.strides
            self.looks[key] = Look(name, 0, steps, shape, CODES[kind.dtype])
        return self.looks[key]

    def target(self, out: Variable) -> Look:
        """New memory for a result: what the kernel gives out, or scratch."""
        code = CODES[out.kind.dtype]
        shape = out.kind.shape
        if out in self.small.outs:
            self.outputs.append(Output(out, shape, out.kind.dtype, False, 1))
            name, start = f"o{len(self.outputs) - 1}", 0
        else:
            name, start = self.room(code, out.kind.size)
        self.looks[out] = Look(name, start, steps_of(shape), shape, code)
        return self.looks[out]

    def room(self, code: str, count: int) -> tuple[str, int]:
        """Memory for so many elements that only the kernel uses: its name, and where it begins."""
        start = self.scratch.get(code, 0)
        self.scratch[code] = start + count
        return f"s_{code}", start

    def loop(self, shape: tuple[int, ...], body: Any) -> None:
        """Nested loops over a shape around the statements that ``body(indices)`` gives."""
        indices, indent = [], ""
        for axis, n in enumerate(shape):
            if n == 1:
                indices.append("0")
                continue
            self.lines.append(f"{indent}for i{axis} in range({n}):")
            indices.append(f"i{axis}")
            indent += "    "
        self.lines += [indent + line for line in body(indices)]

    def copy(self, source: Look, target: Look, flat: bool = False) -> None:
        """Copy elements; ``flat`` if the shapes differ and only the order counts."""
        if flat:  # walk over the source, and count
            order = steps_of(source.shape)

            def body(at: list[str]) -> list[str]:
                terms = [f"{i} * {n}" for i, n in zip(at, order, strict=True) if i != "0"]
                where = " + ".join([*terms, str(target.start)])
                return [stored_from(source, at, f"{target.memory}[{where}]")]

            self.loop(source.shape, body)
        else:
            self.loop(target.shape, lambda at: [stored_from(source, at, target.place(at))])


def stored_from(source: Look, at: list[str], where: str) -> str:
    """The statement that copies an element to a place."""
    text = source.at(at, len(at))
    return f"{where} = u1({text})" if source.code == "b1" else f"{where} = {text}"
