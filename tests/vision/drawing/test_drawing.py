"""Images with boxes, masks and points on matplotlib's axes, and pictures of predictions."""

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.figure import Figure

from fdbr import train, vision
from fdbr.train.watch.runs import Runs
from fdbr.vision import drawing

matplotlib.use("Agg")
IMAGE = np.random.default_rng(0).integers(0, 256, (3, 6, 9)).astype("float32")
BOXES = np.array([[1, 2, 4, 7], [0, 0, 6, 9]], "float32")
LABELS = np.array([1, 0], "int32")
SCORES = np.array([0.9, 0.25], "float32")


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_image_covers_its_pixels_from_zero(ax, dtype):
    assert drawing.draw_image(IMAGE.astype(dtype), ax=ax) is ax
    shown = ax.images[0]
    np.testing.assert_array_equal(shown.get_array(), IMAGE.transpose(1, 2, 0))
    assert list(shown.get_extent()) == [0, 9, 6, 0]
    assert ax.get_xlim() == (0, 9)
    assert ax.get_ylim() == (6, 0)


def test_gray_images_are_drawn_and_none_draws_nothing(ax):
    drawing.draw_image(None, ax=ax)
    assert not ax.images
    drawing.draw_image(IMAGE[:1], ax=ax)
    np.testing.assert_array_equal(ax.images[0].get_array()[..., 2], IMAGE[0])


def test_a_new_figure_is_made_without_axes():
    ax = drawing.draw_boxes(IMAGE, BOXES)
    assert ax.figure.number in pyplot.get_fignums()
    pyplot.close(ax.figure)


def test_boxes_have_their_corners_colours_and_captions(ax):
    colors = [(255, 0, 0), (0, 51, 255)]
    drawing.draw_boxes(
        IMAGE,
        BOXES,
        LABELS,
        SCORES,
        names=["cat", "dog"],
        colors=colors,
        alpha=0.5,
        linewidth=1.5,
        ax=ax,
    )
    # The box with the higher score is drawn last.
    found = [p.get_bbox().extents.tolist() for p in ax.patches]
    assert found == [[0, 0, 9, 6], [2, 1, 7, 4]]
    assert [p.get_edgecolor() for p in ax.patches] == [(0, 0.2, 1, 0.5), (1, 0, 0, 0.5)]
    assert {p.get_linewidth() for p in ax.patches} == {1.5}
    assert [t.get_text() for t in ax.texts] == ["cat: 0.25", "dog: 0.90"]
    assert ax.texts[1].get_position() == (2, 1)


def test_boxes_keep_their_order_if_they_are_not_sorted_and_colours_are_used_again(ax):
    drawing.draw_boxes(None, BOXES, None, SCORES, sort_by_score=False, ax=ax)
    assert [p.get_bbox().extents.tolist()[0] for p in ax.patches] == [2, 0]
    assert [p.get_edgecolor() for p in ax.patches] == 2 * [(1, 0, 0, 1)]
    assert [t.get_text() for t in ax.texts] == ["0.90", "0.25"]


def test_masks_are_drawn_in_order_of_their_scores(ax):
    masks = np.zeros((2, 6, 9), bool)
    masks[0, 1:3, 1:4] = masks[1, 2:5, 2:8] = True
    drawing.draw_instances(IMAGE, masks, LABELS, SCORES, names=["cat", "dog"], alpha=1.0, ax=ax)
    pixels = ax.images[1].get_array()
    red, green = [128, 0, 0, 255], [0, 128, 0, 255]
    assert pixels[2, 2].tolist() == red
    assert pixels[4, 7].tolist() == green
    assert pixels[0, 0].tolist() == [0, 0, 0, 0]
    assert [t.get_text() for t in ax.texts] == ["cat: 0.25", "dog: 0.90"]
    assert ax.texts[1].get_position() == (2.5, 1)


def test_label_maps_have_a_legend_of_the_labels_in_them(ax):
    label_map = np.zeros((6, 9), "int32")
    label_map[0, 0], label_map[1, 1] = -1, 2
    names = ["sky", "tree", "sea"]
    drawing.draw_label_map(IMAGE, label_map, names=names, unknown_color=(9, 8, 7), alpha=0.4, ax=ax)
    pixels = ax.images[1].get_array()
    assert pixels[0, 0].tolist() == [9, 8, 7, 102]
    assert pixels[1, 1].tolist() == [0, 128, 0, 102]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["sky", "sea"]
    other = Figure().subplots()
    colors = [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    drawing.draw_label_map(None, label_map, colors=colors, legend="all", ax=other)
    assert [t.get_text() for t in other.get_legend().get_texts()] == ["0", "1", "2"]
    assert other.images[0].get_array()[1, 1].tolist() == [3, 3, 3, 255]
    drawing.draw_label_map(None, np.array([[0, 2]], "uint8"), ax=Figure().subplots())
    drawing.draw_label_map(None, np.full((2, 2), -1), ax=(bare := Figure().subplots()))
    assert bare.get_legend() is None


def test_points_that_are_visible_are_drawn_and_joined(ax):
    points = np.array([[[1, 2], [3, 4], [5, 8]], [[0, 0], [1, 1], [2, 2]]], "float32")
    visible = np.array([[True, True, False], [False, False, False]])
    colors = [(255, 0, 0), (0, 255, 0)]
    skeleton = [(0, 1), (1, 2)]
    drawing.draw_points(IMAGE, points, visible, skeleton=skeleton, colors=colors, ax=ax)
    (shown,) = ax.collections
    assert shown.get_offsets().tolist() == [[2, 1], [4, 3]]
    assert shown.get_facecolor().tolist() == [[1, 0, 0, 1], [0, 1, 0, 1]]
    (line,) = ax.lines
    assert line.get_xydata().tolist() == [[2, 1], [4, 3]]
    assert ax.get_xlim() == (0, 9)
    assert ax.get_ylim() == (6, 0)


def test_nothing_in_an_image_is_drawn_as_the_image(ax):
    none = np.zeros((0, 4)), np.zeros(0, int), np.zeros(0)
    drawing.draw_boxes(IMAGE, *none, names=[], ax=ax)
    drawing.draw_instances(IMAGE, np.zeros((0, 6, 9), bool), *none[1:], ax=ax)
    drawing.draw_points(IMAGE, np.zeros((0, 5, 2)), ax=ax)
    assert not ax.patches
    assert not ax.texts
    assert not ax.collections


@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_tiles_hold_the_images_in_rows(count, columns, y, x):
    images = np.random.default_rng(count).integers(0, 9, (count, 3, 2, 4))
    tiles = drawing.tile_images(images, columns, (y, x), fill=(10, 11, 12))
    across = min(columns, count)
    down = -(-count // across)
    assert tiles.shape == (3, down * (2 + y), across * (4 + x))
    for i, image in enumerate(images):
        top, left = i // across * (2 + y) + y // 2, i % across * (4 + x) + x // 2
        np.testing.assert_array_equal(tiles[:, top : top + 2, left : left + 4], image)
    if down * across == count and x > 1:
        np.testing.assert_array_equal(tiles[:, :, -1], [[10], [11], [12]] * np.ones(len(tiles[0])))


def test_colours_of_labels_are_those_of_voc():
    wanted = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]]
    assert drawing.label_colors(np.arange(5)).tolist() == wanted
    assert drawing.label_colors([20, 255]).tolist() == [[0, 64, 128], [224, 224, 192]]


ERRORS = [
    (lambda: drawing.draw_image(IMAGE[0]), r"draw_image: image must have the shape \(3, H, W\)"),
    (lambda: drawing.draw_boxes(IMAGE, BOXES[0]), r"boxes must have the shape \(R, 4\)"),
    (lambda: drawing.draw_boxes(IMAGE, BOXES, LABELS[:1]), "got boxes 2, labels 1"),
    (
        lambda: drawing.draw_boxes(IMAGE, BOXES, LABELS, names=["cat"]),
        "object 0 has the label 1, and there are 1 names",
    ),
    (lambda: drawing.draw_boxes(IMAGE, BOXES, colors=()), "at least one colour"),
    (lambda: drawing.draw_instances(IMAGE, np.ones((2, 6, 8), bool)), "masks must have the shape"),
    (lambda: drawing.draw_label_map(IMAGE, np.zeros((6, 8), int)), "label_map must be of integers"),
    (lambda: drawing.draw_label_map(None, np.full((6, 9), 2), names=["a"]), "label up to 2, got 1"),
    (lambda: drawing.draw_label_map(None, np.zeros((6, 9), int), legend="no"), "legend must be"),
    (lambda: drawing.draw_points(IMAGE, BOXES), r"points must have the shape \(R, K, 2\)"),
    (
        lambda: drawing.draw_points(None, np.zeros((1, 2, 2)), np.zeros((1, 3), bool)),
        "visible must have an entry",
    ),
    (lambda: drawing.draw_points(None, np.zeros((1, 2, 2)), skeleton=[(0, 2)]), "below 2"),
    (lambda: drawing.tile_images([], 2), "images must have one shape"),
    (lambda: drawing.tile_images([IMAGE], 0), "columns must be at least 1"),
    (lambda: drawing.tile_images([IMAGE], 1, fill=(1, 2)), "one for each of 3 channels"),
    (lambda: drawing.label_colors([-1]), "labels must be integers of at least 0"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_name_the_function_and_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert str(caught.value).startswith("fdbr.vision.drawing.")


# --- during training ----------------------------------------------------------------


def reports(count):
    return iter(
        [train.Report(i, i, {}, 2.0 * i, train.Position(i, 0), 0.1) for i in range(1, count + 1)]
    )


EXAMPLES = [
    {"image": IMAGE, "boxes": BOXES, "labels": LABELS, "masks": np.ones((2, 6, 9), bool)},
    {"image": IMAGE[:, :4], "boxes": BOXES[:0], "labels": LABELS[:0], "name": "empty"},
]
POINTS = np.ones((2, 3, 2), "float32")
RESULTS = {
    "detections": vision.Detections((BOXES, BOXES[:0]), (LABELS, LABELS[:0]), (SCORES, SCORES[:0])),
    "instances": vision.Instances(
        (BOXES, BOXES[:0]),
        (LABELS, LABELS[:0]),
        (SCORES, SCORES[:0]),
        (np.ones((2, 6, 9), bool), np.ones((0, 4, 9), bool)),
    ),
    "keypoints": vision.Keypoints(
        (BOXES, BOXES[:0]),
        (LABELS, LABELS[:0]),
        (SCORES, SCORES[:0]),
        (POINTS, POINTS[:0]),
        (POINTS[..., 0], POINTS[:0, :, 0]),
    ),
    "label maps": (np.zeros((6, 9), "int32"), np.ones((4, 9), "int32")),
}


@pytest.mark.parametrize(
    "result",
    ["instances", *(pytest.param(r, marks=pytest.mark.slow) for r in RESULTS if r != "instances")],
)
def test_pictures_of_predictions_of_all_tasks_are_written_and_replaced(tmp_path, result):
    states = []

    def predict(state, images):
        states.append(state)
        assert [image.shape for image in images] == [(3, 6, 9), (3, 4, 9)]
        return RESULTS[result]

    folder = tmp_path / "run"
    every = train.every(iterations=2)
    stage = drawing.report(folder, predict, EXAMPLES, every, names=["cat", "dog"])
    stream = stage(reports(3))
    next(stream)
    assert not folder.exists()
    next(stream)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert first.keys() == {"prediction_0.png", "prediction_1.png"}
    assert all(content[1:4] == b"PNG" for content in first.values())
    assert len(list(stream)) == 1
    assert states == [4.0]


def test_the_live_page_lists_pictures_beside_the_log(tmp_path):
    stages = (
        train.log(tmp_path / "log.jsonl", train.every(iterations=1)),
        drawing.report(
            tmp_path,
            lambda state, images: vision.Detections((BOXES,), (LABELS,), (SCORES,)),
            EXAMPLES[:1],
            train.every(iterations=1),
            file="at_{iteration}_{index}.svg",
        ),
    )
    list(train.pipe(reports(2), *stages))
    pictures = {one["name"] for one in Runs(tmp_path).summary(".")["pictures"]}
    assert pictures == {"at_1_0.svg", "at_2_0.svg"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"predict": 3}, TypeError, "predict must be a function"),
        ({"examples": []}, ValueError, "at least one example"),
        ({"examples": [{"image": IMAGE}, {}]}, TypeError, "example 1 is dict"),
        ({"file": "{index}.txt"}, ValueError, "a suffix of"),
        ({"file": "a.png"}, ValueError, r"must have \{index\} in it"),
        ({"every": 3}, TypeError, "every"),
    ],
)
def test_bad_arguments_of_the_stage_are_errors_before_training(change, error, message):
    arguments = {"folder": "x", "predict": print, "examples": EXAMPLES, **change}
    with pytest.raises(error, match=message):
        drawing.report(**arguments)


def test_a_result_for_other_images_is_an_error(tmp_path):
    stage = drawing.report(tmp_path, lambda state, images: RESULTS["label maps"][:1], EXAMPLES)
    report = train.Report(1, 1, {}, None, train.Position(1, 0), 0.1)
    with pytest.raises(ValueError, match="an array for each of 2 images"):
        list(stage(iter([report])))
