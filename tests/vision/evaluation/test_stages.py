"""Stages add the figures of a data set to reports, the same with any number of ranks."""

import numpy as np
import pytest
from vision.evaluation.data_sets import masks_of

from fdbr import distributed, train, vision
from fdbr.vision import evaluation

POINTS = 5
SIGMAS = np.full(POINTS, 0.1)


def examples(count=7):
    random = np.random.default_rng(3)
    made = []
    for _ in range(count):
        n = random.integers(0, 4)
        low = random.integers(0, 10, (n, 2))
        boxes = np.concatenate([low, low + random.integers(2, 20, (n, 2))], 1).astype("float32")
        made.append(
            {
                "image": random.uniform(0, 255, (3, 30, 30)).astype("float32"),
                "boxes": boxes,
                "labels": random.integers(0, 2, n).astype("int32"),
                "masks": masks_of(boxes, 30),
                "points": boxes[:, None, :2] + random.uniform(0, 9, (n, POINTS, 2)),
                "visible": random.random((n, POINTS)) < 0.7,
                "difficult": random.random(n) < 0.2,
                "crowded": random.random(n) < 0.2,
                "areas": random.uniform(10, 2000, n),
                "label_map": random.integers(-1, 2, (30, 30)).astype("int32"),
            }
        )
    return made


DATA = examples()


class Model:
    """A predictor whose objects are near the true ones and whose scores have many ties."""

    def __init__(self, of=None):
        self.of = of
        self.seen = 0

    def predict(self, images):
        self.seen += len(images)
        found = []
        for image in images:
            random = np.random.default_rng(int(image.sum()))
            example = next(e for e in DATA if (e["image"] == image).all())
            boxes = np.maximum(example["boxes"] + random.integers(-1, 2, example["boxes"].shape), 0)
            boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])
            n = len(boxes)
            noise = random.normal(0, 1, example["points"].shape)
            scores = random.choice([0.25, 0.5], n)
            found.append(
                (boxes, example["labels"], scores, masks_of(boxes, 30), example["points"] + noise)
            )
        boxes, labels, scores, masks, points = zip(*found, strict=True)
        if self.of == "masks":
            return vision.Instances(boxes, labels, scores, masks)
        if self.of == "points":
            return vision.Keypoints(boxes, labels, scores, points, points)
        if self.of == "label_map":
            return tuple((image[0] > 128).astype("int32") for image in images)
        return vision.Detections(boxes, labels, scores)


STAGES = {
    "evaluate_detection_voc": (None, {"iou": 0.7, "eleven_points": True}),
    "evaluate_instances_voc": ("masks", {}),
    "evaluate_detection_coco": (None, {}),
    "evaluate_instances_coco": ("masks", {}),
    "evaluate_keypoints_coco": ("points", {"sigmas": SIGMAS}),
    "evaluate_segmentation": ("label_map", {}),
}


def metrics(name, model, dataset=DATA, **options):
    stage = getattr(evaluation, name)(lambda state: state[0], dataset, **options)
    report = train.Report(1, 1, {"loss": 1.0}, (model, None), train.Position(1, 0), 0.1)
    return dict(next(stage(iter([report]))).metrics)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_adds_what_the_function_measures(name):
    if "coco" in name:
        pytest.importorskip("pycocotools", reason="the extra vision is not installed")
    of, options = STAGES[name]
    model = Model(of)
    found = metrics(name, model, batch=3, label_names=["a", "b"], **options)
    assert model.seen == len(DATA)
    function = getattr(evaluation, name.removeprefix("evaluate_"))
    expected = function(evaluation.predict_each(model.predict, DATA), classes=2, **options)
    assert found.pop("loss") == 1.0
    assert len(found) == sum(3 for value in expected if value.startswith("m")) + (
        name == "evaluate_segmentation"
    )
    for metric, value in found.items():
        key, _, label = metric.removeprefix("test/").rpartition("/")
        true = expected.get(metric.removeprefix("test/"))
        true = expected[key]["ab".index(label)] if true is None else true
        np.testing.assert_array_equal(value, true)


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("ranks", [2, 9])
def test_all_ranks_get_the_figures_of_one_process(name, ranks):
    if "coco" in name:
        pytest.importorskip("pycocotools", reason="the extra vision is not installed")
    of, options = STAGES[name]
    alone = metrics(name, Model(of), batch=2, label_names=["a", "b"], **options)

    def run(comm):
        model = Model(of)
        both = metrics(name, model, batch=2, label_names=["a", "b"], comm=comm, **options)
        return both, model.seen

    together = distributed.run_in_threads(run, ranks, timeout=60)
    assert sum(seen for _, seen in together) == len(DATA)
    for found, _ in together:
        assert found.keys() == alone.keys()
        np.testing.assert_array_equal(list(found.values()), list(alone.values()))


def test_a_stage_measures_where_its_trigger_fires_and_in_jit():
    calls = []

    class Jitted(Model):
        def predict(self, images, jit):
            calls.append(jit)
            return super().predict(images)

    stage = evaluation.evaluate_detection_voc(
        lambda state: state, DATA, train.every(iterations=2), "val/", batch=7, jit=True
    )
    reports = [train.Report(i, 0, {}, Jitted(), train.Position(0, i), 0.1) for i in range(1, 5)]
    found = [dict(report.metrics).keys() for report in stage(iter(reports))]
    assert found == [set(), {"val/map"}, set(), {"val/map"}]
    assert calls == [True, True]


def test_errors_of_a_stage_name_it():
    with pytest.raises(TypeError, match="evaluate_detection_voc: dataset must be a sequence"):
        evaluation.evaluate_detection_voc(lambda state: state, iter(DATA))
    with pytest.raises(ValueError, match="evaluate_segmentation: dataset is empty"):
        evaluation.evaluate_segmentation(lambda state: state, [])
    with pytest.raises(ValueError, match=r"image 0: truths\.boxes is needed"):
        metrics("evaluate_detection_voc", Model(), [{"image": DATA[0]["image"]}])
    wrong = [DATA[0], DATA[1] | {"labels": DATA[1]["labels"] + 2}]
    with pytest.raises(ValueError, match=r"image 1: truths\.labels must be from 0 to 1"):
        metrics("evaluate_detection_voc", Model(), wrong, label_names=["a", "b"])
    with pytest.raises(TypeError, match="comm must be a communicator"):
        evaluation.evaluate_detection_voc(lambda state: state, DATA, comm=3)
