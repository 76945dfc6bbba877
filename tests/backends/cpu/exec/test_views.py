"""Kernels read slices of larger arrays where they lie, and give what the function gives."""

import numpy as np
import pytest
from compiler.comparing import assert_as_eager, assert_same
from compiler.recorded import normal
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import debug, ops


@st.composite
def slices(draw, size, count):
    """A slice that takes so many of an axis's elements, in steps of any sign."""
    step = draw(st.sampled_from([1, 1, 1, 2, -1, -2]))
    first = draw(st.integers(0, size - 1 - abs(step) * (count - 1)))
    last = first + abs(step) * (count - 1)
    if step > 0:
        return slice(first, last + 1, step)
    return slice(last, first - 1 if first else None, step)


@st.composite
def looks(draw):
    """The shape of an array, and keys and whether to transpose for several views of one shape."""
    inner = (*draw(st.lists(st.integers(1, 5), max_size=2)), draw(st.sampled_from([3, 1100])))
    outer = tuple(2 * n + 3 for n in inner)
    keys = draw(
        st.lists(
            st.tuples(*(slices(n, m) for n, m in zip(outer, inner, strict=True))),
            min_size=2,
            max_size=4,
        )
    )
    return outer, keys, draw(st.booleans())


ROWS = 13, 9, 2203
BLOCKS = [
    (slice(1, 6), slice(4, 7), slice(1, 1101)),
    (slice(8, 3, -1), slice(0, 6, 2), slice(0, 1100)),
    (slice(0, 9, 2), slice(2, None, -1), slice(2199, None, -2)),
]
LINES = [(slice(2201, 1, -2),), (slice(0, 2200, 2),)]


def laid_out(x, order):
    """The same array, lying otherwise in memory."""
    if order == "field":
        record = np.zeros(x.shape, [("flag", "i1"), ("x", x.dtype)])
        record["x"] = x
        return record["x"]
    return np.asarray(x, order=order)


@settings(max_examples=25)
@given(
    looks(),
    st.sampled_from(["C", "F", "field"]),
    st.sampled_from([np.float32, np.float64, np.int32, np.bool_]),
    st.booleans(),
    st.booleans(),
)
@example((ROWS, BLOCKS, False), "C", np.float64, True, False)
@example((ROWS, BLOCKS, False), "C", np.float32, False, True)
@example(((2203,), LINES, False), "C", np.float64, False, True)
def test_a_chain_of_views(problem, order, dtype, made, cheap):
    shape, keys, turned = problem
    x = laid_out((3 * normal(*(shape[::-1] if turned else shape))).astype(dtype), order)

    def f(x):
        if made:  # the views are of what the program makes
            x = ops.where(x > 0, x, x * x)
        total = 1.5
        for i, key in enumerate(keys):
            part = (x.T if turned else x)[key]
            total = total * (i + 2) - (part * 3 if cheap else ops.cos(part))
        return total

    assert_as_eager(f, *[(x,)] * 3, ulps=64)
    if x.dtype.kind == "f":
        assert_as_eager(fdbr.grad(lambda x: ops.sum(f(x))), *[(x,)] * 3, ulps=256)


def laplacian(x):
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]


@pytest.mark.parametrize("size", [12, 41, 900])
def test_a_stencil_step_by_step(size):
    def heat(x):
        for _ in range(5):
            x = fdbr.ops.at(x)[1:-1, 1:-1].add(0.1 * laplacian(x))
        return x

    x = normal(size, size)
    for f in (heat, fdbr.grad(lambda x: ops.sum(heat(x) ** 2))):
        jitted = fdbr.jit(f)
        for _ in range(3):
            assert_same(jitted(x), f(x), ulps=16)


def test_an_array_that_is_donated_is_read_before_it_is_overwritten():
    def f(x):
        return x + 2 * x[::-1] + x[1:2]

    given_up = fdbr.jit(f, donate_argnums=0)
    for _ in range(3):
        x = normal(200, 300)
        expected = f(x)
        np.testing.assert_allclose(given_up(x.copy()), expected)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_sums_of_views(axis):
    def f(x):
        return ops.sum(ops.exp(x[1:, 2:-1]) * x[:-1, 1:-2], axis=axis)

    assert_as_eager(f, *[(normal(300, 70),)] * 3, ulps=64)


def test_one_kernel_reads_all_the_views_of_a_stencil():
    f = fdbr.jit(laplacian)
    x = normal(400, 400)
    for _ in range(3):
        f(x)
    with debug.timer() as times:
        f(x)
    made = [row for row in times.rows if row.op != "slice"]
    assert [row.op for row in made] == ["kernel(add, multiply, subtract)"]


@pytest.mark.parametrize("step", [2, -1, -3])
def test_elements_in_steps_are_read_where_they_lie(step):
    x = normal(300_000)

    def f(x):
        return x[::step] * 2 - 1

    jitted = fdbr.jit(f)
    for _ in range(3):
        assert_same(jitted(x), f(x))


def test_a_view_of_what_a_kernel_of_operands_in_any_order_made():
    x = np.arange(9 * 13 * 2203, dtype=np.int32).reshape(9, 13, 2203) % 7 - 3

    def f(x):
        part = ops.where(x > 0, x, x * x)[:3, :5, :1100]
        return (3.0 - part * 2.0) * 3 - part * 2.0

    assert_as_eager(f, *[(x,)] * 3)
