"""Python's control flow in a jitted function: a decision is noted, and checked in a replay."""

import math

import numpy as np
import pytest

import fdbr
from compiler.comparing import assert_as_eager
from fdbr import ops

X = np.array([1.0, -2.0, 3.0])


def answers(jitted):
    return [kept.answers for kept in jitted.report().traces]


def runs(jitted):
    return [kept.runs for kept in jitted.report().traces]


def test_an_if_takes_the_branch_of_the_value_at_hand():
    def f(x):
        if ops.sum(x) > 0:
            return x * 2
        return -x

    jitted = assert_as_eager(f, (X,), (-X,), (X + 1,), (-X - 1,))
    assert answers(jitted) == [(False,), (True,)]
    assert runs(jitted) == [1, 1]


def test_a_while_loop_has_a_trace_for_each_trip_count():
    def collatz(n):
        steps = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps, n

    jitted = assert_as_eager(collatz, *[(n,) for n in (6, 7, 1, 27, 6, 7, 27)])
    assert len(answers(jitted)) == 4


def test_a_for_loop_may_run_over_a_range_that_a_value_bounds():
    def f(x, n):
        total = 0.0 * x
        for i in range(int(n)):
            total = total + i * x
        return total

    assert_as_eager(f, (X, 3), (X, 3), (X, 0), (X, np.int64(4)), (X, np.array(2)), (X, 2.9))


def test_an_integer_bounds_a_range_without_being_converted():
    assert_as_eager(lambda x, n: [x * i for i in range(n)], (X, 2), (X, 3), (X, 2))


def test_numbers_may_be_taken_out_of_arrays():
    def f(x):
        return math.sin(float(x[0])) + x.sum().item() * x[1], complex(x[2]), x.tolist()

    assert_as_eager(f, (X,), (X,), (2 * X,), (X,))


def test_item_takes_a_place_as_numpy_does():
    x = np.arange(6.0).reshape(2, 3)
    assert_as_eager(lambda x: x.item(4) + x.item(1, 2) * x, (x,), (x + 1,), (x,))


def test_item_of_many_elements_is_an_error():
    with pytest.raises(ValueError, match=r"item\(\) needs one element, not float64\[3\]"):
        fdbr.jit(lambda x: x.item())(X)


def test_nan_is_one_answer_and_the_two_zeros_are_two():
    jitted = fdbr.jit(lambda x, y: y * math.copysign(1.0, float(x)))
    assert [jitted(x, 1.0) for x in (0.0, -0.0, 0.0, -0.0)] == [1.0, -1.0, 1.0, -1.0]
    jitted = fdbr.jit(lambda x, y: y if math.isnan(float(x)) else -y)
    assert [jitted(float("nan"), 1.0) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert len(jitted.report().traces) == 1


def test_rounding_of_numbers_is_a_decision_on_the_integer_only():
    def f(x, y):
        return round(x) * y, math.floor(x) * y, math.ceil(x) * y, math.trunc(x) * y

    jitted = assert_as_eager(f, (2.4, 1.5), (2.3, 1.5), (-1.5, 1.0), (np.float64(2.4), 1.0))
    assert sorted(runs(jitted)) == [0, 0, 1]


def test_and_or_not_and_chained_comparisons_decide():
    def f(a, b):
        if (0 < a < 2 and not b > 1) or a == b:
            return a * 10
        return max(a, b) - min(a, b)

    assert_as_eager(f, (1.0, 0.5), (1.0, 3.0), (5.0, 5.0), (-1.0, 0.0), (1.5, 0.25))


def test_a_list_is_indexed_and_searched_by_values():
    def f(x, kind):
        activation = [np.tanh, np.sin, ops.relu][kind]
        return activation(x) + (2.0 if kind in (0, 2) else 1.0)

    assert_as_eager(f, (X, 0), (X, 1), (X, 2), (X, 0), (X, np.int64(1)))


def test_match_statements_decide():
    def f(x, n):
        match n:
            case 0:
                return x
            case 1 | 2:
                return x * n
            case _:
                return -x

    assert_as_eager(f, (X, 0), (X, 1), (X, 2), (X, 7), (X, 2))


def test_a_slice_may_be_bounded_by_values():
    def f(x, start, stop):
        return x[start:stop], x[: stop - 1].sum(), x[None, start:], x[::stop]

    jitted = assert_as_eager(f, (X, 0, 2), (X, 1, 3), (X, 0, 2), (X, np.array(1), np.int64(2)))
    program = str(jitted.programs()[0])
    assert "traced" not in program


def test_shapes_that_values_decide_are_decisions():
    def f(x, n):
        return ops.reshape(x[: 2 * n], (n, 2)) @ ops.ones(2), ops.zeros(n) + ops.sum(x)

    x = np.arange(6.0)
    assert_as_eager(f, (x, 1), (x, 2), (x, 3), (x, 2))


@pytest.mark.parametrize("f", [
    lambda x: x[x > 0],
    lambda x: ops.nonzero(x > 0),
    lambda x: np.nonzero(x),
    lambda x: ops.unique_values(x),
    lambda x: ops.unique_counts(x),
    lambda x: x[x > 0].sum() / (x > 0).sum(),
    lambda x: ops.at(x)[x > 1].set(0.0),
    lambda x: ops.repeat(x, 2)[x.argmax() :],
])  # fmt: skip
def test_sizes_that_depend_on_values_are_decisions(f):
    calls = [
        np.array(x) for x in ([1.0, -2.0, 3.0], [2.0, -1.0, 5.0], [1.0, 1.0, 1.0], [0, -1, 0.5])
    ]
    assert_as_eager(f, *[(x,) for x in calls], *[(x,) for x in calls])


def test_a_function_may_call_itself_and_its_jitted_self():
    def power(x, n):
        return ops.ones_like(x) if n == 0 else x * power(x, n - 1)

    assert_as_eager(power, (X, 3), (X, 2), (X, 3), (X, 0))

    @fdbr.jit
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert [factorial(n) for n in (5, 3, 5, 30)] == [120, 6, 120, math.factorial(30)]


def test_generators_within_a_function_are_fine():
    def f(x):
        def parts():
            for i in range(len(x)):
                if x[i] > 0:
                    yield x[i] ** 2

        return sum(parts()), list(parts())

    assert_as_eager(f, (X,), (X,), (-X,), (X * 2,))


def test_assertions_raise_when_they_fail_and_never_else():
    def f(x):
        assert (x > 0).all(), "positive, please"
        return ops.log(x)

    jitted = fdbr.jit(f)
    for _ in range(2):
        assert jitted(abs(X)).tolist() == np.log(abs(X)).tolist()
        with pytest.raises(AssertionError, match="positive, please"):
            jitted(X)


def test_decisions_that_have_been_recorded_are_found_from_whichever_ran_last():
    def f(a, b, c):
        one = lambda x: 2 * x if x > 0 else -x
        return [one(a), one(b), one(c)]

    calls = [(a, b, c) for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)]
    jitted = assert_as_eager(f, *calls[1:], *reversed(calls), *calls[1:])
    assert runs(jitted) == [2] * 7


def test_past_the_bound_the_function_itself_runs():
    jitted = fdbr.jit(lambda x: x * float(x), max_traces=3)
    assert [jitted(float(x)) for x in range(6)] == [float(x * x) for x in range(6)]
    report = jitted.report()
    assert (len(report.traces), report.eager) == (3, 3)
    assert "there are 3 traces, and none fits" in str(report)
    assert jitted(1.0) == 1.0
    assert jitted.report().eager == 3


def test_an_empty_batch_of_decisions_is_none():
    assert_as_eager(lambda x: x.sum() if len(x) else 0.0, (np.zeros(0),), (X,), (np.zeros(0),))


def test_a_truth_value_of_many_elements_is_an_error_as_ever():
    with pytest.raises(ValueError, match="truth value"):
        fdbr.jit(lambda x: 1 if x else 2)(X)


def test_converting_to_a_numpy_array_says_what_to_do():
    with pytest.raises(TypeError, match=r"x\.tolist\(\)"):
        fdbr.jit(lambda x: np.asarray(x))(X)
    with pytest.raises(TypeError, match=r"ops\.asarray"):
        fdbr.jit(lambda x: np.array([x, x]))(X)
