"""Kernels of small arrays under construction: views of memory, and loops over their elements."""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.element_code import Elements
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.written import Output, checked
from fdbr.backends.cpu.exec.views import Look, steps_of
from fdbr.compiler.ir.program import Small, Variable, kind_of

__all__ = ["Writer", "stored_from"]


class Writer:
    """Hold the statements of a kernel, and the memory that they access.

    Attributes
    ----------
    lines
        The statements.  Where they set ``bad``, the operation itself is run, which raises an error.
    elements
        The formulas of elements.
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
        """Return the view of an operand's elements; raise as `checked`."""
        key = operand if type(operand) is Variable else id(operand)
        if key not in self.looks:
            kind = kind_of(checked(operand))
            name = f"a{len(self.inputs)}"
            self.inputs[key] = (name, operand)
            shape = kind.shape
            found = self.lying(operand) if self.lying and type(operand) is Variable else None
            steps = steps_of(shape) if found is None else found.strides
            self.looks[key] = Look(name, 0, steps, shape, CODES[kind.dtype])
        return self.looks[key]

    def target(self, out: Variable) -> Look:
        """Allocate memory for a result, either an output or scratch, and return its view."""
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
        """Allocate scratch memory for elements; return its name and its start."""
        start = self.scratch.get(code, 0)
        self.scratch[code] = start + count
        return f"s_{code}", start

    def loop(self, shape: tuple[int, ...], body: Any) -> None:
        """Emit nested loops over a shape around the statements that ``body(indices)`` returns."""
        indices, indent = [], ""
        for axis, n in enumerate(shape):
            if n == 1:
                indices.append("0")
                continue
            self.lines.append(f"{indent}for axis{axis} in range({n}):")
            indices.append(f"axis{axis}")
            indent += "    "
        self.lines += [indent + line for line in body(indices)]

    def copy(self, source: Look, target: Look, flat: bool = False) -> None:
        """Emit a copy of elements; ``flat`` if the shapes differ and only the order counts."""
        if flat:  # iterate over the source, and count the target's index
            order = steps_of(source.shape)

            def body(at: list[str]) -> list[str]:
                terms = [f"{i} * {n}" for i, n in zip(at, order, strict=True) if i != "0"]
                where = " + ".join([*terms, str(target.start)])
                return [stored_from(source, at, f"{target.memory}[{where}]")]

            self.loop(source.shape, body)
        else:
            self.loop(
                target.shape, lambda at: [stored_from(source, at, target.place(at), target.code)]
            )


def stored_from(source: Look, at: list[str], where: str, code: str | None = None) -> str:
    """Return the statement that copies an element into memory, in another dtype if one is given."""
    text = source.at(at, len(at))
    if source.code == "b1":
        return f"{where} = u1({text})"
    return f"{where} = {text if code in (None, source.code) else f'{code}({text})'}"
