"""Numbers and arrays around a function that change from call to call are inputs of its program."""

import functools
import math
import threading
import types

import numpy as np
import pytest
from compiler.comparing import assert_same, plainly
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops

X = np.array([0.5, -1.0, 2.0])
rate = 0.1


class Settings:
    scale = 2.0


class Slotted:
    __slots__ = ("value",)


class Holder:
    def __init__(self):
        self.rate = 0.1

    def step(self, x):
        return x - self.rate * ops.sin(x)


def in_a_global():
    def put(value):
        global rate
        rate = value

    return lambda x: x * rate + ops.exp(x), put


def in_a_closure():
    own = 0.1

    def put(value):
        nonlocal own
        own = value

    return lambda x: x * own + ops.exp(x), put


def in_a_function_that_it_calls():
    inner, put = in_a_closure()
    return lambda x: inner(x) * 2, put


def in_a_dict():
    table = {"rate": 0.1, "name": "sgd", "deep": [1.0, {"more": 2.0}]}

    def put(value):
        table["rate"] = table["deep"][1]["more"] = value
        table["deep"][0] = value * 2

    return lambda x: x * table["rate"] + table["deep"][0] * table["deep"][1]["more"], put


def in_a_tuple():
    own = (0.9, 0.99)

    def put(value):
        nonlocal own
        own = (value, value / 2)

    return lambda x: x * own[0] + own[1], put


def in_an_attribute():
    own = types.SimpleNamespace(rate=0.1)
    return lambda x: x * own.rate, functools.partial(setattr, own, "rate")


def in_a_class():
    return lambda x: x * Settings.scale, functools.partial(setattr, Settings, "scale")


def in_a_slot():
    own = Slotted()
    own.value = 1.0
    return lambda x: x * own.value, functools.partial(setattr, own, "value")


def in_what_a_method_is_of():
    own = Holder()
    return own.step, functools.partial(setattr, own, "rate")


def in_a_tree_of_arrays():
    own = {"w": np.ones(3), "b": 0.0}

    def put(value):
        nonlocal own
        own = {"w": np.full(3, float(value)), "b": float(value)}

    return lambda x: x * own["w"] + own["b"], put


def as_an_array():
    own = np.ones((3, 3))

    def put(value):
        nonlocal own
        own = np.arange(9.0).reshape(3, 3) * value

    return lambda x: own @ x, put


PLACES = [
    in_a_global, in_a_closure, in_a_function_that_it_calls, in_a_dict, in_a_tuple,
    in_an_attribute, in_a_class, in_a_slot, in_what_a_method_is_of, in_a_tree_of_arrays,
    as_an_array,
]  # fmt: skip
FORMS = {
    "values": lambda f: f,
    "gradients inside": lambda f: fdbr.grad(lambda x: ops.sum(f(x) ** 2)),
    "batches": lambda f: fdbr.vmap(lambda s: f(s * X)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_one_program_holds_for_every_value(place, form):
    f, put = place()
    f = FORMS[form](f)
    jitted = plainly(f)
    for step in range(12):
        put(0.1 + step / 8)
        assert_same(jitted(X), f(X), ulps=0)
    (kept,) = jitted.report().traces
    assert kept.runs == 10  # one for the first value, one for those that change


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_so_it_is_for_gradients_from_outside_and_compiled_programs(place):
    f, put = place()
    jitted, outside = fdbr.jit(f), plainly(f)
    for step in range(6):
        put(0.1 + step / 8)
        assert_same(jitted(X), f(X))
        found = fdbr.grad(lambda x: ops.sum(outside(x) ** 2))(X)
        assert_same(found, fdbr.grad(lambda x: ops.sum(f(x) ** 2))(X))
    assert jitted.report().traces[0].runs == outside.report().traces[0].runs == 4


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.25, 3, 2, -1, True, math.nan, 1 + 2j, "s"])))
def test_whatever_values_come_after_each_other_it_is_the_function_that_answers(values):
    own = 0.5

    def f(x):
        if isinstance(own, str):
            return x
        if own != own:
            return -x
        y = x * own
        return y / 2 if isinstance(own, int) and own > 1 else y

    jitted = plainly(f)
    for own in values:  # noqa: B007
        assert_same(jitted(X), f(X), ulps=0)
        assert_same(jitted(X), f(X), ulps=0)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=12))
def test_what_decides_shapes_and_iterations_has_a_program_for_each_value(values):
    count = 1

    def f(x):
        for iteration in range(count):
            x = x + iteration
        return ops.sum(x * np.ones((count, 1)), axis=0) / count

    jitted = plainly(f)
    for count in values:  # noqa: B007
        assert_same(jitted(X), f(X), ulps=0)
    assert len(jitted.report().traces) <= len(set(values))


def asks_for_its_type(x):
    return x * rate if type(rate) is float else x


def puts_it_into_an_array(x):
    return x + np.full(3, rate)


def writes_it(x):
    return x * len(f"{rate:.3f}")


def remembers(x):
    return x * _remembered(rate)


@functools.lru_cache
def _remembered(value):
    return value * 2


_kept = {}


def keeps(x):
    if rate not in _kept:
        _kept[rate] = math.sqrt(rate)
    return x * _kept[rate]


_memo = {}


def keeps_what_it_computes(x):
    if "rate" not in _memo:
        _memo["rate"] = rate * 2
    return x * _memo["rate"]


@pytest.mark.parametrize(
    "f",
    [
        asks_for_its_type,
        puts_it_into_an_array,
        writes_it,
        remembers,
        keeps,
        keeps_what_it_computes,
    ],
)
def test_what_would_notice_that_a_number_is_traced_gets_the_number(f, monkeypatch):
    jitted = plainly(f)
    for step in range(6):
        monkeypatch.setitem(globals(), "rate", 1.0 + step)
        monkeypatch.setitem(globals(), "_memo", {})
        found = jitted(X)
        assert all(type(value) is float for value in (*_memo.values(), *_kept.values()))
        assert_same(found, f(X), ulps=0)
    assert type(rate) is float


def test_a_program_whose_input_becomes_something_else_is_not_run():
    own = np.ones(3)
    f = lambda x: x * own
    jitted = plainly(f)
    for own in (np.zeros(3), np.ones(1), 2.0, np.ones(3, np.float32), 3, [1.0, 2.0, 3.0]):  # noqa: B007
        assert_same(jitted(X), f(X), ulps=0)


def test_an_array_that_is_written_to_later_is_what_it_was_for_the_backward_pass():
    own = np.ones(3)
    jitted = plainly(lambda x: x * own)
    for step in range(4):
        own = np.full(3, float(step))
        _, back = fdbr.vjp(jitted, X)
        own[:] = 100.0
        assert_same(back(np.ones(3)), (np.full(3, float(step)),))


def test_results_never_share_memory_with_what_is_around_the_function():
    own = np.ones(3)
    jitted = plainly(lambda x: (own, x))
    for step in range(4):
        own = np.full(3, float(step))
        out = jitted(X)[0]
        own[:] = 7.0
        assert out.tolist() == [step] * 3


def test_other_threads_never_see_traced_values():
    own, errors, stop = 1.0, [], threading.Event()
    begun = threading.Event()

    def f(x):
        y = x
        for _ in range(200):
            y = y + own * ops.sin(y) * 1e-3
        return y

    def elsewhere():
        while not stop.is_set():
            out = f(X)
            begun.set()
            if type(out) is not np.ndarray:
                errors.append(out)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    begun.wait()
    jitted = plainly(f)
    try:
        for step in range(10):
            own = float(step)
            assert_same(jitted(X), f(X), ulps=0)
    finally:
        stop.set()
        thread.join()
    assert not errors


def test_several_signatures_share_what_is_known_to_change():
    own = 1.0
    jitted = plainly(lambda x: x * own)
    for axes in range(1, 6):
        for own in (1.0, 2.0, 3.0):
            assert_same(jitted(np.ones((2,) * axes)), np.full((2,) * axes, own), ulps=0)
    assert [kept.runs for kept in jitted.report().traces] == [1, 2, 2, 2, 2]
