"""Programs: straight lines of operations on small arrays, and how they are put together."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from benchmarks.agreement.libraries import FDBR

__all__ = ["APART", "Builder", "Instruction", "Program", "Unsuitable", "apart"]

LARGEST = 4.0  # magnitude of the numbers: larger results are scaled down
MOST = 48  # elements of a value
APART = 1e-3  # how far from each other numbers are that an operation compares
SHAPES = ((3, 3), (2, 3, 3), (2, 2), (4, 3), (2, 3), (1, 3), (2, 1), (3,), (2,), ())


class Unsuitable(Exception):
    """There is no value that an operation could be applied to."""


@attrs.frozen
class Instruction:
    """One operation: ``apply(library, *operands)`` on earlier values, given by their numbers."""

    apply: Callable[..., Any]
    operands: tuple[int, ...]
    text: str


@attrs.frozen
class Program:
    """A loss: a function of the inputs, on any library.

    Attributes
    ----------
    inputs
        The point at which to differentiate it.
    vectors
        The directions of the Hessian-vector product, one an input.
    instructions
        What is computed, one after the other; values are numbered from the inputs on.
    weights
        Of the values that enter the loss, by their numbers.
    """

    seed: int
    inputs: tuple[Any, ...]
    vectors: tuple[Any, ...]
    instructions: tuple[Instruction, ...]
    weights: dict[int, Any]

    def loss(self, library: Any, inputs: Sequence[Any]) -> Any:
        """The weighted sum of the results that nothing else uses."""
        values = list(inputs)
        for instruction in self.instructions:
            operands = (values[i] for i in instruction.operands)
            values.append(instruction.apply(library, *operands))
        terms = [library.sum(values[i] * library.array(w)) for i, w in self.weights.items()]
        return sum(terms[1:], terms[0])

    def __str__(self) -> str:
        lines = [f"v{i} = input {x.shape}" for i, x in enumerate(self.inputs)]
        for i, instruction in enumerate(self.instructions, len(lines)):
            operands = ", ".join(f"v{k}" for k in instruction.operands)
            lines.append(f"v{i} = {instruction.text}({operands})")
        return "\n".join([f"program {self.seed}", *lines, f"loss of {sorted(self.weights)}"])


class Builder:
    """A program in the making, with the values that it has at its inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.Philox(seed))
        self.values: list[Any] = []
        self.instructions: list[Instruction] = []
        self.used: set[int] = set()

    def numbers(self, shape: tuple[int, ...]) -> Any:
        """Random numbers of both signs, none of them large."""
        return self.rng.uniform(-1.5, 1.5, shape)

    def choice(self, options: Sequence[Any]) -> Any:
        """One of some options."""
        return options[int(self.rng.integers(len(options)))]

    def pick(self, suits: Callable[[Any], Any] = lambda x: True) -> int:
        """The number of a value that suits, more likely a late or an unused one."""
        able = [i for i, value in enumerate(self.values) if suits(value)]
        if not able:
            raise Unsuitable
        likely = np.array([1 + i + 4 * (i not in self.used) for i in able], dtype=float)
        return int(self.rng.choice(able, p=likely / likely.sum()))

    def axis(self, x: int) -> int:
        """An axis of a value."""
        return int(self.rng.integers(self.values[x].ndim))

    def add(self, apply: Callable[..., Any], operands: Sequence[int], text: str) -> None:
        """Append an instruction, with its result scaled down if it is large."""
        value = np.asarray(apply(FDBR, *(self.values[i] for i in operands)))
        if value.size > MOST or value.size == 0:
            raise Unsuitable
        largest = float(np.abs(value).max())
        if largest > LARGEST:
            factor = 2.0 ** -np.ceil(np.log2(largest))
            unscaled, text, value = apply, f"{factor} * {text}", factor * value
            apply = lambda L, *xs: factor * unscaled(L, *xs)  # noqa: E731
        self.instructions.append(Instruction(apply, tuple(operands), text))
        self.values.append(value)
        self.used.update(operands)


def apart(x: Any, axis: int | None = None) -> bool:
    """Whether no two elements of an array along an axis are nearly equal."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    return bool((np.diff(np.sort(x, axis=axis), axis=axis) > APART).all())
