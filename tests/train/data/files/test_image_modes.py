"""Depths, modes and orientations of image files."""

import io

import numpy as np
import pytest

from fdbr import train, vision

pytest.importorskip("PIL")
from PIL import Image

RAMP = (np.arange(256, dtype="uint16") * 257)[None]
LEVELS = np.arange(65536, dtype="uint16").reshape(256, 256)
GRAY = np.array([[0, 1, 127], [128, 254, 255]], "uint8")
COLOURS = np.array([[[255, 0, 10], [0, 7, 200], [90, 90, 90]]] * 2, "uint8")


def stored(image, format="png", **settings):
    file = io.BytesIO()
    image.save(file, format, **settings)
    file.seek(0)
    return file


def gray_16(format):
    picture = Image.fromarray(LEVELS)
    if format == "big-endian tiff":
        swapped = Image.frombytes("I;16B", picture.size, LEVELS.astype(">u2").tobytes())
        return stored(swapped, "tiff")
    return stored(picture, format)


@pytest.mark.parametrize("format", ["png", "tiff", "ppm", "jpeg2000", "big-endian tiff"])
def test_images_of_16_bits_keep_their_levels(format):
    if format == "jpeg2000":
        from PIL import features

        if not features.check("jpg_2000"):
            pytest.skip("Pillow has no JPEG 2000")
    high = LEVELS >> 8
    for mode, channels in (("L", 1), ("RGB", 3), ("RGBA", 4)):
        pixels = train.read_image(gray_16(format), mode)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels[: min(channels, 3)], [high] * min(channels, 3))
    np.testing.assert_array_equal(train.read_image(gray_16(format), "RGBA")[3], 255)
    exact = train.read_image(gray_16(format), "I;16")
    assert exact.dtype == np.uint16
    np.testing.assert_array_equal(exact[0], LEVELS)
    np.testing.assert_array_equal(train.read_image(gray_16(format), "I")[0], LEVELS)
    np.testing.assert_array_equal(train.read_image(gray_16(format), "F")[0], LEVELS)
    for color, alpha in ((True, "ignore"), (False, "white"), (True, "black")):
        floating = vision.read_image(gray_16(format), color=color, alpha=alpha)
        assert floating.dtype == np.float32
        np.testing.assert_array_equal(floating, [LEVELS / np.float32(257)] * (3 if color else 1))
    np.testing.assert_array_equal(vision.datasets.read_label_map(gray_16(format)), LEVELS)


def test_a_ramp_of_16_bits_becomes_a_ramp_of_8(tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(RAMP).save(tmp_path / "a" / "ramp.png")
    image = train.image_folder(tmp_path)[0]["image"]
    np.testing.assert_array_equal(image, np.broadcast_to(np.arange(256), (3, 1, 256)))
    small = train.image_folder(tmp_path, mode="L", size=(1, 128))[0]["image"]
    np.testing.assert_allclose(small[0, 0, 2:-2], np.arange(2, 126) * 2, atol=1)
    assert len(np.unique(train.read_image(tmp_path / "a" / "ramp.png", "I;16", (1, 128)))) == 128
    (example,) = vision.datasets.label_folder(tmp_path)
    np.testing.assert_array_equal(example["image"][0, 0], np.arange(256))


def picture(mode):
    """An image of a mode, and its red, green and blue from 0 to 255."""
    gray = np.stack([GRAY] * 3)
    colours = COLOURS.transpose(2, 0, 1)
    if mode == "1":
        return Image.fromarray(GRAY > 127), np.where(gray > 127, 255, 0)
    if mode == "L":
        return Image.fromarray(GRAY), gray
    if mode == "LA":
        return Image.fromarray(np.stack([GRAY, 255 - GRAY], -1)), gray
    if mode == "P":
        image = Image.fromarray(np.array([[0, 1, 2]] * 2, "uint8")).copy()
        image.putpalette(COLOURS[0].tobytes())
        return image, colours
    if mode == "RGBA":
        return Image.fromarray(np.concatenate([COLOURS, COLOURS[..., :1]], -1)), colours
    image = Image.fromarray(COLOURS).convert(mode)
    return image, np.asarray(image.convert("RGB")).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("mode", "format"),
    [(m, f) for m in ("1", "L", "LA", "P", "RGB", "RGBA") for f in ("png", "tiff")]
    + [("CMYK", "tiff"), ("YCbCr", "tiff"), ("LA", "webp"), ("P", "gif"), ("L", "bmp")],
)
def test_modes_of_8_bits_have_the_colours_that_were_stored(mode, format):
    image, colours = picture(mode)
    settings = {"lossless": True, "exact": True} if format == "webp" else {}
    file = stored(image, format, **settings)
    np.testing.assert_array_equal(train.read_image(file), colours)
    np.testing.assert_array_equal(vision.read_image(file), colours)
    gray = np.asarray(Image.fromarray(colours.astype("uint8").transpose(1, 2, 0)).convert("L"))
    np.testing.assert_allclose(train.read_image(file, "L")[0], gray, atol=1)
    np.testing.assert_allclose(train.read_image(file, "I;16")[0] / 257, gray, atol=1)


def test_colours_of_a_palette_may_be_transparent():
    image, colours = picture("P")
    file = stored(image, "png", transparency=1)
    pixels = train.read_image(file, "RGBA")
    np.testing.assert_array_equal(pixels[3], [[255, 0, 255]] * 2)
    np.testing.assert_array_equal(pixels[:3], colours)
    np.testing.assert_array_equal(vision.read_image(file, alpha="white")[:, :, 1], 255)
    np.testing.assert_array_equal(vision.read_image(file, alpha="black", color=False)[:, :, 1], 0)


def test_colours_of_16_bits_have_their_upper_bits():
    # Pillow writes no such file: a TIFF file with one strip of three channels of 16 bits.
    values = (np.arange(256)[:, None] * np.array([257, 255, 1])).astype("<u2")
    tags = [(256, 256), (257, 1), (258, 0), (259, 1), (262, 2), (273, 0), (277, 3), (278, 1)]
    tags += [(279, values.nbytes)]
    bits = 8 + 2 + 12 * len(tags) + 4
    places = {258: bits, 273: bits + 6}
    content = b"II*\0\x08\0\0\0" + np.uint16(len(tags)).tobytes()
    for tag, value in tags:
        count = 3 if tag == 258 else 1
        kind = 3 if tag in (258, 259, 262, 277) else 4
        content += np.array([tag, kind], "<u2").tobytes()
        content += np.array([count, places.get(tag, value)], "<u4").tobytes()
    content += bytes(4) + np.array([16] * 3, "<u2").tobytes() + values.tobytes()
    expected = (values >> 8).T[:, None]
    np.testing.assert_array_equal(train.read_image(io.BytesIO(content)), expected)
    np.testing.assert_array_equal(vision.read_image(io.BytesIO(content)), expected)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_numbers_of_32_bits_have_no_range_of_colours(dtype):
    values = np.array([[-3, 0], [70000, 5]], dtype)
    file = stored(Image.fromarray(values), "tiff")
    mode = "I" if dtype == "int32" else "F"
    with pytest.raises(ValueError, match=rf"mode {mode}, .* no known range.* mode='{mode}'"):
        train.read_image(file)
    with pytest.raises(ValueError, match="no known range"):
        vision.read_image(file, color=False)
    pixels = train.read_image(file, mode)
    assert pixels.dtype == values.dtype
    np.testing.assert_array_equal(pixels[0], values)
    np.testing.assert_array_equal(train.read_image(file, "F")[0], values)
    if dtype == "float32":
        with pytest.raises(ValueError, match="no known range"):
            train.read_image(file, "I")
        with pytest.raises(ValueError, match="channels of colour"):
            vision.datasets.read_label_map(file)
    else:
        np.testing.assert_array_equal(vision.datasets.read_label_map(file), values)


def test_a_mode_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="read_image: the file cannot be read in the mode 'XYZ'"):
        train.read_image(stored(Image.fromarray(GRAY)), "XYZ")


# --- orientation --------------------------------------------------------------------

SHOWN = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).T,
    8: lambda a: np.rot90(a, 1),
}
PIXELS = np.arange(6, dtype="uint8").reshape(2, 3) * 40


def oriented(number, format, pixels=PIXELS):
    exif = Image.Exif()
    exif[274] = number
    settings = {"quality": 100} if format == "jpeg" else {}
    return stored(Image.fromarray(pixels), format, exif=exif, **settings)


@pytest.mark.parametrize("format", ["png", "tiff", "jpeg"])
@pytest.mark.parametrize("number", SHOWN)
def test_an_image_is_rotated_as_its_exif_data_say(number, format):
    tolerance = {"atol": 3} if format == "jpeg" else {"atol": 0}
    shown = SHOWN[number](PIXELS)
    for read in (lambda f, **k: train.read_image(f, "L", **k), vision.read_image):
        np.testing.assert_allclose(read(oriented(number, format))[0], shown, **tolerance)
        as_stored = read(oriented(number, format), apply_exif_orientation=False)
        np.testing.assert_allclose(as_stored[0], PIXELS, **tolerance)
    if format != "jpeg":
        np.testing.assert_array_equal(
            vision.datasets.read_label_map(oriented(number, format)), PIXELS
        )
        deep = train.read_image(oriented(number, format, PIXELS.astype("uint16")), "I;16")
        np.testing.assert_array_equal(deep[0], shown)


@pytest.mark.parametrize("number", [1, 6])
def test_a_size_is_the_size_of_the_rotated_image(number):
    y, x = np.indices((160, 240))
    pixels = (y + 0.2 * x).astype("uint8")
    whole = SHOWN[number](pixels)
    small = train.read_image(oriented(number, "jpeg", pixels), "L", (12, 18))
    means = np.asarray(Image.fromarray(whole).resize((18, 12), Image.Resampling.BOX))
    np.testing.assert_allclose(small[0].astype(int), means, atol=4)


def test_an_orientation_that_does_not_exist_is_ignored():
    damaged = stored(Image.fromarray(PIXELS), exif=b"Exif\0\0nothing of use")
    for file in (oriented(0, "png"), oriented(9, "png"), damaged):
        np.testing.assert_array_equal(train.read_image(file, "L")[0], PIXELS)


def test_data_sets_of_photographs_are_rotated_and_annotated_pictures_are_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(oriented(6, "png").getvalue())
    shown = SHOWN[6](PIXELS)
    (photograph,) = train.image_folder(tmp_path / "a", mode="L", labels=False)
    np.testing.assert_array_equal(photograph[0], shown)
    (listed,) = train.image_files(["a/x.png"], tmp_path, "L")
    np.testing.assert_array_equal(listed[0], shown)
    (raw,) = train.image_files(["a/x.png"], tmp_path, "L", apply_exif_orientation=False)
    np.testing.assert_array_equal(raw[0], PIXELS)
    (tmp_path / "maps").mkdir()
    Image.fromarray(PIXELS).save(tmp_path / "maps" / "x.png")
    annotated = vision.datasets.map_folder(tmp_path / "a", tmp_path / "maps", ["c"] * 256, ())
    np.testing.assert_array_equal(annotated[0]["image"][0], annotated[0]["label_map"])
    table = {k: [1] for k in ("y_min", "x_min", "y_max", "x_max")}
    boxes = vision.datasets.box_table({"image": ["x.png"], "label": ["c"], **table}, tmp_path / "a")
    assert boxes[0]["image"].shape == (3, 2, 3)
