"""Files of ChainerCV's classifiers, by its names and with its arithmetic."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, tree
from fdbr.nn import models

WIDTH, DEPTHS, CLASSES = 4, (2, 1, 1, 1), 3
NEXT = {"groups": 2, "width_per_group": 64}
CASES = {
    # the class, its settings, and what ChainerCV 0.13 computes for the images below
    "ResNet, fb": (
        models.ResNet50,
        {"downsample_fb": True, "stem_bias": False},
        [[-43.132130, -28.665010, -5.069503], [-44.982014, -28.601339, -0.999987]],
    ),
    "ResNet, he": (
        models.ResNet50,
        {},
        [[-14.006824, -33.215244, 7.727190], [-14.306074, -35.642872, 7.753272]],
    ),
    "SEResNet": (
        models.SEResNet50,
        {"stem_bias": False},
        [[-0.521042, -6.873405, -0.945204], [0.636596, -7.200830, -1.650674]],
    ),
    "SEResNeXt": (
        models.SEResNeXt50,
        {"downsample_fb": True, "stem_bias": False, **NEXT},
        [[-5.889346, -11.326838, -22.191547], [-5.059428, -13.553178, -23.158344]],
    ),
}
each = pytest.mark.parametrize("name", CASES)


def file_of(name):
    """Return the arrays of a small network under ChainerCV's names."""
    rng = np.random.RandomState(0)
    arrays = {}

    def unit(path, inputs, outputs, kernel, bias=False):
        fan = inputs * kernel**2
        arrays[f"{path}/conv/W"] = rng.normal(0, fan**-0.5, (outputs, inputs, kernel, kernel))
        if bias:
            arrays[f"{path}/conv/b"] = rng.normal(0, 1, outputs)
        for array, low, high in (("gamma", 1, 2), ("beta", -1, 1), ("avg_mean", -1, 1)):
            arrays[f"{path}/bn/{array}"] = rng.uniform(low, high, outputs)
        arrays[f"{path}/bn/avg_var"] = rng.uniform(0.5, 1.5, outputs)

    def linear(path, inputs, outputs):
        arrays[f"{path}/W"] = rng.normal(0, inputs**-0.5, (outputs, inputs))
        arrays[f"{path}/b"] = rng.normal(0, 0.5, outputs)

    groups = 2 if "X" in name else 1
    unit("conv1", 3, WIDTH, 7, bias="he" in name)
    inputs = WIDTH
    for stage, depth in enumerate(DEPTHS):
        inner, outputs = groups * WIDTH * 2**stage, 4 * WIDTH * 2**stage
        for i in range(depth):
            block = f"res{stage + 2}/{f'b{i}' if i else 'a'}"
            unit(f"{block}/conv1", inputs, inner, 1)
            unit(f"{block}/conv2", inner // groups, inner, 3)
            unit(f"{block}/conv3", inner, outputs, 1)
            if "SE" in name:
                linear(f"{block}/se/down", outputs, outputs // 16)
                linear(f"{block}/se/up", outputs // 16, outputs)
            if not i:
                unit(f"{block}/residual_conv", inputs, outputs, 1)
            inputs = outputs
    linear("fc6", inputs, CLASSES)
    return {key: array.astype("float32") for key, array in arrays.items()}


def model_of(name, **settings):
    kind, own, _ = CASES[name]
    shape = {"width": WIDTH, "depths": DEPTHS, "chainer": True}
    return kind.init(fdbr.random.key(0), CLASSES, **shape, **{**own, **settings})


@each
def test_classifiers_load_chainercvs_files_and_compute_what_it_does(name, tmp_path):
    np.savez(tmp_path / "a.npz", **file_of(name))
    model = nn.load_chainer_npz(model_of(name), tmp_path / "a.npz")
    images = np.random.RandomState(1).normal(0, 1, (2, 3, 50, 41)).astype("float32")
    np.testing.assert_allclose(model(images), CASES[name][2], rtol=1e-4, atol=1e-4)


def test_a_file_without_a_bias_is_refused_by_a_model_with_one(tmp_path):
    np.savez(tmp_path / "a.npz", **file_of("ResNet, fb"))
    with pytest.raises(ValueError, match=r"missing.*conv1/b"):
        nn.load_chainer_npz(model_of("ResNet, fb", stem_bias=True), tmp_path / "a.npz")


def test_vgg_has_the_same_arrays_in_files_of_chainer_and_chainercv(tmp_path):
    model = models.VGG16.init(fdbr.random.key(0), CLASSES, width=2, hidden=4)
    nn.save_chainer_npz(model, tmp_path / "chainer.npz")
    with np.load(tmp_path / "chainer.npz") as file:
        arrays = {
            name.replace("/", "/conv/") if "conv" in name else name: file[name] for name in file
        }
    assert {"conv1_1/conv/W", "conv5_3/conv/b", "fc6/W", "fc8/b"} <= arrays.keys()
    np.savez(tmp_path / "chainercv.npz", **arrays)
    assert nn.load_chainer_npz(tree.map(np.zeros_like, model), tmp_path / "chainercv.npz") == model


def test_a_matrix_fits_a_kernel_of_one_pixel_only(tmp_path):
    layer = nn.Conv.init(fdbr.random.key(0), 2, 3, 1)
    np.savez(tmp_path / "a.npz", W=np.ones((3, 2)), b=np.zeros(3))
    assert (nn.load_chainer_npz(layer, tmp_path / "a.npz").weight == 1).all()
    with pytest.raises(ValueError, match=r"misshapen.*W"):
        nn.load_chainer_npz(nn.Conv.init(fdbr.random.key(0), 2, 3, (1, 3)), tmp_path / "a.npz")
