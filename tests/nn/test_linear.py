"""The fully connected layer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, random
from fdbr.nn import initializers

KEY = random.key(0)


def layer_of(dtype="float32", **options):
    return nn.Linear.init(KEY, 3, 2, dtype=dtype, bias_init=initializers.ones(), **options)


@given(st.lists(st.integers(0, 3), max_size=3).map(tuple), st.sampled_from(["float32", "float64"]))
@settings(max_examples=20)
def test_the_last_axis_is_transformed_and_the_others_are_batches(batch, dtype):
    layer = layer_of(dtype)
    x = random.normal(random.key(1), (*batch, 3), dtype)
    y = layer(x)
    assert y.dtype == dtype
    assert y.shape == (*batch, 2)
    np.testing.assert_allclose(y, x @ np.asarray(layer.weight).T + layer.bias, rtol=1e-5, atol=1e-6)


def test_parameters_are_laid_out_as_in_pytorch_and_read_only():
    layer = layer_of()
    assert layer.weight.shape == (2, 3)
    assert layer.bias.shape == (2,)
    for array in (layer.weight, layer.bias):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_weights_are_lecun_normal_and_the_bias_zero_by_default():
    layer = nn.Linear.init(KEY, 400, 300)
    assert layer.weight.var() == pytest.approx(1 / 400, rel=0.03)
    assert not layer.bias.any()


def test_without_bias_there_is_no_leaf_for_it():
    layer = layer_of(bias=False)
    assert layer.bias is None
    assert fdbr.tree.paths(layer) == ["weight"]
    x = np.ones(3, "float32")
    np.testing.assert_allclose(layer(x), layer.weight.sum(axis=1), rtol=1e-5)


def test_training_gives_the_layer_itself_back():
    layer = layer_of()
    x = np.ones((4, 3), "float32")
    y, successor = layer.train(x, key=KEY)
    assert successor is layer
    assert (y == layer(x)).all()


@pytest.mark.parametrize("shape", [(5, 4), (4,), (), (3, 0)])
def test_an_input_of_the_wrong_length_is_told_the_right_one(shape):
    expected = r"Linear with weight float32\[2,3\]: x must have shape \(\.\.\., 3\), got float64\["
    with pytest.raises(ValueError, match=expected):
        layer_of()(np.zeros(shape))


def test_a_weight_cannot_be_assigned():
    with pytest.raises(fdbr.tree.FrozenError, match=r"fdbr.tree.replace\(old, weight=value\)"):
        layer_of().weight = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((0, 2), ValueError, "in_features must be at least 1, got 0"),
        ((3, -2), ValueError, "out_features must be at least 1, got -2"),
        ((3, 2.0), TypeError, "out_features must be an integer, got float 2.0"),
    ],
)
def test_numbers_of_features_are_positive_integers(sizes, error, message):
    with pytest.raises(error, match=message):
        nn.Linear.init(KEY, *sizes)


def test_the_gradient_is_a_layer():
    layer = layer_of("float64")
    x = random.normal(random.key(1), (5, 3))
    grads = fdbr.grad(lambda layer: fdbr.ops.sum(layer(x)))(layer)
    assert isinstance(grads, nn.Linear)
    np.testing.assert_allclose(grads.weight, np.stack([x.sum(axis=0)] * 2))
    np.testing.assert_allclose(grads.bias, [5.0, 5.0])


def test_the_layer_works_on_every_array_module(xp, to_numpy):
    layer = layer_of()
    x = np.ones((4, 3), "float32")
    moved = fdbr.tree.map(xp.asarray, layer)
    y = moved(xp.asarray(x))
    assert type(y) is type(xp.asarray(x))
    np.testing.assert_allclose(to_numpy(y), layer(x), rtol=1e-6)
