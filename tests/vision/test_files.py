"""Images read from files and written to them."""

import io

import numpy as np
import pytest
from PIL import Image

from fdbr.vision.files import read_image, write_image

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("suffix", ["png", "bmp", "PPM"])
def test_what_is_written_is_read(tmp_path, dtype, channels, suffix):
    image = RNG.integers(0, 256, (channels, 5, 7)).astype(dtype)
    path = tmp_path / f"image.{suffix}"
    write_image(image, path)
    back = read_image(path, color=channels == 3)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, image)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_colours_are_rounded_and_clipped():
    file = io.BytesIO()
    write_image(np.array([[[-3.0, 1.6, 300.0]]]), file)
    np.testing.assert_array_equal(read_image(file, color=False), [[[0, 2, 255]]])


def test_a_jpeg_is_close_to_the_image(tmp_path):
    image = np.full((3, 16, 16), 77, "uint8")
    for name, format in (("a.jpg", None), ("b.jpeg", None), ("c", "jpeg")):
        write_image(image, tmp_path / name, format)
        assert np.abs(read_image(tmp_path / name) - 77).max() <= 2


def test_unknown_labels_are_written_as_255(tmp_path):
    labels = np.array([[-1, 0, 254]], "int32")
    write_image(labels, tmp_path / "labels.png")
    with Image.open(tmp_path / "labels.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), [[255, 0, 254]])


def test_transparent_pixels_are_ignored_or_blended(tmp_path):
    pixels = np.array([[[100, 50, 0, 255], [100, 50, 0, 0], [100, 50, 0, 51]]], "uint8")
    path = tmp_path / "image.png"
    Image.fromarray(pixels).save(path)
    red = {alpha: read_image(path, alpha=alpha)[0, 0] for alpha in ("ignore", "white", "black")}
    np.testing.assert_allclose(red["ignore"], [100, 100, 100])
    np.testing.assert_allclose(red["white"], [100, 255, 224])
    np.testing.assert_allclose(red["black"], [100, 0, 20])
    assert read_image(path, color=False, alpha="white").shape == (1, 1, 3)


def test_errors_say_what_is_wrong(tmp_path):
    image = np.zeros((3, 2, 2), "uint8")
    with pytest.raises(ValueError, match=r"write_image: image must have the shape \(3, H, W\)"):
        write_image(np.zeros((2, 2)), tmp_path / "a.png")
    with pytest.raises(
        ValueError, match=r"write_image: labels must lie in \[-1, 254\], got 0 to 3"
    ):
        write_image(np.array([[0, 300]]), tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"write_image: .*a.txt' has no suffix of an image"):
        write_image(image, tmp_path / "a.txt")
    with pytest.raises(ValueError, match="read_image: alpha must be"):
        read_image(tmp_path / "a.png", alpha="red")
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "none.png")
    with pytest.raises(FileNotFoundError):
        write_image(image, tmp_path / "none" / "a.png")
