"""Transforms of valid examples give valid examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random, vision
from fdbr.train import augment
from fdbr.vision import datasets, transforms

KEYS = st.integers(0, 2**32).map(random.key)
SIZE = st.tuples(st.integers(1, 30), st.integers(1, 30))
ANGLE = st.floats(-360, 360)
FLOATS = ("float32", "float64", "float16")


def extreme(draw, dtype, top):
    """An image with colours at the ends of the range."""
    shape = (3, draw(st.integers(4, 20)), draw(st.integers(4, 20)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["constant", "two colours", "any"]))
    if kind == "constant":
        return np.full(shape, top, dtype)
    colours = rng.integers(0, 2, shape) * top if kind == "two colours" else rng.random(shape) * top
    return colours.astype(dtype)


@st.composite
def valid(draw):
    image = extreme(draw, draw(st.sampled_from(["uint8", *FLOATS])), 255)
    height, width = image.shape[1:]
    count = draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    low = np.stack([rng.integers(0, side - 1, count) for side in (height, width)], 1)
    boxes = np.concatenate([low, [[height, width]] * count], 1) if count else np.zeros((0, 4))
    example = {
        "image": image,
        "boxes": boxes.astype("float32"),
        "labels": np.arange(count, dtype="int32"),
        "points": (low[:, None] + 0.5).astype("float32"),
        "visible": np.ones((count, 1), bool),
        "masks": np.ones((count, height, width), bool),
        "areas": np.ones(count, "float32"),
        "label_map": rng.integers(-1, 3, (height, width)).astype("int32"),
    }
    vision.check_example(example, 3)
    return example


def without_map(example):
    return {name: value for name, value in example.items() if name != "label_map"}


RESIZING = {
    f"resize {mode}": lambda d, e, mode=mode: transforms.resize(e, d(SIZE), mode)
    for mode in ("linear", "cubic", "lanczos", "area", "nearest")
}
ROTATIONS = {
    f"rotate {mode}": lambda d, e, mode=mode: transforms.rotate(
        e, d(ANGLE), fill=d(st.sampled_from([0, 255, (0, 128, 255)])), mode=mode
    )
    for mode in ("linear", "cubic", "nearest")
}
OTHERS = {
    "random interpolation": lambda d, e: transforms.resize_with_random_interpolation(
        d(KEYS), e, d(SIZE), ("linear", "area", "nearest", "cubic", "lanczos")
    ),
    "scale": lambda d, e: transforms.scale(e, d(st.integers(1, 30)), mode="cubic"),
    "contain": lambda d, e: transforms.resize_contain(e, d(SIZE), enlarge=True, mode="lanczos"),
    "random_rotate": lambda d, e: transforms.random_rotate(d(KEYS), e, 30.0, mode="cubic"),
    "rotate at its size": lambda d, e: transforms.rotate(e, d(ANGLE), expand=False, mode="cubic"),
    "random_expand": lambda d, e: transforms.random_expand(d(KEYS), e, fill=(0, 99, 255)),
    "random_flip": lambda d, e: transforms.random_flip(d(KEYS), e, y=True),
    "random_sized_crop": lambda d, e: transforms.random_sized_crop(d(KEYS), e),
    "constraints": lambda d, e: transforms.random_crop_with_constraints(d(KEYS), e),
    "random_crop": lambda d, e: transforms.random_crop(d(KEYS), e, 3),
    "translate": lambda d, e: transforms.translate(e, d(st.integers(-4, 4)), 1),
    "pca_lighting": lambda d, e: transforms.pca_lighting(d(KEYS), e, sigma=100.0),
    "random_distort": lambda d, e: transforms.random_distort(d(KEYS), e),
    "mosaic": lambda d, e: transforms.mosaic(d(KEYS), [e] * 4, d(st.integers(4, 40))),
    "mixup": lambda d, e: transforms.mixup(
        d(KEYS), without_map(e), transforms.flip(without_map(e))
    ),
    "mix_up": lambda d, e: {
        "image": datasets.mix_up(d(KEYS), {**e, "label": 0}, {**e, "label": 1}, 2)["image"]
    },
}


@pytest.mark.parametrize("name", [*RESIZING, *ROTATIONS, *OTHERS])
@given(example=valid(), data=st.data())
def test_a_valid_example_stays_valid(name, example, data):
    new = {**RESIZING, **ROTATIONS, **OTHERS}[name](data.draw, example)
    vision.check_example(new, 3)


IN_ONE_RANGE = {
    **{
        f"resize {mode}": lambda d, i, mode=mode: augment.resize(i, d(SIZE), mode)
        for mode in ("linear", "cubic", "lanczos", "area", "nearest")
    },
    "rotate": lambda d, i: augment.rotate(i, d(ANGLE), fill=1.0),
    "random_resized_crop": lambda d, i: augment.random_resized_crop(d(KEYS), i, 7),
    "random_rotation": lambda d, i: augment.random_rotation(d(KEYS), i, 90.0),
    "grayscale": lambda d, i: augment.grayscale(i),
    "color_jitter": lambda d, i: augment.color_jitter(d(KEYS), i, 0.9, 0.9, 0.9, 0.5),
}


@pytest.mark.parametrize("name", IN_ONE_RANGE)
@given(data=st.data())
def test_floating_images_stay_between_0_and_1(name, data):
    image = extreme(data.draw, data.draw(st.sampled_from(FLOATS)), 1)
    new = IN_ONE_RANGE[name](data.draw, image)
    assert new.dtype == image.dtype
    assert 0 <= new.min() <= new.max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("mode", ["linear", "cubic", "lanczos", "area"])
def test_the_greatest_integers_do_not_wrap(dtype, mode):
    top = np.iinfo(dtype).max
    white = np.full((3, 5, 6), top, dtype)
    for new in (
        augment.resize(white, (7, 4), mode),
        augment.rotate(white, 30, fill=top),
        augment.grayscale(white),
    ):
        assert new.dtype == dtype
        assert (new >= top - top // 2**24).all()


@given(data=st.data())
def test_weights_that_sum_to_1_stay_in_the_range_of_the_image(data):
    image = extreme(data.draw, "float32", 1) * np.float32(13.7) - np.float32(5.1)
    for mode in ("linear", "area"):
        new = augment.resize(image, data.draw(SIZE), mode)
        assert image.min() <= new.min() <= new.max() <= image.max()


@pytest.mark.parametrize("mode", ["cubic", "lanczos"])
def test_floating_images_are_clipped_as_integers_are(mode):
    image = np.random.default_rng(0).integers(0, 2, (3, 9, 11)).astype("uint8") * 255
    for size in ((23, 4), (5, 30)):
        whole = transforms.resize({"image": image}, size, mode)["image"]
        new = transforms.resize({"image": image.astype("float32")}, size, mode)["image"]
        np.testing.assert_array_equal(np.rint(new), whole)
        assert new.min() == 0
        assert new.max() == 255


def test_nan_does_not_change_the_range():
    image = np.ones((3, 8, 8), "float32")
    image[0, 0, 0] = np.nan
    new = augment.resize(image, (16, 16), "cubic")
    assert np.isnan(new[0, 0, 0])
    np.testing.assert_allclose(new[1:], 1, rtol=1e-6)
    assert new[1:].max() == 1
