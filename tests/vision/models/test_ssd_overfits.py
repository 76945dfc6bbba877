"""ChainerCV's SSD learns ten pictures by heart."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, train, vision
from fdbr.vision import models

SIZE, RATIOS = 48, ((2.0,), (2.0,))


@fdbr.frozen
class Backbone(nn.Layer):
    """Convolutions that give maps of 12x12 and 6x6 elements."""

    layers: tuple

    def __call__(self, x):
        maps = []
        for layer in self.layers:
            x = ops.relu(layer(x))
            maps.append(x)
        return maps[-2:]


def pictures():
    rng = np.random.default_rng(0)
    images, boxes, labels = rng.uniform(0, 60, (10, 3, SIZE, SIZE)), [], []
    for image in images:
        own = []
        for corner in ((2, 2), (26, 26)):
            low = np.array(corner) + rng.uniform(0, 3, 2).round()
            label = int(rng.integers(2))
            top, left, bottom, right = np.concatenate([low, low + rng.integers(10, 18, 2)]).astype(
                int
            )
            image[label, top:bottom, left:right] = 220
            own.append(((top, left, bottom, right), label))
        boxes.append(np.array([box for box, _ in own], "f4"))
        labels.append(np.array([label for _, label in own], "i4"))
    return images.astype("f4"), vision.Truths(tuple(boxes), tuple(labels))


@pytest.mark.slow
def test_ten_pictures_are_learned_by_heart():
    images, truths = pictures()
    keys = fdbr.random.split(fdbr.random.key(0), 5)
    widths = (3, 16, 24, 32)
    he = nn.initializers.he_normal()
    layers = tuple(
        nn.Conv.init(key, n, m, 3, stride=2, padding=1, weight_init=he)
        for key, n, m in zip(keys, widths, widths[1:], strict=False)
    )
    head = models.SSDHead.init(keys[4], widths[2:], 2, RATIOS)
    scales, options = (0.25, 0.35, 0.6), {"std": (100.0,) * 3, "chainer": True}
    model = models.SSD(Backbone(layers), head, SIZE, RATIOS, scales, **options)
    optimizer = train.optim.adam(5e-3)

    def loss(model, truths):
        return sum(model.losses(images, truths, key=None)[0].values())

    @fdbr.jit
    def step(model, state, truths):
        gradient = fdbr.grad(loss)(model, truths)
        updates, state = optimizer.update(gradient, state, model)
        return train.optim.apply_updates(model, updates), state

    state, padded = optimizer.init(model), vision.pad(truths)
    for _ in range(250):
        model, state = step(model, state, padded)
    found = vision.evaluation.detection_voc(model.predict(images), truths)
    assert found["map"] >= 0.95
