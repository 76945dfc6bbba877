"""Random functions with loops, branches and counters, as sources of Python."""

import random
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["random_function"]

EXPRESSIONS = [
    "np.sin({a}) + 0.5 * {b}",
    "{a} * {b} / (1 + {a} * {a})",
    "np.tanh({a}) - {b} * 0.3",
    "{a} - 0.25 * {b} * {b}",
    "0.7 * {a} + 0.1",
    "np.exp(-{a} * {a}) + {b}",
    "np.cos({a} * {b})",
    "({a} if number({a}) > number({b}) else 0.5 * {b})",
]
CONDITIONS = [
    "{a} > {k}",
    "{a} * {b} < {k}",
    "{a} > {k} and {b} < 1",
    "n % 2 == 0",
    "not {a} < {k} or n > 2",
    "abs({a}) > abs({b})",
    "n and {a} > {b}",
]


class _Writer:
    """Writes one function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fuels = 0

    def filled(self, text: str, around: str = "{}") -> str:
        a, b = map(around.format, self.random.choices("xyz", k=2))
        return text.format(a=a, b=b, k=round(self.random.uniform(-0.6, 0.6), 2))

    def expression(self) -> str:
        return self.filled(self.random.choice(EXPRESSIONS))

    def condition(self) -> str:
        return self.filled(self.random.choice(CONDITIONS), "number({})")

    def assignment(self, inside: bool) -> list[str]:
        kind = self.random.random()
        if kind < 0.12:
            return ["x, y = y, x"]
        if kind < 0.24:
            return ["n += 1"]
        if kind < 0.3:
            return ["seen.append(z)", "z = z + 0.1 * seen[0]"]
        if kind < 0.42:
            called = f"helper(x, {self.expression()})"
            return [f"{self.random.choice('xyz')} = {self.expression()} + {called}"]
        return [f"{self.random.choice('xyz')} = {self.expression()}"]

    def leaving(self) -> list[str]:
        """A way out of the innermost loop, or of the function."""
        word = self.random.choice(["break", "continue", f"return {self.expression()}"])
        return [f"if {self.condition()}:", f"    {word}"]

    def block(self, depth: int, inside: bool = False) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if depth and kind < 0.25:
                lines += [f"if {self.condition()}:", *self.indented(depth, inside)]
                if self.random.random() < 0.6:
                    lines += ["else:", *self.indented(depth, inside)]
            elif depth and kind < 0.5:
                lines += self.while_loop(depth)
            elif depth and kind < 0.6:
                lines += [f"for i in range({self.random.randint(1, 4)}):"]
                lines += ["    x = x * 0.9 + 0.01 * i", *self.indented(depth, True)]
            else:
                lines += self.assignment(inside)
                if inside and self.random.random() < 0.2:
                    lines += self.leaving()
        return lines

    def while_loop(self, depth: int) -> list[str]:
        """A loop that comes to an end: its fuel is used up."""
        self.fuels += 1
        fuel = f"u{self.fuels}"
        bound = self.random.choice(["", f" and n < {self.random.randint(3, 9)}"])
        lines = [f"{fuel} = 1 + 2 * np.tanh(number({self.expression()})) ** 2"]
        lines += [
            f"while {fuel} > {self.random.choice(['0.5', '1', '0.2 + number(y * y)'])}{bound}:"
        ]
        lines += [f"    {fuel} = {fuel} * {self.random.choice(['0.5', '0.35'])} - 0.01"]
        if self.random.random() < 0.5:
            lines += [f"    if {self.condition()}:", f"        {fuel} = {fuel} - 0.3"]
        if bound and self.random.random() < 0.7:
            lines += ["    n += 1"]
        return lines + self.indented(depth, True)

    def indented(self, depth: int, inside: bool) -> list[str]:
        return ["    " + line for line in self.block(depth - 1, inside)]

    def source(self) -> str:
        helper = ["z, n, seen = x * 0.5, 0, [y]", *self.while_loop(1), "return x * 0.3 - y * z"]
        body = ["z, n, seen = x - y, 0, [x]", *self.block(1), *self.while_loop(2), *self.block(1)]
        result = self.random.choice(["x + y * z", "x * y + 0.1 * n", "np.sin(x) + seen[-1] * z"])
        without = "return x * y"
        parts = [
            "def helper(x, y):",
            textwrap.indent("\n".join(line.replace("helper", "plain") for line in helper), "    "),
            "def plain(x, y):",
            textwrap.indent(without, "    "),
            "def f(x, y):",
            textwrap.indent("\n".join([*body, f"return {result}"]), "    "),
        ]
        return "\n".join(parts)


def random_function(seed: int) -> Callable[[Any, Any], Any]:
    """A function of two numbers, or of two arrays; its attribute ``source`` is its text."""
    source = _Writer(seed).source()
    scope: dict[str, Any] = {"np": np, "number": np.mean, "__name__": "drawn"}
    exec(compile(source, f"<drawn {seed}>", "exec"), scope)
    f: Callable[[Any, Any], Any] = scope["f"]
    f.source = source  # type: ignore[attr-defined]
    return f
