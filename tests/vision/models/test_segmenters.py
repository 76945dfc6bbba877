"""Segmenters: their parts beside plain NumPy, files of ChainerCV, predictions and losses."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.nn.formats.chainer_state import weights_of
from fdbr.nn.models.building import Builder
from fdbr.testing import assert_allclose
from fdbr.vision import models
from fdbr.vision.models.pspnet import DilatedResNet
from fdbr.vision.models.units import ConvUnit, SeparableConvUnit

KEY = random.key(0)
DRAW = np.random.default_rng(0)
SMALL = {
    "SegNetBasic": {"width": 4},
    "PSPNet_ResNet50": {"width": 2, "depths": (1, 1, 1, 1), "input_size": (32, 40)},
    "DeepLabV3Plus_Xception65": {
        "width": 2,
        "depth": 1,
        "channels": 4,
        "rates": (1, 2, 3),
        "min_input_size": (24, 24),
    },
    "FCN_ResNet50": {"width": 2, "depths": (1, 1, 1, 1), "size": 24},
    "DeepLabV3_ResNet50": {"width": 2, "depths": (1, 1, 1, 1), "channels": 4, "size": None},
    "LRASPP_MobileNet_V3_Large": {"width": 0.25, "channels": 8, "size": 24},
}
every = pytest.mark.parametrize("name", SMALL)


def made(name, dtype="float32", **changes):
    return getattr(models, name).init(KEY, 3, dtype=dtype, **{**SMALL[name], **changes})


def images(*sizes, dtype="float32"):
    return [DRAW.integers(0, 256, (3, *size)).astype(dtype) for size in sizes]


# --- parts beside NumPy -----------------------------------------------------------------


def conv(x, weight, pads=((0, 0), (0, 0)), stride=1, dilation=1, groups=1):
    """A convolution of one image, by the definition."""
    x = np.pad(x, ((0, 0), *pads))
    rows, columns = ((k - 1) * dilation + 1 for k in weight.shape[2:])
    height, width = (x.shape[1] - rows) // stride + 1, (x.shape[2] - columns) // stride + 1
    out = np.zeros((len(weight), height, width))
    share, per = x.shape[0] // groups, len(weight) // groups
    for o, i, j in np.ndindex(out.shape):
        part = x[o // per * share : (o // per + 1) * share]
        top, left = i * stride, j * stride
        window = part[:, top : top + rows : dilation, left : left + columns : dilation]
        out[o, i, j] = (window * weight[o]).sum()
    return out


def normed(x, norm):
    scale = norm.weight / np.sqrt(norm.running_var + norm.eps)
    return (x - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def stretched(x, size):
    """Linear interpolation between the centres of the corners."""
    for axis, m in ((1, size[0]), (2, size[1])):
        n = x.shape[axis]
        at = np.linspace(0, n - 1, m)
        low = np.minimum(at.astype(int), max(n - 2, 0))
        share = np.expand_dims(at - low, tuple(a for a in range(3) if a != axis))
        high = np.minimum(low + 1, n - 1)
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


def builder():
    return Builder(KEY, None, "float64")


def test_separable_convolutions_are_dilated_and_padded_on_both_sides():
    unit = SeparableConvUnit.build(builder(), 2, 3, 2, 2, dw_act=ops.relu)
    x = DRAW.standard_normal((2, 9, 8))
    y = conv(x, unit.depthwise.weight, ((2, 2), (2, 2)), 2, 2, 2)
    y = np.maximum(normed(y, unit.dw_bn), 0)
    y = np.maximum(normed(conv(y, unit.pointwise.weight), unit.pw_bn), 0)
    assert_allclose(unit(x[None])[0], y)


def test_pyramid_pooling_is_means_over_windows_beside_the_input():
    layer = models.PyramidPooling.init(KEY, 4, (7, 6), bins=(3, 1), dtype="float64")
    x = DRAW.standard_normal((4, 7, 6))
    parts = [x]
    for unit, (h, w) in zip(layer.convs, ((2, 2), (7, 6)), strict=True):
        rows, columns = 7 // h, 6 // w
        pooled = x[:, : rows * h, : columns * w].reshape(4, rows, h, columns, w).mean((2, 4))
        parts.append(
            stretched(np.maximum(normed(conv(pooled, unit.conv.weight), unit.bn), 0), (7, 6))
        )
    assert_allclose(layer(x[None])[0], np.concatenate(parts), rtol=1e-9, atol=1e-9)


def test_atrous_pyramids_have_a_branch_for_each_dilation_and_one_for_the_mean():
    layer = models.ASPP.init(KEY, 2, 3, rates=(1, 3), dtype="float64")
    x = DRAW.standard_normal((2, 6, 7))

    def unit(x, parts, rate=0):
        pads = ((rate, rate),) * 2
        return np.maximum(
            normed(conv(x, parts[0].weight, pads, dilation=max(rate, 1)), parts[1]), 0
        )

    one, near, far, mean = layer.convs
    mean = np.broadcast_to(unit(x.mean((1, 2), keepdims=True), mean[1:]), (3, 6, 7))
    joined = np.concatenate([unit(x, one), unit(x, near, 1), unit(x, far, 3), mean])
    assert_allclose(layer(x[None])[0], unit(joined, layer.project), rtol=1e-9, atol=1e-9)

    separable = models.SeparableASPP.build(builder(), 2, 3, (1, 2, 3))
    pooled = ops.mean(x[None], axis=(2, 3), keepdims=True)
    parts = [
        np.broadcast_to(separable.image_pooling_conv(pooled), (1, 3, 6, 7)),
        *(getattr(separable, n)(x[None]) for n in ("conv1x1", "atrous1", "atrous2", "atrous3")),
    ]
    assert_allclose(separable(x[None]), separable.proj(np.concatenate(parts, 1)))


def test_padding_as_in_tensorflow_has_more_at_the_end():
    model = nn.models.MobileNetV2.init(KEY, 2, width=0.25, chainer=True, dtype="float64")
    unit = model.features[0]
    x = DRAW.standard_normal((3, 6, 7))
    y = np.clip(normed(conv(x, unit[0].weight, ((0, 1), (1, 1)), 2), unit[1]), 0, 6)
    assert_allclose(unit(x[None])[0], y)


@pytest.mark.parametrize("size", [(16, 32), (21, 13), (37, 30)])
def test_segnet_writes_values_to_the_positions_of_maxima(size):
    model = made("SegNetBasic", "float64")
    (image,) = images(size, dtype="float64")

    def pooled(x):
        """Maxima of 2x2 windows that cover the image, and where in its window each is."""
        rows, columns = (-(-n // 2) for n in x.shape[1:])
        values, found = np.zeros((len(x), rows, columns)), np.zeros((len(x), rows, columns), int)
        for c, i, j in np.ndindex(values.shape):
            window = np.full((2, 2), -np.inf)
            part = x[c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            window[: part.shape[0], : part.shape[1]] = part
            values[c, i, j], found[c, i, j] = window.max(), window.argmax()
        return values, found

    def unpooled(x, found):
        x = x[:, : found.shape[1], : found.shape[2]]
        out = np.zeros((len(x), 2 * found.shape[1], 2 * found.shape[2]))
        for c, i, j in np.ndindex(found.shape):
            row, column = divmod(found[c, i, j], 2)
            out[c, 2 * i + row, 2 * j + column] = x[c, i, j]
        return out

    def layer(x, name):
        y = ops.conv(x[None], getattr(model, name).weight, padding=3)[0]
        return normed(y, getattr(model, f"{name}_bn"))

    squares = np.pad(image**2, ((2, 2), (0, 0), (0, 0)))
    sums = np.stack([squares[c : c + 5].sum(0) for c in range(3)])
    x = image / (1 + 1e-4 / 5 * sums) ** 0.75
    indices = []
    for name in ("conv1", "conv2", "conv3", "conv4"):
        x, found = pooled(np.maximum(layer(x, name), 0))
        indices.append(found)
    for name in ("conv_decode4", "conv_decode3", "conv_decode2", "conv_decode1"):
        x = layer(unpooled(x, indices.pop()), name)
    scores = model.conv_classifier(x[None])
    if scores.shape[2:] != size:
        scores = ops.interpolate(scores, size, mode="bilinear", align_corners=False)
    assert_allclose(model(image[None]), scores, rtol=1e-8, atol=1e-8)


def test_stages_of_pspnet_are_dilated_alike():
    network = DilatedResNet.build(builder(), 2, (1, 1, 2, 2))
    early, last = network(DRAW.standard_normal((1, 3, 64, 64)))
    assert early.shape == (1, 32, 9, 9)
    assert last.shape == (1, 64, 9, 9)
    assert [block.conv2.dilation for block in (*network.res4, *network.res5)] == [2, 2, 4, 4]


# --- files ------------------------------------------------------------------------------

UNIT = ("conv/W", "bn/gamma", "bn/beta", "bn/avg_mean", "bn/avg_var", "bn/N")
NORM = ("gamma", "beta", "avg_mean", "avg_var", "N")


def names_of(prefix, names):
    return {f"{prefix}/{name}" for name in names}


def separable(prefix):
    own = {f"{prefix}/depthwise/W", f"{prefix}/pointwise/W"}
    return own | names_of(f"{prefix}/dw_bn", NORM) | names_of(f"{prefix}/pw_bn", NORM)


def segnet_names():
    found = {"conv_classifier/W", "conv_classifier/b"}
    for name in [f"conv{i}" for i in range(1, 5)] + [f"conv_decode{i}" for i in range(1, 5)]:
        found |= {f"{name}/W"} | names_of(f"{name}_bn", NORM)
    return found


def pspnet_names():
    found = {"head_conv2/W", "head_conv2/b"} | names_of("head_conv1", UNIT)
    for i in range(4):
        found |= names_of(f"ppm/{i}", UNIT)
        for name in ("conv1", "conv2", "conv3", "residual_conv"):
            found |= names_of(f"extractor/res{i + 2}/a/{name}", UNIT)
    for name in ("conv1_1", "conv1_2", "conv1_3"):
        found |= names_of(f"extractor/{name}", UNIT)
    for name in ("conv1", "conv2", "conv3"):
        found |= names_of(f"extractor/res3/b1/{name}", UNIT)
    return found


def deeplab_names():
    found = names_of("decoder/feature_proj", UNIT) | {
        "decoder/conv_logits/W",
        "decoder/conv_logits/b",
    }
    found |= separable("decoder/conv1") | separable("decoder/conv2")
    for name in ("image_pooling_conv", "conv1x1", "proj"):
        found |= names_of(f"aspp/{name}", UNIT)
    for i in (1, 2, 3):
        found |= separable(f"aspp/atrous{i}")
    blocks = {f"entryflow_block{i}": True for i in (1, 2, 3)}
    blocks |= {"middleflow_block1": False, "exitflow_block1": True, "exitflow_block2": False}
    for block, has_conv in blocks.items():
        for i in (1, 2, 3):
            found |= separable(f"feature_extractor/{block}/separable{i}")
        if has_conv:
            found |= names_of(f"feature_extractor/{block}/conv", UNIT)
    for i in (1, 2):
        found |= names_of(f"feature_extractor/entryflow_conv{i}", UNIT)
    return found


CHAINERS = {
    "SegNetBasic": (segnet_names(), {}),
    "PSPNet_ResNet50": (pspnet_names(), {"depths": (1, 2, 1, 1)}),
    "DeepLabV3Plus_Xception65": (deeplab_names(), {}),
}


@pytest.mark.parametrize("name", CHAINERS)
def test_files_of_chainercv_are_loaded_by_their_names(name, tmp_path):
    names, changes = CHAINERS[name]
    model = made(name, **changes)
    shapes = {n: array.shape for n, array in weights_of("save_chainer_npz", model).items()}
    assert shapes.keys() == names
    arrays = {n: DRAW.uniform(0.5, 1, shape).astype("float32") for n, shape in shapes.items()}
    np.savez(tmp_path / "theirs.npz", **arrays)
    loaded = nn.load_chainer_npz(model, tmp_path / "theirs.npz")
    for n, array in weights_of("save_chainer_npz", loaded).items():
        if not n.endswith("/N"):
            np.testing.assert_array_equal(array, arrays[n])


# --- predictions ------------------------------------------------------------------------


@every
def test_each_image_gets_a_map_of_its_own_size_jitted_too(name):
    model = made(name)
    given = images((20, 31), (26, 70), (20, 31))
    found = model.predict(given)
    assert [(m.shape, m.dtype) for m in found] == [(i.shape[1:], np.int32) for i in given]
    assert all(0 <= m.min() and m.max() < 3 for m in found)
    alone = model.predict([given[1].astype("uint8")])[0]
    np.testing.assert_array_equal(alone, found[1])
    for eager, jitted in zip(found, model.predict(given, jit=True), strict=True):
        assert (eager == jitted).mean() > 0.995  # scores that are nearly equal may differ
    assert model.predict([]) == ()


def test_windows_cover_an_image():
    for size, window, stride in [((30, 50), (16, 20), (11, 14)), ((5, 90), (16, 20), (11, 14))]:
        (image,) = images(size)
        parts, where = models.convolution_crop(image, window, stride)
        assert parts.shape[2:] == window
        counts = np.zeros(size)
        for part, (rows, columns, own_rows, own_columns) in zip(parts, where, strict=True):
            np.testing.assert_array_equal(part[:, own_rows, own_columns], image[:, rows, columns])
            counts[rows, columns] += 1
        assert counts.min() > 0


@pytest.mark.parametrize("size", [(20, 70), (24, 30)])
def test_pspnets_probabilities_are_means_over_windows_and_mirror_images(size):
    model = made("PSPNet_ResNet50", "float64")
    (image,) = images(size, dtype="float64")
    prepared = model.prepare([image])
    scores = model.finish(model.scores(prepared.batch), prepared)
    assert scores.shape == (1, 3, *size)
    assert_allclose(scores.sum(1), np.ones((1, *size)), rtol=1e-9)
    normal = image - np.array([123.68, 116.779, 103.939])[:, None, None]
    if max(size) <= 40:
        h, w = 32, 40
        small = ops.interpolate(normal[None], (h, w), mode="bilinear", antialias=True)
        assert_allclose(prepared.batch, np.concatenate([small, small[..., ::-1]]))
        return
    total, counts = np.zeros((3, *size)), np.zeros(size)
    windows, where = models.convolution_crop(normal, (32, 40), (22, 27))
    for window, (rows, columns, own_rows, own_columns) in zip(windows, where, strict=True):
        part = model.scores(window[None])[0] + model.scores(window[None, ..., ::-1])[0][..., ::-1]
        total[:, rows, columns] += part[:, own_rows, own_columns] / 2
        counts[rows, columns] += 1
    assert_allclose(scores[0], total / counts, rtol=1e-9)


def test_deeplab_averages_over_scales_and_mirror_images():
    model = made("DeepLabV3Plus_Xception65", "float64")
    (image,) = images((20, 30), dtype="float64")
    alone, model = model, tree.replace(model, flip=True)
    padded = np.full((3, 24, 30), 127.5)
    padded[:, :20] = image
    scores = alone.scores((padded / 127.5 - 1)[None])[0, :, :20]
    np.testing.assert_array_equal(alone.predict([image])[0], scores.argmax(0))
    padded[:, :20] = image[:, :, ::-1]
    scores = scores + alone.scores((padded / 127.5 - 1)[None])[0, :, :20, ::-1]
    np.testing.assert_array_equal(model.predict([image])[0], scores.argmax(0))
    assert tree.replace(model, scales=(1.0, 1.5)).predict([image])[0].shape == (20, 30)


@every
def test_outputs_of_layers_are_extracted(name):
    model = made(name)
    layers = {
        "SegNetBasic": ["conv1_bn", "conv_decode2"],
        "PSPNet_ResNet50": ["extractor.res4[0].conv2", "ppm"],
        "DeepLabV3Plus_Xception65": ["feature_extractor.middleflow[0].separable2", "aspp.proj"],
        "FCN_ResNet50": ["backbone.layer3[0].bn1", "classifier[0]"],
        "DeepLabV3_ResNet50": ["backbone.layer4", "classifier[0].convs[1]"],
        "LRASPP_MobileNet_V3_Large": ["backbone.layers[4]", "classifier.cbr"],
    }[name]
    found = model.extract(model.normalize(images((32, 40))), layers)
    assert list(found) == layers
    assert all(np.isfinite(out).all() for out in found.values())


# --- losses -----------------------------------------------------------------------------


def truths(count, size):
    return DRAW.integers(-1, 3, (count, *size)).astype("int32")


@every
def test_losses_have_gradients_which_are_the_same_jitted(name):
    model = made(name, "float64")
    batch, labels = np.stack(images((32, 32), (32, 32), dtype="float64")), truths(2, (32, 32))

    def total(model, batch, labels):
        losses, successor = model.losses(batch, labels, key=KEY)
        return sum(losses.values()), (losses, successor)

    gradient = fdbr.value_and_grad(total, has_aux=True)
    (value, (losses, successor)), grads = gradient(model, batch, labels)
    has_aux = name in ("PSPNet_ResNet50", "FCN_ResNet50", "DeepLabV3_ResNet50")
    assert losses.keys() == ({"out", "aux"} if has_aux else {"out"})
    assert tree.structure(successor) == tree.structure(model)
    assert any(np.abs(leaf).max() > 0 for leaf in tree.leaves(tree.trainable(grads)))
    (jitted, _), other = fdbr.jit(gradient)(model, batch, labels)
    assert_allclose(jitted, value, rtol=1e-9)
    scale = max(abs(leaf).max() for leaf in tree.leaves(tree.trainable(grads)))
    assert_allclose(
        tree.trainable(other), tree.trainable(grads), rtol=1e-5, atol=1e-6 * float(scale)
    )


def test_the_loss_is_the_cross_entropy_of_known_pixels_with_weights_of_classes():
    model = made("SegNetBasic", "float64")
    batch, labels = np.stack(images((16, 16), dtype="float64")), truths(1, (16, 16))
    logits = model.train(batch)[0].out[0]
    logs = logits - np.log(np.exp(logits).sum(0))
    known = labels[0] >= 0
    picked = -np.take_along_axis(logs, np.maximum(labels, 0), 0)[0][known]
    losses, _ = model.losses(batch, labels)
    assert_allclose(losses["out"], picked.mean())
    weight = np.array([0.5, 1.0, 4.0])
    weighted = weight[labels[0][known]] * picked
    losses, _ = model.losses(batch, labels, class_weight=weight)
    assert_allclose(losses["out"], weighted.mean())  # as Chainer's
    fcn = made("FCN_ResNet50", "float64", aux_loss=False)
    assert fcn.train(fcn.normalize(batch), key=KEY)[0].aux is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda i, m: (i, m[:1]), ValueError, "label_maps must be as many as images, 2, got 1"),
        (lambda i, m: (i, [m[0], m[1, :4]]), ValueError, "label map 1 must be integers of the"),
        (lambda i, m: (i, m.astype("float32")), ValueError, "label map 0 must be integers"),
        (lambda i, m: (i, np.where(m == 2, 3, m)), ValueError, "classes from 0 to 2, or -1"),
        (lambda i, m: ([i[0], i[1, :, :8]], m), ValueError, "must have the size of the first"),
        (lambda i, m: (i[:0], m[:0]), ValueError, "images must have an image at least"),
        (lambda i, m: ([i[0], i[1] * np.nan], m), ValueError, "losses: image 1 has values"),
        (lambda i, m: (i * 1j, m), TypeError, "losses: image 0 must be of real numbers"),
    ],
)
def test_truths_that_do_not_fit_are_refused_with_the_index(change, error, message):
    model = made("SegNetBasic")
    batch, maps = np.stack(images((16, 16), (16, 16))), truths(2, (16, 16))
    with pytest.raises(error, match=f"SegNetBasic.losses: .*{message.split('losses: ')[-1]}"):
        model.losses(*change(batch, maps), key=KEY)


@every
def test_sizes_of_models_are_checked(name):
    with pytest.raises(ValueError, match=f"{name}.init: classes must be at least 1"):
        getattr(models, name).init(KEY, 0)


# --- features ---------------------------------------------------------------------------


def test_features_are_means_over_ten_crops():
    model = nn.models.ResNet18.init(KEY, 5, width=4, dtype="float64")
    (image,) = images((50, 40), dtype="float64")
    predictor = models.FeaturePredictor(model, (24, 20), crop="10", std=(2.0, 2.0, 2.0))
    x = (image - np.array([123.68, 116.779, 103.939])[:, None, None]) / 2
    crops = [x[:, i : i + 24, j : j + 20] for i in (0, 26) for j in (0, 20)]
    crops.append(x[:, 13:37, 10:30])
    crops = np.stack(crops + [crop[:, :, ::-1] for crop in crops])
    assert_allclose(predictor.predict([image])[0], model(crops).mean(0), rtol=1e-9)
    two = tree.replace(predictor, layers=("layer1", "fc")).predict([image, image], jit=True)
    assert two["layer1"].shape == (2, 4, 6, 5)
    assert_allclose(two["fc"][1], model(crops).mean(0), rtol=1e-7)


def test_features_are_those_of_the_centre_of_a_scaled_image():
    model = nn.models.MobileNetV2.init(KEY, 5, width=0.25, dtype="float64")
    image = images((60, 40))[0].astype("uint8")
    for scale, size in ((30, (45, 30)), ((33, 35), (33, 35))):
        predictor = models.FeaturePredictor(model, 24, scale_size=scale, mean=(0, 0, 0))
        small = ops.interpolate(
            image[None].astype("float32"), size, mode="bilinear", antialias=True
        )
        top, left = round((size[0] - 24) / 2), round((size[1] - 24) / 2)
        crop = small[:, :, top : top + 24, left : left + 24]
        assert_allclose(predictor.predict([image]), model(crop), rtol=1e-5)


def test_images_smaller_than_a_crop_are_refused():
    model = nn.models.MobileNetV2.init(KEY, 5, width=0.25)
    with pytest.raises(ValueError, match="image 1 has 20 by 40 pixels after scaling, fewer than"):
        models.FeaturePredictor(model, 32).predict(images((40, 40), (20, 40)))
    with pytest.raises(ValueError, match="crop must be 'center' or '10', got 'left'"):
        models.FeaturePredictor(model, 32, crop="left")
    with pytest.raises(ValueError, match="there are no images"):
        models.FeaturePredictor(model, 32).predict([])
    with pytest.raises(ValueError, match=r"std must have one number, or one for each of the 1 ch"):
        models.FeaturePredictor(model, 32, mean=(0.0,), std=(1.0, 1.0, 1.0))


def test_features_of_images_with_other_channels():
    model = nn.models.ResNet18.init(KEY, 5, width=4, in_channels=1, dtype="float64")
    image = DRAW.uniform(0, 255, (1, 40, 33))
    predictor = models.FeaturePredictor(model, 32, mean=(100.0,), std=(50.0,))
    crop = (image[:, 4:36, :32] - 100) / 50
    assert_allclose(predictor.predict([image]), model(crop[None]), rtol=1e-9)
    with pytest.raises(ValueError, match=r"image 0 must have the shape \(1, H, W\)"):
        predictor.predict(images((40, 40)))


def test_units_are_convolution_normalisation_and_activation():
    unit = ConvUnit.build(builder(), 2, 3, 3, 2, act=None)
    x = DRAW.standard_normal((2, 6, 7))
    pads = ((1, 1), (1, 1))
    assert_allclose(unit(x[None])[0], normed(conv(x, unit.conv.weight, pads, 2), unit.bn))


def test_one_trace_serves_all_label_maps() -> None:
    model = models.SegNetBasic.init(fdbr.random.key(0), 3, width=2)
    images = np.random.default_rng(0).uniform(0, 255, (2, 3, 16, 16)).astype(np.float32)
    losses = fdbr.jit(lambda model, maps: model.losses(images, maps, key=None)[0])
    for label in (-1, 0, 1, 2):
        label_maps = np.full((2, 16, 16), label, np.int32)
        label_maps[0, :4] = 1
        found = losses(model, label_maps)["out"]
        eager = model.losses(images, label_maps, key=None)[0]["out"]
        np.testing.assert_allclose(found, eager, rtol=1e-5)
    assert "1 trace\n" in str(losses.report())
