"""Layers take batches, and single examples as `vmap` gives them; what cannot tell says so."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random

KEY = random.key(0)
X = np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype("float32")

LAYERS = {
    "MaxPool2d": nn.MaxPool2d(2),
    "AvgPool2d": nn.AvgPool2d(3, 2, 1),
    "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d(2),
    "AdaptiveMaxPool2d": nn.AdaptiveMaxPool2d(2),
    "LPPool2d": nn.LPPool2d(2, 2),
    "MaxPool of a pair": nn.MaxPool((2, 2)),
    "Pad of pairs": nn.Pad([(1, 1), (0, 2)]),
    "Unfold of a pair": nn.Unfold((2, 2)),
    "Conv": nn.Conv.init(KEY, 4, 2, 3),
    "ConvTranspose": nn.ConvTranspose.init(KEY, 4, 2, 3, stride=2),
    "DepthwiseConv": nn.DepthwiseConv.init(KEY, 4, 2, 3),
    "BatchNorm": nn.BatchNorm.init(KEY, 4, axis=-3),
    "Scale": nn.Scale.init(KEY, 4, axis=-3),
    "LayerNorm": nn.LayerNorm.init(KEY, (4, 6, 6)),
    "SqueezeExcitation": nn.SqueezeExcitation.init(KEY, 4, 2),
    "PixelShuffle": nn.PixelShuffle(2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_mapped_layer_gives_what_it_gives_of_the_batch(name):
    layer = LAYERS[name]
    mapped = fdbr.vmap(layer)(X)
    np.testing.assert_allclose(mapped, layer(X), rtol=1e-5, atol=1e-5)


def test_a_model_of_such_layers_has_gradients_for_each_example():
    model = nn.Sequential(
        nn.Conv2d.init(KEY, 4, 2, 3),
        nn.BatchNorm.init(None, 2, axis=-3),
        nn.Lambda(ops.relu),
        nn.MaxPool2d(2),
        nn.Flatten(0),
        nn.Linear.init(KEY, 8, 3),
    )
    labels = np.array([0, 2, 1])

    def loss(model, x, label):
        return ops.softmax_cross_entropy(model(x), label)

    rows = fdbr.vmap(fdbr.grad(loss), in_axes=(None, 0, 0))(model, X, labels)
    one = fdbr.grad(loss)(model, X[1], labels[1])
    np.testing.assert_allclose(rows.layers[0].weight[1], one.layers[0].weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "advice"),
    [
        (nn.MaxPool(2), r"nn\.MaxPool1d or nn\.MaxPool2d, or give \(2,\) or \(2, 2\)"),
        (nn.Pad(1), r"give \(\(1, 1\),\) or \(\(1, 1\), \(1, 1\)\)"),
        (nn.BatchNorm.init(KEY, 4), "axis=-3"),
        (nn.GroupNorm.init(KEY, 2, 4), r"layer\(x\[None\]\)\[0\]"),
        (nn.InstanceNorm.init(KEY, 4), r"layer\(x\[None\]\)\[0\]"),
    ],
    ids=repr,
)
def test_what_cannot_tell_an_example_from_a_batch_says_what_to_do(layer, advice):
    with pytest.raises(ValueError, match=advice):
        fdbr.vmap(layer)(X)
