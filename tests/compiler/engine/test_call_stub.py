"""Calls that fit the trace which was replayed last, and those that differ in one thing."""

import collections
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest
from compiler.comparing import assert_same
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops
from fdbr.compiler.engine.stub import NEVER
from fdbr.pytrees.classes import NAMESPACE

X = np.array([1.0, -2.0, 3.0])


def hit(jitted):
    """What the jitted function does if the next call is as the last one."""
    return jitted._last[0]


def count(jitted):
    return len(jitted.report().traces)


@fdbr.frozen
class Scale:
    factor: Any
    power: Any = fdbr.static(default=1)

    def __call__(self, x):
        return x**self.power * self.factor


class Pair(NamedTuple):
    first: Any
    second: Any


# --- what fits, and what does not ---------------------------------------------------

ARGUMENTS = [
    X,
    X[:2],
    X.astype("float32"),
    X.astype(">f8"),
    np.stack([X, X]),
    X[0],
    np.float32(2),
    np.array(2.0),
    2,
    2.0,
    2j,
    True,
    np.True_,
    None,
    "name",
    len,
    slice(1, 2),
    slice(1.0, 2),
    frozenset({1}),
    frozenset({True}),
    X.view(np.recarray),
    (X, 2.0),
    [X, 2.0],
    (X, 2),
    (X, X, X),
    (X, (2.0,)),
    (X, None),
    {"a": X, "b": 2.0},
    {"b": 2.0, "a": X},
    {"a": X, "c": 2.0},
    {1: X},
    {1.0: X},
    {True: X},
    collections.OrderedDict(a=X, b=2.0),
    collections.OrderedDict(b=2.0, a=X),
    collections.deque([X, 2.0]),
    Pair(X, 2.0),
    Scale(X),
    Scale(X, 1.0),
    Scale(X, True),
    Scale(X, 0.0),
    Scale(X, -0.0),
    Scale(X, (1, 2)),
    Scale(X, (1.0, 2)),
    Scale((X, 1.0), 2),
    Scale(Scale(X, 1)),
    Scale(Scale(X, 2)),
    nn.Sequential(nn.Linear(X, X), ops.relu),
    nn.Sequential(nn.Linear(X, X), ops.tanh),
]


def described(value):
    """A tree, with the types and the order of all that a function can see in it."""
    if isinstance(value, dict):
        return type(value), [(type(k), k, described(part)) for k, part in value.items()]
    if isinstance(value, tuple | list | collections.deque):
        return type(value), [described(part) for part in value]
    if isinstance(value, Scale):
        return "scale", described(value.factor), repr(described(value.power))
    if isinstance(value, nn.Sequential):
        return "layers", [str(layer) for layer in value.layers]
    return type(value), getattr(value, "dtype", None), getattr(value, "shape", None), repr(value)


@given(st.lists(st.integers(0, len(ARGUMENTS) - 1), max_size=8))
def test_a_call_is_replayed_only_for_arguments_of_the_same_kinds(places):
    jitted = fdbr.jit(lambda x: None)
    for number, place in enumerate(places):
        for _ in range(2):
            jitted(ARGUMENTS[place])
            met = set(places[: number + 1])
            assert count(jitted) == sum(type(ARGUMENTS[one]) is not np.recarray for one in met)


@pytest.mark.unchecked
@pytest.mark.parametrize("keyword", [False, True])
def test_what_a_function_sees_is_what_it_was_given(keyword):
    def f(x=None):
        return described_kinds(x)

    def described_kinds(x):
        leaves, _ = fdbr.tree.flatten(x)
        fixed = fdbr.tree.map(lambda leaf: 0, x)
        return ops.stack([ops.sum(leaf) for leaf in leaves if hasattr(leaf, "shape")]), fixed

    jitted = fdbr.jit(f)
    trees = [value for value in ARGUMENTS if isinstance(value, tuple | list | dict | Scale)]
    for _ in range(3):
        for value in trees:
            for _ in range(2):
                found = jitted(x=value) if keyword else jitted(value)
                _, shown = f(value)
                assert described(found[1]) == described(shown)


def test_dicts_in_another_order_are_other_arguments():
    jitted = fdbr.jit(lambda d: next(iter(d.values())) * 1)
    for _ in range(3):
        assert jitted({"a": 1.0, "b": 2.0}) == 1.0
        assert jitted({"b": 2.0, "a": 1.0}) == 2.0
    assert count(jitted) == 2


def test_keywords_in_another_order_are_other_arguments_only_to_who_sees_the_order():
    named = fdbr.jit(lambda *, a, b: a - b)
    ordered = fdbr.jit(lambda **more: next(iter(more.values())) * 1)
    for _ in range(3):
        assert named(a=3.0, b=1.0) == named(b=1.0, a=3.0) == 2.0
        assert ordered(a=3.0, b=1.0) == 3.0
        assert ordered(b=1.0, a=3.0) == 1.0
    assert (count(named), count(ordered)) == (1, 2)


def test_static_values_are_the_same_only_if_they_are_of_one_type():
    jitted = fdbr.jit(lambda scale, x: x * scale.power)
    whole = np.arange(3)
    for _ in range(3):
        assert jitted(Scale(None, 1), whole).dtype == "int64"
        assert jitted(Scale(None, 1.0), whole).dtype == "float64"
        assert not np.signbit(jitted(Scale(None, 0.0), X)[0])
        assert np.signbit(jitted(Scale(None, -0.0), X)[0])
    assert count(jitted) == 4
    for _ in range(3):  # another object, and the same value
        assert jitted(Scale(None, float("1")), whole).dtype == "float64"
    assert count(jitted) == 4


def test_most_kinds_of_arguments_have_a_function_of_their_own():
    tree = {"a": [X, (X, None)], "b": Scale(2.0, 3), "c": np.float32(2), "d": "name"}
    jitted = fdbr.jit(lambda x, tree, *, key: (x, tree["b"](x)))
    for _ in range(2):
        jitted(X, tree, key=None)
    assert hit(jitted) is not NEVER
    assert_same(jitted(X + 1, tree, key=None), (X + 1, (X + 1) ** 3 * 2))


def test_nodes_of_other_kinds_go_the_general_way():
    class Own:
        def __init__(self, *parts):
            self.parts = parts

    optree.register_pytree_node(
        Own,
        lambda own: (own.parts, len(own.parts)),
        lambda _, parts: Own(*parts),
        namespace=NAMESPACE,
    )
    jitted = fdbr.jit(lambda x: Own(*(2 * part for part in fdbr.tree.leaves(x))))
    for value in (Own(X, 1.0), Pair(X, 1.0), collections.deque([X, 1.0]), {1: X, 2: 1.0}):
        for factor in (1, 2, 3):
            found = jitted(fdbr.tree.map(lambda leaf, factor=factor: leaf * factor, value))
            assert_same(found.parts, (2 * factor * X, 2.0 * factor))
        assert hit(jitted) is NEVER


# --- around the function ------------------------------------------------------------


def test_what_changes_around_the_function_is_seen_by_the_next_call():
    factor, box, table = 1.0, [1.0], {"a": 1.0}
    jitted = fdbr.jit(lambda x: x * factor * box[0] * table["a"])
    for change in range(1, 4):
        for _ in range(3):
            assert_same(jitted(X), X * factor * box[0] * table["a"])
        if change == 1:
            factor = 2.0
        elif change == 2:
            box[0] = 3.0
        else:
            table["a"] = 5.0
        assert_same(jitted(X), X * factor * box[0] * table["a"])


def test_an_array_around_the_function_that_changes_is_an_error_of_the_next_call():
    table = np.ones(3)
    jitted = fdbr.jit(lambda x: x * table)
    for _ in range(3):
        jitted(X)
    table[1] = 2.0
    for _ in range(2):
        with pytest.raises(fdbr.ImpureError):
            jitted(X)


# --- decisions ----------------------------------------------------------------------


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_decisions_that_change_from_call_to_call_find_their_trace(numbers):
    def f(x):
        if x > 0:
            return x * 2 if x > 1 else x + 1
        return [-x] if x < -1 else (x, None)

    jitted = fdbr.jit(f)
    for n in numbers:
        assert_same(jitted(np.float64(n)), f(np.float64(n)))
    assert count(jitted) <= 4
    assert sum(kept.runs for kept in jitted.report().traces) == len(numbers) - count(jitted)


# --- results ------------------------------------------------------------------------


def test_arguments_that_are_given_back_are_copies_unless_nobody_can_write_to_them():
    jitted = fdbr.jit(lambda x, y: (x, y, x[1:], ops.reshape(x, (3,)), x + 1))
    locked = fdbr.device_get(X)
    for _ in range(3):
        own = X.copy()
        results = jitted(own, locked)
        assert not any(result.flags.writeable for result in results)
        assert not any(np.shares_memory(own, result) for result in results)
        assert np.shares_memory(results[1], locked)
        assert own.flags.writeable


def test_containers_of_results_are_new_ones():
    jitted = fdbr.jit(lambda x: {"b": [x, 1.0], "a": Scale(x, 2), "c": (None, Pair(x, {}))})
    first, second, third = (jitted(X) for _ in range(3))
    assert list(third) == ["b", "a", "c"]
    third["b"].append(1)
    third["c"][1].second["new"] = 1
    assert_same(second, first)
    assert_same(jitted(X), first)


def test_an_entry_whose_calls_all_hit_counts_as_used():
    jitted = fdbr.jit(lambda x: x * 2, max_traces=2)
    for n in (1, 2, 1, 1, 1, 3):
        jitted(np.ones(n))
    kinds = {kept.arguments: kept.runs for kept in jitted.report().traces}
    assert kinds == {("float64[1]",): 3, ("float64[3]",): 0}
