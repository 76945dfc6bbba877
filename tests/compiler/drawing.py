"""Random programs with random control flow, each from its seed.

A program is a list of statements that act on numbered arrays, some of one number, some vectors,
and on numbered integers of Python.  Every result is squashed, so that nothing grows.  Statements
may read what is around the program, too, which changes from call to call.
"""

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops

VECTORS, SCALARS, INTEGERS = 3, 2, 2

Statement = Callable[["State"], None]


class State:
    """The values while a program runs."""

    def __init__(self, matrix: Any, vector: Any, scalar: Any, integer: Any) -> None:
        self.matrix = matrix
        self.vectors = [vector * (i + 1) / 2 for i in range(VECTORS)]
        self.scalars = [scalar, vector.sum()]
        self.integers = [integer, 1]

    def result(self) -> Any:
        """Something that depends on all."""
        parts = [v.sum() * (i + 1) for i, v in enumerate(self.vectors)]
        total = parts[0] + parts[1] + parts[2] + self.scalars[0] * self.scalars[1]
        return total + self.integers[0] / 8 + (self.matrix * self.matrix).sum()


_UNARY = (
    ops.sin, ops.tanh, ops.sigmoid, ops.square, lambda x: ops.exp(-x * x), lambda x: -x,
    lambda x: ops.log(1.5 + x * x), lambda x: ops.sqrt(1 + x * x), lambda x: x / (1 + abs(x)),
    ops.relu,
)  # fmt: skip
_BINARY = (
    ops.add, ops.subtract, ops.multiply, ops.maximum, ops.minimum, ops.hypot, ops.atan2,
    lambda x, y: x / (1 + y * y), lambda x, y: ops.where(x > y, x, y / 2),
)  # fmt: skip
_VECTOR = (
    ops.sort, ops.cumulative_sum, lambda x: x[::-1], lambda x: x - x.mean(), ops.softmax,
    lambda x: ops.concat([x[1:], x[:1]]), lambda x: x[ops.argsort(x)] + x,
    lambda x: ops.flip(x) * x,
)  # fmt: skip
_REDUCTION = (
    ops.sum,
    ops.mean,
    ops.max,
    ops.min,
    ops.logsumexp,
    lambda x: (x * x).sum(),
    lambda x: x[0],
)


class Surroundings:
    """What is around a program: an attribute, an entry of a dict, variables of a closure."""

    def __init__(self, rng: np.random.Generator, size: int, dtype: Any) -> None:
        self.rng, self.size, self.dtype = rng, size, dtype
        self.settings = types.SimpleNamespace(rate=0.5)
        self.table = {"shift": 0.25, "name": "some"}
        self.weights, self.count, self.put = self._closure()
        self.change()

    def _closure(self) -> tuple[Callable[[], Any], Callable[[], int], Callable[..., None]]:
        weights, count = np.ones(self.size, self.dtype), 1

        def put(new: Any, number: int) -> None:
            nonlocal weights, count
            weights, count = new, number

        return lambda: weights, lambda: count, put

    def change(self) -> None:
        """Bind some of it anew."""
        if self.rng.random() < 0.5:
            self.settings.rate = float(self.rng.uniform(-1, 1))
        if self.rng.random() < 0.5:
            self.table["shift"] = float(self.rng.uniform(-1, 1))
        if self.rng.random() < 0.5:
            weights = self.rng.uniform(-1, 1, self.size).astype(self.dtype)
            self.put(weights, int(self.rng.integers(3)))


class Drawing:
    """A program in the making."""

    def __init__(self, seed: int, around: Surroundings | None = None) -> None:
        self.around = around
        self.rng = np.random.Generator(np.random.Philox(seed))
        self.lines: list[str] = []

    def number(self, bound: int) -> int:
        """A random number below a bound."""
        return int(self.rng.integers(bound))

    def constant(self) -> float:
        """A random number that no sum of others is near to."""
        return float(self.rng.uniform(-1, 1))

    def block(self, length: int, depth: int) -> list[Statement]:
        """Some statements."""
        kinds = [self.unary, self.binary, self.vector, self.reduction, self.product, self.integer]
        kinds += [self.outer] if self.around else []
        nested = [self.branch, self.loop, self.count, self.choice]
        drawn = []
        for _ in range(length):
            if depth and self.rng.random() < 0.4:
                drawn.append(nested[self.number(len(nested))](depth - 1))
            else:
                drawn.append(kinds[self.number(len(kinds))]())
        return drawn

    def unary(self) -> Statement:
        f, i, j = _UNARY[self.number(len(_UNARY))], self.number(VECTORS), self.number(SCALARS)

        def run(s: State) -> None:
            s.vectors[i] = f(s.vectors[i])
            s.scalars[j] = ops.tanh(f(s.scalars[j]) + s.integers[0] / 4)

        return run

    def binary(self) -> Statement:
        f, i = _BINARY[self.number(len(_BINARY))], self.number(VECTORS)
        j, k = self.number(VECTORS), self.number(SCALARS)

        def run(s: State) -> None:
            s.vectors[i] = ops.tanh(f(s.vectors[j], s.scalars[k]) + s.vectors[i])

        return run

    def vector(self) -> Statement:
        f, i, j = _VECTOR[self.number(len(_VECTOR))], self.number(VECTORS), self.number(VECTORS)

        def run(s: State) -> None:
            s.vectors[i] = ops.tanh(f(s.vectors[j]))

        return run

    def reduction(self) -> Statement:
        f, i, j = (
            _REDUCTION[self.number(len(_REDUCTION))],
            self.number(SCALARS),
            self.number(VECTORS),
        )

        def run(s: State) -> None:
            s.scalars[i] = ops.sin(f(s.vectors[j]))

        return run

    def product(self) -> Statement:
        i, j = self.number(VECTORS), self.number(VECTORS)

        def run(s: State) -> None:
            s.vectors[i] = ops.tanh(s.matrix @ s.vectors[j])
            s.matrix = ops.tanh(s.matrix + s.vectors[i] * s.scalars[0])

        return run

    def integer(self) -> Statement:
        i, j, k = self.number(INTEGERS), self.number(SCALARS), self.number(VECTORS)

        def run(s: State) -> None:
            place = int(ops.floor(4 * s.scalars[j])) % s.vectors[k].shape[0]
            s.integers[i] = (s.integers[i] + place) % 5
            s.scalars[j] = s.vectors[k][place] + s.vectors[k][: place + 1].sum() / 4

        return run

    def outer(self) -> Statement:
        around: Any = self.around
        i, j, kind, bound = self.number(VECTORS), self.number(SCALARS), self.number(5), 0.3
        settings, table, weights, count = (
            around.settings,
            around.table,
            around.weights,
            around.count,
        )

        def run(s: State) -> None:
            if kind == 0:
                s.vectors[i] = ops.tanh(s.vectors[i] * settings.rate + weights())
            elif kind == 1:
                s.scalars[j] = s.scalars[j] * (1 + table["shift"]) / 2
            elif kind == 2:
                for _ in range(count()):
                    s.vectors[i] = ops.sin(s.vectors[i] + settings.rate)
            elif kind == 3:
                s.vectors[i] = -s.vectors[i] if settings.rate > bound else s.vectors[i] / 2
            else:
                s.scalars[j] = ops.tanh(s.scalars[j] + (weights() * s.vectors[i]).sum())
                s.integers[0] = (s.integers[0] + count()) % 5

        return run

    def branch(self, depth: int) -> Statement:
        i, bound = self.number(VECTORS), self.constant()
        yes, no = self.block(1 + self.number(2), depth), self.block(self.number(3), depth)

        def run(s: State) -> None:
            for statement in yes if ops.sum(s.vectors[i]) > bound else no:
                statement(s)

        return run

    def loop(self, depth: int) -> Statement:
        i, body = self.number(SCALARS), self.block(1 + self.number(2), depth)
        rate = 0.5 + abs(self.constant()) / 3

        def run(s: State) -> None:
            iterations = 0
            s.scalars[i] = 2 * s.scalars[i]
            while abs(s.scalars[i]) > 0.25 and iterations < 6:
                for statement in body:
                    statement(s)
                s.scalars[i] = s.scalars[i] * rate
                iterations += 1
            s.integers[0] = (s.integers[0] + iterations) % 7

        return run

    def count(self, depth: int) -> Statement:
        i, body = self.number(INTEGERS), self.block(1, depth)

        def run(s: State) -> None:
            for iteration in range(s.integers[i] % 3):
                for statement in body:
                    statement(s)
                s.scalars[0] = s.scalars[0] + iteration / 8

        return run

    def choice(self, depth: int) -> Statement:
        i, blocks = self.number(VECTORS), [self.block(1, depth) for _ in range(3)]

        def run(s: State) -> None:
            for statement in blocks[int(ops.argmax(s.vectors[i])) % 3]:
                statement(s)

        return run


def random_program(
    seed: int, length: int = 5, depth: int = 2, around: Surroundings | None = None
) -> Callable[..., Any]:
    """The function of a seed: from a matrix, a vector, a scalar and an integer to a scalar."""
    return program_of(Drawing(seed, around).block(length, depth))


def program_of(statements: list[Statement]) -> Callable[..., Any]:
    """The function that runs statements."""

    def program(matrix: Any, vector: Any, scalar: Any, integer: Any) -> Any:
        state = State(matrix, vector, scalar, integer)
        for statement in statements:
            statement(state)
        return state.result()

    return program


def random_arguments(
    seed: int, count: int, size: int = 3, dtype: Any = np.float64
) -> list[tuple[Any, ...]]:
    """Points at which to call it; some occur again."""
    rng = np.random.Generator(np.random.Philox(seed + 1_000_000))
    points = [
        (
            rng.uniform(-1, 1, (size, size)).astype(dtype),
            rng.uniform(-2, 2, size).astype(dtype),
            float(rng.uniform(-2, 2)),
            int(rng.integers(5)),
        )
        for _ in range(count)
    ]
    return [*points, *points[:2]]
