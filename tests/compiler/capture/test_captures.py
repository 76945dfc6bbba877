"""What is around a jitted function: variables, attributes, containers and arrays."""

import functools
import types

import attrs
import numpy as np
import pytest
from compiler.comparing import assert_same

import fdbr
from fdbr import ImpureError, nn, ops

X = np.array([1.0, -2.0, 3.0])


def count(jitted):
    return len(jitted.report().traces)


def last_reason(jitted):
    return jitted.report().traces[-1].why


# --- variables ----------------------------------------------------------------------

scale = 2.0
table = {"scale": 2.0, "deep": [1.0]}
settings = types.SimpleNamespace(scale=2.0)
weights = np.ones(3)


def by_scale(x):
    return x * scale


def through_a_function(x):
    return by_scale(x) + 1


@pytest.mark.parametrize("f", [by_scale, through_a_function])
def test_a_number_in_a_global_is_an_argument_once_it_has_changed(f, monkeypatch):
    jitted = fdbr.jit(f)
    for value in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "scale", value)
        for _ in range(2):
            assert_same(jitted(X), f(X))
    assert count(jitted) == 1
    assert last_reason(jitted) == "scale was rebound, and is an argument from now on"
    assert jitted.report().traces[0].runs == 3


def test_a_number_in_a_closure_is_an_argument_once_it_has_changed():
    factor = 2.0
    jitted = fdbr.jit(lambda x: x * factor)
    assert_same(jitted(X), X * 2)
    factor = 3.0
    assert_same(jitted(X), X * 3)
    assert_same(jitted(X), X * 3)
    assert last_reason(jitted) == "factor was rebound, and is an argument from now on"


def test_a_variable_of_a_function_in_a_closure_counts():
    factor = 2.0

    def inner(x):
        return x * factor

    jitted = fdbr.jit(fdbr.grad(functools.partial(lambda f, x: f(x).sum(), inner)))
    assert_same(jitted(X), np.full(3, 2.0))
    factor = 3.0
    assert_same(jitted(X), np.full(3, 3.0))


def test_a_function_that_is_defined_anew_is_recorded_again():
    namespace = {}
    exec("def inner(x):\n    return x * 2\ndef outer(x):\n    return inner(x)", namespace)
    jitted = fdbr.jit(namespace["outer"])
    assert_same(jitted(X), X * 2)
    exec("def inner(x):\n    return x * 5", namespace)
    assert_same(jitted(X), X * 5)


@pytest.mark.parametrize("change", [
    lambda: table.update(scale=5.0),
    lambda: table["deep"].append(1.0),
    lambda: table["deep"].__setitem__(0, 4.0),
    lambda: setattr(settings, "scale", 5.0),
], ids=["an entry", "a deeper list", "a deeper entry", "an attribute"])  # fmt: skip
def test_containers_and_attributes_that_change_are_recorded_again(change):
    def f(x):
        return x * table["scale"] * sum(table["deep"]) * settings.scale

    jitted = fdbr.jit(f)
    assert_same(jitted(X), f(X))
    before = f(X)
    change()
    for _ in range(2):
        assert_same(jitted(X), f(X))
    assert not np.array_equal(f(X), before)
    table.update(scale=2.0, deep=[1.0])
    settings.scale = 2.0


def test_the_attributes_of_an_object_whose_method_is_jitted_count():
    class Model:
        rate = 1.0

        def __init__(self):
            self.scale = 2.0
            self.calls = 0

        def shifted(self, x):
            return x + self.rate

        def __call__(self, x):
            return self.shifted(x) * self.scale

        @fdbr.jit
        def method(self, x):
            return self.shifted(x) * self.scale

    for make in (lambda m: fdbr.jit(m), lambda m: fdbr.jit(m.__call__), lambda m: m.method):
        model = Model()
        jitted = make(model)
        assert_same(jitted(X), (X + 1) * 2)
        model.scale = 3.0
        assert_same(jitted(X), (X + 1) * 3)
        model.rate = 2.0
        assert_same(jitted(X), (X + 2) * 3)
        model.calls += 1  # no method mentions it
        assert_same(jitted(X), (X + 2) * 3)
        assert jitted.report().traces[-1].runs == 1


@attrs.define
class Config:
    rate: float
    name: str = "one"


config = Config(2.0)


def test_objects_with_slots_count():
    jitted = fdbr.jit(lambda x: x * config.rate if config.name == "one" else x)
    assert_same(jitted(X), X * 2)
    config.rate = 3.0
    assert_same(jitted(X), X * 3)
    config.name = "other"
    assert_same(jitted(X), X)
    config.rate, config.name = 2.0, "one"


def test_methods_of_arguments_see_their_globals(monkeypatch):
    @fdbr.frozen
    class Layer:
        w: np.ndarray

        def __call__(self, x):
            return self.w * x * scale

    jitted = fdbr.jit(lambda layer, x: layer(x))
    assert_same(jitted(Layer(X), 2.0), X * 4)
    monkeypatch.setitem(globals(), "scale", 3.0)
    assert_same(jitted(Layer(X), 2.0), X * 6)


def test_functions_in_static_fields_see_their_globals(monkeypatch):
    model = nn.Sequential(by_scale, by_scale)
    jitted = fdbr.jit(lambda model, x: model(x))
    assert_same(jitted(model, X), X * 4)
    monkeypatch.setitem(globals(), "scale", 3.0)
    assert_same(jitted(model, X), X * 9)


def test_the_variables_of_other_modules_of_the_user_count(monkeypatch):
    module = types.ModuleType("a_module_of_the_user")
    exec("rate = 2.0\ndef helper(x):\n    return x * rate", vars(module))
    jitted = fdbr.jit(lambda x: module.helper(x) + module.rate)
    assert_same(jitted(X), X * 2 + 2)
    module.rate = 3.0
    assert_same(jitted(X), X * 3 + 3)


def test_variables_that_the_function_does_not_see_do_not_matter(monkeypatch):
    jitted = fdbr.jit(by_scale)
    jitted(X)
    monkeypatch.setitem(globals(), "weights", 5)
    step = 0
    for step in range(3):  # noqa: B007
        jitted(X)
    assert jitted.report().traces[0].runs == 3


def test_a_function_whose_surroundings_always_change_is_not_recorded_for_ever():
    factor = "0"
    jitted = fdbr.jit(lambda x: x * float(factor))
    for step in range(20):
        factor = str(step)
        assert_same(jitted(X), X * step)
    assert "traces are not replayed: factor was rebound" in str(jitted.report())


def test_each_kind_of_arguments_knows_what_was_around_it():
    factor = 2.0
    jitted = fdbr.jit(lambda x: x * factor)
    assert (jitted(1.0), jitted(1)) == (2.0, 2.0)
    factor = 3.0
    assert (jitted(1.0), jitted(1)) == (3.0, 3.0)
    factor = 2.0
    assert (jitted(1), jitted(1.0)) == (2.0, 2.0)


# --- arrays -------------------------------------------------------------------------


def test_a_captured_array_that_changes_is_an_error():
    w = np.ones(3)
    jitted = fdbr.jit(lambda x: x * w)
    assert_same(jitted(X), X)
    w[0] = 2.0
    for _ in range(2):
        with pytest.raises(ImpureError, match=r"captured array float64\[3\].*changed"):
            jitted(X)
    w[0] = 1.0
    assert_same(jitted(X), X)


@pytest.mark.parametrize("f", [
    lambda w: lambda x: x * w[0],
    lambda w: lambda x: x * w[1:].sum(),
    lambda w: lambda x: x @ w.reshape(3, 1),
    lambda w: lambda x: x if w[0] > 0 else -x,
    lambda w: lambda x: ops.where(x > 0, 2 * w, x),
], ids="element sum view condition product".split())  # fmt: skip
def test_what_is_computed_from_a_captured_array_is_watched_too(f):
    w = np.ones(3)
    jitted = fdbr.jit(f(w))
    jitted(X)
    jitted(X)
    w -= 3.0
    with pytest.raises(ImpureError, match="has changed"):
        jitted(X)


def test_arrays_in_attributes_and_containers_are_watched_too():
    nest = {"w": [np.ones(3)]}
    plain, slotted = types.SimpleNamespace(w=np.ones(3)), Slotted(np.ones(3))
    for f, w in (
        (lambda x: x * nest["w"][0][0], nest["w"][0]),
        (lambda x: x * plain.w[0], plain.w),
        (lambda x: x * slotted.w[0], slotted.w),
    ):
        jitted = fdbr.jit(f)
        jitted(X)
        assert_same(jitted(X), X)
        w[0] = 5.0
        with pytest.raises(ImpureError, match="has changed"):
            jitted(X)


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w):
        self.w = w


def test_attributes_of_functions_count():
    def scaled(x):
        return x * scaled.by

    scaled.by = 2.0
    jitted = fdbr.jit(scaled)
    assert_same(jitted(X), X * 2)
    scaled.by = 3.0
    assert_same(jitted(X), X * 3)


def test_an_array_in_reach_of_a_view_only_is_watched():
    whole = np.ones(6)
    jitted = fdbr.jit(functools.partial(operator_mul, y=whole[:3]))
    assert_same(jitted(X), X)
    whole[0] = 5.0
    with pytest.raises(ImpureError, match="has changed"):
        jitted(X)


def operator_mul(x, y):
    return x * y


def test_a_captured_array_of_nan_has_not_changed():
    w = np.array([np.nan, 1.0])
    jitted = fdbr.jit(lambda x: x * w)
    for _ in range(3):
        assert np.isnan(jitted(1.0)[0])


def test_a_read_only_array_is_no_matter():
    w = np.ones(3)
    w.flags.writeable = False
    jitted = fdbr.jit(lambda x: x * w)
    assert_same(jitted(X), X)
    assert_same(jitted(X), X)


def test_an_array_that_the_function_fills_itself_is_what_it_was_at_each_use():
    def f(x):
        buffer = np.zeros(3)
        first = x + buffer
        buffer[0] = 1.0
        second = x * buffer
        buffer += 5
        return first, second, x - buffer

    jitted = fdbr.jit(f)
    for x in (X, -X, X):
        assert_same(jitted(x), f(x))


def test_a_list_that_the_function_fills_itself_is_what_it_was_at_each_use():
    def f(x):
        parts = [1.0, 2.0, 3.0]
        first = x + parts
        parts[0] = 7.0
        return first, x * parts

    jitted = fdbr.jit(f)
    for x in (X, -X):
        assert_same(jitted(x), f(x))


def test_a_function_that_changes_a_captured_array_is_impure():
    calls = np.zeros(1)

    def f(x):
        calls[0] += 1
        return x * 2

    with pytest.raises(ImpureError, match="changes a captured array"):
        fdbr.jit(f)(X)


def test_large_constants_of_its_own_are_not_copied_for_every_use():
    made = []

    def f(x):
        table = np.arange(1000.0)
        made.append(0)
        return x * table + table - table

    jitted = fdbr.jit(f)
    jitted(np.ones(1000))
    (trace,) = next(iter(jitted._cache.specializations.values())).traces
    operands = [o for step in trace.raw.steps for o in step.operands]
    assert len({id(o) for o in operands if isinstance(o, np.ndarray)}) == 1
    assert trace.shared == ()
