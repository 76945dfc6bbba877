"""Python's control flow on batched values: what vmap makes of it."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose


def branches(x):
    if x > 1:
        return x**2
    elif x > 0:
        return np.sin(x)
    return x * x * x


def halvings(x):
    while abs(x) > 0.5:
        x = x / 2 - 0.1
    return np.exp(x)


def powers(x):
    out = 1.0
    for i in range(int(abs(x) * 3)):
        out = out * x + i
    return out * x


def sorting(x):
    return np.stack(sorted([x, 0.5 - x, x * x])) ** 2


def largest(x):
    return max(x, -2 * x, 0.3) * x


def chosen(x):
    return [np.sin, np.cos, np.tanh][int(np.floor(abs(x) * 2)) % 3](x)


def either(x):
    return x**2 if (x > 0.5 and x < 1) or not x < 2 else x - 1


def matched(x):
    match int(np.floor(x)):
        case 0:
            return x * 2
        case 1 | -1:
            return x**2
        case other:
            return x * other


def recursive(x):
    return x if abs(x) < 0.3 else recursive(x / 3) + x


def generated(x):
    def doubled(y):
        while abs(y) < 3:
            yield y
            y = 2 * y + (0.2 if y > 0 else -0.2)

    return sum(doubled(x), x * 0.0)


def searched(x):
    for n in itertools.count(1):
        if n * n > 4 * abs(x):
            break
    else:
        raise AssertionError
    return n * x


def caught(x):
    try:
        return 1 / x if abs(x) > 0.5 else [][1]
    except IndexError:
        return x * 7


def caught_all(x):
    try:
        return x**2 if x > 0 else x**3
    except:  # noqa: E722
        return x * 1000


def renamed(x):
    try:
        positive = bool(x > 0)
    except BaseException as error:
        raise ValueError("the question was caught") from error
    return x**2 if positive else x**3


def in_the_end(x):
    kept = []
    try:
        kept.append(1)
        return x**2 if x > 0 else x**3
    finally:
        kept.append(2)
        assert kept == [1, 2]


def in_threads(x):
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(branches, [x, -x]))
    return parts[0] - parts[1]


def awaited(x):
    async def part(x):
        await asyncio.sleep(0)
        return branches(x)

    async def both():
        return await asyncio.gather(part(x), part(x + 0.5))

    return sum(asyncio.run(both()))


SMOOTH = [branches, halvings, powers, sorting, largest, chosen, either, matched, recursive]
SMOOTH += [generated, searched, caught, caught_all, renamed, in_the_end, in_threads]
POINTS = np.array([-2.3, 0.41, 1.7, -0.45, 0.72, 3.1, 0.41])


def one_by_one(f, *batches):
    each = [f(*examples) for examples in zip(*batches, strict=True)]
    return tree.map(lambda *leaves: np.stack(leaves), *each)


def total(f):
    return lambda x: ops.sum(f(x))


# --- laws ---------------------------------------------------------------------------


@pytest.mark.parametrize("f", [*SMOOTH, awaited])
def test_every_example_goes_its_own_way(f):
    assert_allclose(fdbr.vmap(f)(POINTS), one_by_one(f, POINTS))


@pytest.mark.parametrize("f", SMOOTH)
def test_gradients_do_too(f):
    slope = fdbr.grad(total(f))
    expected = one_by_one(slope, POINTS)
    assert_allclose(fdbr.vmap(slope)(POINTS), expected)
    assert_allclose(fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x)))(POINTS), expected)


@pytest.mark.parametrize("f", SMOOTH)
def test_and_derivatives_of_every_other_kind(f):
    push = lambda x, t: fdbr.jvp(f, (x,), (t,))
    expected = one_by_one(push, POINTS, np.cos(POINTS))
    assert_allclose(fdbr.vmap(push)(POINTS, np.cos(POINTS)), expected)
    assert_allclose(fdbr.jvp(fdbr.vmap(f), (POINTS,), (np.cos(POINTS),)), expected)
    second = fdbr.hessian(total(f))
    assert_allclose(fdbr.vmap(second)(POINTS), one_by_one(second, POINTS))
    of_batch = fdbr.hvp(lambda x: ops.sum(fdbr.vmap(f)(x)), (POINTS,), (np.ones(7),))
    assert_allclose(of_batch, one_by_one(second, POINTS))
    assert_allclose(fdbr.vmap(fdbr.jacrev(f))(POINTS), one_by_one(fdbr.jacrev(f), POINTS))


@pytest.mark.parametrize("f", SMOOTH)
def test_and_in_batches_of_batches(f):
    grid = POINTS[:6].reshape(2, 3)
    expected = np.stack([one_by_one(f, row) for row in grid])
    assert_allclose(fdbr.vmap(fdbr.vmap(f))(grid), expected)
    slope = fdbr.grad(total(f))
    expected = np.stack([one_by_one(slope, row) for row in grid])
    assert_allclose(fdbr.vmap(fdbr.vmap(slope))(grid), expected)
    assert_allclose(fdbr.vmap(fdbr.grad(lambda r: ops.sum(fdbr.vmap(f)(r))))(grid), expected)


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=8), st.integers(0, len(SMOOTH) - 1))
def test_whatever_the_batch(points, number):
    points, f = np.array(points), SMOOTH[number]
    assert_allclose(fdbr.vmap(f)(points), one_by_one(f, points))


@given(seed=st.integers(0, 999))
def test_inner_and_outer_batch_may_disagree_by_iterations(seed):
    rows = np.random.default_rng(seed).normal(size=(4, 3))

    def inside(x, row):
        y = x if x > row.mean() else -x
        while y < row[0]:
            y = y + (0.3 if row[1] > 0 else 0.7)
        return y * row[2]

    def outside(row):
        if row.sum() > 0:
            return fdbr.vmap(inside, (0, None))(row, row * 2)
        return fdbr.vmap(lambda x: branches(x) * row[0])(row[::-1])

    expected = np.stack([outside(row) for row in rows])
    assert_allclose(fdbr.vmap(outside)(rows), expected)
    slope = fdbr.grad(lambda row: ops.sum(outside(row)))
    assert_allclose(fdbr.vmap(slope)(rows), np.stack([slope(row) for row in rows]))


# --- whole programs -----------------------------------------------------------------


def escape_time(c):
    z, n = 0 * c, 0
    while n < 30 and abs(z) < 2:
        z, n = z * z + c, n + 1
    return n


def test_the_mandelbrot_set():
    plane = np.linspace(-2, 0.5, 11) + 1j * np.linspace(-1.2, 1.2, 9)[:, None]
    times = fdbr.vmap(fdbr.vmap(escape_time))(plane)
    assert times.tolist() == [[escape_time(c) for c in row] for row in plane]
    assert times.dtype == np.dtype(int)
    assert len(np.unique(times)) > 8


def collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_whole_numbers():
    assert fdbr.vmap(collatz)(np.arange(1, 60)).tolist() == [collatz(n) for n in range(1, 60)]

    def gcd(a, b):
        while b:
            a, b = b, a % b
        return a

    a, b = np.array([12, 18, 7, 100, 0]), np.array([18, 12, 21, 75, 3])
    assert fdbr.vmap(gcd)(a, b).tolist() == np.gcd(a, b).tolist()


def test_membership_and_logic_are_questions_too():
    f = lambda x: x * 10 if x in [1.0, 3.0] else -x if (x < 0 and x > -2) or x == 5 else x
    points = np.array([1.0, 2.0, 3.0, -1.0, -2.5, 5.0])
    assert fdbr.vmap(f)(points).tolist() == [10.0, 2.0, 30.0, 1.0, -2.5, -5.0]
    assert fdbr.vmap(lambda x: any(x > y for y in (1, 4)) * 1)(points).tolist() == [
        0,
        1,
        1,
        0,
        0,
        1,
    ]


def test_an_index_may_differ():
    table, word = [3.0, 5.0, 7.0], "abc"
    numbers = np.array([2, 0, 1, 2])
    assert fdbr.vmap(lambda n: table[n] * ord(word[n]))(numbers).tolist() == [
        table[n] * ord(word[n]) for n in numbers
    ]
    assert fdbr.vmap(lambda n: sum(range(n)))(numbers).tolist() == [1, 0, 0, 1]
    assert fdbr.vmap(lambda n, x: x[:n].sum(), (0, None))(numbers, np.ones(5)).tolist() == [
        2,
        0,
        1,
        2,
    ]


def heun_euler(f, y, end, tolerance=1e-4):
    """Heun's method, with steps chosen by what Euler's gives beside it."""
    t, h, steps = 0.0, 0.1, 0
    while t < end:
        if t + h > end:
            h = end - t
        k1 = f(y)
        k2 = f(y + h * k1)
        error = abs(k2 - k1) * h / 2
        if error <= tolerance:
            t, y, steps = t + h, y + h * (k1 + k2) / 2, steps + 1
        h = h * min(2.0, max(0.2, 0.9 * (tolerance / (error + 1e-12)) ** 0.5))
    return y, steps


def test_an_adaptive_integrator():
    logistic = lambda y: y * (1 - y)
    solve = lambda y: heun_euler(logistic, y, 2.0)
    starts = np.array([0.01, 0.2, 0.9, 3.0, 8.0])
    found, steps = fdbr.vmap(solve)(starts)
    expected = one_by_one(solve, starts)
    assert_allclose(found, expected[0])
    assert steps.tolist() == expected[1].tolist()
    assert len(set(steps.tolist())) > 2
    exact = 1 / (1 + (1 / starts - 1) * np.exp(-2.0))
    assert np.allclose(found, exact, atol=1e-2)
    slope = fdbr.grad(lambda y: solve(y)[0])
    derivatives = fdbr.vmap(slope)(starts)
    assert_allclose(derivatives, one_by_one(slope, starts), rtol=1e-9)
    assert np.allclose(
        derivatives, np.exp(-2) / (starts + (1 - starts) * np.exp(-2)) ** 2, atol=0.1
    )
    assert_allclose(
        fdbr.grad(lambda y: fdbr.vmap(solve)(y)[0].sum())(starts), derivatives, rtol=1e-9
    )


# --- together with checkpoint and custom functions ----------------------------------


@pytest.mark.parametrize("f", [branches, halvings, powers])
def test_decisions_inside_a_checkpoint(f):
    block = fdbr.checkpoint(f)
    assert_allclose(fdbr.vmap(block)(POINTS), one_by_one(f, POINTS))
    slope = one_by_one(fdbr.grad(f), POINTS)
    assert_allclose(fdbr.vmap(fdbr.grad(block))(POINTS), slope)
    assert_allclose(fdbr.grad(lambda x: fdbr.vmap(block)(x).sum())(POINTS), slope)
    assert_allclose(fdbr.grad(lambda x: fdbr.checkpoint(fdbr.vmap(f))(x).sum())(POINTS), slope)
    second = one_by_one(fdbr.grad(fdbr.grad(f)), POINTS)
    assert_allclose(fdbr.vmap(fdbr.grad(fdbr.grad(block)))(POINTS), second)


def test_decisions_inside_custom_rules():
    def forward(x):
        return (branches(x), (x, "left")) if x < 0.5 else (branches(x), (x, x, "right"))

    def backward(residuals, ct):
        x, side = residuals[0], residuals[-1]
        if side == "left":
            return (ct * 3 * x * x,) if x < 0 else (ct * np.cos(x),)
        return (2 * ct * x,) if x > 1 else (ct * np.cos(x),)

    by_vjp = fdbr.custom_vjp(branches, fwd=forward, bwd=backward)

    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        if x > 1:
            return x**2, 2 * x * t
        return (np.sin(x), np.cos(x) * t) if x > 0 else (x**3, 3 * x**2 * t)

    by_jvp = fdbr.custom_jvp(branches, jvp=rule)
    slope = one_by_one(fdbr.grad(branches), POINTS)
    for f in (by_vjp, by_jvp):
        assert_allclose(fdbr.vmap(f)(POINTS), one_by_one(branches, POINTS))
        assert_allclose(fdbr.vmap(fdbr.grad(f))(POINTS), slope)
        assert_allclose(fdbr.grad(lambda x, f=f: fdbr.vmap(f)(x).sum())(POINTS), slope)
        assert_allclose(fdbr.jvp(fdbr.vmap(f), (POINTS,), (np.ones(7),))[1], slope)
        nested = fdbr.grad(lambda x, f=f: fdbr.vmap(fdbr.vmap(f))(x).sum())
        assert_allclose(nested(POINTS[:6].reshape(2, 3)), slope[:6].reshape(2, 3))
