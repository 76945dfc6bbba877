"""Schedules: values as Optax's and PyTorch's, of every kind of count, and their arithmetic."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nn.recorded import recorded
from numpy.testing import assert_allclose

import fdbr
from fdbr import ops
from fdbr.train import optim

RECORDED = recorded("schedules", "train")
COUNTS = range(41)
RATES = st.floats(0.01, 2.0)


def made(case):
    name, arguments = json.loads(case)
    return getattr(optim, name)(**_with_integers(arguments))


def _with_integers(value):
    if isinstance(value, dict):
        return {int(k) if k.isdigit() else k: _with_integers(v) for k, v in value.items()}
    return value


MANY = {
    "exponential": optim.exponential_decay(0.5, 7, 0.6, 3, True, 0.1),
    "inverse": optim.inverse_time_decay(0.5, 3, 0.7, 0.5, 2),
    "polynomial": optim.polynomial_schedule(1.0, 0.2, 2.5, 20, 5),
    "constant": optim.constant_schedule(0.3),
    "piecewise": optim.piecewise_constant_schedule(1.0, {5: 0.5, 18: 3.0}),
    "interpolated": optim.piecewise_interpolate_schedule("cosine", 0.7, {5: 2.0, 18: 0.5}),
    "onecycle": optim.cosine_onecycle_schedule(37, 0.9),
    "cosine": optim.cosine_decay_schedule(0.8, 31, 0.1, 1.7),
    "restarts": optim.cosine_decay_restarts_schedule(0.8, 5, 1.5, 0.7, 0.1),
    "cyclic": optim.cyclic_schedule(0.1, 0.5, 5, 8, "exp_range", 0.95),
    "warmup": optim.warmup_cosine_decay_schedule(0.1, 1.0, 12, 35, 0.05),
    "joined": optim.join_schedules(
        [optim.linear_schedule(0.0, 1.0, 5), lambda count: 0.9**count, lambda count: 0.1], [5, 20]
    ),
    "product": optim.linear_schedule(0.0, 1.0, 5) * optim.Schedule(lambda count: 0.9**count) + 0.1,
}


@pytest.mark.parametrize("case", RECORDED)
def test_values_are_those_of_optax_and_pytorch(case):
    (expected,) = RECORDED[case].values()
    schedule = made(case)
    assert_allclose([schedule(count) for count in COUNTS], expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", MANY)
def test_the_value_of_an_integer_is_a_python_float(name):
    for count in (3, np.int64(3), np.array(3, "int32"), np.array(3, "int8")):
        assert type(MANY[name](count)) is float
        assert MANY[name](count) == MANY[name](3)


@pytest.mark.parametrize("name", MANY)
def test_an_array_of_counts_gives_the_values_at_each(name):
    expected = [MANY[name](count) for count in COUNTS]
    for dtype in ("int64", "int16"):
        found = MANY[name](np.arange(41, dtype=dtype))
        assert found.dtype == np.float64
        assert_allclose(found, expected, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("kind", [int, np.int32])
def test_a_jitted_step_with_a_schedule_is_traced_once(name, kind):
    def step(count, x):
        return count + 1, MANY[name](count), x * MANY[name](count)

    jitted = fdbr.jit(step)
    count, x = kind(0), np.ones(3, "float32")
    for index in COUNTS:
        count, value, scaled = jitted(count, x)
        assert_allclose(value, MANY[name](index), rtol=1e-13, atol=1e-16)
        if kind is int:
            assert type(value) is float
            assert scaled.dtype == np.float32
    assert len(jitted.report().traces) == 1


@pytest.mark.parametrize("name", MANY)
def test_a_batch_of_counts_goes_through_vmap(name):
    found = fdbr.vmap(MANY[name])(np.arange(41))
    assert_allclose(found, MANY[name](np.arange(41)), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("name", MANY)
def test_counts_on_every_array_module(name, xp, to_numpy):
    found = MANY[name](xp.asarray(np.arange(41, dtype="int32")))
    assert type(found) is type(xp.asarray(np.ones(1)))
    assert_allclose(to_numpy(found), MANY[name](np.arange(41)), rtol=1e-13, atol=1e-15)


def test_one_can_differentiate_by_the_arguments_of_a_schedule():
    def value(init, rate):
        return optim.exponential_decay(init, 4, rate)(6)

    by_init, by_rate = fdbr.grad(value, argnums=(0, 1))(0.5, 0.7)
    assert_allclose(by_init, 0.7**1.5)
    assert_allclose(by_rate, 0.5 * 1.5 * 0.7**0.5)

    def warmed(peak):
        return sum(optim.warmup_cosine_decay_schedule(0.0, peak, 4, 14)(c) for c in (2, 9))

    assert_allclose(fdbr.grad(warmed)(0.3), 1.0)
    assert_allclose(fdbr.jit(fdbr.grad(warmed))(0.3), 1.0)


@given(RATES, RATES, st.integers(0, 60))
def test_arithmetic_of_schedules_is_that_of_their_values(a, b, count):
    first = optim.exponential_decay(a, 5, 0.7)
    second = lambda count: b + count
    x, y = first(count), second(count)
    assert (first + second)(count) == x + y
    assert (second - first)(count) == y - x
    assert (first - 2)(count) == x - 2
    assert (second * first)(count) == (first * second)(count) == x * y
    assert (3 / first)(count) == 3 / x
    assert (first / second)(count) == x / y
    assert (-first)(count) == -x
    assert (first**2)(count) == x**2


@given(RATES, st.integers(1, 20), st.floats(0.1, 0.99), st.integers(0, 200))
def test_a_staircase_is_the_curve_at_its_last_step(init, steps, rate, count):
    curve = optim.exponential_decay(init, steps, rate)
    stairs = optim.exponential_decay(init, steps, rate, staircase=True)
    assert_allclose(stairs(count), curve(count // steps * steps), rtol=1e-12)


@given(st.integers(1, 30), st.floats(1.0, 3.0), st.integers(0, 5000))
def test_restarts_begin_where_the_cycle_before_ends(first, factor, count):
    schedule = optim.cosine_decay_restarts_schedule(1.0, first, factor)
    start, length = 0.0, float(first)
    while start + length <= count:
        start, length = start + length, length * factor
    expected = 0.5 * (1 + np.cos(np.pi * (count - start) / length))
    assert abs(schedule(count) - expected) < 1e-7


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(0, 50))
def test_of_joined_schedules_the_one_that_holds_counts_from_its_boundary(boundaries, count):
    ends = sorted(boundaries)
    parts = [lambda c, i=i: 100 * i + c for i in range(len(ends) + 1)]
    joined = optim.join_schedules(parts, ends)
    held = sum(end <= count for end in ends)
    expected = 100 * held + count - [0, *ends][held]
    assert joined(count) == expected
    assert joined(np.array([count]))[0] == expected


def test_of_an_integer_only_the_schedule_that_holds_is_called():
    rate = optim.join_schedules([lambda c: 1.0, lambda c: 1 / (c - 3)], [10])
    assert rate(9) == 1.0
    assert rate(12) == -1.0


def test_digits_are_kept_where_a_cosine_is_nearly_nothing():
    steps = 10**7
    found = optim.cosine_decay_schedule(1.0, steps)(steps - 1)
    assert_allclose(found, (np.pi / 2 / steps) ** 2, rtol=1e-8)
    assert optim.cosine_decay_schedule(1.0, steps)(steps) == 0.0


def test_a_warm_up_of_no_steps_is_none():
    assert optim.warmup_constant_schedule(0.1, 1.0, 0)(0) == 1.0
    assert optim.warmup_cosine_decay_schedule(0.1, 1.0, 0, 10)(0) == 1.0
    assert optim.warmup_exponential_decay_schedule(0.1, 1.0, 0, 10, 0.5)(10) == 0.5
    assert optim.warmup_cosine_decay_schedule(0.1, 0.0, 2, 10)(1) == 0.05


def test_schedules_are_frozen_and_print_their_family():
    schedule = optim.exponential_decay(0.1, 1, 0.5)
    assert "exponential" in repr(schedule)
    with pytest.raises(fdbr.tree.FrozenError):
        schedule.function = None


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (optim.exponential_decay, (1.0, 0, 0.5), "transition_steps must be at least 1, got 0"),
        (optim.exponential_decay, (1.0, 5, -0.5), "decay_rate must be positive"),
        (optim.exponential_decay, (1.0, 5, 0.5, -1), "transition_begin must be at least 0"),
        (optim.exponential_decay, (float("nan"), 5, 0.5), "init_value must be a finite number"),
        (optim.inverse_time_decay, (1.0, 5, -0.5), "decay_rate must be at least 0"),
        (optim.polynomial_schedule, (1.0, 0.0, 0.0, 5), "power must be positive"),
        (optim.linear_schedule, (1.0, 0.0, 2.5), "transition_steps must be an integer"),
        (optim.piecewise_constant_schedule, (1.0, {1.5: 2.0}), "a boundary must be an integer"),
        (optim.piecewise_constant_schedule, (1.0, {3: -2.0}), "the scale at 3 must be at least"),
        (optim.piecewise_constant_schedule, (1.0, [3]), "boundaries_and_scales must be a mapping"),
        (optim.piecewise_interpolate_schedule, ("cubic", 1.0), "'linear' or 'cosine'"),
        (optim.linear_onecycle_schedule, (10, 1.0, 0.5, 0.4), r"pct_final must lie in \[pct_s"),
        (optim.cosine_onecycle_schedule, (10, 1.0, 1.5), r"pct_start must lie in \[0, 1\]"),
        (optim.cosine_decay_schedule, (1.0, 0), "decay_steps must be at least 1"),
        (optim.cosine_decay_restarts_schedule, (1.0, 5, 0.5), "t_mul must be a number, at least"),
        (optim.cyclic_schedule, (0.0, 1.0, 5, 5, "square"), "mode must be one of"),
        (optim.warmup_cosine_decay_schedule, (0.0, 1.0, 5, 5), "decay_steps, which include warm"),
        (optim.join_schedules, ([abs, abs], []), "2 schedules take 1 boundaries"),
        (optim.join_schedules, ([abs, abs, abs], [3, 2]), "in increasing order"),
        (optim.join_schedules, ([abs, 0.5], [3]), "must be a list of functions"),
        (optim.sgdr_schedule, ([0.5],), "cosine_kwargs must be a list with a dict"),
        (optim.Schedule, (0.5,), "function must be a function, not float 0.5"),
    ],
)
def test_arguments_out_of_range_are_named(make, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(*arguments)


@pytest.mark.parametrize("count", [None, "3", 1j, [1], np.array(["a"])])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(TypeError, match=r"Schedule: the count must be an integer"):
        MANY["cosine"](count)


def test_what_is_no_number_is_not_added():
    with pytest.raises(TypeError, match="unsupported operand"):
        MANY["cosine"] + "fast"


def test_a_schedule_is_a_learning_rate():
    rate = optim.linear_schedule(1.0, 0.0, 4)
    optimizer = optim.sgd(rate)
    params = np.zeros(2, "float32")
    state = optimizer.init(params)
    for _ in range(5):
        updates, state = optimizer.update(np.ones(2, "float32"), state, params)
        params = optim.apply_updates(params, updates)
    assert params.dtype == np.float32
    assert_allclose(params, -(1 + 0.75 + 0.5 + 0.25))
    assert ops.sum(params) == -5.0


def test_growing_schedules_end_at_their_bound_after_however_many_steps():
    for staircase in (True, False):
        growing = optim.exponential_decay(0.1, 3, 1.2, staircase=staircase, end_value=0.5)
        for count in (40, 10**7, np.int32(10**7), np.asarray(10**9)):
            assert float(growing(count)) == 0.5
            assert float(fdbr.jit(growing)(count)) == 0.5
