"""The detectors without proposals find and learn what torchvision's do."""

import re

import numpy as np
import pytest

import fdbr
from fdbr import nn, vision
from fdbr.vision import models

pytestmark = pytest.mark.slow

CLASSES = 5
SIZES = (120, 160), (200, 140), (150, 150)
DENSE = {"min_size": 128, "max_size": 192}
# Our model; torchvision's, its settings, and the number of classes that are the background.
PEERS = {
    "SSD300_VGG16": ("ssd300_vgg16", {}, 1),
    "SSDLite320_MobileNet_V3_Large": ("ssdlite320_mobilenet_v3_large", {}, 1),
    "RetinaNet_ResNet50_FPN": ("retinanet_resnet50_fpn", DENSE, 0),
    "RetinaNet_ResNet50_FPN_V2": ("retinanet_resnet50_fpn_v2", DENSE, 0),
    "FCOS_ResNet50_FPN": ("fcos_resnet50_fpn", DENSE, 0),
}


@pytest.fixture(params=PEERS, scope="module")
def pair(request):
    """Our model and torchvision's, with the same weights, and many uncertain detections."""
    torch = pytest.importorskip("torch", reason="it is compared with")
    detection = pytest.importorskip("torchvision").models.detection
    name, settings, background = PEERS[request.param]
    torch.manual_seed(3)
    theirs = getattr(detection, name)(
        weights=None, weights_backbone=None, num_classes=CLASSES + background, **settings
    )
    theirs.eval().double()  # in float32, rounding errors decide about the order of near scores
    last = {
        at: module
        for at, module in theirs.head.named_modules()
        if re.search(r"(cls_logits|bbox_reg|bbox_ctrness|list\.\d+|list\.\d+\.1)$", at)
        and isinstance(module, torch.nn.Conv2d)
    }
    outputs = {at: [] for at in last}
    for at, module in last.items():
        module.register_forward_hook(lambda _, __, out, at=at: outputs[at].append(out.flatten()))
    with torch.no_grad():
        for module in theirs.backbone.modules():
            if isinstance(module, torch.nn.Conv2d) and background:
                torch.nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2)
        theirs(tensors())
        for at, module in last.items():
            module.weight *= (0.2 if "regression" in at else 1) / torch.cat(outputs[at]).std()
            module.bias.fill_(0.1 if "regression" in at else -1)
    key = fdbr.random.key(0)
    ours = getattr(models, request.param).init(key, CLASSES, dtype=np.float64, **settings)
    return nn.load_torch_state(ours, theirs.state_dict()), theirs, background


def pictures():
    rng = np.random.default_rng(0)
    return [rng.uniform(0, 255, (3, *size)).astype("float32") for size in SIZES]


def tensors():
    torch = pytest.importorskip("torch")
    return [torch.tensor(image.astype("float64") / 255) for image in pictures()]


def test_predictions_are_those_of_torchvision(pair):
    torch = pytest.importorskip("torch")
    ours, theirs, background = pair
    with torch.no_grad():
        expected = theirs.eval()(tensors())
    for jit in (False, True):
        found = ours.predict(pictures(), jit=jit)
        for i, of in enumerate(expected):
            boxes = of["boxes"].numpy()[:, [1, 0, 3, 2]]
            assert len(boxes) > 20
            np.testing.assert_array_equal(found.labels[i], of["labels"].numpy() - background)
            np.testing.assert_allclose(found.scores[i], of["scores"].numpy(), atol=1e-4)
            np.testing.assert_allclose(found.boxes[i], boxes, rtol=1e-4, atol=1e-4)


def test_losses_are_those_of_torchvision(pair):
    torch = pytest.importorskip("torch")
    ours, theirs, background = pair
    rng = np.random.default_rng(1)
    boxes, labels = [], []
    for count, (height, width) in zip((4, 0, 1), SIZES, strict=True):
        low = rng.uniform(0, 0.5, (count, 2))
        high = low + rng.uniform(0.1, 0.5, (count, 2))
        sides = np.array([height, width, height, width])
        boxes.append((np.concatenate([low, high], 1) * sides).astype("float32"))
        labels.append(rng.integers(0, CLASSES, count).astype("int32"))
    theirs.train()
    is_frozen = not background and not isinstance(ours, models.RetinaNet_ResNet50_FPN_V2)
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d) and is_frozen:
            module.eval()
    targets = [
        {"boxes": torch.tensor(b[:, [1, 0, 3, 2]]), "labels": torch.tensor(n + background).long()}
        for b, n in zip(boxes, labels, strict=True)
    ]
    expected = theirs(tensors(), targets)
    truths = vision.Truths(tuple(boxes), tuple(labels))
    found, successor = ours.losses(pictures(), truths, key=fdbr.random.key(0))
    assert found.keys() == expected.keys()
    # Images are resized in float32, and batch normalisation in training magnifies the rounding.
    rtol = 1e-5 if is_frozen else 1e-4
    for name, loss in expected.items():
        np.testing.assert_allclose(found[name], loss.item(), rtol=rtol, err_msg=name)
    state = nn.save_torch_state(successor)
    for name, value in theirs.state_dict().items():
        if "running" in name:
            scale = float(value.abs().max())
            np.testing.assert_allclose(state[name], value.numpy(), atol=1e-3 * scale, err_msg=name)
