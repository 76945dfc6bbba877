"""Frozen classes."""

import collections
import copy
import dataclasses
import functools
import pickle
from typing import Generic, TypeVar

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
    "use",
    [
        tree.flatten,
        lambda one: one == Named(2.0, name=np.arange(3.0)),
        lambda one: tree.map(max, Named(2.0), one),
        fdbr.grad(lambda one: one.weight),
        fdbr.vmap(lambda one: one, axis_size=2),
    ],
)
def test_an_array_in_a_static_field_is_refused_by_name_with_advice(use):
    with pytest.raises(TypeError) as caught:
        use(Named(2.0, name=np.arange(3.0)))
    assert "the static field Named.name holds an array, float64[3]" in str(caught.value)
    assert "Make name a field of data (fdbr.buffer() if" in str(caught.value)
    assert "tuple(x.tolist())" in str(caught.value)


def test_a_traced_value_in_a_static_field_is_refused_for_it_would_have_no_derivative():
    with pytest.raises(TypeError, match=r"static field Layer\.axis holds an array, float64\[\]"):
        fdbr.grad(lambda x: sum(tree.leaves(Layer(x, axis=x))))(1.0)


def test_numbers_of_an_array_module_may_be_static():
    assert tree.structure(Layer(1.0, axis=np.int64(2))) == tree.structure(Layer(1.0, axis=2))


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


@pytest.mark.slow
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


# --- what the constructor takes -----------------------------------------------------


@fdbr.frozen
class Holder:
    value: object
    fixed: tuple = fdbr.static(default=())


CONTAINERS = {
    "itself": lambda w: w,
    "a view": lambda w: w[::2],
    "in a list": lambda w: [1.0, w],
    "in a tuple": lambda w: (w, None),
    "in a dict": lambda w: {"b": w, "a": "text"},
    "deep": lambda w: [{"x": (w,)}, Holder(w)],
    "ordered": lambda w: collections.OrderedDict(z=w, a=w),
    "in a deque": lambda w: collections.deque([w]),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("made", ["call", "replace", "evolve"])
def test_the_constructor_takes_no_array_that_its_caller_can_write_to(name, order, made):
    w = np.ones((4, 3), order=order)
    value = CONTAINERS[name](w)
    if made == "call":
        holder = Holder(value)
    elif made == "replace":
        holder = tree.replace(Holder(0.0), value=value)
    else:
        holder = attrs.evolve(Holder(0.0), value=value)
    w[...] = 7
    arrays = [leaf for leaf in tree.leaves(holder) if isinstance(leaf, np.ndarray)]
    assert arrays
    for leaf in arrays:
        assert (leaf == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            leaf[...] = 0
    assert w.flags.writeable
    assert tree.structure(holder.value) == tree.structure(value)


def test_the_constructor_takes_no_container_that_its_caller_can_change():
    layers, table = [1.0, 2.0], {"a": 1.0}
    holder = Holder((layers, table))
    layers.append(3.0)
    table["b"] = 2.0
    assert holder.value == ([1.0, 2.0], {"a": 1.0})
    assert list(Holder({"b": 1, "a": 2}).value) == ["b", "a"]


def test_arrays_of_the_library_and_values_that_cannot_change_are_not_copied():
    gradient = fdbr.grad(lambda x: (x * x).sum())(np.ones(5000))
    for value in (gradient, gradient[1:], np.float32(1.0), "text", None, len, Holder(1.0)):
        assert Holder(value).value is value


def test_a_class_may_share_its_arrays_with_the_caller():
    @fdbr.frozen(copy=False)
    class Data:
        rows: np.ndarray

    rows = np.ones(3)
    assert Data(rows).rows is rows
    assert fdbr.train.Batches(rows, 2).dataset is rows


def test_a_frozen_object_is_filled_once():
    holder = Holder(1.0)
    with pytest.raises(FrozenError, match=r"Holder.__init__.*fdbr\.tree\.replace"):
        holder.__init__(2.0)
    with pytest.raises(FrozenError, match="__setstate__"):
        holder.__setstate__(Holder(2.0).__getstate__())
    with pytest.raises(FrozenError):
        Holder.__init__(holder, value=3.0)
    assert holder.value == 1.0
    assert pickle.loads(pickle.dumps(holder)) == holder == copy.deepcopy(holder)


@pytest.mark.parametrize("slots", [True, False])
def test_a_class_may_answer_for_attributes_that_it_lacks(slots):
    @fdbr.frozen(slots=slots)
    class Wrapper:
        inner: object
        late: object = attrs.field(init=False)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    class Below(Holder):
        def __getattr__(self, name):
            return getattr(self.value, name)

    for wrapper in (Wrapper(Holder(3.0)), Below(Holder(Holder(3.0)))):
        assert tree.leaves(wrapper.value) == [3.0]
        with pytest.raises(FrozenError):
            wrapper.__init__(Holder(4.0))


def test_a_constructor_may_call_that_of_its_base():
    @fdbr.frozen
    class Wide(Holder):
        width: int = fdbr.static(default=0)

        def __init__(self, value):
            super().__init__(value)
            object.__setattr__(self, "width", 3)

    w = np.ones(2)
    wide = Wide(w)
    w[0] = 7
    assert wide.value.tolist() == [1, 1]
    assert (wide.width, wide.fixed) == (3, ())


def undecorated_below_an_own_hook():
    @fdbr.frozen
    class Base:
        w: object

        def __init_subclass__(cls):
            pass

    class Child(Base):
        pass

    return Child


def undecorated_below_two_hooks():
    class Child(undecorated_below_an_own_hook()):
        def __init_subclass__(cls):
            pass

    class Grandchild(Child):
        pass

    return Grandchild


def undecorated_beside_a_mixin():
    class Mixin:
        def __init_subclass__(cls):
            pass

    @fdbr.frozen
    class Base:
        w: object

    class Child(Mixin, Base):
        pass

    return Child


def undecorated_with_a_dict():
    @fdbr.frozen(slots=False)
    class Base:
        w: object

        def __init_subclass__(cls):
            pass

    class Child(Base):
        pass

    return Child


@pytest.mark.parametrize(
    "make",
    [
        undecorated_below_an_own_hook,
        undecorated_below_two_hooks,
        undecorated_beside_a_mixin,
        undecorated_with_a_dict,
    ],
)
def test_every_subclass_of_a_frozen_class_is_a_node(make):
    child = make()(np.ones(2))
    gradient = fdbr.grad(lambda c: (c.w * c.w).sum())(child)
    assert type(gradient) is type(child)
    assert gradient.w.tolist() == [2, 2]


# --- dataclasses --------------------------------------------------------------------


def test_fields_of_dataclasses_mean_what_they_mean_there():
    @fdbr.frozen
    class Mixed:
        a: float
        b: list = dataclasses.field(default_factory=list)
        c: float = dataclasses.field(default=2.0, repr=False)
        d: float = dataclasses.field(default=3.0, init=False)
        e: float = dataclasses.field(default=4.0, kw_only=True)

    first, second = Mixed(1.0), Mixed(1.0, e=5.0)
    assert first.b == [] == second.b
    assert first.b is not second.b
    assert (first.c, first.d, second.e) == (2.0, 3.0, 5.0)
    assert repr(first) == "Mixed(a=1.0, b=[], d=3.0, e=4.0)"


def test_a_dataclass_as_a_base_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Base:
        a: float

    class Between(Base):
        pass

    for base in (Base, Between):
        with pytest.raises(TypeError, match=r"fdbr\.frozen: Child .*dataclass Base.* lost"):

            @fdbr.frozen
            class Child(base):
                b: float


@pytest.mark.parametrize("default", [[1.0], {"a": [2.0]}, np.ones(2), collections.deque([1.0])])
def test_instances_do_not_share_a_mutable_default(default):
    @fdbr.frozen
    class Defaulted:
        value: object = default

    first, second = Defaulted(), Defaulted()
    assert first.value is not second.value
    assert first == second
    if isinstance(default, np.ndarray):
        default[0] = 7
        assert Defaulted.__attrs_attrs__[0].default is default
        assert first.value[0] == 1


@pytest.mark.parametrize("default", [{1}, bytearray(b"x")])
def test_a_mutable_default_that_is_no_tree_is_refused(default):
    with pytest.raises(TypeError, match=r"default of Defaulted\.value, a .*factory="):

        @fdbr.frozen
        class Defaulted:
            value: object = default
