"""A layer's constructor takes its fields; what ``init`` takes is refused, and ``init`` named."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import distributed, nn, ops, random, tree

KEY = random.key(0)


def made_by_init():
    """The public classes that are made by ``init(key, ...)``, by name."""
    for room in (nn, nn.models, distributed):
        for name in dir(room):
            cls = getattr(room, name)
            init = getattr(cls, "init", None) if inspect.isclass(cls) else None
            if inspect.ismethod(init) and "key" in list(inspect.signature(init).parameters)[:1]:
                yield f"{room.__name__}.{name}", cls


CLASSES = dict(made_by_init())
NEEDED = {
    name: [
        p.name
        for p in list(inspect.signature(cls.init).parameters.values())[1:]
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    for name, cls in CLASSES.items()
}


def test_all_layers_are_looked_at():
    assert len(CLASSES) > 90
    assert {"fdbr.nn.Linear", "fdbr.nn.models.ResNet18", "fdbr.nn.GRU"} <= CLASSES.keys()


@pytest.mark.parametrize("size", [1, 4, np.int64(8), (3, 4)], ids=str)
@pytest.mark.parametrize("before", [[], [KEY]], ids=["without a key", "with a key"])
def test_a_constructor_refuses_what_init_takes(size, before):
    for name, cls in CLASSES.items():
        sizes = [size] * max(len(NEEDED[name]), 1)
        with pytest.raises(TypeError) as caught:
            cls(*before, *sizes)
        assert f"{name}.init({', '.join(['key', *map(repr, sizes)])})" in str(caught.value)
        assert str(caught.value).startswith(f"{name}: ")


def test_a_constructor_refuses_the_names_of_inits_parameters():
    for name, cls in CLASSES.items():
        fields = inspect.signature(cls).parameters
        names = [field for field in NEEDED[name] if field not in fields] or ["width"]
        with pytest.raises(TypeError) as caught:
            cls(key=KEY, **dict.fromkeys(names, 4))
        shown = ", ".join(f"{field}=4" for field in names)
        assert f"{name}.init(key, {shown})" in str(caught.value)


def test_a_constructor_without_arguments_says_what_init_needs():
    with pytest.raises(TypeError, match=r"use fdbr\.nn\.Conv2d\.init\(key, in_channels, out_chan"):
        nn.Conv2d()


def test_a_mistake_in_the_fields_themselves_keeps_its_error():
    with pytest.raises(TypeError, match=r"^fdbr\.nn\.GRU: batch_first must be True or False"):
        nn.GRU((), "yes")


OTHER = [0, -1, True, None, "sgd", 0.5, np.ones((2, 3)), [[1, 2]], object()]


@pytest.mark.parametrize("value", OTHER, ids=lambda value: type(value).__name__)
def test_axes_masks_labels_and_numbers_may_be_in_the_place_of_arrays(value):
    for kept in (nn.Linear(value, None).weight, nn.Bias(value).bias):
        assert type(kept) is type(value)
        assert np.array_equal(kept, value)


def test_axes_of_a_layer_are_written_by_its_constructor():
    layers = fdbr.vmap(lambda key: nn.Linear.init(key, 3, 2))(random.split(KEY, 4))
    y = fdbr.vmap(lambda layer, x: layer(x), in_axes=(nn.Linear(0, 0), None))(layers, np.ones(3))
    assert y.shape == (4, 2)


LAYERS = [
    nn.Linear.init(KEY, 3, 2),
    nn.Sequential(nn.Conv2d.init(KEY, 1, 2, 3), nn.BatchNorm.init(KEY, 2), ops.relu),
    nn.GRU.init(KEY, 3, 2),
    nn.MultiHeadAttention.init(KEY, 4, 2),
]


@given(
    layer=st.sampled_from(LAYERS),
    value=st.one_of(st.integers(), st.text(), st.booleans(), st.just(KEY), st.builds(object)),
)
def test_a_tree_is_rebuilt_with_whatever_its_leaves_become(layer, value):
    changed = tree.map(lambda _: value, layer)
    assert all(leaf is value for leaf in tree.leaves(changed))
    assert tree.structure(changed) == tree.structure(layer)
    assert tree.replace(nn.Linear(None, None), weight=value).weight is value


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_transformations_rebuild_layers_without_their_constructors(layer):
    by_count = fdbr.jit(lambda layer: tree.map(lambda leaf: leaf * 2, layer))
    assert tree.structure(by_count(layer)) == tree.structure(layer)
    gradient = fdbr.grad(lambda layer: sum(ops.sum(leaf) for leaf in tree.leaves(layer)))(layer)
    assert type(gradient) is type(layer)
