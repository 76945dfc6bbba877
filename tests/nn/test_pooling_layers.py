"""Layers that pool: integers as kernels, examples without a batch, and errors in models."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops
from fdbr.testing import assert_allclose

X = np.random.default_rng(0).normal(size=(3, 2, 6, 5))


@pytest.mark.parametrize(
    "layer", [nn.MaxPool2d(2), nn.AvgPool2d(3, 1, 1), nn.LPPool2d(2, 2), nn.AdaptiveMaxPool2d(2)]
)
def test_layers_of_two_dimensions_pool_examples_without_a_batch(layer):
    assert_allclose(layer(X[0]), layer(X)[0])
    assert_allclose(fdbr.vmap(layer)(X), layer(X))


def test_an_integer_kernel_is_for_all_axes_after_the_first_two():
    assert nn.MaxPool(2)(X).shape == (3, 2, 3, 2)
    assert nn.MaxPool((2, 2))(X[0]).shape == (2, 3, 2)


def test_lists_and_tuples_make_equal_layers():
    assert nn.MaxPool([2, 1], padding=[[0, 1], [0, 0]]) == nn.MaxPool(
        (2, 1), padding=((0, 1), (0, 0))
    )
    assert not fdbr.tree.leaves(nn.MaxPool(2))


def test_flatten_joins_neighbouring_axes():
    assert nn.Flatten()(X).shape == (3, 60)
    assert nn.Flatten(0, 1)(X).shape == (6, 6, 5)
    assert nn.Flatten()(X[:0]).shape == (0, 60)
    assert nn.Unflatten(1, (2, 6, -1))(nn.Flatten()(X)).shape == X.shape
    for wrong in (nn.Unflatten(1, (2, 7)), nn.Unflatten(9, (2, -1)), nn.Unflatten(0, (-1, -1))):
        with pytest.raises(ValueError, match="must have such an axis, of that length"):
            wrong(X)


def test_errors_name_the_path_of_the_layer():
    net = nn.Sequential(nn.AvgPool2d(2), nn.MaxPool2d(7))
    with pytest.raises(ValueError, match=r"max_pool: windows \(7, 7\).*\n.*Sequential.layers\[1\]"):
        net(X)
    with pytest.raises(ValueError, match="must be an integer, or 2, one for each spatial axis"):
        nn.MaxPool2d((2, 2, 2))(X)
    with pytest.raises(ValueError, match="has no such axes"):
        nn.Flatten(7)(X)
    with pytest.raises(ValueError, match="start_dim comes after end_dim"):
        nn.Flatten(2, 1)(X)


def test_unpooling_takes_what_pooling_found():
    largest, places = nn.MaxPool2d(2, return_indices=True)(X)
    back, successor = nn.MaxUnpool2d(2).train(largest, places, X.shape)
    assert successor == nn.MaxUnpool2d(2)
    np.testing.assert_array_equal(back, ops.max_unpool(largest, places, 2, output_size=(6, 5)))


@pytest.mark.parametrize(
    "layer", [nn.MaxPool(2), nn.AvgPool(2), nn.AdaptiveAvgPool(1), nn.Pad(1), nn.Unfold(2)]
)
def test_an_integer_does_not_tell_a_batch_of_sequences_from_one_image(layer):
    with pytest.raises(ValueError, match=r"\(N, C, L\) or one image \(C, H, W\)"):
        layer(np.ones((4, 6, 6)))
    with pytest.raises(ValueError, match=r"in model Sequential\.layers\[0\]"):
        fdbr.vmap(nn.Sequential(layer))(np.ones((5, 4, 6, 6)))
