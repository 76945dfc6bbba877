"""Layers that leave something out: what they keep on average, and what they refuse."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random
from fdbr.testing import assert_allclose

KEY = random.key(3)
RATED = [nn.Dropout, nn.SpatialDropout, nn.AlphaDropout, nn.GaussianDropout, nn.StochasticDepth]


@pytest.mark.parametrize("kind", RATED)
def test_inference_keeps_everything_and_training_the_mean(kind):
    layer = kind(0.2)
    x = np.random.default_rng(0).normal(1, 1, (4000, 10))
    assert layer(x) is x
    if kind is nn.AlphaDropout:
        x = x - 1
    y, successor = layer.train(x, key=KEY)
    assert successor is layer
    assert abs(y.mean() - x.mean()) < 0.05
    if kind is nn.AlphaDropout:
        assert abs(y.std() - 1) < 0.05
    again, _ = layer.train(x, key=KEY)
    assert (again == y).all()


@pytest.mark.parametrize("kind", RATED)
def test_rates_lie_between_0_and_1_whatever_their_name(kind):
    assert kind(p=0.25) == kind(0.25)
    assert kind(0) == kind(0.0)
    name = f"fdbr.nn.{kind.__name__}: rate must be in \\[0, 1\\), the probability of dropping"
    for rate in (1, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=name):
            kind(rate)
    with pytest.raises(TypeError, match="rate must be a number"):
        kind("half")


@pytest.mark.parametrize("kind", [*RATED, lambda rate: nn.RReLU()])
def test_training_without_a_key_is_refused_with_the_place(kind):
    net = nn.Sequential(ops.tanh, kind(0.5))
    with pytest.raises(
        TypeError, match=r"(?s)train\(x, key=key\).*in model Sequential\.layers\[1\]"
    ):
        net.train(np.ones((2, 3)))


def test_a_batch_of_keys_leaves_out_what_each_key_does():
    keys = random.split(KEY, 3)
    x = np.ones((4, 5))
    for draw in (
        lambda key: ops.spatial_dropout(x, 0.5, key=key),
        lambda key: ops.drop_path(x, 0.5, key=key),
        lambda key: ops.alpha_dropout(x, 0.5, key=key),
        lambda key: ops.gaussian_dropout(x, 0.5, key=key),
        lambda key: ops.zoneout(x, 2 * x, 0.5, key=key),
        lambda key: ops.rrelu(-x, key=key),
        lambda key: ops.gaussian(x, x, key=key),
        lambda key: ops.gumbel_softmax(x, key=key),
        lambda key: ops.gumbel_softmax(x, hard=True, key=key),
        lambda key: ops.simplified_dropconnect(x, np.ones((2, 5)), key=key),
    ):
        assert_allclose(fdbr.vmap(draw)(keys), np.stack([draw(key) for key in keys]), rtol=1e-12)


def test_whole_channels_and_whole_examples_are_left_out():
    x = np.ones((20, 6, 3, 2), np.float32)
    y = ops.spatial_dropout(x, 0.5, key=KEY)
    assert {tuple(np.unique(part)) for part in y.reshape(120, 6)} == {(0.0,), (2.0,)}
    z = ops.drop_path(x, 0.5, key=KEY)
    assert {tuple(np.unique(part)) for part in z.reshape(20, 36)} == {(0.0,), (2.0,)}
    assert len(np.unique(ops.drop_path(x, 0.5, mode="batch", key=KEY))) == 1
    assert y.dtype == z.dtype == np.float32


def test_a_hard_sample_is_one_hot_with_the_gradient_of_the_soft_one():
    x, ct = np.random.default_rng(0).normal(size=(2, 5, 4))
    soft = lambda x: ops.gumbel_softmax(x, 0.7, key=KEY)
    hard = lambda x: ops.gumbel_softmax(x, 0.7, hard=True, key=KEY)
    sample = hard(x)
    assert set(np.unique(sample)) == {0.0, 1.0}
    assert (sample.sum(-1) == 1).all()
    assert (sample.argmax(-1) == soft(x).argmax(-1)).all()
    gradients = [fdbr.grad(lambda x, f=f: (ct * f(x)).sum())(x) for f in (hard, soft)]
    assert_allclose(*gradients, rtol=1e-12)


def test_hard_samples_follow_the_probabilities():
    p = np.array([0.5, 0.3, 0.2])
    sample = ops.gumbel_softmax(np.log(p) + np.zeros((20_000, 1)), hard=True, key=KEY)
    assert np.abs(sample.mean(0) - p).max() < 0.02


def test_factors_are_drawn_between_their_bounds():
    y = -ops.rrelu(-np.ones(10_000), 0.2, 0.4, key=KEY)
    assert 0.2 <= y.min() < 0.21 < 0.39 < y.max() <= 0.4
    assert_allclose(ops.rrelu(-np.ones(1), 0.2, 0.4), [-0.3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.spatial_dropout(np.ones(3), 0.5, key=KEY), r"x must have shape \(N, C"),
        (lambda: ops.drop_path(np.float64(3), 0.5, key=KEY), "x has no axis of examples"),
        (lambda: ops.drop_path(np.ones(3), mode="rows", key=KEY), "mode must be 'row' or 'batch'"),
        (lambda: nn.StochasticDepth(0.5, "rows"), "mode must be 'row' or 'batch'"),
        (lambda: ops.zoneout(np.ones(3), np.ones(2), key=KEY), "must have one shape"),
        (lambda: ops.zoneout(np.ones(3), np.ones(3), 1.0, key=KEY), r"rate must be in \[0, 1\)"),
        (lambda: ops.gaussian(np.ones(3), np.ones(2), key=KEY), "must have one shape"),
        (lambda: ops.gumbel_softmax(np.ones(3), 0.0, key=KEY), "tau must be positive, got 0"),
        (lambda: ops.rrelu(np.ones(3), 0.5, 0.25), "lower must not be above upper"),
        (
            lambda: ops.simplified_dropconnect(np.ones((2, 3)), np.ones((4, 2)), key=KEY),
            r"x float64\[2,3\] must have shape \(\.\.\., in\)",
        ),
        (
            lambda: ops.simplified_dropconnect(
                np.ones((2, 3)), np.ones((4, 3)), mask=np.ones(3, bool)
            ),
            r"mask bool\[3\] must have shape \(4, 3\), or \(2, 4, 3\)",
        ),
        (
            lambda: nn.SimplifiedDropconnect.init(KEY, 3, 2, rate=1.0),
            r"rate must be in \[0, 1\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
