"""Random functions with loops, branches and counters: jitted against eager, at many points."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import fdbr
from control_flow.drawing import random_function
from fdbr import ops, tree

COUNT = 400 if settings.default is not None and settings.default.max_examples > 100 else 3

Function = Callable[[Any, Any], Any]


def _summed(f: Function) -> Function:
    return lambda x, y: ops.sum(f(x, y))


def _stacked(x: Any, y: Any) -> Any:
    return ops.stack([x, 0.5 * y, x * y])


FORMS: dict[str, Callable[[Function], Function]] = {
    "values": lambda f: f,
    "gradients": lambda f: fdbr.value_and_grad(_summed(f), (0, 1)),
    "a step of training": lambda f: (
        lambda x, y: [
            v - 0.1 * g for v, g in zip((x, y), fdbr.grad(_summed(f), (0, 1))(x, y), strict=True)
        ]
    ),
    "tangents": lambda f: lambda x, y: fdbr.jvp(f, (x, y), (x * 0 + 1, y * 0 - 0.5)),
    "batches": lambda f: lambda x, y: fdbr.vmap(f, (0, None))(_stacked(x, y), y),
    "gradients of batches": lambda f: fdbr.value_and_grad(
        lambda x, y: ops.sum(fdbr.vmap(f, (0, None))(_stacked(x, y), y)), (0, 1)
    ),
    "batches of gradients": lambda f: (
        lambda x, y: fdbr.vmap(fdbr.grad(_summed(f), (0, 1)), (0, None))(_stacked(x, y), y)
    ),
}


def _points(seed: int, count: int, form: str) -> list[tuple[Any, Any]]:
    """Arguments: numbers or arrays, in either precision."""
    rng = np.random.default_rng(seed)
    dtype = [np.float64, np.float64, np.float32][seed % 3]
    shape = () if seed % 4 < 2 else (3,)
    points = [rng.uniform(-2, 2, (2, *shape)).astype(dtype) for _ in range(count)]
    return [(point[0], point[1]) for point in points]


def compare(found: Function, desired: Function, seed: int, count: int, form: str = "") -> None:
    """Compare two functions at points, to which they come back."""
    points = _points(seed, count, form)
    with np.errstate(all="ignore"):
        for point in [*points, *points[:2]]:
            ours, theirs = tree.leaves(found(*point)), tree.leaves(desired(*point))
            assert list(map(type, ours)) == list(map(type, theirs))
            for mine, other in zip(ours, theirs, strict=True):
                assert np.asarray(mine).dtype == np.asarray(other).dtype
                single = np.asarray(other).dtype == np.float32
                rtol, atol = (2e-3, 1e-4) if single else (1e-7, 1e-9)
                np.testing.assert_allclose(mine, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(COUNT))
def test_whatever_path_it_takes_a_function_gives_what_it_gives_eagerly(
    seed: int, form: str
) -> None:
    f = FORMS[form](random_function(seed))
    compare(fdbr.jit(f), f, seed, 6, form)


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_jitted_function_that_is_differentiated_gives_what_it_gives_eagerly(seed: int) -> None:
    f = random_function(seed)
    g = fdbr.value_and_grad(_summed(f), (0, 1))
    compare(fdbr.value_and_grad(_summed(fdbr.jit(f)), (0, 1)), g, seed, 6)
