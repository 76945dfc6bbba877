"""Convolutional layers: what they are given, what they refuse, and what Chainer's mean."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.nn import initializers

KEY = random.key(0)
DRAW = np.random.default_rng(0)


def test_the_kernel_size_tells_the_number_of_axes_or_the_class_does():
    def kernel(kind, size, **options):
        return kind.init(KEY, 2, 4, size, **options).weight.shape[2:]

    assert kernel(nn.Conv, 3) == (3, 3)
    assert kernel(nn.Conv, 3, ndim=1) == (3,)
    assert kernel(nn.Conv, (3, 1, 2)) == (3, 1, 2)
    assert kernel(nn.Conv1d, 3) == (3,)
    assert kernel(nn.Conv3d, [1, 2, 3]) == (1, 2, 3)
    assert kernel(nn.ConvTranspose, 3) == (3, 3)
    assert kernel(nn.ConvTranspose1d, (5,)) == (5,)
    assert kernel(nn.DepthwiseConv, (5, 2)) == (5, 2)


def test_weights_are_laid_out_as_in_pytorch_and_biases_are_zero():
    assert nn.Conv.init(KEY, 4, 6, (3, 2), groups=2).weight.shape == (6, 2, 3, 2)
    assert nn.ConvTranspose.init(KEY, 4, 6, (3, 2), groups=2).weight.shape == (4, 3, 3, 2)
    assert not nn.Conv.init(KEY, 4, 6, 3).bias.any()
    assert nn.Conv.init(KEY, 4, 6, 3, bias=False).bias is None
    assert nn.Conv.init(KEY, 300, 100, 3).weight.var() == pytest.approx(1 / 2700, rel=0.03)


def test_settings_stay_as_they_were_given_and_are_structure():
    layer = nn.Conv.init(KEY, 2, 4, 3, stride=[2, 1], padding=[[1, 0], [0, 2]], dilation=2)
    assert (layer.stride, layer.padding, layer.dilation) == ((2, 1), ((1, 0), (0, 2)), 2)
    assert fdbr.tree.paths(layer) == ["weight", "bias"]


def test_same_padding_keeps_the_size_for_every_kernel_and_stride():
    x = np.ones((2, 7, 6), "float32")
    for kernel in (1, 2, 3, 4, (5, 2)):
        for stride in (1, 2, 3):
            layer = nn.Conv.init(KEY, 2, 1, kernel, stride=stride, padding="same", dilation=2)
            assert layer(x).shape == (1, -(-7 // stride), -(-6 // stride))


@pytest.mark.parametrize(
    ("kind", "sizes", "options", "message"),
    [
        (nn.Conv, (0, 2, 3), {}, "Conv.init: in_channels must be at least 1, got 0"),
        (nn.Conv, (2, 2.0, 3), {}, "Conv.init: out_channels must be an integer, got float 2.0"),
        (nn.Conv1d, (2, 2, (3, 3)), {}, r"init: kernel_size must be .* got \(3, 3\)"),
        (
            nn.Conv1d,
            (2, 2, 3),
            {"ndim": 2},
            "ndim of a Conv1d must be 1, got 2; use fdbr.nn.Conv",
        ),
        (nn.Conv, (2, 2, 0), {}, "kernel_size must be a positive integer"),
        (nn.Conv, (2, 2, ()), {}, "kernel_size must be a positive integer"),
        (nn.Conv, (3, 4, 3), {"groups": 2}, "groups must divide in_channels=3, got 2"),
        (nn.Conv, (4, 3, 3), {"groups": 2}, "groups must divide out_channels=3, got 2"),
        (nn.Conv, (4, 3, 3), {"stride": 0}, "stride must be an integer of at least 1"),
        (nn.Conv, (4, 3, 3), {"stride": (1, 2, 3)}, "stride must be .* or 2 of them"),
        (nn.Conv, (4, 3, 3), {"padding": -1}, "padding must be an integer of at least 0"),
        (nn.Conv, (4, 3, 3), {"padding": "full"}, "padding must be 'same', 'valid'"),
        (nn.Conv, (4, 3, 3), {"padding": ((1, 2),)}, "a pair .* for each of 2 axes"),
        (nn.Conv, (4, 3, 3), {"padding_mode": "mirror"}, "padding_mode must be one of zeros, ref"),
        (nn.ConvTranspose, (4, 3, 3), {"output_padding": -1}, "output_padding must be an integer"),
        (nn.LocalConv, (1, 1, 3, 4), {}, "kernel_size .* does not fit into in_size"),
        (nn.ConvNeXtBlock, (2,), {"kernel_size": 4}, "kernel_size must be odd"),
        (nn.ConvNeXtBlock, (2, 1.0, 1.0), {}, r"stochastic_depth_prob must be in \[0, 1\), got 1"),
        (nn.DeformableConv, (3, 2, 3), {"offset_groups": 2}, "offset_groups must divide"),
        (nn.InceptionBN, (2, 1, 1, 1, 1, 1, "max"), {}, "needs stride 1 and a projection"),
        (nn.InceptionBN, (2, 0, 1, 1, 1, 1, "sum"), {}, "pooltype must be 'max' or 'avg'"),
        (nn.MLPConv, (2, (), 3), {}, "out_channels must be a sequence of numbers"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(kind, sizes, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kind.init(KEY, *sizes, **options)


@fdbr.frozen
class Net(nn.Layer):
    blocks: tuple

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 5, 5), r"conv: x float32\[1,3,5,5\] has 3 channels, but weight .* is for 2"),
        ((1, 2, 5, 2), r"conv: the windows, \(3, 3\) long .* do not fit into x float32\[1,2,5,2\]"),
        ((2, 5), "conv: x must have a channel axis and 2 spatial axes"),
    ],
)
def test_an_input_that_does_not_fit_is_told_which_layer_of_the_model_it_is(shape, message):
    model = Net((nn.Lambda(abs), nn.Conv.init(KEY, 2, 4, 3)))
    with pytest.raises(ValueError, match=message) as error:
        model(np.ones(shape, "float32"))
    assert "in model Net.blocks[1] (Conv)" in str(error.value)


@pytest.mark.parametrize(("mode", "most"), [("reflect", 2), ("circular", 3), ("replicate", 9)])
def test_padding_cannot_take_more_of_the_input_than_there_is(mode, most):
    x = np.arange(3.0, dtype="float32")[None]
    for padding in (most, most + 1):
        layer = nn.Conv1d.init(KEY, 1, 1, 1, padding=padding, padding_mode=mode)
        if padding == most or mode == "replicate":
            assert layer(x).shape == (1, 3 + 2 * padding)
        else:
            with pytest.raises(ValueError, match=r"is too short for padding .*\s+in model Conv1d"):
                layer(x)


@pytest.mark.parametrize(
    ("mode", "other"),
    [("reflect", "reflect"), ("circular", "wrap"), ("replicate", "edge"), ("zeros", "constant")],
)
def test_padding_is_that_of_convolutions(mode, other):
    x = DRAW.normal(size=(2, 3, 4, 5))
    pairs = ((1, 2), (3, 0))
    padded = nn.Pad(pairs, mode)(x)
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (0, 0), *pairs), other))
    layer = nn.Conv.init(KEY, 3, 2, 2, padding=pairs, padding_mode=mode, dtype="float64")
    plain = tree.replace(layer, padding=0, padding_mode="zeros")
    np.testing.assert_allclose(layer(x), plain(padded), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: nn.Pad((1, 2, 3, 4)), (1, 1, 2, 2), r"a pair \(before, after\) for each"),
        (lambda: nn.Pad(-1), (1, 1, 2), "padding must be at least 0"),
        (lambda: nn.Pad(1, "mirror"), (1, 1, 2), "mode must be one of constant, zeros"),
        (lambda: nn.Pad(1), (4, 5), "an axis of channels and 1 spatial axes"),
        (lambda: nn.Pad([(2, 2)], "reflect"), (1, 1, 2), "too short for padding"),
    ],
)
def test_padding_that_does_not_fit_is_refused(make, shape, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()(np.zeros(shape))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.conv_transpose(x, np.ones((2, 1, 3)), stride=2, output_size=20), "least"),
        (lambda x: ops.unfold(x, (3, 3, 3, 3)), "unfold: x .* must have channels and a spatial"),
        (lambda x: ops.unfold(x, 9), r"unfold: the windows, \(9,\) long"),
        (lambda x: ops.fold(x, (9,), (2,)), r"fold: x must have shape \(\.\.\., C \* 2, 8\)"),
        (lambda x: ops.fold(x, (2,), (3,)), "fold: windows .* do not fit into output_size"),
        (lambda x: ops.local_conv(x, np.ones((1, 2, 2, 1))), "has .4,. windows, but weight"),
        (lambda x: ops.local_conv(x, np.ones((1, 4, 3, 1))), "has 2 channels"),
        (lambda x: ops.local_conv(x, np.ones((1, 4, 2))), r"shape \(O, \*counts, C, \*kernel\)"),
        (lambda x: ops.depthwise_conv(x, np.ones((3, 1, 1))), "same number of kernels"),
        (lambda x: ops.depthwise_conv(x, np.ones((2, 2, 1))), r"\(C \* multiplier, 1, \*kernel\)"),
        (lambda x: ops.shift(x, 3), "have a channel for each of its 3 positions"),
        (
            lambda x: ops.deform_conv(x, np.ones((1, 3, 4)), np.ones((1, 2, 1))),
            r"offset must have shape \(1, groups \* 1, 4\)",
        ),
        (
            lambda x: ops.deform_conv(x, np.ones((1, 1, 4)), np.ones((1, 2, 1)), mask=x),
            r"mask must have shape \(1, 1, 4\)",
        ),
        (
            lambda x: ops.deform_conv(x, np.ones((1, 1, 4), int), np.ones((1, 2, 1))),
            "offset must be floating-point numbers",
        ),
        (
            lambda x: ops.deform_conv(x, np.ones((1, 1, 4)), np.ones((1, 3, 1))),
            "has 2 channels, but weight .* is for 3",
        ),
    ],
)
def test_operations_name_what_does_not_fit(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(np.ones((1, 2, 4)))


# --- what Chainer's mean ------------------------------------------------------------


def test_depthwise_weights_of_chainer_are_converted_to_pytorchs():
    x, w = DRAW.normal(size=(1, 3, 4, 5)), DRAW.normal(size=(2, 3, 2, 2))
    out = ops.depthwise_conv(x, ops.reshape(ops.swapaxes(w, 0, 1), (-1, 1, 2, 2)))
    for channel in range(3):
        for m in range(2):
            alone = ops.conv(x[:, channel : channel + 1], w[m : m + 1, channel : channel + 1])
            np.testing.assert_allclose(out[:, channel * 2 + m], alone[:, 0], rtol=1e-12)


def test_cover_all_leaves_no_element_out_as_in_chainer():
    x = np.zeros((1, 1, 6))
    x[..., -1] = 1
    weight = np.ones((1, 1, 3))
    assert ops.conv(x, weight, stride=2).tolist() == [[[0.0, 0.0]]]
    assert ops.conv(x, weight, stride=2, cover_all=True).tolist() == [[[0.0, 0.0, 1.0]]]
    layer = nn.Conv(weight, stride=2, cover_all=True)
    assert layer(x).tolist() == [[[0.0, 0.0, 1.0]]]
    assert tree.replace(layer, padding_mode="replicate")(x).tolist() == [[[0.0, 0.0, 2.0]]]


def test_dropped_blocks_of_convnext_leave_the_examples_as_they_are():
    block = nn.ConvNeXtBlock.init(KEY, 2, 1.0, 0.5, kernel_size=3)
    x = random.normal(random.key(1), (40, 2, 3, 3), "float32")
    y, _ = block.train(x, key=random.key(2))
    same = (y == x).all(axis=(1, 2, 3))
    assert 8 < same.sum() < 32
    np.testing.assert_allclose(y[~same], (2 * block(x) - x)[~same], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(block(x[0]), block(x)[0], rtol=1e-5, atol=1e-6)
    plain = nn.ConvNeXtBlock.init(KEY, 2, kernel_size=3)
    plain.train(x)  # nothing is drawn, so there need be no key


def test_training_updates_the_statistics_of_all_parts():
    block = nn.InceptionBN.init(KEY, 2, 1, 1, 1, 1, 1, "max", 1)
    x = random.normal(random.key(1), (4, 2, 3, 3), "float32")
    _, after = block.train(x)
    for name in ("conv1n", "proj3n", "conv3n", "proj33n", "conv33an", "conv33bn", "poolpn"):
        assert (getattr(after, name).running_mean != getattr(block, name).running_mean).all()


# --- filters that interpolate -------------------------------------------------------


def test_upsampling_filters_interpolate_and_downsampling_ones_average():
    up = initializers.upsampling_deconv_filter()
    layer = nn.ConvTranspose1d.init(
        KEY, 2, 2, 4, stride=2, padding=1, weight_init=up, dtype="float64"
    )
    line = np.stack([np.arange(5.0), np.ones(5)])
    found = layer(line)
    np.testing.assert_allclose(found[0, 1:-1], np.arange(8) / 2 + 0.25)
    np.testing.assert_allclose(found[1, 1:-1], 1)
    down = initializers.downsampling_conv_filter()
    layer = nn.Conv.init(KEY, 3, 3, 3, stride=2, weight_init=down)
    np.testing.assert_allclose(layer(np.ones((3, 7, 7), "float32")), 1, rtol=1e-6)
    grouped = nn.DepthwiseConv.init(KEY, 3, 1, 3, weight_init=down)
    np.testing.assert_allclose(grouped.weight[0, 0], layer.weight[1, 1])


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 2, 3, 4), (2, 2), (0, 0, 3)])
def test_filters_that_interpolate_are_of_one_channel_and_of_one_length(shape):
    with pytest.raises(ValueError, match=r"a filter that samples has shape"):
        initializers.upsampling_deconv_filter()(None, shape)


def test_local_weights_lie_in_memory_of_their_own():
    weight = nn.LocalConv.init(KEY, 2, 3, 4, 2).weight
    assert weight.flags.owndata
    assert not weight.flags.writeable
    assert weight.var() == pytest.approx(1 / 8, rel=0.3)


def test_the_layers_work_on_every_array_module(xp, to_numpy):
    layers = [
        nn.Conv.init(KEY, 2, 3, 2, padding=1, padding_mode="reflect"),
        nn.ConvTranspose.init(KEY, 2, 3, 2, stride=2),
        nn.DepthwiseConv.init(KEY, 2, 2, 2),
        nn.LocalConv.init(KEY, 2, 3, (4, 3), 2),
        nn.DeformableConv.init(KEY, 2, 3, 2, mask=True),
        nn.SqueezeExcitation.init(KEY, 2, 1),
        nn.ConvNeXtBlock.init(KEY, 2, 0.5),
    ]
    x = random.normal(random.key(1), (1, 2, 4, 3), "float32")
    for layer in layers:
        y = tree.map(xp.asarray, layer)(xp.asarray(x))
        assert type(y) is type(xp.asarray(x))
        np.testing.assert_allclose(to_numpy(y), layer(x), rtol=1e-5, atol=1e-6)


def test_depthwise_weights_are_written_and_read_as_chainers(tmp_path):
    layer = nn.DepthwiseConv.init(KEY, 3, 2, (2, 4), bias_init=initializers.normal())
    nn.save_chainer_npz(layer, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert file["W"].shape == (2, 3, 2, 4)
        np.testing.assert_array_equal(file["W"][1, 2], layer.weight[2 * 2 + 1, 0])
    other = nn.DepthwiseConv.init(random.key(1), 3, 2, (2, 4))
    assert nn.load_chainer_npz(other, tmp_path / "a.npz") == layer
