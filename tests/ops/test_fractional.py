"""Pooling whose windows are at random places."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random

KEY = random.key(0)
X = np.random.default_rng(0).normal(size=(2, 3, 7, 9))


@pytest.mark.parametrize(
    ("kernel", "size"), [((2, 3), (4, 5)), (2, (1, 8)), (3, (5, 2)), ((1, 1), (7, 9))]
)
def test_windows_are_pytorchs(kernel, size):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    samples = np.random.default_rng(1).uniform(size=(2, 3, 2))
    theirs = torch.nn.functional.fractional_max_pool2d(
        torch.tensor(X), kernel, size, return_indices=True, _random_samples=torch.tensor(samples)
    )
    ours = ops.fractional_max_pool(X, kernel, size, return_indices=True, samples=samples[..., ::-1])
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other.numpy())


def test_every_draw_covers_the_axis_with_steps_of_two_lengths():
    x = np.broadcast_to(np.arange(9.0), (1, 400, 9))
    places = ops.fractional_max_pool(x, 1, 6, key=KEY)
    steps = np.diff(places, axis=-1)
    assert set(np.unique(steps)) == {1.0, 2.0}
    assert (places[..., -1] == 8).all()
    assert len(np.unique(places, axis=1)) == 1
    assert len(np.unique(places[0], axis=0)) > 3


def test_a_ratio_says_how_many_windows_there_are_and_places_are_those_of_unpooling():
    y, at = ops.fractional_max_pool(X, 2, output_ratio=0.5, return_indices=True, key=KEY)
    assert y.shape == at.shape == (2, 3, 3, 4)
    np.testing.assert_array_equal(np.take_along_axis(X.reshape(2, 3, 63), at.reshape(2, 3, 12), 2),
                                  y.reshape(2, 3, 12))  # fmt: skip
    assert ops.fractional_max_pool(X, 2, output_ratio=(0.5, 0.3), key=KEY).shape == (2, 3, 3, 2)


def test_a_layer_draws_in_training_alone():
    layer = nn.FractionalMaxPool2d(2, (4, 4))
    np.testing.assert_array_equal(layer(X), layer(X))
    drawn, after = layer.train(X, key=KEY)
    assert after == layer
    assert (drawn != layer.train(X, key=random.key(1))[0]).any()
    np.testing.assert_array_equal(fdbr.jit(layer.train)(X, key=KEY)[0], drawn)
    with pytest.raises(TypeError, match=r"FractionalMaxPool2d: .*key"):
        layer.train(X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.fractional_max_pool(X, 2, 3), "exactly one of samples and key"),
        (lambda: ops.fractional_max_pool(X, 2, key=KEY), "one of output_size and output_ratio"),
        (lambda: ops.fractional_max_pool(X, 2, 7, key=KEY), "do not fit into the last axes"),
        (lambda: ops.fractional_max_pool(X, 2, (3, 3, 3), key=KEY), "do not fit"),
        (lambda: ops.fractional_max_pool(X, 0, 3, key=KEY), "kernel_size must be at least 1"),
        (lambda: ops.fractional_max_pool(X, 2, None, 1.5, key=KEY), "output_ratio must lie in"),
        (lambda: ops.fractional_max_pool(X, 2, 3, samples=np.ones(2)), "samples must have shape"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=rf"^fdbr\.ops\.fractional_max_pool: .*{message}"):
        call()


def test_scores_by_distance_are_a_mask_of_attention_with_and_without_a_cache():
    layer = nn.MultiHeadAttention.init(KEY, 8, 4, dtype="float64")
    x = np.random.default_rng(2).normal(size=(1, 5, 8))
    places = np.arange(5)
    whole = layer(x, mask=ops.alibi_bias(places, 4), causal=True)
    cache, parts = nn.KeyValueCache.init(1, 5, 4, 2, dtype="float64"), []
    for i in places:
        out, cache = layer(
            x[:, i : i + 1], cache=cache, mask=ops.alibi_bias(places[i : i + 1], 4, places)
        )
        parts.append(out)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-10)
