"""Floating numbers of 16 bits: whatever adds up many of them does it in float32."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops

MANY = 70_000  # more than float16 can count


def public(name: str) -> Any:
    found = ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def mixing() -> Iterator[str]:
    """The functions of one array that mix its elements: reductions and what is made of them."""
    four, eight = (np.linspace(0.5, 1.0, n) for n in (4, 8))
    for name in [*ops.__all__, *(f"linalg.{name}" for name in ops.linalg.__all__)]:
        function = public(name)
        try:
            few, more = function(four), function(eight)
            slopes = fdbr.jacrev(function)(four)
        except Exception:
            continue  # it takes something else
        if not isinstance(few, np.ndarray | np.generic) or more.size > 2 * few.size:
            continue
        if slopes.shape != (4, 4) or slopes[~np.eye(4, dtype=bool)].any():
            yield name


MIXING = list(mixing())


def test_the_walk_finds_what_adds_up() -> None:
    assert {"sum", "mean", "var", "std", "softmax", "logsumexp", "layer_norm"} <= set(MIXING)


def derivatives(f: Any, x: Any) -> tuple[Any, Any, Any]:
    """The value, the gradient along a wave, and the tangent along another."""
    value, pullback = fdbr.vjp(f, x)
    wave = np.cos(np.arange(value.size)).reshape(value.shape).astype("float16")
    (gradient,) = pullback(value.dtype.type(1) * wave)
    ripple = np.sin(np.arange(x.size)).reshape(x.shape).astype("float16").astype(x.dtype)
    _, tangent = fdbr.jvp(f, (x,), (ripple,))
    return value, gradient, tangent


def close(found: Any, exact: Any, what: str) -> None:
    """To within some roundings of float16, of which the exact one is one."""
    exact = exact.astype("float16").astype("float64")
    assert found.dtype == np.float16, what
    scale = np.max(np.abs(exact), initial=0, where=np.isfinite(exact))
    np.testing.assert_allclose(
        found.astype("float64"), exact, rtol=5e-3, atol=1e-7 + 2e-2 * scale, err_msg=what
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", MIXING)
def test_many_numbers_of_16_bits_add_up_as_in_float64(
    name: str, axis: int | None, scale: float
) -> None:
    function = public(name)
    shape = {None: (MANY,), 0: (MANY, 2), 1: (2, MANY)}[axis]
    params = {} if axis is None else {"axis": axis}

    def f(x: Any) -> Any:
        return function(x, **params)

    x = (scale * np.linspace(0.5, 1.0, 2 * MANY)[: np.prod(shape)]).reshape(shape).astype("float16")
    try:
        exact = derivatives(f, x.astype("float64"))
    except (TypeError, ValueError):
        return  # it has no axis
    for found, right, what in zip(derivatives(f, x), exact, ("value", "vjp", "jvp"), strict=True):
        close(found, right, what)
    close(f(x), exact[0], "outside of a transformation")
    close(fdbr.jit(f)(x), exact[0], "jit")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_broadcasting_repeated_is_added_up_in_float32() -> None:
    ones = np.ones((MANY // 10, 3), "float16")
    for shape in ((3,), (1, 3), ()):
        small = np.full(shape, 0.5, "float16")
        gradient = fdbr.grad(lambda s: ops.mean(ones * s))(small)
        np.testing.assert_allclose(gradient, np.full(shape, 1 / small.size), 2e-3)
        counted = fdbr.vjp(lambda s: ones * s, small)[1](ones)[0]
        np.testing.assert_allclose(counted, ones.size / small.size, 2e-3)
        assert counted.dtype == np.float16
