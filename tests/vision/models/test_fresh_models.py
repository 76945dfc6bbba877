"""Fresh networks of the depths of the literature give values from which they can learn."""

import numpy as np
import pytest

import fdbr
from fdbr import nn
from fdbr.nn.models.building import Builder
from fdbr.vision import models

KEY = fdbr.random.key(0)
PIXELS = np.repeat(np.random.default_rng(0).uniform(-128, 128, (1, 3, 8, 64)), 8, 2).astype("f4")


def features(network, x):
    found = network(x)
    return found if isinstance(found, tuple | list) else [found]


@pytest.mark.parametrize(
    "cls", [models.FasterRCNN_VGG16, models.LightHeadRCNN_ResNet101, models.FCIS_ResNet101]
)
def test_features_of_a_deep_detector_are_of_moderate_size(cls):
    model = cls.init(KEY, 3, width=4, **({"hidden": 8} if cls is models.FasterRCNN_VGG16 else {}))
    for x in features(model.extractor, PIXELS):
        assert 0.05 < x.std() < 50


@pytest.mark.parametrize("network", [nn.models.ResNet18, nn.models.ResNet101])
@pytest.mark.parametrize("chainer", [False, True])
def test_features_of_a_frozen_residual_network_are_of_moderate_size(network, chainer):
    body = models.ResNetBody.init(KEY, network, width=4, chainer=chainer)
    for x in body(PIXELS if chainer else PIXELS / 64):
        assert 0.05 < x.std() < 5


def test_a_convolution_of_each_channel_keeps_the_scale_for_any_number_of_channels():
    x = np.random.default_rng(0).normal(size=(1, 500, 9, 9)).astype("f4")
    unit = models.SeparableConvUnit.build(Builder(KEY, None, "float32"), 500, 2)
    np.testing.assert_allclose(unit.depthwise(x)[:, :, 1:-1, 1:-1].var(), 2, rtol=0.1)
