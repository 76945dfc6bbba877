"""Pytrees and frozen classes."""

import copy
import functools
import pickle
from typing import Generic, NamedTuple, TypeVar

import attrs
import mypy.api
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import tree
from fdbr.tree import FrozenError

T = TypeVar("T")


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


class Undecorated(Layer):
    def doubled(self):
        return 2 * self.weight


@fdbr.frozen
class Box(Generic[T]):
    content: T


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


# --- frozen classes -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [Layer, Named, Undecorated])
@pytest.mark.parametrize("name", ["weight", "axis", "something_new"])
def test_assignment_to_a_frozen_object_is_refused_with_advice(kind, name):
    obj = kind(1.0)
    message = rf"cannot set {kind.__name__}\.{name}.*fdbr\.tree\.replace\(old, {name}=value\)"
    with pytest.raises(FrozenError, match=message):
        setattr(obj, name, 2.0)
    assert obj == kind(1.0)


def test_deletion_from_a_frozen_object_is_refused_with_advice():
    obj = Layer(1.0)
    with pytest.raises(FrozenError, match=r"cannot delete Layer\.weight.*tree\.replace"):
        del obj.weight
    assert obj.weight == 1.0


def test_a_frozen_error_is_what_attrs_and_python_raise():
    assert issubclass(FrozenError, attrs.exceptions.FrozenInstanceError)
    assert issubclass(FrozenError, AttributeError)


def test_an_error_in_place_of_augmented_assignment_leaves_the_object_alone():
    obj = Layer(1.0)
    with pytest.raises(FrozenError):
        obj.weight += 1
    assert obj.weight == 1.0


def test_objects_are_equal_when_structure_and_elements_are():
    one = Layer(np.array([1.0, np.nan]), 2, axis=0)
    assert one == Layer(np.array([1.0, np.nan]), 2, axis=0)
    assert one != Layer(np.array([1.0, np.nan]), 2, axis=1)
    assert one != Layer(np.array([1.0, np.nan]), 2.0, axis=0)
    assert one != Layer(np.array([1.0, np.nan], np.float32), 2, axis=0)
    assert one != Layer(np.array([[1.0, np.nan]]), 2, axis=0)
    assert one != Layer(np.array([1.0, 5.0]), 2, axis=0)
    assert one != Layer([np.array([1.0, np.nan])], 2, axis=0)
    assert one != "something else"


def test_arrays_are_compared_bitwise():
    assert Layer(np.zeros(2)) != Layer(-np.zeros(2))
    assert Layer(np.array([None, 1], object)) == Layer(np.array([None, 1], object))


def test_objects_of_different_classes_are_different():
    assert Layer(1.0) != Named(1.0)
    assert Layer(1.0) != Undecorated(1.0)


@given(st.integers(), st.text(max_size=3), st.integers(0, 3))
def test_equal_objects_hash_alike(a, b, axis):
    assert hash(Layer(a, b, axis=axis)) == hash(Layer(a, b, axis=axis))
    assert len({Layer(a, b, axis=axis), Layer(a, b, axis=axis)}) == 1


def test_objects_that_hold_arrays_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Layer(np.ones(2)))


def test_equality_and_repr_of_the_class_itself_are_kept():
    @fdbr.frozen
    class Odd:
        value: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        def __repr__(self):
            return "odd"

    assert Odd(1) == Odd(2)
    assert repr(Odd(1)) == "odd"


def test_identity_is_equality_where_the_class_says_so():
    @fdbr.frozen(eq=False)
    class Thing:
        value: int

    thing = Thing(1)
    assert thing == thing
    assert thing != Thing(1)
    assert hash(thing) == hash(thing)


def test_repr_shows_small_arrays_and_describes_large_ones():
    assert (
        repr(Layer(1.5, np.zeros(2)))
        == "Layer(weight=1.5, bias=array([0., 0.]), mean=None, axis=-1)"
    )
    assert "weight=float32[20,30]" in repr(Layer(np.zeros((20, 30), np.float32)))
    nest = Layer([np.zeros(9), (np.zeros(9),)], {"k": np.zeros(9)})
    assert "weight=[float64[9], (float64[9],)], bias={'k': float64[9]}" in repr(nest)


def test_repr_leaves_out_what_attrs_was_told_to():
    @fdbr.frozen
    class Quiet:
        a: int
        b: int = attrs.field(default=2, repr=False)
        c: int = attrs.field(default=3, repr=lambda value: f"<{value}>")

    assert repr(Quiet(1)) == "Quiet(a=1, c=<3>)"


def test_fields_are_inherited_with_their_marks():
    obj = Named(1.0, 2.0, 3.0, axis=0, name="n", scale=4.0)
    assert tree.leaves(obj) == [1.0, 2.0, 3.0, 4.0]
    assert tree.paths(obj) == ["weight", "bias", "mean", "scale"]
    assert tree.trainable(obj) == Named(1.0, 2.0, None, axis=0, name="n", scale=4.0)


def test_a_subclass_without_the_decorator_is_a_node_of_its_own_class():
    obj = Undecorated(1.0, axis=2)
    assert tree.leaves(obj) == [1.0]
    assert obj == Undecorated(1.0, axis=2)
    assert obj != Undecorated(2.0, axis=2)
    doubled = tree.map(lambda leaf: 2 * leaf, obj)
    assert type(doubled) is Undecorated
    assert doubled.doubled() == 4.0
    slope = fdbr.grad(lambda layer: layer.doubled() * layer.weight)(obj)
    assert type(slope) is Undecorated
    assert slope.weight == 4.0


def test_a_subclass_may_be_decorated_without_slots():
    @fdbr.frozen(slots=False)
    class Loose(Layer):
        extra: object = None

    assert tree.leaves(Loose(1.0, extra=2.0)) == [1.0, 2.0]
    with pytest.raises(FrozenError):
        Loose(1.0).extra = 3


def test_a_class_may_keep_its_own_hook_for_subclasses():
    seen = []

    @fdbr.frozen
    class Base:
        x: float

        def __init_subclass__(cls, **options):
            super().__init_subclass__(**options)
            seen.append(cls.__name__)

    @fdbr.frozen
    class Derived(Base):
        y: float = 0.0

    assert set(seen) == {"Derived"}
    assert tree.leaves(Derived(1.0, 2.0)) == [1.0, 2.0]


def test_options_of_the_class_statement_reach_a_mixin():
    class Mixin:
        def __init_subclass__(cls, tag=None, **options):
            super().__init_subclass__(**options)
            cls.tag = tag

    @fdbr.frozen
    class Base(Mixin):
        x: float

    class Derived(Base, tag="t"):
        pass

    assert Derived.tag == "t"
    assert tree.leaves(Derived(1.0)) == [1.0]


def test_super_works_in_a_method():
    @fdbr.frozen
    class Child(Layer):
        def __str__(self):
            return "child of " + super().__repr__()

    assert str(Child(1.0)).startswith("child of Child(weight=1.0")


def test_keyword_only_fields_defaults_and_factories():
    @fdbr.frozen(kw_only=True)
    class Options:
        a: int
        b: list = attrs.field(factory=list)
        c: np.ndarray = fdbr.buffer(factory=functools.partial(np.zeros, 2))
        d: int = fdbr.static(default=3, metadata={"note": "kept"})

    one, two = Options(a=1), Options(a=1)
    assert one == two
    assert one.b is not two.b
    assert attrs.fields(Options).d.metadata["note"] == "kept"
    with pytest.raises(TypeError, match="positional"):
        Options(1)


def test_converters_and_validators_run_when_it_is_made_and_not_when_it_is_rebuilt():
    calls = []

    @fdbr.frozen
    class Checked:
        x: float = attrs.field(converter=float, validator=lambda *given: calls.append(given[2]))

        def __attrs_post_init__(self):
            calls.append("post")

    obj = Checked("2")
    assert obj.x == 2.0
    assert calls == [2.0, "post"]
    gone = tree.map(lambda leaf: None, obj)
    assert gone.x is None
    assert tree.unflatten(tree.structure(obj), ["anything"]).x == "anything"
    assert tree.replace(obj, x="text").x == "text"
    assert calls == [2.0, "post"]


def test_a_class_without_fields_and_one_without_data_are_nodes():
    @fdbr.frozen
    class Empty:
        pass

    @fdbr.frozen
    class Fixed:
        n: int = fdbr.static()

    assert tree.leaves([Empty(), Fixed(3)]) == []
    assert tree.map(lambda leaf: leaf, [Empty(), Fixed(3)]) == [Empty(), Fixed(3)]
    assert tree.structure(Fixed(3)) != tree.structure(Fixed(4))


def test_private_and_uninitialised_fields_are_data():
    @fdbr.frozen
    class Private:
        _x: float
        y: float = attrs.field(init=False, default=2.0)

    obj = Private(1.0)
    assert tree.paths(obj) == ["_x", "y"]
    assert tree.map(lambda v: v + 1, obj).y == 3.0


def test_cached_properties_belong_to_one_object():
    @fdbr.frozen
    class Cached:
        x: float

        @functools.cached_property
        def double(self):
            return 2 * self.x

    obj = Cached(1.0)
    assert obj.double == 2.0
    assert tree.map(lambda v: v + 1, obj).double == 4.0
    assert tree.replace(obj, x=5.0).double == 10.0


def test_frozen_classes_have_slots():
    assert not hasattr(Layer(1.0), "__dict__")


def test_generic_classes_are_nodes():
    box = Box[int](3)
    assert tree.leaves(box) == [3]
    assert tree.map(str, box) == Box("3")


def test_static_values_are_structure():
    assert tree.leaves(Layer(1.0, axis=5)) == [1.0]
    assert tree.structure(Layer(1.0, axis=5)) != tree.structure(Layer(1.0, axis=6))
    with pytest.raises(ValueError, match="does not fit"):
        tree.map(lambda a, b: a, Layer(1.0, axis=5), Layer(1.0, axis=6))


def test_a_static_value_that_cannot_be_hashed_does_not_hinder_gradients():
    layer = Named(2.0, name=["cannot", "be", "hashed"])
    slope = fdbr.grad(lambda one: one.weight * len(one.name))(layer)
    assert slope.weight == 3.0
    assert slope.name == ["cannot", "be", "hashed"]


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
@pytest.mark.parametrize("kind", [Layer, Named, Undecorated])
def test_copies_and_pickles_are_equal(copier, kind):
    obj = kind([np.arange(3.0), 2], {"k": (None, "s")}, axis=4)
    again = copier(obj)
    assert again == obj
    assert type(again) is kind
    with pytest.raises(FrozenError):
        again.weight = 1


def test_attrs_own_functions_work():
    assert attrs.evolve(Layer(1.0), bias=2.0) == Layer(1.0, 2.0)
    assert attrs.asdict(Layer(1.0)) == {"weight": 1.0, "bias": None, "mean": None, "axis": -1}


def test_a_pattern_matches_by_position():
    match Layer(1.0, 2.0):
        case Layer(weight, bias):
            assert (weight, bias) == (1.0, 2.0)


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


# --- types --------------------------------------------------------------------------

TYPED = """
import fdbr
import numpy as np

@fdbr.frozen
class Layer:
    weight: np.ndarray
    mean: np.ndarray = fdbr.buffer()
    axis: int = fdbr.static(default=-1)

@fdbr.frozen(kw_only=True)
class Options:
    rate: float = 0.5

layer = Layer(np.zeros(2), np.zeros(2), axis=3)
reveal_type(layer)
reveal_type(layer.axis)
Options(rate=1.0)
Layer(np.zeros(2), np.zeros(2), axes=3)
Layer("text", np.zeros(2))
layer.axis = 4
Options(1.0)
"""


def test_type_checkers_understand_frozen_classes(tmp_path):
    source = tmp_path / "typed.py"
    source.write_text(TYPED)
    out, _, _ = mypy.api.run(
        ["--follow-imports=silent", "--hide-error-context", f"--cache-dir={tmp_path}", str(source)]
    )
    lines = [line.partition("typed.py:")[2] for line in out.splitlines()]
    found = [line for line in lines if "note: Revealed" in line or "error" in line]
    expected = [
        '16: note: Revealed type is "typed.Layer"',
        '17: note: Revealed type is "int"',
        '19: error: Unexpected keyword argument "axes"',
        '20: error: Argument 1 to "Layer" has incompatible type "str"',
        '21: error: Property "axis" defined in "Layer" is read-only',
        '22: error: Too many positional arguments for "Options"',
    ]
    assert len(found) == len(expected), out
    for line, start in zip(found, expected, strict=True):
        assert line.replace("builtins.", "").startswith(start)
