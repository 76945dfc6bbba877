"""Normalisation: statistics over several batches, and what is refused."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, tree
from fdbr.testing import assert_allclose

KEY = fdbr.random.key(3)


def batches(*shape, count=4, seed=0):
    return np.random.default_rng(seed).normal(1.5, 2, (count, *shape))


def test_a_moving_average_is_chainers_with_one_minus_its_decay():
    decay, layer = 0.75, nn.BatchNorm.init(None, 3, momentum=0.25, dtype=float)
    mean, variance = np.zeros(3), np.ones(3)
    for x in batches(5, 3):
        _, layer = layer.train(x)
        mean = decay * mean + (1 - decay) * x.mean(0)
        variance = decay * variance + (1 - decay) * x.var(0, ddof=1)
    assert_allclose(layer.running_mean, mean, rtol=1e-12)
    assert_allclose(layer.running_var, variance, rtol=1e-12)


def test_finetuning_takes_plain_averages_from_its_beginning_on():
    layer = nn.BatchNorm.init(None, 2, dtype=float)
    _, layer = layer.train(100 + batches(5, 2)[0])
    layer = layer.finetuning()
    data = batches(5, 2, seed=1)
    for x in data:
        _, layer = layer.train(x)
    assert layer.num_batches_tracked == len(data)
    assert_allclose(layer.running_mean, data.mean((0, 1)), rtol=1e-12)
    assert_allclose(layer.running_var, data.var(1, ddof=1).mean(0), rtol=1e-12)


def test_the_layer_itself_stays_as_it_was_and_statistics_have_no_gradient():
    layer = nn.BatchNorm.init(None, 2, dtype=float)
    x = batches(4, 2)[0]

    def loss(layer, x):
        y, successor = layer.train(x)
        return (y**3).sum() + successor.running_mean.sum(), successor

    (_, successor), gradient = fdbr.value_and_grad(loss, has_aux=True)(layer, x)
    assert gradient.running_mean is None
    assert layer.running_mean.tolist() == [0, 0]
    assert_allclose(successor.running_mean, 0.1 * x.mean(0), rtol=1e-12)
    plain = fdbr.grad(lambda x: (layer.train(x)[0] ** 3).sum())(x)
    assert_allclose(fdbr.grad(lambda x: loss(layer, x)[0])(x), plain, rtol=1e-12)


def test_a_jitted_step_returns_the_successor():
    step = fdbr.jit(lambda layer, x: layer.train(x)[1])
    layer = other = nn.BatchNorm.init(None, 3, momentum=None)
    for x in batches(5, 3).astype(np.float32):
        layer, other = step(layer, x), other.train(x)[1]
        assert_allclose(layer, other, rtol=1e-5, atol=1e-6)


def test_containers_hand_statistics_and_keys_on():
    net = nn.Sequential(nn.Linear.init(KEY, 3, 4), nn.BatchNorm.init(None, 4), nn.Dropout(0.5))
    x = batches(6, 3)[0].astype(np.float32)
    y, successor = net.train(x, key=KEY)
    assert (y == 0).any()
    assert successor[1].running_mean.any()
    assert tree.structure(successor) == tree.structure(net)


def test_channels_may_be_last():
    x = batches(2, 3, 4)[0]
    first, last = (nn.BatchNorm.init(None, 3, axis=axis, dtype=float) for axis in (1, -1))
    y, one = first.train(np.moveaxis(x, 1, 1)[:, :3])
    z, two = last.train(np.moveaxis(x, 1, -1))
    assert_allclose(np.moveaxis(z, -1, 1), y, rtol=1e-12)
    assert_allclose(two.running_var, one.running_var, rtol=1e-12)


# --- renormalisation ----------------------------------------------------------------


def test_renormalisation_gives_what_inference_gives_but_for_its_limits():
    layer = nn.BatchRenorm.init(None, 2, r_max=100.0, d_max=100.0, dtype=float)
    layer = tree.replace(layer, running_mean=np.array([1.0, 2.0]), running_var=np.array([4.0, 1.0]))
    x = batches(6, 2)[0]
    assert_allclose(layer.train(x)[0], layer(x), rtol=1e-10)
    narrow = tree.replace(layer, r_max=1.0, d_max=0.0)
    assert_allclose(narrow.train(x)[0], ops.batch_norm(x)[0], rtol=1e-10)


def test_no_derivative_is_taken_of_the_correction():
    known = {"running_mean": np.array([1.0, 2.0]), "running_var": np.array([4.0, 1.0])}
    x, ct = batches(6, 2, count=2)
    found = fdbr.grad(lambda x: (ct * ops.batch_renorm(x, **known)[0]).sum())(x)
    plain = fdbr.grad(lambda x: (ct * ops.batch_norm(x)[0]).sum())(x)
    r = np.sqrt((x.var(0) + 1e-5) / (known["running_var"] + 1e-5)).clip(1 / 3, 3)
    assert_allclose(found, plain * r, rtol=1e-10)


# --- decorrelation ------------------------------------------------------------------


def test_decorrelated_channels_have_the_identity_as_their_covariance():
    x = batches(50, 6)[0] @ np.random.default_rng(1).normal(size=(6, 6))
    y, mean, projection = ops.decorrelated_batch_norm(x, 2, eps=0.0)
    for part in (y[:, :3], y[:, 3:]):
        assert_allclose(part.T @ part / 50, np.eye(3), atol=1e-10)
    assert_allclose(mean, x.mean(0).reshape(2, 3), rtol=1e-12)
    assert_allclose(projection, projection.mT, atol=1e-12)


def test_channels_of_equal_variance_have_a_gradient():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # of equal eigenvalues
    for order in (1, 2):
        fdbr.testing.check_grads(
            lambda x: ops.decorrelated_batch_norm(x, 1, eps=0.1)[0], x, order=order
        )


def test_training_averages_means_and_projections_as_chainer_does():
    layer = nn.DecorrelatedBatchNorm.init(None, 4, groups=2, momentum=0.25, dtype=float)
    x = batches(10, 4)[0]
    y, successor = layer.train(x)
    assert_allclose(layer(x), x, rtol=1e-12)
    out, mean, projection = ops.decorrelated_batch_norm(x, 2)
    assert_allclose(y, out, rtol=1e-12)
    assert_allclose(successor.running_mean, 0.25 * mean, rtol=1e-12)
    assert_allclose(
        successor.running_projection, 0.75 * np.eye(2) + 0.25 * 10 / 9 * projection, rtol=1e-12
    )


# --- what is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.BatchNorm.init(None, 3)(np.ones((2, 4))),
            r"BatchNorm: axis 1 of x must be that of the 3 channels, got float64\[2,4\]",
        ),
        (
            lambda: nn.BatchNorm.init(None, 3).train(np.ones((1, 3))),
            r"BatchNorm: x float64\[1,3\] has 1 elements in each channel",
        ),
        (lambda: nn.BatchNorm.init(None, 3, momentum=1.5), r"momentum must be in \[0, 1\]"),
        (lambda: nn.BatchNorm.init(None, 0), r"num_features must be at least 1, got 0"),
        (
            lambda: nn.BatchNorm.init(None, 3, track_running_stats=False).finetuning(),
            "has no running statistics",
        ),
        (
            lambda: nn.LayerNorm.init(None, (2, 3))(np.ones((4, 3))),
            r"LayerNorm: x must have shape \(\.\.\., 2, 3\), got float64\[4,3\]",
        ),
        (lambda: nn.LayerNorm.init(None, ()), "normalized_shape is empty"),
        (lambda: nn.RMSNorm.init(None, 4)(np.ones(3)), r"RMSNorm: x must have shape \(\.\.\., 4\)"),
        (lambda: nn.GroupNorm.init(None, 3, 4), "3 groups do not divide 4 channels"),
        (
            lambda: nn.GroupNorm.init(None, 2, 4)(np.ones((1, 6))),
            r"GroupNorm: x must have shape \(N, 4, \.\.\.\), got float64\[1,6\]",
        ),
        (
            lambda: nn.InstanceNorm.init(None, 2)(np.ones((1, 3, 4))),
            r"InstanceNorm: x must have shape \(N, 2, \.\.\.\)",
        ),
        (
            lambda: nn.InstanceNorm.init(None, 2)(np.ones((2, 2))),
            r"InstanceNorm: x float64\[2,2\] has no spatial axis .*layer\(x\[None\]\)\[0\]",
        ),
        (
            lambda: nn.InstanceNorm.init(None, 2, track_running_stats=True).train(np.ones((3, 2))),
            "has no spatial axis",
        ),
        (lambda: nn.BatchRenorm.init(None, 2, r_max=0.5), "r_max must be at least 1"),
        (
            lambda: nn.DecorrelatedBatchNorm.init(None, 6, groups=4),
            "4 groups do not divide 6 channels",
        ),
        (
            lambda: ops.decorrelated_batch_norm(np.ones((2, 4)), 3),
            "with the 3 groups dividing the channels",
        ),
        (
            lambda: ops.decorrelated_batch_norm(np.ones((2, 4)), 2, mean=np.zeros((2, 2))),
            "give both mean and projection",
        ),
        (
            lambda: ops.batch_renorm(
                np.ones((2, 4)), running_mean=np.zeros(3), running_var=np.ones(4)
            ),
            r"running_mean float64\[3\] does not fit x",
        ),
        (lambda: ops.local_response_norm(np.ones(4), 3), r"x must have shape \(N, C"),
        (lambda: ops.local_response_norm(np.ones((1, 4)), 0), "size must be at least 1"),
        (lambda: ops.standardize(np.ones(3), mean=0.0), "give both mean and variance"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_errors_name_the_path_of_the_layer():
    net = nn.Sequential(ops.relu, nn.BatchNorm.init(None, 3))
    with pytest.raises(ValueError, match=r"in model Sequential\.layers\[1\] \(BatchNorm\)"):
        net(np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"in model Sequential\.layers\[1\] \(BatchNorm\)"):
        net.train(np.ones((1, 3)))


@pytest.mark.parametrize("kind", [nn.BatchNorm, nn.BatchRenorm])
def test_a_bias_alone_is_added_as_with_chainers_use_gamma_false(kind):
    both = kind.init(None, 3, dtype=float)
    bias = np.array([1.0, -2.0, 0.5])
    alone = tree.replace(kind.init(None, 3, weight=False, dtype=float), bias=bias)
    both = tree.replace(both, bias=bias)
    assert tree.paths(tree.trainable(alone)) == ["bias"]
    (x,) = batches(5, 3, count=1)
    (y, after), (wanted, expected) = alone.train(x), both.train(x)
    assert_allclose(y, wanted, rtol=1e-12)
    assert_allclose(after.running_var, expected.running_var, rtol=1e-12)
    assert_allclose(fdbr.jit(lambda layer, x: layer(x))(after, x), expected(x), rtol=1e-12)
    loss = lambda layer: ops.sum(layer.train(x)[0] ** 2)
    assert_allclose(fdbr.grad(loss)(alone).bias, fdbr.grad(loss)(both).bias, rtol=1e-12)
    nothing = kind.init(None, 3, weight=False, bias=False)
    assert tree.paths(tree.trainable(nothing)) == []
    assert_allclose(nothing(x), kind.init(None, 3, affine=False)(x))
