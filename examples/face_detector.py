"""Find faces with published weights: the boxes, and where eyes, nose and mouth are.

    pip install --no-deps facenet-pytorch scikit-image
    python examples/face_detector.py [PICTURE ...] [--out FOLDER]

Zhang et al., *Joint face detection and alignment using multitask cascaded convolutional networks*,
IEEE Signal Processing Letters 2016: a small network looks for faces at all positions and sizes, a
larger one corrects its boxes and rejects most, and the largest finds points as well.  The package
facenet-pytorch has their weights; they are read without PyTorch, and the frozen models find what
the original does.  Without a picture, the one of an astronaut in scikit-image is searched.
``faces_0.png`` shows what was found.
"""

import argparse
import importlib.util
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.figure import Figure

import fdbr
from fdbr import nn, ops, random, train, vision
from fdbr.vision.boxes import nms

# The channels and the kernel of each convolution; the pooling after it; the units of the hidden
# layer; and the outputs: scores, corrections of boxes, points.
LAYOUTS: dict[str, Any] = {
    "pnet": ([(10, 3), (16, 3), (32, 3)], [2, 0, 0], 0, [2, 4]),
    "rnet": ([(28, 3), (48, 3), (64, 2)], [3, 3, 0], 128, [2, 4]),
    "onet": ([(32, 3), (64, 3), (64, 3), (128, 2)], [3, 3, 2, 0], 256, [2, 4, 10]),
}
SMALLEST = 20  # pixels of a face
FACTOR = 0.709  # between the sizes at which faces are looked for
THRESHOLDS = (0.6, 0.7, 0.7)  # of the scores of the three networks


@fdbr.frozen
class Cascade:
    """One of the three networks."""

    layers: dict[str, Any]
    pools: tuple[int, ...] = fdbr.static()
    torch_names = {"layers": ""}  # in the files, layers have their names alone  # noqa: RUF012

    @classmethod
    def init(cls, key: Any, layout: Any) -> Self:
        convolutions, pools, hidden, outputs = layout
        keys = iter(random.split(key, 16))
        layers: dict[str, Any] = {}
        channels, number = 3, 1
        for width, kernel in convolutions:
            layers[f"conv{number}"] = nn.Conv.init(next(keys), channels, width, kernel)
            layers[f"prelu{number}"] = nn.PReLU.init(next(keys), width)
            channels, number = width, number + 1
        if hidden:
            layers[f"dense{number}"] = nn.Linear.init(next(keys), 9 * channels, hidden)
            layers[f"prelu{number}"] = nn.PReLU.init(next(keys), hidden)
            channels, number = hidden, number + 1
        for i, width in enumerate(outputs, 1):
            if hidden:
                layers[f"dense{number}_{i}"] = nn.Linear.init(next(keys), channels, width)
            else:
                layers[f"conv{number}_{i}"] = nn.Conv.init(next(keys), channels, width, 1)
        return cls(layers, tuple(pools))

    def __call__(self, x: Any) -> list[Any]:
        """Return the probability of a face, the corrections of its box, and its points."""
        x = (x - 127.5) * 0.0078125
        number = 1
        for pool in self.pools:
            x = self.layers[f"prelu{number}"](self.layers[f"conv{number}"](x))
            if pool:
                x = ops.max_pool(x, pool, 2, ceil_mode=True)
            number += 1
        if f"dense{number}" in self.layers:
            # The weights come from a program whose arrays had the axes column, row, channel.
            x = ops.permute_dims(x, (0, 3, 2, 1)).reshape(len(x), 9 * x.shape[1])
            x = self.layers[f"prelu{number}"](self.layers[f"dense{number}"](x))
            number += 1
        heads = [layer for name, layer in self.layers.items() if f"{number}_" in name]
        scores, *others = (head(x) for head in heads)
        return [ops.softmax(scores, axis=1)[:, 1], *others]


@fdbr.frozen
class FaceDetector:
    """The cascade of three networks."""

    pnet: Cascade
    rnet: Cascade
    onet: Cascade

    @classmethod
    def init(cls, key: Any) -> Self:
        keys = random.split(key, 3)
        return cls(*(Cascade.init(k, v) for k, v in zip(keys, LAYOUTS.values(), strict=True)))

    def predict(self, images: Any) -> vision.Keypoints:
        """Return the faces in images, with the eyes, the nose and the corners of the mouth."""
        found = [self._faces(np.asarray(image, np.float32)) for image in images]
        return vision.Keypoints(*map(tuple, zip(*found, strict=True)))

    def _faces(self, image: Any) -> tuple[Any, ...]:
        boxes = self._proposals(image)
        boxes, patches = cut(image, boxes, 24)
        scores, shifts = self.rnet(patches)
        boxes, scores, shifts = (a[scores > THRESHOLDS[1]] for a in (boxes, scores, shifts))
        kept = nms(boxes, scores, 0.7)
        boxes = squared(moved(boxes[kept], shifts[kept], 1))
        boxes, patches = cut(image, boxes, 48)
        scores, shifts, points = self.onet(patches)
        good = scores > THRESHOLDS[2]
        boxes, scores, shifts, points = (a[good] for a in (boxes, scores, shifts, points))
        points = np.stack([points[:, 5:], points[:, :5]], axis=-1)
        sides = boxes[:, 2:] - boxes[:, :2] + 1
        points = points * sides[:, None] + boxes[:, None, :2] - 1
        boxes = moved(boxes, shifts, 1)
        kept = unlike(boxes, scores, 0.7)
        boxes, scores, points = boxes[kept], scores[kept], points[kept]
        labels, certain = np.zeros(len(boxes), np.int32), np.ones(points.shape[:2], np.float32)
        return boxes, labels, scores, points, certain

    def _proposals(self, image: Any) -> Any:
        """Return squares that may be faces: the first network, applied at many sizes."""
        height, width = image.shape[1:]
        scale = 12 / SMALLEST
        found = []
        while min(height, width) * scale >= 12:
            size = int(height * scale + 1), int(width * scale + 1)
            scores, shifts = self.pnet(ops.adaptive_avg_pool(image[None], size))
            at = np.argwhere(scores[0] >= THRESHOLDS[0])
            rows, columns = at.T
            corners = (2 * at.astype(np.float32)[:, [0, 1, 0, 1]] + [1, 1, 12, 12]) / scale
            boxes = np.floor(corners).astype(np.float32)
            scores, shifts = scores[0, rows, columns], shifts[0, :, rows, columns]
            kept = nms(boxes, scores, 0.5)
            found.append((boxes[kept], scores[kept], shifts[kept]))
            scale *= FACTOR
        if not found:
            return np.zeros((0, 4), np.float32)
        boxes, scores, shifts = map(np.concatenate, zip(*found, strict=True))
        kept = nms(boxes, scores, 0.7)
        return squared(moved(boxes[kept], shifts[kept], 0))


def moved(boxes: Any, shifts: Any, extra: int) -> Any:
    """Move the corners of boxes by fractions of their sides; shifts have x before y."""
    sides = boxes[:, 2:] - boxes[:, :2] + np.float32(extra)
    return boxes + shifts[:, [1, 0, 3, 2]] * np.tile(sides, 2)


def squared(boxes: Any) -> Any:
    """Return the squares around the middle of boxes, as long as the longer side."""
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = sides.max(1, keepdims=True, initial=0)
    corner = boxes[:, :2] + sides * np.float32(0.5) - longest * np.float32(0.5)
    return np.concatenate([corner, corner + longest], axis=1)


def cut(image: Any, boxes: Any, size: int) -> tuple[Any, Any]:
    """Return the boxes that are within an image, and what is in them at one size."""
    # Pixels are counted from 1, and the last is within the box.
    first = np.maximum(np.trunc(boxes[:, :2]).astype(int), 1) - 1
    last = np.minimum(np.trunc(boxes[:, 2:]).astype(int), image.shape[1:])
    inside = (first < last).all(1)
    patches = [
        ops.adaptive_avg_pool(image[None, :, top:bottom, left:right], (size, size))[0]
        for (top, left), (bottom, right) in zip(first[inside], last[inside], strict=True)
    ]
    shape = (len(patches), len(image), size, size)
    return boxes[inside], np.asarray(patches, np.float32).reshape(shape)


def unlike(boxes: Any, scores: Any, threshold: float) -> Any:
    """Suppress boxes by their common part of the smaller one, with a pixel more on each side."""
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(1)
    order, kept = np.argsort(-scores, kind="stable"), []
    while len(order):
        first, rest = order[0], order[1:]
        kept.append(first)
        low = np.maximum(boxes[first, :2], boxes[rest, :2])
        high = np.minimum(boxes[first, 2:], boxes[rest, 2:])
        common = np.maximum(high - low + 1, 0).prod(1)
        order = rest[common / np.minimum(areas[first], areas[rest]) <= threshold]
    return np.array(kept, int)


def folder_of(package: str, install: str) -> Path:
    """Return the folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(
            f"face_detector: the package {install} is not installed; install it with "
            f"pip install --no-deps {install}"
        )
    return Path(spec.origin).parent


def published() -> FaceDetector:
    """Return the model with the weights in the package facenet-pytorch."""
    weights = folder_of("facenet_pytorch", "facenet-pytorch") / "data"
    model = FaceDetector.init(random.key(0))
    loaded = {
        name: nn.load_torch_state(getattr(model, name), weights / f"{name}.pt") for name in LAYOUTS
    }
    return FaceDetector(**loaded)


def main(arguments: list[str] | None = None) -> vision.Keypoints:
    """Find the faces in the pictures of a command line, print them, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "pictures", nargs="*", type=Path, help="by default scikit-image's astronaut"
    )
    parser.add_argument("--out", type=Path, default=Path("result"), help="the folder of pictures")
    given = parser.parse_args(arguments)
    model = published()
    paths = given.pictures or [folder_of("skimage", "scikit-image") / "data" / "astronaut.png"]
    images = [train.read_image(path) for path in paths]
    found = model.predict(images)
    given.out.mkdir(parents=True, exist_ok=True)
    for i, (path, image) in enumerate(zip(paths, images, strict=True)):
        print(f"{path.name}: {len(found.boxes[i])} faces")
        for box, score in zip(found.boxes[i], found.scores[i], strict=True):
            print(f"  {np.array2string(box, precision=1)}, score {score:.3f}")
        figure = Figure(layout="constrained")
        ax = figure.subplots()
        vision.drawing.draw_boxes(image, found.boxes[i], scores=found.scores[i], ax=ax)
        vision.drawing.draw_points(image, found.points[i], ax=ax)
        figure.savefig(given.out / f"faces_{i}.png")
    return found


if __name__ == "__main__":
    main()
