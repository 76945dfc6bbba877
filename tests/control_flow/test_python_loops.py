"""Python loops on data in jitted functions: values and gradients are those of eager mode."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree
from fdbr.compiler import ImpureError


def adaptive(y: Any, rate: Any) -> Any:
    """Integrate ``y' = -rate y²`` by Heun's method, whose steps are accepted or rejected."""
    t, h = 0.0, 0.5
    while 2.0 - t > 1e-9:
        h = np.minimum(h, 2.0 - t)
        one = -rate * y * y
        two = -rate * (y + h * one) ** 2
        error = abs(h * (two - one)) / 1e-2
        if error <= 1:
            t, y = t + h, y + h * (one + two) / 2
        h = h * np.clip(0.9 * (error + 1e-3) ** -0.5, 0.3, 3.0)
    return y


def backtracking(x: Any, scale: Any) -> Any:
    """Descend with a line search, and count."""
    f = lambda x: scale * x**4 + np.cos(3 * x)
    iterations = 0
    slope = fdbr.grad(f)(x)
    while abs(slope) > 1e-3 and iterations < 6:
        size = 1.0
        while f(x - size * slope) > f(x) - 0.3 * size * slope**2:
            size = size * 0.5
        x = x - size * slope
        slope = fdbr.grad(f)(x)
        iterations += 1
    return x * iterations


def bisected(low: Any, target: Any) -> Any:
    high = low + 10.0
    low = low * 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        if middle**3 + middle > target:
            high = middle
        else:
            low = middle
    return (low + high) / 2 * target


def newton(x: Any, target: Any) -> Any:
    iterations = 0
    y = x
    while True:
        step = (y**3 - target) / (3 * y**2)
        y = y - step
        iterations += 1
        if abs(step) < 1e-9 or iterations > 30:
            break
    return y


def nested(x: Any, y: Any) -> Any:
    total = 0.0 * x
    while x > 0.3:
        z = y
        while z > x:
            z = z * 0.6
            if z * x < 0.2:
                total = total + np.sin(z)
        total = total + helper(x, z) * z
        x = x * 0.7
    return total


def helper(x: Any, z: Any) -> Any:
    out = z
    while out < x:
        out = out * 1.5 + 0.1
    return out


FUNCTIONS = [adaptive, backtracking, bisected, newton, nested]
FORMS: dict[str, Callable[[Any], Any]] = {
    "values": lambda f: f,
    "gradients": lambda f: fdbr.value_and_grad(f, (0, 1)),
    "gradients of batches": lambda f: fdbr.value_and_grad(
        lambda x, y: ops.sum(fdbr.vmap(f, (0, None))(ops.stack([x, 0.6 * x, 1.7 * x]), y)), (0, 1)
    ),
    "batches of gradients": lambda f: (
        lambda x, y: fdbr.vmap(fdbr.grad(f), (0, None))(ops.stack([x, 0.6 * x, 1.7 * x]), y)
    ),
}


def points(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [tuple(map(np.float64, rng.uniform(0.5, 3.0, 2))) for _ in range(count)]


def assert_close(found: Any, desired: Any) -> None:
    for ours, theirs in zip(tree.leaves(found), tree.leaves(desired), strict=True):
        assert type(ours) is type(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_loops_give_what_they_give_eagerly_whatever_path_they_take(f: Any, form: str) -> None:
    function = FORMS[form](f)
    jitted = fdbr.jit(function)
    for point in points(20):
        assert_close(jitted(*point), function(*point))


def mixed(x: Any, y: Any) -> Any:
    """Blocks of two dtypes give what is returned."""
    total = x * y
    while x > 0.3:
        x = x * np.float32(0.7)
        if x > 1:
            total = total + np.sin(x)
        elif x > y - 0.5:
            total = total * np.cos(x)
    return total * np.float64(1.5) if total > 0.9 else total


@pytest.mark.parametrize("form", FORMS)
def test_paths_of_several_dtypes_have_the_dtypes_that_they_have_in_eager_mode(form: str) -> None:
    function = FORMS[form](mixed)
    jitted = fdbr.jit(function)
    for point in points(12):
        args = tuple(map(np.float32, point))
        found, desired = jitted(*args), function(*args)
        for ours, theirs in zip(tree.leaves(found), tree.leaves(desired), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=2e-5)


def test_parameters_move_through_an_optimizer() -> None:
    def step(rate: Any, y: Any) -> Any:
        loss = lambda rate: (adaptive(y, rate) - 0.3) ** 2
        return rate - 0.5 * fdbr.grad(loss)(rate)

    jitted = fdbr.jit(step)
    ours = theirs = np.float64(2.5)
    for i in range(30):
        y = np.float64(1 + i % 3)
        ours, theirs = jitted(ours, y), step(theirs, y)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_the_same_calls_give_the_same_bits_again() -> None:
    jitted = fdbr.jit(nested)
    first = [jitted(*point) for point in points(5)]
    assert [jitted(*point) for point in points(5)] == first


def test_values_from_around_a_function_are_those_of_the_call() -> None:
    def f(x: Any, y: Any) -> Any:
        def inner(z: Any) -> Any:
            while z > 1:
                z = z / y if z > 2 * y else z * 0.5 + 0.1 * y
            return z * y

        return fdbr.grad(inner)(x) + fdbr.vmap(inner)(ops.stack([x, 3 * x])).sum()

    jitted = fdbr.jit(f)
    for x in (300.0, 3.0, 40.0, 5000.0, 300.0):
        for y in (1.5, 2.0):
            assert_close(jitted(np.float64(x), np.float64(y)), f(np.float64(x), np.float64(y)))


def test_an_array_that_has_changed_since_is_an_error() -> None:
    table = np.array([0.5, 0.25])

    def f(x: Any) -> Any:
        while x > 1:
            x = x * table[0] if x > 9 else x - table[1]
        return x

    jitted = fdbr.jit(f)
    for x in (300.0, 3.0, 40.0, 300.0):
        assert_close(jitted(np.float64(x)), f(np.float64(x)))
    table[0] = 0.125
    try:
        found = jitted(np.float64(300.0))
    except ImpureError:
        return
    assert_close(found, f(np.float64(300.0)))


def test_a_function_that_is_given_other_dtypes_within_one_call_is_traced_for_each() -> None:
    def inner(z: Any) -> Any:
        while z > 1:
            z = z * z.dtype.type(0.7) if z > 2 else z * z.dtype.type(0.5) + z.dtype.type(0.1)
        return z * z

    def f(x: Any) -> Any:
        return fdbr.grad(inner)(x), fdbr.grad(inner)(x.astype(np.float64) / 3)

    jitted = fdbr.jit(f)
    for x in (300.1, 3.3, 40.7, 5000.9, 300.1):
        found, desired = jitted(np.float32(x)), f(np.float32(x))
        for ours, theirs in zip(found, desired, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=2e-5)
