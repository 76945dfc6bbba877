"""Pytrees."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import tree


class Pair(NamedTuple):
    first: object
    second: object


@fdbr.frozen
class Layer:
    weight: object
    bias: object = None
    mean: object = fdbr.buffer(default=None)
    axis: int = fdbr.static(default=-1)


@fdbr.frozen
class Named(Layer):
    name: object = fdbr.static(default="layer")
    scale: object = None


LEAVES = st.integers() | st.floats(allow_nan=False) | st.text(max_size=2)


def containers(children):
    return (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), children, max_size=3)
        | st.dictionaries(st.integers(), children, max_size=2)
        | st.builds(Pair, children, children)
        | st.builds(Layer, children, children, children, axis=st.integers(0, 2))
        | st.builds(Named, children, name=st.sampled_from(["a", "b"]), scale=children)
    )


TREES = st.recursive(LEAVES | st.none(), containers, max_leaves=12)


def same(a, b):
    """Equality that tells 1 from 1.0."""
    return a == b and list(map(type, tree.leaves(a))) == list(map(type, tree.leaves(b)))


# --- laws ---------------------------------------------------------------------------


@given(TREES)
def test_unflatten_undoes_flatten(t):
    leaves, structure = tree.flatten(t)
    assert same(tree.unflatten(structure, leaves), t)
    assert leaves == tree.leaves(t)
    assert structure == tree.structure(t)
    assert structure.num_leaves == len(leaves)


@given(TREES)
def test_flatten_undoes_unflatten(t):
    structure = tree.structure(t)
    marks = [object() for _ in range(structure.num_leaves)]
    assert tree.flatten(tree.unflatten(structure, marks)) == (marks, structure)


@given(TREES)
def test_map_of_the_identity_is_the_identity(t):
    assert same(tree.map(lambda leaf: leaf, t), t)


@given(TREES)
def test_map_of_a_composition_is_the_composition_of_maps(t):
    once = tree.map(lambda leaf: repr(("f", repr(leaf))), t)
    assert once == tree.map(lambda s: repr(("f", s)), tree.map(repr, t))


@given(TREES)
def test_map_keeps_the_structure_and_visits_leaves_in_order(t):
    seen = []
    out = tree.map(lambda leaf: seen.append(leaf) or (), t)
    assert seen == tree.leaves(t)
    assert tree.leaves(out) == []


@given(TREES)
def test_map_over_several_trees_pairs_corresponding_leaves(t):
    assert same(tree.map(lambda a, b, c: (a, b, c)[1], t, t, t), t)


@given(TREES, st.randoms(use_true_random=False))
def test_combine_undoes_partition(t, random):
    yes, no = tree.partition(t, lambda leaf: random.random() < 0.5)
    assert same(tree.combine(yes, no), t)
    assert same(tree.combine(no, yes), t)
    assert len(tree.leaves(yes)) + len(tree.leaves(no)) == len(tree.leaves(t))


@given(TREES)
def test_every_path_is_its_own_and_replace_reaches_exactly_its_leaf(t):
    paths = tree.paths(t)
    assert len(set(paths)) == len(paths) == len(tree.leaves(t))
    for position, path in enumerate(paths):
        expected = tree.leaves(t)
        expected[position] = "new"
        new = tree.replace(t, {path: "new"})
        assert tree.leaves(new) == expected
        assert tree.structure(new) == tree.structure(t)


@given(TREES)
def test_a_path_is_what_python_would_write(t):
    for path, leaf in zip(tree.paths(t), tree.leaves(t), strict=True):
        dotted = path if path.startswith("[") or not path else f".{path}"
        assert eval(f"root{dotted}", {"root": t}) is leaf


@given(TREES)
def test_structures_of_equal_trees_are_equal_and_hash_alike(t):
    other = copy.deepcopy(t)
    assert tree.structure(other) == tree.structure(t)
    assert hash(tree.structure(other)) == hash(tree.structure(t))


@given(TREES)
def test_size_counts_leaves_that_are_numbers(t):
    ones = tree.map(lambda leaf: np.ones((2, 3)), t)
    assert tree.size(ones) == 6 * len(tree.leaves(t))


# --- None ---------------------------------------------------------------------------


def test_none_is_no_leaf():
    assert tree.leaves([None, (None, {"a": None}), 1]) == [1]
    assert tree.paths(Layer(1.0)) == ["weight"]


def test_map_passes_a_none_of_the_first_tree_by_whatever_the_others_hold():
    assert tree.map(lambda a, b: a + b, [None, 1], [[5, 6], 2]) == [None, 3]


def test_map_gives_the_function_what_others_hold_at_a_leaf_of_the_first():
    seen = tree.map(lambda a, b: (a, b), [1, 2], [None, {"k": 3}])
    assert seen == [(1, None), (2, {"k": 3})]


def test_combine_takes_the_first_that_is_there():
    assert tree.combine([None, 1, None], [2, 3, None], [4, 5, None]) == [2, 1, None]


def test_combine_needs_a_tree():
    with pytest.raises(TypeError, match="missing"):
        tree.combine()


# --- mismatches ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            {"a": [1, 2], "b": 3},
            {"a": [1, 2, 3], "b": 3},
            r"at \['a'\].*\[\*, \*\].*\[\*, \*, \*\]",
        ),
        ({"a": [1, 2]}, {"a": (1, 2)}, r"at \['a'\].*\[\*, \*\].*\(\*, \*\)"),
        ({"a": 1, "b": 2}, {"a": 1}, r"at its root.*'b'"),
        ([1, Layer([1, 2])], [1, Layer([1])], r"at \[1\]\.weight"),
        (Layer([[1]]), Layer([5]), r"at weight\[0\] that has \[\*\], and this a leaf"),
        ((0, Layer(1.0, axis=0)), (0, Layer(1.0, axis=1)), r"at \[1\].*Layer"),
        ([[None], [1]], [[2], (1,)], r"at \[1\]"),
    ],
)
def test_mismatched_structures_name_the_path_at_which_they_part(one, other, message):
    with pytest.raises(
        ValueError, match=r"^fdbr\.tree\.map: tree 2 does not fit tree 1: " + message
    ):
        tree.map(lambda a, b: a, one, other)
    with pytest.raises(
        ValueError, match=r"^fdbr\.tree\.combine: tree 3 does not fit tree 1: " + message
    ):
        tree.combine(one, one, other)


def test_replace_of_an_unknown_path_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"no leaf at 'weight\[5\]'; there are \['weight\[0\]'"):
        tree.replace(Layer([1.0]), {"weight[5]": 2.0})


def test_replace_of_an_unknown_field_lists_the_known_ones():
    with pytest.raises(
        KeyError, match=r"Layer has no field \['wight'\]; it has \['weight', 'bias'"
    ):
        tree.replace(Layer(1.0), wight=2.0)


def test_replace_of_fields_needs_a_frozen_object():
    with pytest.raises(TypeError, match="list, which is no frozen class"):
        tree.replace([1.0], weight=2.0)


def test_replace_takes_fields_of_every_sort_and_paths_together():
    old = Named([1, 2], axis=0, name="x")
    new = tree.replace(old, {"weight[1]": 7}, name="y", axis=3)
    assert new == Named([1, 7], axis=3, name="y")
    assert old == Named([1, 2], axis=0, name="x")
    assert tree.replace(old) is old


# --- what is trainable --------------------------------------------------------------


def test_trainable_keeps_what_is_floating_or_complex_and_outside_buffers():
    t = {
        "float": 1.0,
        "complex": 1j,
        "half": np.float16(1),
        "array": np.zeros(2, np.complex64),
        "int": 3,
        "bool": True,
        "ints": np.arange(3),
        "objects": np.array([1.0], object),
        "text": "s",
        "callable": len,
        "layer": Layer([1.0], mean=[2.0, {"deep": 3.0}]),
    }
    kept = tree.trainable(t)
    assert [path.strip("[]'") for path in tree.paths(kept)] == [
        "array",
        "complex",
        "float",
        "half",
        "layer'].weight[0",
    ]


def test_a_buffer_covers_everything_below_it_and_nothing_else():
    t = Layer(1.0, mean=Layer(2.0, 3.0))
    assert tree.trainable(t) == Layer(1.0, mean=Layer(None, None))
    assert tree.trainable(Layer(Layer(1.0, mean=2.0))) == Layer(Layer(1.0, mean=None))
