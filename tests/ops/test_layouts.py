"""What an operation gives does not depend on how its operands lie in memory.

The operations are those that are timed beside PyTorch: all that have a counterpart there.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from sizes import use_kernels_from, use_threads_from

import fdbr
from benchmarks.operations.measuring import programs
from benchmarks.operations.program import Draw, Program
from fdbr import ops
from fdbr.backends.cpu import kernels
from ops.layouts import LAYOUTS, REPEATED

PROGRAMS = {name: program for name, program in programs().items() if program.alike}
TOLERANCE = {"f": 1e-4, "d": 1e-10}  # of the largest element: sums have other orders
EVERY = {**LAYOUTS, **REPEATED}
SHARE = 1 if settings.default.max_examples > 100 else 8
"""One program in so many runs at large sizes; the thorough profile has all, for half an hour."""


def function_of(program: Program, args: Any) -> Callable[..., Any]:
    """The value of a program, and its gradient where it has one, as a function of its operands."""

    def value(*operands: Any) -> tuple[Any, ...]:
        out = program.ours(ops, *operands)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    if not program.gradient:
        return value
    moving = [i for i, x in enumerate(args) if x.dtype.kind in "fc"]
    generator = np.random.default_rng(1)
    cts = tuple(generator.uniform(0.5, 1.5, o.shape).astype(o.dtype) for o in value(*args))

    def both(*operands: Any) -> tuple[Any, ...]:
        def of_moving(*moved: Any) -> tuple[Any, ...]:
            every = list(operands)
            for i, x in zip(moving, moved, strict=True):
                every[i] = x
            return value(*every)

        out, pullback = fdbr.vjp(of_moving, *(operands[i] for i in moving))
        return *out, *pullback(cts)

    return both


def operands(program: Program, size: int, dtype: str) -> tuple[Any, ...]:
    precise = {"f": "d", "F": "D"} if dtype == "d" else {}
    drawn = program.draw(Draw(size))
    return tuple(x.astype(precise.get(x.dtype.char, x.dtype)) for x in drawn)


def check(program: Program, size: int, dtype: str, names: Any, jitted: bool) -> None:
    args = operands(program, size, dtype)
    f = function_of(program, args)
    run = fdbr.jit(f) if jitted else f
    desired = f(*args)
    for name in names:
        for laid in spread(args, EVERY[name]):
            if name in REPEATED:
                try:
                    desired = f(*(np.array(x, order="C") for x in laid))
                except np.linalg.LinAlgError:  # a matrix of equal rows has no inverse
                    continue
            same(run(*laid), desired, TOLERANCE[dtype], f"{program.name}, {name}")


def spread(args: Any, layout: Any) -> Iterator[list[Any]]:
    """All operands in a layout, and of several the first alone, and all others."""
    changed = [layout(x) if x.ndim and x.size else x for x in args]
    yield changed
    if len(args) > 1:
        yield [changed[0], *args[1:]]
        yield [args[0], *changed[1:]]


def same(found: Any, desired: Any, tolerance: float, what: str) -> None:
    for one, other in zip(found, desired, strict=True):
        if other is None:
            assert one is None
            continue
        one, other = np.asarray(one), np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype), what
        if other.dtype.kind in "fc" and np.isfinite(other).all():
            away = tolerance * max(1.0, float(np.abs(other).max(initial=0)))
            np.testing.assert_allclose(one, other, rtol=0, atol=away, err_msg=what)
        elif other.dtype.kind not in "fc":
            np.testing.assert_array_equal(one, other, err_msg=what)


def test_layer_norm_takes_large_images_in_every_layout():
    x = np.random.default_rng(0).standard_normal((2, 96, 56, 56)).astype("float32")
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    weight, bias = np.linspace(0.5, 1.5, 96, dtype="f4"), np.linspace(-1, 1, 96, dtype="f4")

    def f(x: Any, weight: Any, bias: Any) -> Any:
        out, pullback = fdbr.vjp(ops.layer_norm, x, weight, bias)
        return out, *pullback(np.ones_like(out) + x)

    desired = f(x, weight, bias)
    for name, layout in LAYOUTS.items():
        same(f(layout(x), weight, bias), desired, 1e-4, name)
    jitted = fdbr.jit(f)
    for name in ("channels_last", "strided"):
        same(jitted(LAYOUTS[name](x), weight, bias), desired, 1e-4, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operation_divided_among_threads_gives_the_same_in_every_layout(name, monkeypatch):
    monkeypatch.setattr(kernels, "elementwise", lambda *_: None)
    monkeypatch.setattr(kernels, "reduced", lambda *_: None)
    use_kernels_from(1 << 9, monkeypatch)
    use_threads_from(1 << 9, 1 << 7, monkeypatch)
    check(PROGRAMS[name], 256, "d", ("channels_last", "strided", "first_repeated"), False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a product of equal numbers overflows
@pytest.mark.parametrize(
    ("size", "dtype", "jitted"),
    [(24_000, "f", True), (300_000, "f", False), (300_000, "d", False)],
)
@pytest.mark.parametrize("name", list(PROGRAMS)[::SHARE])
def test_a_large_operation_gives_the_same_in_every_layout(name, size, dtype, jitted):
    names = EVERY if dtype == "d" else LAYOUTS  # equal numbers have variances of roundings alone
    check(PROGRAMS[name], size, dtype, names, jitted)
