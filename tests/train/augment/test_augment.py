"""Augmentation of images."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fdbr import random
from fdbr.train import augment

KEY = random.key(0)
KEYS = st.integers(0, 2**32).map(random.key)
DTYPES = st.sampled_from(["uint8", "uint16", "float32", "float64"])


@st.composite
def images(draw, least=3):
    dtype = np.dtype(draw(DTYPES))
    shape = (3, draw(st.integers(least, 9)), draw(st.integers(least, 9)))
    top = {"u": 2 ** (8 * dtype.itemsize) - 1, "f": 1}[dtype.kind]
    width = {"width": 8 * dtype.itemsize} if dtype.kind == "f" else {}
    elements = st.integers(0, top) if dtype.kind == "u" else st.floats(0, 1, **width)
    return draw(hnp.arrays(dtype, shape, elements=elements))


RANDOM = {
    "random_crop": lambda k, x: augment.random_crop(k, x, 2, padding=1),
    "random_flip": augment.random_flip,
    "random_resized_crop": lambda k, x: augment.random_resized_crop(k, x, (4, 5)),
    "random_rotation": lambda k, x: augment.random_rotation(k, x, 30),
    "color_jitter": lambda k, x: augment.color_jitter(k, x, 0.4, 0.4, 0.4, 0.1),
    "random_erasing": lambda k, x: augment.random_erasing(k, x, 0.8),
}
FIXED = {
    "resize": lambda x: augment.resize(x, (4, 5)),
    "resize to larger": lambda x: augment.resize(x, (12, 13), "cubic"),
    "nearest": lambda x: augment.resize(x, 5, "nearest"),
    "center_crop": lambda x: augment.center_crop(x, 3),
    "rotate": lambda x: augment.rotate(x, 33),
    "grayscale": augment.grayscale,
}


@pytest.mark.parametrize("name", RANDOM)
@given(image=images(), key=KEYS)
def test_what_is_random_is_a_function_of_the_key(name, image, key):
    before = image.copy()
    made = RANDOM[name](key, image)
    np.testing.assert_array_equal(made, RANDOM[name](key, image))
    np.testing.assert_array_equal(image, before)
    assert made.dtype == image.dtype
    assert not made.flags.writeable
    assert not np.shares_memory(made, image)


@pytest.mark.parametrize("name", RANDOM)
def test_different_keys_give_different_images(name):
    image = np.random.default_rng(0).random((3, 9, 9))
    assert len({RANDOM[name](key, image).tobytes() for key in random.split(KEY, 20)}) > 1


@pytest.mark.parametrize("name", FIXED)
@given(image=images())
def test_dtypes_are_kept_and_images_are_copies(name, image):
    made = FIXED[name](image)
    assert made.dtype == image.dtype
    assert not np.shares_memory(made, image)


@given(images(), KEYS)
def test_a_crop_is_a_part_of_the_image(image, key):
    size = (2, 3)
    part = augment.random_crop(key, image, size)
    windows = np.lib.stride_tricks.sliding_window_view(image, size, (1, 2))
    same = (np.moveaxis(windows, 0, 2) == part).all(axis=(2, 3, 4))
    assert same.any()


def test_every_place_of_a_crop_is_as_likely():
    image = np.arange(4.0).reshape(1, 1, 4)
    found = [augment.random_crop(k, image, (1, 2))[0, 0, 0] for k in random.split(KEY, 600)]
    np.testing.assert_allclose(np.bincount(np.array(found, int)) / 600, 1 / 3, atol=0.08)


def test_half_of_the_images_are_flipped():
    image = np.arange(2.0).reshape(1, 1, 2)
    flipped = [augment.random_flip(key, image)[0, 0, 0] for key in random.split(KEY, 400)]
    assert 160 < sum(flipped) < 240


@given(images())
def test_four_quarter_iterations_are_none_and_one_is_that_of_numpy(image):
    side = min(image.shape[1:])
    square = image[:, :side, :side]
    once = augment.rotate(square, 90)
    np.testing.assert_allclose(once.astype(float), np.rot90(square, 1, (1, 2)), atol=1e-5)
    np.testing.assert_allclose(augment.rotate(square, 360).astype(float), square, atol=1e-5)


@given(images())
def test_a_resized_image_keeps_its_mean_and_constants_stay(image):
    constant = np.full_like(image, image.flat[0])
    made = augment.resize(constant, (2, 7)).astype(float)
    np.testing.assert_allclose(made, image.flat[0].astype(float), atol=1e-4)


@given(images(), KEYS)
def test_no_jitter_is_no_change(image, key):
    np.testing.assert_array_equal(augment.color_jitter(key, image), image)


@given(images(), KEYS)
def test_jitter_of_bytes_and_of_numbers_is_one(image, key):
    if image.dtype != np.uint8:
        return
    made = augment.color_jitter(key, image, 0.3, 0.3, 0.3, 0.1)
    other = augment.color_jitter(key, augment.to_float(image), 0.3, 0.3, 0.3, 0.1)
    np.testing.assert_allclose(made / 255, other, atol=0.51 / 255)


def test_a_gray_image_has_no_hue_and_no_saturation():
    gray = np.full((3, 4, 4), 0.4)
    made = augment.color_jitter(KEY, gray, saturation=0.9, hue=0.5)
    np.testing.assert_allclose(made, gray, atol=2e-3)


def test_normalized_channels():
    image = np.random.default_rng(0).random((3, 50, 50)) * [[[1]], [[2]], [[3]]]
    made = augment.normalize(image, image.mean((1, 2)), image.std((1, 2)))
    np.testing.assert_allclose(made.mean((1, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(made.std((1, 2)), 1)
    assert augment.normalize(np.zeros((3, 1, 1), "uint8"), 0.5, 1).dtype == np.float32


@given(images(), KEYS)
def test_what_is_erased_is_one_rectangle(image, key):
    made = augment.random_erasing(key, image + np.ones_like(image), 1.0, value=0)
    rows, columns = np.nonzero((made == 0).all(0))
    if image.dtype.kind == "f":
        inside = made[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (inside == 0).all()
        assert np.count_nonzero(made == 0) == inside.size


WRONG = [
    (lambda x: augment.center_crop(x, 10), "has no part of 10 x 10"),
    (lambda x: augment.resize(x, (0, 2)), "size must be height and width"),
    (lambda x: augment.resize(x, 3, "bilinear"), "mode must be"),
    (lambda x: augment.random_flip(KEY, x, 0), "axis must be"),
    (lambda x: augment.random_flip(KEY, x, p=2.0), "p must lie"),
    (lambda x: augment.color_jitter(KEY, x, hue=0.6), "at most 0.5"),
    (lambda x: augment.normalize(x, [1, 2], 1), "mean must be"),
    (lambda x: augment.normalize(x, 0, 0), "std must be above 0"),
    (lambda x: augment.grayscale(x[:2]), "red, green"),
    (lambda x: augment.random_resized_crop(KEY, x, 3, scale=(1, 0)), "scale must be two rising"),
    (lambda x: augment.rotate(x, float("nan")), "finite"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_settings_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.zeros((3, 4, 4)))


@pytest.mark.parametrize("name", augment.__all__)
def test_what_is_no_image_is_refused(name):
    function = getattr(augment, name)
    needed = {"key": KEY, "image": np.zeros((4, 4)), "size": 2, "degrees": 3, "mean": 0, "std": 1}
    names = [n for n in inspect.signature(function).parameters if n in needed]
    with pytest.raises(TypeError, match=r"augment\.\w+: image must be .* got float64\[4,4\]"):
        function(**{n: needed[n] for n in names})
