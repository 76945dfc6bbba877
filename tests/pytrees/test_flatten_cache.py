"""A tree flattened before gives the same leaves again, and what can change is looked at."""

import gc
import threading
from typing import Any

import attrs
import numpy as np
import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import tree
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.flatten_cache import _known, recall


@fdbr.frozen
class Pair:
    first: Any
    second: Any = None
    name: str = fdbr.static(default="")


NUMBERS = st.one_of(st.floats(allow_nan=False), st.integers(), st.none(), st.just("text"))
TREES = st.recursive(
    NUMBERS,
    lambda parts: st.one_of(
        st.builds(Pair, parts, parts, st.sampled_from(["", "a"])),
        st.tuples(parts, parts),
        st.lists(parts, max_size=2),
        st.dictionaries(st.sampled_from("ab"), parts),
    ),
    max_leaves=8,
)


def plainly(value):
    return optree.tree_flatten(value, namespace=NAMESPACE)


@given(TREES)
def test_flattening_again_gives_what_it_gave(value):
    for _ in range(3):
        assert tree.flatten(value) == plainly(value)


@given(TREES, st.data())
def test_what_was_made_of_leaves_has_the_leaves_that_it_shows(value, data):
    leaves, structure = tree.flatten(value)
    other = [data.draw(TREES) for _ in leaves]  # which may be trees themselves
    made = tree.unflatten(structure, other)
    for _ in range(2):
        assert tree.flatten(made) == plainly(made)
        assert tree.flatten_up_to(structure, made) == structure.flatten_up_to(made) == other


def test_frozen_trees_are_remembered():
    pair = Pair(np.ones(2), (1.0, None))
    leaves, structure = tree.flatten(pair)
    assert recall(pair).structure is structure
    made = tree.unflatten(structure, leaves)
    assert recall(made).leaves == tuple(leaves)


def test_what_is_given_out_may_be_changed():
    pair = Pair(1.0, 2.0)
    for _ in range(2):
        leaves, structure = tree.flatten(pair)
        leaves.append(3.0)
        tree.flatten_up_to(structure, pair).clear()
    given = [4.0, 5.0]
    made = tree.unflatten(structure, given)
    given[0] = 0.0
    assert tree.leaves(made) == tree.flatten(made)[0] == [4.0, 5.0]


@pytest.mark.parametrize("inner", [[1.0, 2.0], {"a": 1.0}, (1.0, [2.0])], ids=str)
def test_containers_that_can_change_are_looked_at_again(inner):
    pair = Pair(inner, 3.0)
    tree.flatten(pair)
    inner = pair.first
    changing = inner[1] if isinstance(inner, tuple) else inner
    if isinstance(changing, list):
        changing.append(9.0)
    else:
        changing["b"] = 9.0
    assert tree.flatten(pair) == plainly(pair)
    assert 9.0 in tree.flatten(pair)[0]


def test_nothing_is_no_leaf():
    _, structure = tree.flatten(Pair(1.0, 2.0))
    made = tree.unflatten(structure, [1.0, None])
    assert tree.flatten(made) == plainly(made) == ([1.0], tree.structure(Pair(1.0)))


def test_static_fields_belong_to_the_structure():
    one, other = Pair(1.0, 2.0, "a"), Pair(1.0, 2.0, "b")
    assert tree.flatten(one)[1] != tree.flatten(other)[1]
    with pytest.raises(ValueError, match="Mismatch"):
        tree.flatten_up_to(tree.flatten(one)[1], other)


def test_trees_are_forgotten_with_their_last_reference():
    array = np.ones(3)
    pairs = [Pair(array, float(i)) for i in range(100)]
    keys = [id(pair) for pair in pairs]
    for pair in pairs:
        tree.flatten(pair)
    assert all(key in _known for key in keys)
    del pair, pairs
    gc.collect()
    assert not any(key in _known and _known[key].leaves[0] is array for key in keys)


def test_classes_without_weak_references_are_trees_too():
    @fdbr.frozen(weakref_slot=False)
    class Bare:
        x: Any

    bare = Bare(1.0)
    assert tree.flatten(bare) == tree.flatten(bare) == plainly(bare)


def test_plain_attrs_classes_stay_leaves():
    @attrs.define
    class Plain:
        x: float

    pair = Pair(Plain(1.0), 2.0)
    assert tree.flatten(pair) == tree.flatten(pair) == plainly(pair)


def test_threads_may_flatten_one_tree():
    trees = [Pair(float(i), (i, None)) for i in range(50)]
    wrong = []

    def work():
        for _ in range(20):
            for value in trees:
                leaves, structure = tree.flatten(value)
                made = tree.unflatten(structure, leaves)
                if tree.flatten(made) != plainly(value):
                    wrong.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
