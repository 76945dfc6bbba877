"""YOLO: detectors that predict the boxes around the cells of a grid, without proposals."""

import abc
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, numbers_of_blocks, positive
from fdbr.nn.sequential import Sequential
from fdbr.ops.devices import beside
from fdbr.ops.nn.resampling.interpolation import resize_linearly
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static
from fdbr.vision.boxes import box_iou
from fdbr.vision.models.base import Detector, Prepared
from fdbr.vision.models.suppression import best_objects, in_rows
from fdbr.vision.models.truths import padded_truths
from fdbr.vision.results import Detections, Truths, unpad

__all__ = [
    "Darknet19",
    "Darknet53",
    "DarknetTiny",
    "YOLOTargets",
    "YOLOv2",
    "YOLOv2Tiny",
    "YOLOv3",
    "yolo_targets",
]

Anchors = Sequence[Sequence[tuple[float, float]]]


# --- extractors -----------------------------------------------------------------------


def _leaky_relu(x: Any) -> Any:
    return ops.leaky_relu(x, 0.1)


def _unit(of: Builder, inputs: int, outputs: int, kernel: int, stride: int = 1) -> Sequential:
    return of.unit(inputs, outputs, kernel, stride, act=_leaky_relu)


class _Numbered(Composite):
    """Layers with numbers as names, most of them a convolution, its normalisation and a rectifier.

    It is ChainerCV's ``ChainList`` of ``Conv2DBNActiv``.
    """

    __slots__ = ()
    layers: tuple[Any, ...]

    def chainer_names(self) -> dict[str, str]:
        """Return ChainerCV's names in files."""
        units = [i for i, layer in enumerate(self.layers) if isinstance(layer, Sequential)]
        return {
            **{f"layers[{i}]": str(i) for i in range(len(self.layers))},
            **{f"layers[{i}].layers[0]": f"{i}/conv" for i in units},
            **{f"layers[{i}].layers[1]": f"{i}/bn" for i in units},
        }


@public("fdbr.vision.models")
@frozen
class Darknet19(_Numbered):
    """The extractor of `YOLOv2`: 22 convolutions and a connection from the grid of half the step.

    Redmon & Farhadi, *YOLO9000: better, faster, stronger*, CVPR 2017.

    Attributes
    ----------
    layers
        Convolutions with batch normalisation and leaky rectifier.
    """

    layers: tuple[Sequential, ...]

    strides: ClassVar[tuple[int, ...]] = (32,)

    @classmethod
    def build(cls, of: Builder, width: int) -> tuple[Self, tuple[int, ...]]:
        """Return the extractor, and the numbers of channels of its outputs."""
        layers, inputs = [], 3
        for stage, count in enumerate((1, 1, 3, 3, 5, 5)):
            for i in range(count):
                outputs, kernel = (width << stage, 3) if i % 2 == 0 else (width << (stage - 1), 1)
                layers.append(_unit(of, inputs, outputs, kernel))
                inputs = outputs
        wide, through = width * 32, width * 2
        layers += [_unit(of, wide, wide, 3), _unit(of, wide, wide, 3)]
        layers.append(_unit(of, width * 16, through, 1))
        layers.append(_unit(of, 4 * through + wide, wide, 3))
        return cls(tuple(layers)), (wide,)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the features of a batch as a tuple of one array."""
        fine = None
        *layers, through, last = of.layers
        for i, layer in enumerate(layers):
            x = layer(x)
            if i == 12:
                fine = x
            if i in (0, 1, 4, 7, 12):
                x = ops.max_pool(x, 2)
        return (last(ops.concat((_quartered(through(fine)), x), axis=1)),)


def _quartered(x: Any) -> Any:
    """Move each window of 2x2 elements to the channels, in Darknet's order."""
    n, c, h, w = x.shape
    x = ops.reshape(x, (n, c // 4, h, 2, w, 2))
    return ops.reshape(ops.permute_dims(x, (0, 3, 5, 1, 2, 4)), (n, c * 4, h // 2, w // 2))


@public("fdbr.vision.models")
@frozen
class DarknetTiny(_Numbered):
    """The extractor of `YOLOv2Tiny`: eight convolutions.

    Attributes
    ----------
    layers
        Convolutions with batch normalisation and leaky rectifier.
    """

    layers: tuple[Sequential, ...]

    strides: ClassVar[tuple[int, ...]] = (32,)

    @classmethod
    def build(cls, of: Builder, width: int) -> tuple[Self, tuple[int, ...]]:
        """Return the extractor, and the numbers of channels of its outputs."""
        widths = [3, *(width << stage for stage in range(7)), width << 6]
        return cls(tuple(_unit(of, *pair, 3) for pair in itertools.pairwise(widths))), (width << 6,)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the features of a batch as a tuple of one array."""
        for i, layer in enumerate(of.layers):
            x = layer(x)
            if i < 5:
                x = ops.max_pool(x, 2)
            elif i == 5:  # windows that extend over the last row and column
                x = ops.max_pool(x, 2, 1, 1)
                x = x[:, :, 1:, 1:]
        return (x,)


@frozen
class _Residual(_Numbered):
    """Two convolutions whose output is added to their input."""

    layers: tuple[Sequential, ...]

    def _forward(self, of: Any, x: Any) -> Any:
        first, second = of.layers
        return x + second(first(x))


@public("fdbr.vision.models")
@frozen
class Darknet53(_Numbered):
    """The extractor of `YOLOv3`: residual blocks and three outputs of steps 32, 16 and 8.

    Redmon & Farhadi, *YOLOv3: an incremental improvement*, arXiv:1804.02767.

    Attributes
    ----------
    layers
        Convolutions with batch normalisation and leaky rectifier, and residual blocks of two.
    depths
        The number of residual blocks of each stage.
    """

    layers: tuple[Any, ...]
    depths: tuple[int, ...] = static(default=(1, 2, 8, 8, 4))

    strides: ClassVar[tuple[int, ...]] = (32, 16, 8)

    @classmethod
    def build(
        cls, of: Builder, width: int, depths: tuple[int, ...]
    ) -> tuple[Self, tuple[int, ...]]:
        """Return the extractor, and the numbers of channels of its outputs."""
        layers: list[Any] = [_unit(of, 3, width, 3)]
        for stage, depth in enumerate(depths):
            narrow, wide = width << stage, width << (stage + 1)
            layers.append(_unit(of, narrow, wide, 3, 2))
            for _ in range(depth):
                pair = _unit(of, wide, narrow, 1), _unit(of, narrow, wide, 3)
                layers.append(_Residual(pair))
        outputs = tuple(width << stage for stage in (4, 3, 2))
        inputs = width << 5
        for i, n in enumerate(outputs):
            if i:
                layers.append(_unit(of, inputs, n, 1))
                inputs = n + 2 * n  # the coarser features, and those of the stage before
            for outs, kernel in ((n, 1), (2 * n, 3), (n, 1), (2 * n, 3), (n, 1)):
                layers.append(_unit(of, inputs, outs, kernel))
                inputs = outs
        return cls(tuple(layers), depths), outputs

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the features of a batch, from the coarsest grid to the finest."""
        layers = iter(of.layers)
        x = next(layers)(x)
        stages = []
        for depth in self.depths:
            for _ in range(depth + 1):
                x = next(layers)(x)
            stages.append(x)
        features: list[Any] = []
        for before in (None, stages[3], stages[2]):
            if before is not None:
                x = ops.interpolate(next(layers)(x), scale_factor=2)
                x = ops.concat((x, before), axis=1)
            for _ in range(5):
                x = next(layers)(x)
            features.append(x)
        return tuple(features)


# --- targets --------------------------------------------------------------------------


class Grid(NamedTuple):
    """The boxes from which a model's K predictions start.

    Attributes
    ----------
    cells
        The row and column of each one's cell, shape ``(K, 2)``, float32.
    steps
        The number of pixels between cells, shape ``(K,)``, float32.
    priors
        The height and width before they are scaled, in pixels, shape ``(K, 2)``, float32.
    """

    cells: Any
    steps: Any
    priors: Any


def _grid(size: int, strides: Sequence[int], anchors: Anchors) -> Grid:
    """Return the boxes of all scales: rows, columns and anchors of the first one, and so on."""
    cells, steps, priors = [], [], []
    for stride, sizes in zip(strides, anchors, strict=True):
        count = size // stride
        corners = np.moveaxis(np.mgrid[:count, :count], 0, -1).reshape(-1, 2)
        cells.append(np.repeat(corners, len(sizes), axis=0))
        steps.append(np.full(len(cells[-1]), stride))
        priors.append(np.tile(np.asarray(sizes, np.float32), (count * count, 1)))
    joined = (np.concatenate(part).astype(np.float32) for part in (cells, steps, priors))
    return Grid(*joined)


class YOLOTargets(NamedTuple):
    """The targets of K predictions of N images.

    Attributes
    ----------
    truths
        The index of the object that each prediction must find, shape ``(N, K)``; -1 for none.
    classes
        The classes of the objects assigned to it, shape ``(N, K, classes)``, float32: 0 or 1.
    ignored
        Whether it covers an object that another one must find, shape ``(N, K)``: then it is no
        error that it finds one.
    """

    truths: Any
    classes: Any
    ignored: Any


@public("fdbr.vision.models")
@where_it_lies
def yolo_targets(
    predicted: Any,
    boxes: Any,
    labels: Any,
    *,
    size: int,
    strides: Sequence[int],
    anchors: Anchors,
    classes: int,
    ignore_threshold: float,
) -> YOLOTargets:
    """Assign each object to one prediction, as Darknet does.

    It is the prediction of the cell in which the object's centre lies, with the anchor of all
    scales whose shape is the most similar.  Of several objects with one prediction, the last one
    gives the box.

    Parameters
    ----------
    predicted
        The predicted boxes, shape ``(N, K, 4)``.
    boxes, labels
        The objects, shapes ``(N, T, 4)`` and ``(N, T)``; -1 is the label of padding.
    size
        The height and width of the images, in pixels.
    strides, anchors
        For each scale the number of pixels between cells, and the heights and widths of anchors.
    classes
        The number of classes.
    ignore_threshold
        The overlap with any object above which a prediction is ignored.

    Returns
    -------
    YOLOTargets

    >>> import numpy as np
    >>> from fdbr import vision
    >>> boxes = np.array([[[0, 0, 16, 16], [20, 40, 60, 60]]], "float32")
    >>> targets = vision.models.yolo_targets(
    ...     np.zeros((1, 8, 4), "float32"), boxes, np.array([[0, 1]]), size=64, strides=[32],
    ...     anchors=[[(16, 16), (40, 20)]], classes=2, ignore_threshold=0.5
    ... )
    >>> targets.truths
    array([[ 0, -1, -1, -1, -1, -1, -1,  1]], dtype=int32)
    """
    rows = []  # for each anchor: step, cells a side, its first prediction, predictions a cell
    first = 0
    for stride, sizes in zip(strides, anchors, strict=True):
        across = size // stride
        rows += [(stride, across, first + i, len(sizes)) for i in range(len(sizes))]
        first += across * across * len(sizes)
    table = np.array(rows, np.int32)
    shapes = np.array([shape for sizes in anchors for shape in sizes], np.float32)
    table, shapes = (beside(part, boxes) for part in (table, shapes))
    extents = boxes[..., 2:] - boxes[..., :2]
    shared = ops.prod(ops.minimum(extents[..., None, :], shapes), axis=-1)
    union = ops.prod(extents, axis=-1)[..., None] + shapes.prod(axis=1) - shared
    best = ops.argmax(shared / union, axis=-1)
    step, side, start, count = ops.unstack(ops.take(table, best, axis=0), axis=-1)
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    cells = ops.astype(ops.floor(centres / step[..., None]), np.int32)
    cells = ops.minimum(ops.maximum(cells, 0), side[..., None] - 1)
    assigned = start + (cells[..., 0] * side + cells[..., 1]) * count
    real = labels >= 0
    xp = array_module(boxes)
    matches = (assigned[..., None] == xp.arange(first)) & real[..., None]
    numbers = xp.arange(1, labels.shape[1] + 1, dtype=np.int32)[:, None]
    truths = ops.max(ops.where(matches, numbers, 0), axis=1) - 1
    hot = ops.astype(labels[..., None] == xp.arange(classes), predicted.dtype)
    classed = ops.matmul(ops.matrix_transpose(ops.astype(matches, hot.dtype)), hot)
    overlaps = ops.where(real[:, None], box_iou(predicted, boxes), 0)
    ignored = ops.max(overlaps, axis=-1) > ignore_threshold
    return YOLOTargets(ops.astype(truths, np.int32), ops.astype(classed > 0, hot.dtype), ignored)


# --- models ---------------------------------------------------------------------------


class YOLO(Detector):
    """The methods of all versions of YOLO; the subclasses have the fields."""

    __slots__ = ()
    extractor: Any
    subnet: Any
    classes: int
    size: int
    anchors: Anchors
    score_threshold: float
    nms_threshold: float
    limit: int

    _ignore_threshold: ClassVar[float] = 0.5

    def prepare(self, images: Any) -> Prepared:
        """Return images divided by 255, shrunk to the network's size and centred on grey.

        They are resized as by OpenCV.
        """
        originals = np.array([image.shape[1:] for image in images], np.int32).reshape(-1, 2)
        scales = np.minimum(self.size / originals.max(axis=1, initial=1), 1)
        sizes = np.maximum((originals * scales[:, None]).astype(np.int32), 1)
        batch = []
        for image, now in zip(images, sizes, strict=True):
            x = ops.astype(ops.asarray(image), np.float32)[None] / 255
            x = resize_linearly(x, tuple(map(int, now)))
            before = (self.size - now) // 2
            after = self.size - now - before
            widths = [(0, 0), (0, 0), *zip(map(int, before), map(int, after), strict=True)]
            batch.append(ops.pad(x, widths, constant_values=0.5))
        joined = ops.concat(batch) if batch else np.zeros((0, 3, self.size, self.size), np.float32)
        return Prepared(joined, sizes, originals)

    def detect(self, batch: Any, sizes: Any) -> Detections:
        """Return the padded objects in a batch, in its pixels."""
        locs, objs, confs = self(batch)
        scores = ops.sigmoid(objs)[..., None] * self._probabilities(confs)
        return best_objects(
            self.boxes(locs),
            ops.where(scores >= self.score_threshold, scores, -np.inf),
            nms_threshold=self.nms_threshold,
            limit=self.limit,
        )

    def finish(self, found: Detections, prepared: Prepared) -> Detections:
        """Return the ragged result of `detect` in pixels of the images that were given."""
        offsets, scales = self._changes(prepared, found.boxes)
        return unpad(found._replace(boxes=(found.boxes - offsets) / scales))

    def boxes(self, locs: Any) -> Any:
        """Return the boxes ``(N, K, 4)`` that are encoded in ``locs``."""
        grid = self._grid_beside(locs)
        centres = (grid.cells + ops.sigmoid(locs[..., :2])) * grid.steps[:, None]
        halves = grid.priors * ops.exp(locs[..., 2:]) / 2
        return ops.concat((centres - halves, centres + halves), axis=-1)

    @where_it_lies
    def losses(
        self, images: Any, truths: Any, *, key: Any, prior_weight: Any = 0
    ) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Boxes are assigned as in `yolo_targets`.  The losses are sums over predictions, divided by
        the number of images, whose gradients are those that Darknet computes.

        Parameters
        ----------
        images, truths, key
            As for `Detector.losses`; the key is not used.
        prior_weight
            The weight in ``loc_loss`` of predictions that no object is assigned to, whose boxes
            then stay near the centres of their cells and their anchors.  With the number of images
            seen before, Darknet's weight for `YOLOv2` is ``ops.where(seen < 12800, 0.01, 0)``; for
            `YOLOv3` it is 0.

        Returns
        -------
        tuple
            A dict with ``loc_loss``, ``obj_loss`` and ``conf_loss``, and the model with new
            running statistics.

        Raises
        ------
        ValueError, TypeError
            If an image or an object is not proper; the message has the index of the image.
        """
        truths = padded_truths(self, images, truths, self.classes)
        prepared = self.prepare(images)
        offsets, scales = self._changes(prepared, truths.boxes)
        truths = truths._replace(boxes=ops.astype(truths.boxes * scales + offsets, np.float32))
        (locs, objs, confs), successor = self.train(prepared.batch, key=key)
        predicted = stop_gradient(self.boxes(locs))
        targets = yolo_targets(
            predicted,
            truths.boxes,
            truths.labels,
            size=self.size,
            strides=self.extractor.strides,
            anchors=self.anchors,
            classes=self.classes,
            ignore_threshold=self._ignore_threshold,
        )
        losses = self.target_losses(locs, objs, confs, truths, targets, prior_weight=prior_weight)
        return losses, successor

    def target_losses(
        self,
        locs: Any,
        objs: Any,
        confs: Any,
        truths: Truths,
        targets: YOLOTargets,
        *,
        prior_weight: Any = 0,
    ) -> dict[str, Any]:
        """Return the losses of outputs for given targets.

        Parameters
        ----------
        locs, objs, confs
            The outputs of the model for a batch.
        truths
            The padded objects in pixels of the batch.
        targets
            Which predictions must find them.
        prior_weight
            As for `losses`.
        """
        grid = self._grid_beside(locs)
        assigned = targets.truths >= 0
        indices = ops.maximum(targets.truths, 0)
        corners = ops.broadcast_to(indices[..., None], (*indices.shape, 4))
        own = ops.take_along_axis(truths.boxes, corners, axis=1)
        own = ops.where(assigned[..., None], own, self.boxes(ops.zeros_like(locs)))
        extents = own[..., 2:] - own[..., :2]
        centres = (own[..., :2] + own[..., 2:]) / (2 * grid.steps[:, None]) - grid.cells
        share = extents[..., 0] * extents[..., 1] / self.size**2
        shapes = ops.square(locs[..., 2:] - ops.log(extents / grid.priors)) / 2
        positions = self._position_losses(locs[..., :2], centres)
        other = ops.astype(beside(ops.asarray(prior_weight), locs), locs.dtype)
        weights = ops.where(assigned, 2 - share, other)
        overlaps = _overlaps(stop_gradient(self.boxes(locs)), own)
        obj = self._object_losses(objs, overlaps, assigned, targets.ignored)
        labels = ops.take_along_axis(truths.labels, indices, axis=1)
        conf = self._class_losses(confs, labels, targets.classes)
        count = max(locs.shape[0], 1)
        return {
            "loc_loss": ops.sum(weights[..., None] * (positions + shapes)) / count,
            "obj_loss": ops.sum(obj) / count,
            "conf_loss": ops.sum(ops.where(assigned, conf, 0)) / count,
        }

    def grid(self) -> Grid:
        """Return the boxes from which predictions start."""
        return _grid(self.size, self.extractor.strides, self.anchors)

    def _grid_beside(self, x: Any) -> Grid:
        """Return the grid on the device of an array."""
        return Grid(*(beside(part, x) for part in self.grid()))

    def _changes(self, prepared: Prepared, boxes: Any) -> tuple[Any, Any]:
        """Return what is added to boxes of images, and before that multiplied, per image."""
        offsets = (self.size - prepared.sizes) / 2
        scales = prepared.sizes / np.maximum(prepared.originals, 1)
        return tuple(
            beside(np.tile(part, 2)[:, None].astype(np.float32), boxes)
            for part in (offsets, scales)
        )

    def _outputs(self, maps: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Divide the outputs of all scales: encoded boxes, logits of objects and of classes."""
        joined = ops.concat([in_rows(x, 5 + self.classes) for x in maps], axis=1)
        return joined[..., :4], joined[..., 4], joined[..., 5:]

    @classmethod
    def _checked(cls, classes: int, width: int, size: int, anchors: Any) -> Anchors:
        """Return the anchors as tuples."""
        positive(cls, classes=classes, width=width)
        where = f"fdbr.vision.models.{cls.__name__}.init"
        integer(where, "size", size, least=32)
        scales = tuple(tuple((float(h), float(w)) for h, w in scale) for scale in anchors)
        if size % 32:
            raise ValueError(f"{where}: size must be a multiple of 32, got {size}")
        if len(scales) != len(cls._anchors) or not all(scales):
            raise ValueError(
                f"{where}: anchors must be {len(cls._anchors)} lists of (height, width), one for "
                f"each scale, got {anchors!r}"
            )
        return scales

    @abc.abstractmethod
    def _probabilities(self, confs: Any) -> Any:
        """Return the probabilities of classes, given their logits."""

    @abc.abstractmethod
    def _position_losses(self, encoded: Any, wanted: Any) -> Any:
        """Return the losses of encoded boxes."""

    @abc.abstractmethod
    def _object_losses(self, objs: Any, overlaps: Any, assigned: Any, ignored: Any) -> Any:
        """Return the losses of the logits of objects."""

    @abc.abstractmethod
    def _class_losses(self, confs: Any, labels: Any, classes: Any) -> Any:
        """Return the losses of the logits of classes."""

    _anchors: ClassVar[Anchors] = ()


def _overlaps(a: Any, b: Any) -> Any:
    """Return the intersection over union of each box of an array with that of another."""
    common = ops.minimum(a[..., 2:], b[..., 2:]) - ops.maximum(a[..., :2], b[..., :2])
    shared = ops.prod(ops.maximum(common, 0), axis=-1)
    areas = (ops.prod(x[..., 2:] - x[..., :2], axis=-1) for x in (a, b))
    return shared / (sum(areas) - shared)


@public("fdbr.vision.models")
@frozen
class YOLOv2(YOLO):
    """A detector of one grid, whose boxes are encoded relative to cells and anchors.

    Redmon & Farhadi, *YOLO9000: better, faster, stronger*, CVPR 2017.  ``size / 32`` cells on each
    side predict a box for each anchor.  The structure is ChainerCV's: `nn.load_chainer_npz` loads
    its files.

    Attributes
    ----------
    extractor, subnet
        The layers.
    classes, size, anchors, score_threshold, nms_threshold, limit
        The arguments of `init`.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.YOLOv2.init(fdbr.random.key(0), 3, width=2, size=64)
    >>> found = model.predict([fdbr.ops.ones((3, 48, 80), dtype="float32")])
    >>> len(found.boxes) == len(found.scores) == 1
    True
    """

    extractor: Any
    subnet: Conv
    classes: int = static()
    size: int = static(default=416)
    anchors: Any = static(default=())
    score_threshold: float = static(default=0.5)
    nms_threshold: float = static(default=0.45)
    limit: int = static(default=100)

    _extractor: ClassVar[Any] = Darknet19
    _width: ClassVar[int] = 32
    _ignore_threshold: ClassVar[float] = 0.6
    _anchors: ClassVar[Anchors] = (
        (
            (55.4064, 42.3072),
            (128.30208, 102.168),
            (259.16544, 161.78784),
            (154.89696, 303.07584),
            (320.2272, 359.5648),
        ),
    )

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 20,
        *,
        width: int | None = None,
        size: int = 416,
        anchors: Anchors | None = None,
        score_threshold: float = 0.5,
        nms_threshold: float = 0.45,
        limit: int = 100,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        width
            The number of channels of the first convolution; by default the paper's.
        size
            The height and width of the network's input, a multiple of 32.
        anchors
            For each scale, here one, the heights and widths of its anchors in pixels of the input.
        score_threshold
            The score that objects must have; 0.005 is ChainerCV's preset ``"evaluate"``.
        nms_threshold
            The overlap above which the worse of two objects of a class is left out.
        limit
            The largest number of objects in an image; in ChainerCV there is none, which for
            ``"evaluate"`` a large number gives.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default as for `nn.models.ResNet`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        ValueError, TypeError
            If a number is not positive, ``size`` no multiple of 32, or ``anchors`` have another
            structure.
        """
        width = cls._width if width is None else width
        scales = cls._checked(classes, width, size, cls._anchors if anchors is None else anchors)
        of = Builder(key, weight_init, dtype, eps=2e-5)
        extractor, (inputs,) = cls._extractor.build(of, width)
        subnet = of.conv(inputs, len(scales[0]) * (5 + classes), 1, stddev=0.01)
        return cls(extractor, subnet, classes, size, scales, score_threshold, nms_threshold, limit)

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any, Any]:
        """Return encoded boxes and logits of a batch."""
        (features,) = of.extractor(x)
        return self._outputs([of.subnet(features)])

    def _probabilities(self, confs: Any) -> Any:
        return ops.softmax(confs, axis=-1)

    def _position_losses(self, encoded: Any, wanted: Any) -> Any:
        return ops.square(ops.sigmoid(encoded) - wanted) / 2

    def _object_losses(self, objs: Any, overlaps: Any, assigned: Any, ignored: Any) -> Any:
        certain = ops.sigmoid(objs)
        absent = ops.where(ignored, 0, ops.square(certain) / 2)
        return ops.where(assigned, 2.5 * ops.square(certain - overlaps), absent)

    def _class_losses(self, confs: Any, labels: Any, classes: Any) -> Any:
        return ops.softmax_cross_entropy(confs, labels, axis=-1, ignore_label=-1, reduction="none")


@public("fdbr.vision.models")
@frozen
class YOLOv2Tiny(YOLOv2):
    """`YOLOv2` with a smaller extractor."""

    _extractor: ClassVar[Any] = DarknetTiny
    _width: ClassVar[int] = 16
    _anchors: ClassVar[Anchors] = (
        (
            (38.08, 34.56),
            (141.12, 109.44),
            (364.16, 212.16),
            (163.52, 301.44),
            (336.64, 531.84),
        ),
    )


@public("fdbr.vision.models")
@frozen
class YOLOv3(YOLO):
    """A detector of three grids, with residual blocks and independent classes.

    Redmon & Farhadi, *YOLOv3: an incremental improvement*, arXiv:1804.02767.  The structure is
    ChainerCV's: `nn.load_chainer_npz` loads its files.

    Attributes
    ----------
    extractor, subnet
        The layers.
    classes, size, anchors, score_threshold, nms_threshold, limit
        The arguments of `init`.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.YOLOv3.init(
    ...     fdbr.random.key(0), 3, width=2, size=64, depths=(1, 1, 1, 1, 1)
    ... )
    >>> found = model.predict([fdbr.ops.ones((3, 48, 80), dtype="float32")])
    >>> len(found.boxes) == len(found.scores) == 1
    True
    """

    extractor: Darknet53
    subnet: tuple[Sequential, ...]
    classes: int = static()
    size: int = static(default=416)
    anchors: Any = static(default=())
    score_threshold: float = static(default=0.5)
    nms_threshold: float = static(default=0.45)
    limit: int = static(default=100)

    _anchors: ClassVar[Anchors] = (
        ((90, 116), (198, 156), (326, 373)),
        ((61, 30), (45, 62), (119, 59)),
        ((13, 10), (30, 16), (23, 33)),
    )

    def chainer_names(self) -> dict[str, str]:
        """Return ChainerCV's names in files."""
        parts = enumerate(("conv", "bn"))
        return {
            f"subnet[{i}].layers[0].layers[{j}]": f"subnet/{i}/0/{name}"
            for j, name in parts
            for i in range(len(self.subnet))
        }

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 20,
        *,
        width: int = 32,
        depths: Sequence[int] = (1, 2, 8, 8, 4),
        size: int = 416,
        anchors: Anchors | None = None,
        score_threshold: float = 0.5,
        nms_threshold: float = 0.45,
        limit: int = 100,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        width
            The number of channels of the first convolution.
        depths
            The number of residual blocks of each of the five stages.
        size
            The height and width of the network's input, a multiple of 32.
        anchors
            For each scale, from the coarsest, the heights and widths of its anchors in pixels of
            the input.
        score_threshold, nms_threshold, limit, weight_init, dtype
            As for `YOLOv2.init`.

        Raises
        ------
        ValueError, TypeError
            As for `YOLOv2.init`.
        """
        scales = cls._checked(classes, width, size, cls._anchors if anchors is None else anchors)
        of = Builder(key, weight_init, dtype, eps=2e-5)
        extractor, outputs = Darknet53.build(of, width, numbers_of_blocks(cls, depths, 5))
        subnet = tuple(
            Sequential(
                _unit(of, n, 2 * n, 3),
                of.conv(2 * n, len(sizes) * (5 + classes), 1, stddev=0.01),
            )
            for n, sizes in zip(outputs, scales, strict=True)
        )
        return cls(extractor, subnet, classes, size, scales, score_threshold, nms_threshold, limit)

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any, Any]:
        """Return encoded boxes and logits of a batch."""
        maps = of.extractor(x)
        return self._outputs([head(h) for head, h in zip(of.subnet, maps, strict=True)])

    def _probabilities(self, confs: Any) -> Any:
        return ops.sigmoid(confs)

    def _position_losses(self, encoded: Any, wanted: Any) -> Any:
        return _binary_losses(encoded, wanted)

    def _object_losses(self, objs: Any, overlaps: Any, assigned: Any, ignored: Any) -> Any:
        losses = _binary_losses(objs, ops.astype(assigned, objs.dtype))
        return ops.where(ignored & ~assigned, 0, losses)

    def _class_losses(self, confs: Any, labels: Any, classes: Any) -> Any:
        return ops.sum(_binary_losses(confs, classes), axis=-1)


def _binary_losses(logits: Any, wanted: Any) -> Any:
    return ops.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
