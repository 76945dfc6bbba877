"""Transforms of images with their boxes, masks and points."""

import colorsys
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fdbr import random, train
from fdbr.train import augment
from fdbr.vision import transforms

KEYS = st.integers(0, 2**32).map(random.key)
SIDE = st.integers(4, 12)


@st.composite
def examples(draw, objects=3):
    """Examples with all fields, whose boxes are those around the masks, and points are centres."""
    height, width, count = draw(SIDE), draw(SIDE), draw(st.integers(0, objects))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(["uint8", "float32"]))
    low = np.stack([rng.integers(0, side, count) for side in (height, width)], 1)
    room = np.array([height, width]) - low
    boxes = np.concatenate([low, low + 1 + (rng.random((count, 2)) * room).astype(int)], 1)
    points = np.stack([rng.integers(0, side, (count, 2)) for side in (height, width)], -1) + 0.5
    return {
        "image": (rng.random((3, height, width)) * 255).astype(dtype),
        "boxes": boxes.astype("float32"),
        "labels": np.arange(count, dtype="int32"),
        "masks": drawn_boxes(boxes, (height, width)),
        "points": points.astype("float32"),
        "visible": rng.random((count, 2)) < 0.7,
        "label_map": rng.integers(-1, 5, (height, width)).astype("int32"),
        "difficult": rng.random(count) < 0.5,
        "areas": (boxes[:, 2:] - boxes[:, :2]).prod(1).astype("float32"),
        "object_numbers": np.arange(count),
        "name": "untouched",
    }


def drawn_boxes(boxes, size):
    """The pixels whose centre lies in each box."""
    y, x = np.indices(size) + 0.5
    low_y, low_x, high_y, high_x = np.asarray(boxes).reshape(-1, 4).T[:, :, None, None]
    return (low_y <= y) & (y < high_y) & (low_x <= x) & (x < high_x)


def drawn_points(points, size):
    """The pixel of each point, in pictures of their own."""
    y, x = np.indices(size)
    at = np.floor(points)[..., None, None]
    return (at[:, :, 0] == y) & (at[:, :, 1] == x)


def some_part(draw, size):
    starts = [draw(st.integers(0, side - 2)) for side in size]
    stops = [draw(st.integers(s + 1, side)) for s, side in zip(starts, size, strict=True)]
    return [slice(*ends) for ends in zip(starts, stops, strict=True)]


def size_of(example):
    return example["image"].shape[1:]


# Movements that map pixels to pixels.
EXACT = {
    "crop": lambda d, e: transforms.crop(e, *some_part(d, size_of(e))),
    "center_crop": lambda d, e: transforms.center_crop(e, 4),
    "random_crop": lambda d, e: transforms.random_crop(d(KEYS), e, (3, 4)),
    "random_sized_crop": lambda d, e: transforms.random_sized_crop(d(KEYS), e),
    "constraints": lambda d, e: transforms.random_crop_with_constraints(
        d(KEYS), e, allow_outside_center=True
    ),
    "expand": lambda d, e: transforms.expand(e, (16, 17), d(st.integers(0, 4)), 2),
    "random_expand": lambda d, e: transforms.random_expand(d(KEYS), e, 2.0, fill=(1, 2, 3)),
    "translate": lambda d, e: transforms.translate(
        e, d(st.integers(-14, 14)), d(st.integers(-5, 5))
    ),
    "flip": lambda d, e: transforms.flip(e, d(st.booleans()), d(st.booleans())),
    "random_flip": lambda d, e: transforms.random_flip(d(KEYS), e, True),
    "rotate": lambda d, e: transforms.rotate(e, 90 * d(st.integers(-5, 5))),
    "random_rotate": lambda d, e: transforms.random_rotate(d(KEYS), e),
    "contain": lambda d, e: transforms.resize_contain(e, (14, 13), fill=7),
    "double": lambda d, e: transforms.resize(
        e, (size_of(e)[0] * 2, size_of(e)[1] * 3), d(st.sampled_from(["linear", "nearest"]))
    ),
}


@pytest.mark.parametrize("name", EXACT)
@given(example=examples(), data=st.data())
def test_a_box_or_mask_drawn_and_transformed_is_one_transformed_and_drawn(name, example, data):
    new = EXACT[name](data.draw, example)
    size = size_of(new)
    np.testing.assert_array_equal(drawn_boxes(new["boxes"], size), new["masks"])
    assert new["label_map"].shape == size
    np.testing.assert_allclose(new["areas"], new["masks"].sum((1, 2)), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in EXACT if name != "double"])
@given(example=examples(), data=st.data())
def test_a_point_drawn_and_transformed_is_the_point_transformed_and_drawn(name, example, data):
    points = example["points"]
    drawn = drawn_points(points, size_of(example))
    count = len(points)
    # Each point is a mask of its own; all objects stay, as their boxes are the whole picture.
    whole = np.tile(np.float32([0, 0, *size_of(example)]), (count, 1))
    both = {
        "image": example["image"],
        "points": points,
        "boxes": whole,
        "object_drawn": np.arange(count),
        "label_map": np.where(drawn.any((0, 1)), 1, 0).astype("int32"),
    }
    new = EXACT[name](data.draw, both)
    size = size_of(new)
    seen = drawn_points(new["points"], size)
    if "visible" in new:
        np.testing.assert_array_equal(seen.any((2, 3)), new["visible"])
    np.testing.assert_array_equal(seen.any((0, 1)), new["label_map"] == 1)


@given(example=examples(), angle=st.floats(-400, 400), whole=st.booleans())
def test_at_any_angle_drawing_and_rotating_commute_up_to_a_pixel(example, angle, whole):
    new = transforms.rotate(example, angle, expand=whole)
    size = size_of(new)
    assert new["image"].dtype == example["image"].dtype
    assert new["masks"].shape[1:] == size == new["label_map"].shape
    if not whole:
        assert size == size_of(example)
    # Each pixel of a rotated mask lies in the rotated box, and near each point there is its pixel.
    low, high = np.split(new["boxes"], 2, axis=1)
    wider = drawn_boxes(np.concatenate([low - 0.75, high + 0.75], 1), size)
    assert not (new["masks"] & ~wider).any()
    drawn = drawn_points(example["points"], size_of(example))
    for k in range(drawn.shape[1]):
        one = {"masks": drawn[:, k], "boxes": example["boxes"], "object_at": np.arange(len(drawn))}
        rotated = transforms.rotate(one, angle)
        points = transforms.rotate({**example, "image": example["image"]}, angle)["points"][:, k]
        for mask, point in zip(rotated["masks"], points, strict=True):
            pixels = np.argwhere(mask) + 0.5
            assert (np.abs(pixels - point) <= 0.75).all()


@given(
    example=examples(),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    name=st.sampled_from(["resize", "scale", "contain", "interpolation"]),
    key=KEYS,
)
def test_masks_and_boxes_of_any_size_agree_up_to_half_a_pixel(example, size, name, key):
    new = {
        "resize": lambda: transforms.resize(example, size),
        "scale": lambda: transforms.scale(example, *sorted(size)),
        "contain": lambda: transforms.resize_contain(example, size, enlarge=True),
        "interpolation": lambda: transforms.resize_with_random_interpolation(key, example, size),
    }[name]()
    assert new["masks"].shape[1:] == size_of(new) == new["label_map"].shape
    boxes = new["boxes"]
    for mask, box in zip(new["masks"], boxes, strict=True):
        at = np.argwhere(mask) + 0.5
        assert (at >= box[:2] - 0.01).all()
        assert (at <= box[2:] + 0.01).all()
    assert np.isin(new["label_map"], [*np.unique(example["label_map"]), -1]).all()


@given(examples(), st.booleans(), st.booleans())
def test_flipping_twice_gives_the_example_itself(example, y, x):
    assert_same(transforms.flip(transforms.flip(example, y, x), y, x), example)


@given(examples())
def test_rotating_four_times_gives_the_example_itself(example):
    new = example
    for _ in range(4):
        new = transforms.rotate(new, 90)
    assert_same(new, example)
    half = transforms.rotate(example, 180)
    assert_same(half, transforms.flip(example, True, True))
    assert_same(transforms.rotate(example, -90), transforms.rotate(example, 270))


@given(examples(), st.integers(0, 3), st.integers(0, 3))
def test_cropping_what_was_expanded_gives_the_example_itself(example, top, left):
    height, width = size_of(example)
    larger = transforms.expand(example, (height + 3, width + 3), top, left, fill=9)
    back = transforms.crop(larger, slice(top, top + height), slice(left, left + width))
    assert_same(back, example)


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name, value in b.items():
        if isinstance(value, np.ndarray):
            assert a[name].dtype == value.dtype, name
            np.testing.assert_allclose(a[name], value, err_msg=name, atol=1e-5)
        else:
            assert a[name] == value


@pytest.mark.parametrize("name", EXACT)
@given(example=examples(), data=st.data())
def test_what_is_given_is_not_changed_and_results_are_read_only(name, example, data):
    before = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in example.items()}
    new = EXACT[name](data.draw, example)
    assert_same(example, before)
    assert new is not example
    for field, value in new.items():
        if field != "name":
            assert example[field].flags.writeable
            assert example[field] is value or not np.shares_memory(example[field], value)
            assert example[field] is value or not value.flags.writeable
            assert value.dtype == example[field].dtype
    assert new["name"] == "untouched"


@given(examples(), KEYS)
def test_images_are_those_of_augment(example, key):
    image = example["image"]
    np.testing.assert_array_equal(
        transforms.random_crop(key, example, 3)["image"], augment.random_crop(key, image, 3)
    )
    np.testing.assert_array_equal(
        transforms.center_crop(example, 4)["image"], augment.center_crop(image, 4)
    )
    np.testing.assert_array_equal(
        transforms.resize(transforms.random_sized_crop(key, example), (5, 6))["image"],
        augment.random_resized_crop(key, image, (5, 6)),
    )
    np.testing.assert_array_equal(
        transforms.rotate(example, 33, 4, expand=False)["image"], augment.rotate(image, 33, 4)
    )


@given(example=examples(), fields=st.sets(st.sampled_from(["boxes", "masks", "points"])))
def test_fields_may_be_missing(example, fields):
    some = {k: v for k, v in example.items() if k in fields or k in ("image", "labels")}
    for transform in (
        lambda e: transforms.crop(e, slice(1, 3), slice(0, 2)),
        lambda e: transforms.flip(e),
        lambda e: transforms.rotate(e, 30, expand=False),
    ):
        new = transform(some)
        assert new.keys() - {"visible"} == some.keys()
        if fields:
            assert len({len(new[name]) for name in new if name != "image"}) == 1


# --- objects at the border ----------------------------------------------------------


def test_objects_outside_are_removed_from_all_fields():
    example = {
        "boxes": np.array([[0, 0, 4, 4], [6, 6, 8, 8], [3, 3, 9, 9]], "float32"),
        "labels": np.array([5, 6, 7], "int32"),
        "object_names": np.array(["a", "b", "c"]),
        "size": (10, 10),
    }
    new = transforms.crop(example, slice(0, 5), slice(0, 5))
    np.testing.assert_array_equal(new["boxes"], [[0, 0, 4, 4], [3, 3, 5, 5]])
    np.testing.assert_array_equal(new["labels"], [5, 7])
    assert list(new["object_names"]) == ["a", "c"]
    assert new["size"] == (5, 5)
    new = transforms.crop(example, slice(0, 5), slice(0, 5), allow_outside_center=False)
    np.testing.assert_array_equal(new["labels"], [5])


def test_objects_without_boxes_are_removed_by_their_masks_and_then_their_points():
    masks = np.zeros((3, 8, 8), bool)
    masks[0, 1, 1] = masks[1, 6, 6] = masks[1, 2, 2] = True
    example = {"masks": masks, "labels": np.arange(3)}
    np.testing.assert_array_equal(transforms.crop(example, slice(0, 4))["labels"], [0, 1])
    inner = transforms.crop(example, slice(0, 4), allow_outside_center=False)
    np.testing.assert_array_equal(inner["labels"], [0])
    points = np.array([[[1, 1], [6, 6]], [[7, 7], [6, 6]]], "float32")
    new = transforms.crop({"points": points, "size": (8, 8)}, slice(0, 4))
    np.testing.assert_array_equal(new["visible"], [[True, False]])
    np.testing.assert_array_equal(new["points"], points[:1])


def test_bare_boxes_and_points_need_no_size_to_be_moved_or_cropped():
    boxes = np.array([[1, 1, 5, 5]], "float32")
    points = boxes.reshape(1, 2, 2)
    new = transforms.translate({"boxes": boxes, "points": points}, -2, 0.5)
    np.testing.assert_array_equal(new["boxes"], [[-1, 1.5, 3, 5.5]])
    np.testing.assert_array_equal(new["points"], [[[-1, 1.5], [3, 5.5]]])
    new = transforms.crop({"boxes": boxes}, slice(2, None), slice(None, 3))
    np.testing.assert_array_equal(new["boxes"], [[0, 1, 3, 3]])


def test_integers_in_boxes_become_float32():
    new = transforms.flip({"boxes": np.array([[1, 1, 5, 5]]), "size": (8, 8)})
    assert new["boxes"].dtype == np.float32


def test_left_and_right_points_exchange_their_numbers_in_a_mirror_image():
    points = np.array([[[1, 1], [1, 3], [4, 2]]], "float32")
    visible = np.array([[True, False, True]])
    example = {"points": points, "visible": visible, "size": (6, 4)}
    new = transforms.flip(example, pairs=[(0, 1)])
    np.testing.assert_array_equal(new["points"], [[[1, 1], [1, 3], [4, 2]]])
    np.testing.assert_array_equal(new["visible"], [[False, True, True]])
    turned = transforms.flip(example, True, True, pairs=[(0, 1)])
    np.testing.assert_array_equal(turned["visible"], visible)
    with pytest.raises(ValueError, match=r"flip: pairs must be numbers of points below 3"):
        transforms.flip(example, pairs=[(0, 3)])


# --- values by the definitions of ChainerCV's functions -----------------------------


def test_boxes_and_points_move_as_chainercv_defines_it():
    boxes = np.array([[1.0, 2, 5, 9], [0, 0, 10, 20]], "float32")
    box = {"boxes": boxes, "size": (10, 20)}

    def is_close(new, wanted):
        np.testing.assert_allclose(new["boxes"], wanted, atol=1e-6)

    is_close(transforms.flip(box, True, False), [[5, 2, 9, 9], [0, 0, 10, 20]])
    is_close(transforms.flip(box, False, True), [[1, 11, 5, 18], [0, 0, 10, 20]])
    is_close(transforms.resize(box, (5, 60)), [[0.5, 6, 2.5, 27], [0, 0, 5, 60]])
    is_close(transforms.rotate(box, 90), [[11, 1, 18, 5], [0, 0, 20, 10]])
    is_close(transforms.rotate(box, 180), [[5, 11, 9, 18], [0, 0, 10, 20]])
    is_close(transforms.rotate(box, 270), [[2, 5, 9, 9], [0, 0, 20, 10]])
    is_close(transforms.crop(box, slice(2, 6), slice(4, 8)), [[0, 0, 3, 4], [0, 0, 4, 4]])
    point = {"points": boxes.reshape(2, 2, 2), "size": (10, 20)}
    np.testing.assert_allclose(transforms.flip(point, True, True)["points"][0], [[9, 18], [5, 11]])
    np.testing.assert_allclose(
        transforms.resize(point, (5, 60))["points"][0], [[0.5, 6], [2.5, 27]]
    )


@pytest.mark.parametrize(
    ("shape", "arguments", "wanted"),
    [
        ((20, 30), {"size": 10}, (10, 15)),
        ((30, 20), {"size": 10}, (15, 10)),
        ((20, 30), {"size": 10, "fit_short": False}, (6, 10)),
        ((20, 31), {"size": 10}, (10, 15)),
        ((480, 640), {"size": 800, "limit": 1000}, (750, 1000)),
        ((480, 640), {"size": 800, "limit": 1333}, (800, 1066)),
    ],
)
def test_sizes_after_scaling(shape, arguments, wanted):
    assert transforms.scale({"size": shape}, **arguments)["size"] == wanted


@pytest.mark.parametrize(
    ("shape", "enlarge", "wanted"),
    [
        ((20, 40), False, [5, 0, 15, 20]),
        ((10, 4), False, [5, 8, 15, 12]),
        ((10, 4), True, [0, 6, 20, 14]),
        ((1, 100), False, [9, 0, 10, 20]),
    ],
)
def test_a_letterbox_is_in_the_middle_of_its_canvas(shape, enlarge, wanted):
    example = {"boxes": np.array([[0, 0, *shape]], "float32"), "size": shape}
    new = transforms.resize_contain(example, 20, enlarge=enlarge)
    np.testing.assert_array_equal(new["boxes"], [wanted])
    assert new["size"] == (20, 20)


def test_ten_crops_are_five_parts_and_their_mirror_images():
    image = np.arange(2 * 5 * 7, dtype="float32").reshape(2, 5, 7)
    crops = transforms.ten_crop({"image": image}, (3, 4))
    found = np.stack([crop["image"] for crop in crops])
    corners = [image[:, 1:4, 2:6], image[:, :3, :4], image[:, 2:, :4], image[:, :3, 3:]]
    np.testing.assert_array_equal(found[:5], [*corners, image[:, 2:, 3:]])
    np.testing.assert_array_equal(found[5:], found[:5, :, :, ::-1])


@given(st.integers(3, 9), st.integers(4, 9), st.integers(1, 3), st.integers(1, 4))
def test_middles_are_rounded_as_in_torchvision_and_chainercv(height, width, rows, columns):
    image = np.arange(height * width, dtype="float32").reshape(1, height, width)
    top, left = round((height - rows) / 2), round((width - columns) / 2)
    wanted = image[:, top : top + rows, left : left + columns]
    down = image[:, (height - rows) // 2 :, (width - columns) // 2 :][:, :rows, :columns]
    example, size = {"image": image}, (rows, columns)
    np.testing.assert_array_equal(transforms.center_crop(example, size)["image"], wanted)
    np.testing.assert_array_equal(transforms.ten_crop(example, size)[0]["image"], wanted)
    np.testing.assert_array_equal(
        transforms.ten_crop(example, size, chainer=True)[0]["image"], down
    )


@given(KEYS, st.integers(1, 60), st.integers(1, 60))
def test_crops_of_random_size_have_the_shape_that_is_asked_for(key, height, width):
    part = transforms.random_sized_crop(key, {"size": (height, width)}, (0.5, 1.0), (0.5, 1.5))
    rows, columns = part["size"]
    assert 0.5 * (rows - 1) <= columns + 1  # up to the rounding of both
    assert columns - 1 <= 1.5 * (rows + 1)


PILLOW = {"lanczos": 1, "linear": 2, "cubic": 3}


@pytest.mark.parametrize("mode", PILLOW)
def test_images_are_resized_as_by_pillow(mode):
    image = np.random.default_rng(0).uniform(0, 255, (2, 24, 31)).astype("float32")
    for height, width in ((24, 64), (13, 17), (33, 9)):
        wanted = [
            np.asarray(Image.fromarray(channel).resize((width, height), PILLOW[mode]))
            for channel in image
        ]
        found = transforms.resize({"image": image}, (height, width), mode)["image"]
        np.testing.assert_allclose(found, np.clip(wanted, 0, 255), atol=1e-3)


@given(KEYS, st.sampled_from(["linear", "area", "nearest", "cubic", "lanczos"]))
def test_the_interpolation_is_one_of_those_that_are_given(key, mode):
    example = {"image": np.random.default_rng(0).uniform(0, 255, (3, 6, 8)).astype("float32")}
    found = transforms.resize_with_random_interpolation(key, example, (4, 4), [mode, mode])
    np.testing.assert_array_equal(found["image"], transforms.resize(example, 4, mode)["image"])


def test_areas_are_means_of_pixels():
    image = np.arange(24, dtype="uint8").reshape(1, 4, 6) * 4
    found = transforms.resize({"image": image}, (2, 3), "area")["image"]
    np.testing.assert_array_equal(found[0], image[0].reshape(2, 2, 3, 2).mean((1, 3)))


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_rotations_by_small_angles_keep_smooth_images(mode):
    y, x = np.mgrid[:40, :50] / 10
    image = (np.sin(y) + np.cos(x))[None]
    found = transforms.rotate({"image": image}, 7.0, expand=False, mode=mode)
    back = transforms.rotate(found, -7.0, expand=False, mode=mode)["image"]
    error = np.abs(back - image)[0, 12:-12, 12:-12].max()
    assert error < {"linear": 1e-2, "cubic": 1e-4, "nearest": 0.2}[mode]


# --- random ones --------------------------------------------------------------------


@given(examples(), KEYS)
def test_constrained_crops_overlap_as_their_constraint_says(example, key):
    new = transforms.random_crop_with_constraints(
        key, example, constraints=[(0.2, 0.9)], allow_outside_center=True
    )
    count = len(example["boxes"])
    assert count == len(new["boxes"])
    if size_of(new) != size_of(example):
        area = np.prod(size_of(new))
        common = new["areas"]
        assert (common / (area + example["areas"] - common) >= 0.2 - 1e-6).all()


def test_every_constraint_and_the_whole_picture_are_chosen():
    example = {"boxes": np.array([[20, 20, 80, 80]], "float32"), "size": (100, 100)}
    keys = random.split(random.key(0), 300)
    sizes = [transforms.random_crop_with_constraints(key, example)["size"] for key in keys]
    whole = np.mean([size == (100, 100) for size in sizes])
    # 0.9 is seldom reached: there are 6 or 7 choices.
    assert 0.09 < whole < 0.24
    assert len(set(sizes)) > 150


@given(
    st.lists(st.tuples(*3 * [st.integers(0, 255)]), min_size=1, max_size=8),
    st.floats(0, 2, width=32),
    st.floats(-180, 180, width=32),
)
def test_saturation_and_hue_are_those_of_hsv(colours, factor, degrees):
    from fdbr.vision.transforms.colors import hue_shifted, saturated

    image = np.float64(colours).T[:, None, :]
    for function, amount, change in (
        (saturated, factor, lambda h, s, v: (h, min(1, s * factor), v)),
        (hue_shifted, degrees, lambda h, s, v: ((h + degrees / 360) % 1, s, v)),
    ):
        wanted = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*c))) for c in colours]
        np.testing.assert_allclose(function(image, amount)[:, 0].T, wanted, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_distortions_are_functions_of_the_key_and_stay_in_range(dtype):
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 6)).astype(dtype)
    keys = random.split(random.key(0), 30)
    found = [transforms.random_distort(key, {"image": image})["image"] for key in keys]
    assert all(new.dtype == image.dtype and new.min() >= 0 and new.max() <= 255 for new in found)
    assert len({new.tobytes() for new in found}) > 20
    again = transforms.random_distort(keys[3], {"image": image})["image"]
    np.testing.assert_array_equal(again, found[3])


def test_pca_lighting_adds_one_colour_along_the_eigenvectors():
    image = np.full((3, 4, 5), 100, "float32")
    vectors = np.eye(3)
    keys = random.split(random.key(0), 400)
    found = np.stack(
        [
            transforms.pca_lighting(key, {"image": image}, 2.0, (1.0, 3.0, 0.0), vectors)["image"]
            for key in keys
        ]
    )
    np.testing.assert_array_equal(found, found[:, :, :1, :1] + 0 * found)
    np.testing.assert_allclose((found[:, :, 0, 0] - 100).std(0), [2, 6, 0], rtol=0.1)


# --- several examples ---------------------------------------------------------------


@given(st.lists(examples(), min_size=4, max_size=4), KEYS, SIDE, SIDE)
def test_a_mosaic_has_the_objects_of_four_pictures(four, key, height, width):
    four = [{**e, "image": e["image"].astype("uint8")} for e in four]
    new = transforms.mosaic(key, four, (height, width))
    assert size_of(new) == new["label_map"].shape == (height, width)
    assert new["masks"].shape == (len(new["boxes"]), height, width)
    assert (new["boxes"] <= np.tile([height, width], 2)).all()
    assert (new["boxes"] >= 0).all()
    assert (np.diff(np.flatnonzero(np.diff(new["object_numbers"]) <= 0)) >= 0).all()
    for mask, box in zip(new["masks"], new["boxes"], strict=True):
        at = np.argwhere(mask) + 0.5
        assert (at >= box[:2] - 0.01).all()
        assert (at <= box[2:] + 0.01).all()


def test_each_quarter_of_a_mosaic_is_a_part_of_its_picture():
    four = [{"image": np.full((1, 7, 9), i, "uint8")} for i in range(4)]
    for key in random.split(random.key(0), 20):
        image = transforms.mosaic(key, four, (12, 16))["image"][0]
        row, column = np.argmax(image[:, 0] == 2), np.argmax(image[0] == 1)
        assert 3 <= row <= 9
        assert 4 <= column <= 12
        wanted = 2 * (np.arange(12) >= row)[:, None] + (np.arange(16) >= column)
        np.testing.assert_array_equal(image, wanted)


def test_mixed_pictures_have_the_objects_of_both():
    a = {"image": np.full((3, 4, 2), 100, "uint8"), "boxes": np.ones((1, 4), "float32")}
    b = {"image": np.full((3, 2, 5), 200, "uint8"), "boxes": np.zeros((2, 4), "float32")}
    new = transforms.mixup(random.key(1), a, b)
    share, other, _ = new["object_weights"]
    assert share + other == pytest.approx(1)
    assert new["image"].shape == (3, 4, 5)
    assert abs(new["image"][0, 0, 0] - (100 * share + 200 * other)) <= 1
    assert abs(new["image"][0, 3, 0] - 100 * share) <= 1
    assert new["image"][0, 3, 4] == 0
    np.testing.assert_array_equal(new["boxes"], [[1] * 4, [0] * 4, [0] * 4])


# --- in workers ---------------------------------------------------------------------


def augmented(key, example):
    first, second = random.split(key)
    example = transforms.random_crop_with_constraints(first, example)
    return transforms.random_flip(second, transforms.resize(example, 8))


def image_alone(key, example):
    return augmented(key, example)["image"]


@pytest.mark.slow
def test_transforms_run_in_worker_processes():
    rng = np.random.default_rng(0)
    data = [
        {"image": rng.random((3, 9, 12), "float32"), "boxes": np.array([[1, 1, 8, 9]], "float32")}
        for _ in range(6)
    ]
    mapped = train.map_examples(image_alone, data, random.key(0))
    here = list(train.Batches(mapped, 3))
    there = list(train.prefetch(train.Batches(mapped, 3), workers=1, processes=True))
    np.testing.assert_array_equal(np.stack(here), np.stack(there))
    for name in transforms.__all__:
        function = getattr(transforms, name)
        assert pickle.loads(pickle.dumps(function)) is function


# --- errors -------------------------------------------------------------------------

GOOD = {"image": np.zeros((3, 6, 8), "uint8"), "boxes": np.zeros((2, 4), "float32")}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: transforms.flip(3), TypeError, "flip: example must be a dict"),
        (lambda: transforms.flip({"boxes": GOOD["boxes"]}), ValueError, "must have an image, or"),
        (
            lambda: transforms.flip({**GOOD, "image": np.zeros((6, 8))}),
            TypeError,
            r"flip: image must have the axes channel, row and column.*float64\[6,8\]",
        ),
        (
            lambda: transforms.flip({**GOOD, "boxes": np.zeros((2, 5))}),
            ValueError,
            r"boxes must have the shape \(R, 4\), got float64\[2,5\]",
        ),
        (
            lambda: transforms.flip({**GOOD, "labels": np.zeros(3)}),
            ValueError,
            "an entry for each object, got boxes 2, labels 3",
        ),
        (
            lambda: transforms.flip({**GOOD, "masks": np.zeros((2, 6, 9), bool)}),
            ValueError,
            "one height and width, got image 6 x 8, masks 6 x 9",
        ),
        (
            lambda: transforms.flip({**GOOD, "masks": np.zeros((2, 6, 8))}),
            TypeError,
            "masks must be of dtype bool",
        ),
        (
            lambda: transforms.flip({**GOOD, "label_map": np.zeros((6, 8), "uint8")}),
            TypeError,
            "label_map must be of signed integers",
        ),
        (
            lambda: transforms.flip(
                {**GOOD, "points": np.zeros((2, 3, 2)), "visible": np.ones((2, 4), bool)}
            ),
            ValueError,
            "visible must have an entry for each point",
        ),
        (lambda: transforms.crop(GOOD, slice(3, 3)), ValueError, "is no part of 6 rows"),
        (lambda: transforms.crop(GOOD, slice(0, 4, 2)), ValueError, "is no part of 6 rows"),
        (
            lambda: transforms.crop({"boxes": GOOD["boxes"]}, slice(-3, 2)),
            ValueError,
            "slices of an example without image and size",
        ),
        (lambda: transforms.center_crop(GOOD, 7), ValueError, "6 x 8 has no part of 7 x 7"),
        (lambda: transforms.expand(GOOD, (8, 8), 3), ValueError, "does not hold a picture"),
        (lambda: transforms.expand(GOOD, 9, fill=(1, 2)), ValueError, "one for each of 3 channels"),
        (lambda: transforms.translate(GOOD, 0.5), ValueError, "integers for an example with image"),
        (lambda: transforms.translate(GOOD, np.nan), ValueError, "offsets must be finite"),
        (lambda: transforms.resize(GOOD, (0, 3)), ValueError, "size must be height and width"),
        (lambda: transforms.resize(GOOD, 3, "bilinear"), ValueError, "mode must be"),
        (lambda: transforms.scale(GOOD, 0), ValueError, "size and limit must be at least 1"),
        (lambda: transforms.rotate(GOOD, np.inf), ValueError, "degrees must be finite"),
        (lambda: transforms.rotate(GOOD, 5, mode="area"), ValueError, "rotate: mode must be"),
        (
            lambda: transforms.resize_with_random_interpolation(random.key(0), GOOD, 3, ["x"]),
            ValueError,
            "modes must be some of",
        ),
        (lambda: transforms.random_flip(random.key(0), GOOD, p=2), ValueError, "p must lie in"),
        (lambda: transforms.random_expand(random.key(0), GOOD, 0.5), ValueError, "max_ratio"),
        (
            lambda: transforms.random_crop_with_constraints(random.key(0), GOOD, (0.5, 2.0)),
            ValueError,
            "scale must be at most 1",
        ),
        (
            lambda: transforms.random_distort(random.key(0), {"image": np.zeros((1, 2, 2))}),
            ValueError,
            "an image of red, green and blue",
        ),
        (
            lambda: transforms.random_distort(random.key(0), GOOD, brightness=-1),
            ValueError,
            "brightness must be at least 0",
        ),
        (
            lambda: transforms.pca_lighting(random.key(0), GOOD, 1.0, (1, 2)),
            ValueError,
            r"eigenvalues must have the shape \(3,\)",
        ),
        (
            lambda: transforms.mosaic(random.key(0), [GOOD] * 3, 8),
            ValueError,
            "there must be four examples",
        ),
        (
            lambda: transforms.mosaic(
                random.key(0), [GOOD, GOOD, GOOD, {"image": GOOD["image"]}], 8
            ),
            ValueError,
            "example 0 has image, boxes, example 3 has image",
        ),
        (
            lambda: transforms.mosaic(
                random.key(0), [GOOD, {**GOOD, "image": np.zeros((3, 6, 8))}, GOOD, GOOD], 8
            ),
            ValueError,
            "images must have one dtype and number of channels",
        ),
        (
            lambda: transforms.mixup(random.key(0), GOOD, {"size": (3, 4)}),
            ValueError,
            "example 1 has size",
        ),
        (lambda: transforms.mixup(random.key(0), GOOD, GOOD, 0.0), ValueError, "alpha must be"),
    ],
)
def test_errors_name_the_function_and_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert str(caught.value).startswith("fdbr.vision.transforms.")
