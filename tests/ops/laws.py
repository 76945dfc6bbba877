"""What holds of every differentiable operation, whatever it computes.

Forward and reverse mode are each other's transposes; `vmap` of a function, of its gradient and of
the forward derivative of its gradient is what a loop over the examples gives; and the gradient of
`vmap` is the gradients, one beside the other.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import fdbr
from fdbr import tree
from fdbr.testing import assert_allclose
from ops.cases import Case, bent

SIZE = 3


def check_laws(case: Case, args: Any) -> None:
    """Check all of them for one operation at one point."""
    places = [i for i, x in enumerate(args) if x.dtype.kind == "f"]
    check_transposes(case, args, places)
    for batched in subsets(len(args)):
        check_batches(case, args, places, batched)


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Which of some operands may be batched together: all, each alone, and what is between."""
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def weights(like: Any, seed: int) -> Any:
    """Fixed numbers in an array's shape and dtype."""
    generator = np.random.Generator(np.random.Philox(seed))
    return generator.integers(32, 96, like.shape).astype(like.dtype) / 64


def check_transposes(case: Case, args: Any, places: Any) -> None:
    """The forward derivative by a tangent, and the reverse one by a cotangent."""

    def f(*floating: Any) -> Any:
        return case.function(*_filled(args, places, floating))

    points = [args[i] for i in places]
    tangents = [weights(x, i) for i, x in enumerate(points)]
    out, forward = fdbr.jvp(f, points, tangents)
    same, pullback = fdbr.vjp(f, *points)
    assert_allclose(out, same)
    assert forward.shape == out.shape
    assert forward.dtype == out.dtype
    ct = weights(out, 99)
    back = pullback(ct)
    sides = (ct * forward).sum(), sum((b * t).sum() for b, t in zip(back, tangents, strict=True))
    assert_allclose(*sides, rtol=1e-9, atol=1e-9)


def _filled(args: Any, places: Any, floating: Any) -> list[Any]:
    given = dict(zip(places, floating, strict=True))
    return [given.get(i, x) for i, x in enumerate(args)]


def example(x: Any, number: int) -> Any:
    """Another example like one: floating numbers in the same order, whole ones moved round."""
    if x.dtype.kind == "f":
        return x * (1 - number / 8)
    return np.roll(x.ravel(), number).reshape(x.shape)


def check_batches(case: Case, args: Any, places: Any, batched: Any) -> None:
    """A batch at once against its examples one by one, of three functions and two derivatives."""
    stacks = [
        np.stack([example(x, k) for k in range(SIZE)]) if i in batched else x
        for i, x in enumerate(args)
    ]
    axes = tuple(0 if i in batched else None for i in range(len(args)))

    def loss(args: Any) -> Any:
        out = bent(case.function(*args))
        return (out * weights(out, 7)).sum()

    def derivatives(*args: Any) -> Any:
        return [g for g in fdbr.grad(loss)(list(args)) if g is not None]

    def curvature(*args: Any) -> Any:
        tangents = [weights(x, 3) if i in places else None for i, x in enumerate(args)]
        return fdbr.jvp(lambda *args: derivatives(*args), args, tangents)[1]

    for f in (case.function, derivatives, curvature):
        found = fdbr.vmap(f, in_axes=axes)(*stacks)
        each = [f(*_one(stacks, batched, k)) for k in range(SIZE)]
        desired = tree.map(lambda *parts: np.stack(parts), *each)
        assert_allclose(found, desired, rtol=1e-9, atol=1e-9)

    def total(stacks: Any) -> Any:
        return fdbr.vmap(lambda *args: loss(list(args)), in_axes=axes)(*stacks).sum()

    gradient = fdbr.grad(total)(stacks)
    each = [fdbr.grad(loss)(_one(stacks, batched, k)) for k in range(SIZE)]
    for i in places:
        parts = np.stack([g[i] for g in each])
        assert_allclose(
            gradient[i], parts if i in batched else parts.sum(axis=0), rtol=1e-9, atol=1e-9
        )


def _one(stacks: Any, batched: Any, number: int) -> list[Any]:
    return [x[number] if i in batched else x for i, x in enumerate(stacks)]
