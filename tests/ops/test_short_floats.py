"""Floating numbers of 16 bits: whatever adds up many of them does it in float32."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops
from ops.short import eps, every_short_dtype, wide

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
            gradients = fdbr.jacrev(function)(four)
        except Exception:
            continue  # it takes something else
        if not isinstance(few, np.ndarray | np.generic) or more.size > 2 * few.size:
            continue
        if gradients.shape != (4, 4) or gradients[~np.eye(4, dtype=bool)].any():
            yield name


MIXING = list(mixing())


def test_the_walk_finds_what_adds_up() -> None:
    assert {"sum", "mean", "var", "std", "softmax", "logsumexp", "layer_norm"} <= set(MIXING)


def derivatives(f: Any, x: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The value, the gradient along a wave, and the tangent along another, exact in a dtype."""
    value, pullback = fdbr.vjp(f, x)
    wave = np.cos(np.arange(value.size)).reshape(value.shape).astype(dtype)
    (gradient,) = pullback(wave.astype(value.dtype)[()])
    ripple = np.sin(np.arange(x.size)).reshape(x.shape).astype(dtype).astype(x.dtype)
    _, tangent = fdbr.jvp(f, (x,), (ripple,))
    return value, gradient, tangent


def close(found: Any, exact: Any, what: str, dtype: Any) -> None:
    """To within some roundings of the dtype, of which the exact one is one."""
    exact = wide(exact.astype(dtype))
    assert found.dtype == dtype, what
    scale = np.max(np.abs(exact), initial=0, where=np.isfinite(exact))
    rough = 5 * eps(dtype)
    np.testing.assert_allclose(wide(found), exact, rough, 1e-7 + 4 * rough * scale, err_msg=what)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", MIXING)
@every_short_dtype
def test_many_numbers_of_16_bits_add_up_as_in_float64(
    dtype: str, name: str, axis: int | None, scale: float
) -> None:
    function = public(name)
    shape = {None: (MANY,), 0: (MANY, 2), 1: (2, MANY)}[axis]
    params: dict[str, Any] = {} if axis is None else {"axis": axis}
    if name == "rms_norm":  # its default depends on the dtype
        params["eps"] = 1e-5

    def f(x: Any) -> Any:
        return function(x, **params)

    x = (scale * np.linspace(0.5, 1.0, 2 * MANY)[: np.prod(shape)]).reshape(shape).astype(dtype)
    try:
        exact = derivatives(f, wide(x), dtype)
    except (TypeError, ValueError):
        return  # it has no axis
    for found, right, what in zip(
        derivatives(f, x, dtype), exact, ("value", "vjp", "jvp"), strict=True
    ):
        close(found, right, what, dtype)
    close(f(x), exact[0], "outside of a transformation", dtype)
    close(fdbr.jit(f)(x), exact[0], "jit", dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_short_dtype
def test_what_broadcasting_repeated_is_added_up_in_float32(dtype: str) -> None:
    ones = np.ones((MANY // 10, 3), dtype)
    for shape in ((3,), (1, 3), ()):
        small = np.full(shape, 0.5, dtype)
        gradient = fdbr.grad(lambda s: ops.mean(ones * s))(small)
        np.testing.assert_allclose(wide(gradient), 1 / small.size, 2 * eps(dtype))
        counted = fdbr.vjp(lambda s: ones * s, small)[1](ones)[0]
        np.testing.assert_allclose(wide(counted), ones.size / small.size, eps(dtype))
        assert counted.dtype == dtype


LONG_PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "getitem": lambda x, i: x[i],
    "of rows": lambda x, i: ops.reshape(x, (2, 2, -1))[:, i, 0],
    "take": ops.take,
    "take along an axis": lambda x, i: ops.take_along_axis(
        ops.reshape(x, (-1, 1)), i[:, None], axis=0
    ),
    "gather": lambda x, i: ops.gather(x, 0, i),
    "embed": lambda x, i: ops.embed(ops.reshape(x, (-1, 2)), i),
    "slices": lambda x, i: ops.stack([x[:2]] * 300),
    "elements": lambda x, i: ops.stack([x[k] for k in i[:3_000].tolist()]),
    "rows again": lambda x, i: ops.concat([x[i[:1000]] for _ in range(300)]),
    "repeat": lambda x, i: ops.repeat(x[:2], 35_000),
    "tile": lambda x, i: ops.tile(x[:2], (35_000,)),
    "broadcast": lambda x, i: ops.broadcast_to(x[:2], (35_000, 2)),
}
"""Many elements out of few: the cotangents of all of them come to these."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_short_dtype
@pytest.mark.parametrize("count", [4, 10_000])
@pytest.mark.parametrize("read", LONG_PLACES.values(), ids=list(LONG_PLACES))
def test_cotangents_of_what_was_read_often_add_up(read: Any, count: int, dtype: str) -> None:
    places = (np.arange(MANY) % 50 == 0).astype(int)
    x = np.linspace(0.5, 1, count).astype(dtype)
    out, pullback = fdbr.vjp(lambda x: read(x, places), x)
    ct = np.full(out.shape, 0.75, dtype)
    (found,) = pullback(ct)
    (exact,) = fdbr.vjp(lambda x: read(x, places), wide(x))[1](wide(ct))
    close(found, exact, "vjp", dtype)
    _, tangent_out = fdbr.jvp(
        lambda ct: fdbr.vjp(lambda x: read(x, places), x)[1](ct)[0], (ct,), (ct,)
    )
    close(tangent_out, exact, "the tangent of that", dtype)


ADDED = {
    "at.add": lambda x, v, i: ops.at(x)[i].add(v),
    "segment_sum": lambda x, v, i: ops.segment_sum(v, i, 2),
    "scatter sum": lambda x, v, i: ops.scatter(x, 0, i, v, reduce="sum"),
    "scatter mean": lambda x, v, i: ops.scatter(x, 0, i, v, reduce="mean"),
    "scatter amax": lambda x, v, i: ops.scatter(x, 0, i, v, reduce="amax"),
}


@every_short_dtype
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("scale", [1.0, 1 / 64])
@pytest.mark.parametrize("add", ADDED.values(), ids=list(ADDED))
def test_values_brought_to_the_same_place_add_up(add: Any, scale: float, dtype: str) -> None:
    places = (np.arange(MANY) % 50 == 0).astype(int)
    x = np.ones(2, dtype)
    for values in (np.full(MANY, 0.75), np.linspace(0.5, 1, MANY)):
        values = (scale * values).astype(dtype)
        got = derivatives(lambda v: add(x, v, places), values, dtype)
        exact = derivatives(lambda v: add(wide(x), v, places), wide(values), dtype)
        for found, right, what in zip(got, exact, ("value", "vjp", "jvp"), strict=True):
            close(found, right, what, dtype)


@every_short_dtype
def test_cotangents_of_a_value_that_is_used_often_add_up(dtype: str) -> None:
    def often(x: Any) -> Any:
        y = ops.sin(x)
        total = 0.0
        for k in range(3000):
            total = total + ops.sum(ops.astype(y * (k % 3), "float32"))
        return total

    for shape in ((), (3,)):
        x = np.full(shape, 0.5, dtype)
        gradient = fdbr.grad(often)(x)
        assert gradient.dtype == x.dtype
        np.testing.assert_allclose(wide(gradient), 3000 * np.cos(wide(x)), 2 * eps(dtype))
        hvp = fdbr.hvp(lambda x: often(x), (x,), (np.ones_like(x),))
        np.testing.assert_allclose(wide(hvp), -3000 * np.sin(wide(x)), 2 * eps(dtype))
        jitted = fdbr.jit(fdbr.grad(often))(x)
        np.testing.assert_allclose(wide(jitted), wide(gradient), 2 * eps(dtype))
