"""Random data sets: predictions and truths of several images, drawn by hypothesis."""

import numpy as np
from hypothesis import strategies as st

SCORES = np.array([0.1, 0.25, 0.5, 0.5, 0.75, 0.9])  # few of them, so that there are ties


def _boxes(random, count, size):
    low = random.integers(0, size - 2, (count, 2))
    extent = random.integers(1, size // 2, (count, 2))
    return np.concatenate([low, np.minimum(low + extent, size)], axis=1).astype(np.float32)


def _near(random, boxes, size):
    moved = boxes + random.integers(-1, 2, boxes.shape) * max(size // 20, 1)
    moved = np.clip(moved, 0, size)
    return np.concatenate([moved[:, :2], np.maximum(moved[:, 2:], moved[:, :2])], axis=1).astype(
        np.float32
    )


def masks_of(boxes, size):
    rows = np.arange(size)
    inside = [(rows >= boxes[:, k, None]) & (rows < boxes[:, k + 2, None]) for k in (0, 1)]
    return inside[0][:, :, None] & inside[1][:, None, :]


@st.composite
def data_sets(draw, *, size=120, masks=False, points=0):
    """A data set as a dict of lists with an item for each image; some images are empty."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.integers(1, 4))
    data = {}
    for _ in range(draw(st.integers(1, 4))):
        count, extra = draw(st.integers(0, 6)), draw(st.integers(0, 6))
        true = _boxes(random, count, size)
        copied = random.random(count) < 0.8
        found = np.concatenate([_near(random, true[copied], size), _boxes(random, extra, size)])
        labels = random.integers(0, classes, count)
        moved = np.concatenate([labels[copied], random.integers(0, classes + 1, extra)])
        image = {
            "boxes": true,
            "labels": labels.astype(np.int32),
            "crowded": random.random(count) < 0.15,
            "difficult": random.random(count) < 0.2,
            "areas": random.choice([100.0, 1500.0, 20000.0], count),
            "found_boxes": found,
            "found_labels": moved.astype(np.int32),
            "scores": random.choice(SCORES, len(found)),
        }
        if masks:
            image |= {"masks": masks_of(true, size), "found_masks": masks_of(found, size)}
        if points:
            centre = true[:, None, :2] + random.integers(0, 20, (count, points, 2))
            noise = random.normal(0, draw(st.sampled_from([0.5, 3.0])), centre.shape)
            other = found[count and copied.sum() :, None, :2] + np.zeros((1, points, 1))
            image |= {
                "points": centre,
                "visible": random.random((count, points)) < random.random((count, 1)),
                "found_points": np.concatenate([(centre + noise)[copied], other]),
            }
        for name, value in image.items():
            data.setdefault(name, []).append(value)
    return data
