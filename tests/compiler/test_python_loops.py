"""Python loops on data: each number of iterations has a trace of its own."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree


def newton(x: Any) -> Any:
    y = x * 1.0
    while abs(y * y - x) > 1e-9 * x:
        y = (y + x / y) / 2
    return y


def newton_with_break(x: Any) -> Any:
    y = x * 1.0
    while True:
        if abs(y * y - x) < 1e-9 * x:
            break
        y = (y + x / y) / 2
    return y


def two_values(x: Any) -> Any:
    a, b, limit = x, 1.0 + 0 * x, {"least": 1e-6}
    while a - b > limit["least"] * a or b - a > limit["least"] * a:
        a, b = (a + b) / 2, ops.sqrt(a * b)
    return a + b


def one_after_the_other(x: Any) -> Any:
    while x > 2:
        x = x / 2
    y = x + 5
    while y > 1:
        y = y - 0.5
    return x * y


def halved_while_even(x: Any) -> Any:
    while x % 2 == 0:
        x = x / 2
    return x


def counted_to_an_end(x: Any) -> Any:
    end = x * 0 + 3
    x = x // 1
    while x != end:
        x = x - (x > end) + (x < end)
    return x


STARTS = [2.0, 7.0, 1.1, 300.0, 3.3, 1e4, 0.3, 50.0, 0.7, 5.0, 1e6, 1e5, 17.0, 1234.0]


@pytest.mark.parametrize("f", [newton, newton_with_break, two_values, one_after_the_other])
def test_a_loop_gives_what_it_gives_eagerly_for_all_trip_counts(f: Any) -> None:
    jitted = fdbr.jit(f)
    for x in map(np.float64, STARTS):
        np.testing.assert_allclose(jitted(x), f(x), rtol=1e-12)


@pytest.mark.parametrize("f", [halved_while_even, counted_to_an_end])
def test_a_loop_that_ends_by_an_equality_gives_what_it_gives_eagerly(f: Any) -> None:
    jitted = fdbr.jit(f)
    for x in map(np.float64, (64.0, 24.0, 256.0, 5.0, 40.0)):
        assert jitted(x) == f(x)


def counted(x: Any) -> Any:
    n = 0
    while x > 1 and n < 20:
        x, n = x / 2, n + 1
    return x * n


def counted_elsewhere(x: Any) -> Any:
    seen: list[int] = []
    while x > 1:
        x = x / 2
        seen.append(0)
    return x * len(seen)


def in_a_for(x: Any) -> Any:
    for _ in range(30):
        if x < 1:
            break
        x = x / 2
    return x


class Counter:
    """Counts what nobody sees."""

    def __init__(self) -> None:
        self.count = 0

    def more(self) -> int:
        """One more."""
        self.count += 1
        return self.count


def with_an_object(x: Any) -> Any:
    counter = Counter()
    while x > 1:
        x = x / 2 + 0.01 * counter.more()
    return x


def with_a_closure(x: Any) -> Any:
    n = 0

    def more() -> float:
        nonlocal n
        n += 1
        return 0.001 * n

    while x > 1:
        x = x / 2 + more()
    return x


def with_an_array(x: Any) -> Any:
    marks = np.zeros(1)
    while x > 1:
        marks[0] += 1
        x = x / 2
    return x * float(marks[0])


def with_an_iterator(x: Any) -> Any:
    steps = iter([2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0] * 9)
    while x > 1:
        x = x / next(steps)
    return x


def with_values_of_before(x: Any) -> Any:
    out = []
    while x > 1:
        x = x / 2
        out.append(x)
    return sum(out, 0 * x)


def with_an_exchange(x: Any) -> Any:
    a, b = x * 2, x * 3
    while x > 1:
        x = x / 2
        a, b = b, a
    return x + a


def with_the_value_before(x: Any) -> Any:
    before = a = x * 2
    while x > 1:
        x = x / 2
        before, a = a, x * 3
    return x + before


def with_lists_of_equals(x: Any) -> Any:
    zero = 0 * x
    while [zero, x // 100 * 0, zero + x // 100] != [zero, zero, zero]:
        x = x - 30
    return x


def with_equal_lists(x: Any) -> Any:
    while [x // 1e6, 0 * x, x // 1e5] == [0 * x, 0 * x, 0 * x]:
        x = 3 * x + 1
    return x


def with_pairs_in_order(x: Any) -> Any:
    zero = 0 * x
    while (zero, zero, x) > (zero, zero, zero + 1):
        x = x / 2
    return x


class Near:
    """A number that is equal to those near it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: Any) -> Any:
        return abs(self.value - other.value) < 1.0

    def __lt__(self, other: Any) -> Any:
        return self.value < other.value

    __hash__ = None  # type: ignore[assignment]


def with_near_numbers_in_order(x: Any) -> Any:
    while [Near(0 * x), Near(x // 50), Near(1 + 0 * x)] < [Near(0 * x), Near(0 * x), Near(x)]:
        x = x / 2
    return x


@pytest.mark.parametrize(
    "f", [with_lists_of_equals, with_equal_lists, with_pairs_in_order, with_near_numbers_in_order]
)
@pytest.mark.parametrize("transform", [lambda f: f, fdbr.grad])
def test_containers_compare_their_elements_as_without_jit(f: Any, transform: Any) -> None:
    jitted = fdbr.jit(transform(f))
    for x in map(np.float64, (300.0, 3.0, 99.0, 100.0, 2e4)):
        np.testing.assert_allclose(jitted(x), transform(f)(x), rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        with_the_value_before,
        counted,
        counted_elsewhere,
        in_a_for,
        with_an_object,
        with_a_closure,
        with_an_array,
        with_an_iterator,
        with_values_of_before,
    ],
)
def test_what_python_counts_is_counted_in_each_call(f: Any) -> None:
    jitted = fdbr.jit(f)
    for x in (300.0, 3.0, 40.0, 5000.0, 0.5, 40.0):
        np.testing.assert_allclose(jitted(np.float64(x)), f(np.float64(x)), rtol=1e-12)


def test_values_that_are_exchanged_at_each_iteration_are_where_they_belong() -> None:
    jitted = fdbr.jit(with_an_exchange)
    for x in map(np.float64, (300.0, 3.0, 40.0, 5000.0, 0.5, 7.0)):
        assert jitted(x) == with_an_exchange(x)


def test_a_gradient_is_that_of_the_iterations_of_its_call() -> None:
    slope = fdbr.jit(fdbr.grad(newton))
    for x in (2.0, 7.0, 300.0, 7.0, 2.0):
        np.testing.assert_allclose(slope(np.float64(x)), fdbr.grad(newton)(np.float64(x)))


def halved(x: Any) -> Any:
    while x > 1:
        x = x / 2
    return x


@pytest.mark.parametrize(
    "f",
    [
        fdbr.grad(halved),
        lambda x: fdbr.jvp(halved, (x,), (1.0,)),
        lambda x: fdbr.vmap(halved)(ops.stack([x, 2 * x])),
        lambda x: fdbr.vmap(fdbr.grad(halved))(ops.stack([x, x])),
        lambda x: halved(x) * fdbr.grad(halved)(x),
        fdbr.grad(lambda x: fdbr.grad(lambda y: halved(y) * y)(x) * halved(x)),
    ],
)
def test_derivatives_that_depend_on_the_trip_count_alone(f: Any) -> None:
    jitted = fdbr.jit(f)
    for x in map(np.float64, (300.0, 3.0, 40.0, 5000.0, 0.5, 40.0)):
        for ours, theirs in zip(tree.leaves(jitted(x)), tree.leaves(f(x)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_the_gradient_of_a_jitted_loop_is_that_of_its_iterations() -> None:
    inner = fdbr.grad(fdbr.jit(halved))
    for x in (300.0, 3.0, 40.0, 300.0, 5000.0):
        np.testing.assert_allclose(inner(x), fdbr.grad(halved)(x))


def test_effects_are_had_once_an_iteration() -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        while x > 1:
            x = x / 2
            fdbr.debug.callback(lambda: seen.append(1))
        return x

    jitted = fdbr.jit(f)
    for x in (300.0, 3.0, 40.0, 5000.0, 300.0, 3.0):
        seen.clear()
        jitted(np.float64(x))
        assert len(seen) == int(np.ceil(np.log2(x)))


def test_a_loop_that_differs_behind_the_first_iterations_is_recorded_again() -> None:
    def f(x: Any) -> Any:
        y = x
        while y > 1:
            y = y / 3 if y > 100 else y / 2
        return y

    jitted = fdbr.jit(f)
    for x in (3.0, 5.0, 90.0, 2e3, 1e5, 0.5, 17.0, 1e7):
        np.testing.assert_allclose(jitted(np.float64(x)), f(np.float64(x)), rtol=1e-12)
