"""The input of images is measured; how fast it is, is not a matter for tests."""

import pytest

from benchmarks import input
from fdbr import random, train


def test_the_images_that_are_measured_are_read_and_augmented(tmp_path):
    pytest.importorskip("PIL")
    input.write_images(tmp_path, 20)
    images = train.image_folder(tmp_path)
    assert len(images.classes) == input.CLASSES
    batches = train.Batches(train.map_examples(input.augmented, images, random.key(0)), 8)
    batch = next(train.prefetch(batches, 1).epoch(0))
    assert batch["image"].shape == (8, 3, input.CROP, input.CROP)
    assert input.Network.init(random.key(0))(batch["image"] / 255.0).shape == (8, input.CLASSES)
