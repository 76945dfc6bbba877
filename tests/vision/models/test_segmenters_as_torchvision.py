"""Segmenters that torchvision has, with its weights: logits, predictions and losses."""

import numpy as np
import pytest

from fdbr import nn, random, tree
from fdbr.pytrees.classes import fields_of
from fdbr.vision import models

torch = pytest.importorskip("torch", reason="the comparison needs PyTorch")
torchvision = pytest.importorskip("torchvision", reason="the comparison needs torchvision")

pytestmark = pytest.mark.slow

NAMES = {
    "FCN_ResNet50": "fcn_resnet50",
    "DeepLabV3_ResNet50": "deeplabv3_resnet50",
    "DeepLabV3_MobileNet_V3_Large": "deeplabv3_mobilenet_v3_large",
    "LRASPP_MobileNet_V3_Large": "lraspp_mobilenet_v3_large",
}
COUNTS = {
    "FCN_ResNet50": 35322218,
    "FCN_ResNet101": 54314346,
    "DeepLabV3_ResNet50": 42004074,
    "DeepLabV3_ResNet101": 60996202,
    "DeepLabV3_MobileNet_V3_Large": 11029328,
    "LRASPP_MobileNet_V3_Large": 3221538,
}
CLASSES = 5


def images():
    draw = np.random.default_rng(0)
    return [
        draw.integers(0, 256, (3, *size)).astype(np.float32)
        for size in ((40, 56), (61, 48), (72, 72))
    ]


def both(name, dtype):
    """torchvision's model with random weights and statistics, and ours with the same."""
    torch.manual_seed(0)
    options = {} if "lraspp" in NAMES[name] else {"aux_loss": True}
    theirs = getattr(torchvision.models.segmentation, NAMES[name])(
        weights=None, weights_backbone=None, num_classes=CLASSES, **options
    )
    for part in theirs.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(part.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(part.weight, 0.5, 1.0)
            torch.nn.init.uniform_(part.bias, -0.1, 0.1)
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    ours = getattr(models, name).init(random.key(0), CLASSES, size=48, dtype=dtype)
    ours = nn.load_torch_state(ours, dict(theirs.state_dict()))
    return theirs.to(getattr(torch, dtype)), ours


def without_dropout(part):
    """The same model with dropout of rate 0."""
    if isinstance(part, nn.Dropout):
        return nn.Dropout(0.0)
    if isinstance(part, tuple):
        return tuple(map(without_dropout, part))
    names, _ = fields_of(type(part)) or ((), ())
    if not names or not isinstance(part, nn.Layer):
        return part
    return tree.replace(part, **{name: without_dropout(getattr(part, name)) for name in names})


@pytest.mark.parametrize("name", NAMES)
def test_logits_predictions_and_losses_are_torchvisions(name):
    theirs, ours = both(name, "float32")
    theirs.eval()
    preset = torchvision.transforms._presets.SemanticSegmentation(resize_size=48)
    found = ours.predict(images())
    for image, label_map in zip(images(), found, strict=True):
        prepared = preset(torch.from_numpy(image / 255))[None]
        with torch.no_grad():
            logits = theirs(prepared)["out"]
            scores = torch.nn.functional.interpolate(logits, image.shape[1:], mode="bilinear")
        batch = ours.prepare([image]).batch
        np.testing.assert_allclose(batch, prepared, atol=1e-4)
        bound = 1e-4 * max(1, abs(logits).max())
        np.testing.assert_allclose(ours(batch), logits, atol=float(bound))
        assert label_map.dtype == np.int32
        np.testing.assert_array_equal(label_map, scores.argmax(1)[0])


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_torchvisions_training(name):
    theirs, ours = both(name, "float64")
    theirs.train()
    batch = np.stack([image[:, :40, :48] for image in images()]).astype("float64")
    labels = np.random.default_rng(1).integers(-1, CLASSES, (3, 40, 48)).astype(np.int32)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    outs = theirs((torch.from_numpy(batch) / 255 - mean) / std)
    target = torch.from_numpy(labels).long()
    expected = {
        key: torch.nn.functional.cross_entropy(out, target, ignore_index=-1)
        for key, out in outs.items()
    }
    losses, successor = without_dropout(ours).losses(batch, labels, key=random.key(0))
    assert losses.keys() == expected.keys()
    assert float(losses["out"]) == pytest.approx(expected["out"].item(), rel=1e-5)
    if "aux" in losses:
        assert float(losses["aux"]) == pytest.approx(0.5 * expected["aux"].item(), rel=1e-5)
    state = nn.save_torch_state(successor)
    for key, value in theirs.state_dict().items():
        if "running" in key:
            np.testing.assert_allclose(state[key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", COUNTS)
def test_models_have_as_many_parameters_as_published(name):
    def free(key, shape, dtype):
        return np.broadcast_to(np.zeros((), dtype), shape)

    model = getattr(models, name).init(random.key(0), weight_init=free)
    assert tree.size(tree.trainable(model)) == COUNTS[name]
