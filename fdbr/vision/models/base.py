"""The base classes of detectors and of segmenters."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import optree

from fdbr import ops
from fdbr.compiler import jit
from fdbr.core.array_modules import where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.nn.models.network import Network
from fdbr.ops.devices import device_of
from fdbr.pytrees.classes import NAMESPACE
from fdbr.tree import frozen
from fdbr.vision.models.resizing import Prepared, in_originals, normalized
from fdbr.vision.results import Detections, unpad

__all__ = ["Detector", "Prepared", "SegmentationLogits", "Segmenter", "resized"]


@public("fdbr.vision.models")
@frozen
class Detector(Network, abc.ABC):
    """The base class of models that find objects: `predict` and `losses`.

    A subclass defines `prepare`, `detect` and `losses`.
    """

    _result: ClassVar[Any] = Detections
    _by_size: ClassVar[bool] = False  # whether only images of one size share a batch

    @abc.abstractmethod
    def prepare(self, images: Any) -> Prepared:
        """Return images as the input of the network."""

    @abc.abstractmethod
    def detect(self, batch: Any, sizes: Any) -> Any:
        """Return the padded objects in a batch, in its pixels; all shapes depend on ``batch``'s.

        It is a pure function of arrays, so that `fdbr.jit` traces it once for a shape of batches.
        """

    def _inputs(self, prepared: Prepared) -> tuple[Any, ...]:
        """Return the arguments of `detect`."""
        return prepared.batch, prepared.sizes

    def finish(self, found: Any, prepared: Prepared) -> Any:
        """Return the ragged result of `detect` in pixels of the images that were given."""
        return unpad(found._replace(boxes=in_originals(found.boxes, prepared)))

    @where_it_lies
    def predict(self, images: Any, *, jit: bool = False) -> Any:
        """Return the objects in images.

        R-CNN with a pyramid, RetinaNet and FCOS extend images of different sizes to one, as in
        torchvision, which changes what is found a little; the detectors that only ChainerCV has
        take those of one size together, and others one after the other.

        Parameters
        ----------
        images
            A sequence of arrays of shape ``(3, H, W)``, of any sizes, or an array of shape
            ``(N, 3, H, W)``: red, green and blue from 0 to 255.  They lie on the device of the
            model, where `fdbr.device_put` moves them.
        jit
            Whether the network runs in `fdbr.jit`, which pays for many batches of one shape.

        Returns
        -------
        Detections, Instances or Keypoints
            With tuples of one array for each image, on the device of the model.

        Raises
        ------
        ValueError, TypeError
            If an image has another shape, no pixels, a dtype that holds no real numbers, lies on
            another device, or has values that are not finite; the message has its index.  Values on
            a GPU are not checked, because that would wait for them.
        """
        images = checked_images(self, images)
        if not len(images):
            return self._result(*((),) * len(self._result._fields))
        detect = _jitted_detect if jit else type(self).detect

        def found_in(images: Any) -> Any:
            prepared = self.prepare(images)
            return self.finish(detect(self, *self._inputs(prepared)), prepared)

        if not self._by_size:
            return found_in(images)
        found: dict[int, Any] = {}
        for members in _groups(images):
            own = zip(*found_in([images[i] for i in members]), strict=True)
            found |= zip(members, own, strict=True)
        return self._result(*zip(*(found[i] for i in range(len(images))), strict=True))

    @abc.abstractmethod
    def losses(self, images: Any, truths: Any, *, key: Any) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images
            As for `predict`.
        truths
            The objects in the images, `Truths`: ragged, or padded so that under `fdbr.jit` another
            number of objects needs no other trace.  Boxes and points lie on the device of the
            images; labels, masks and ``visible`` are moved there.
        key
            A random key, which samples candidates and drops elements.

        Returns
        -------
        tuple
            A dict of scalars, whose sum is to be minimised, and the model with new running
            statistics.
        """


@public("fdbr.vision.models")
@frozen
class Segmenter(Network):
    """The base class of models that give each pixel a class: `predict` and `losses`.

    A call takes a batch of normalised images and returns the logits, ``(N, classes, H, W)``;
    `train` returns `SegmentationLogits`.
    """

    _mean: ClassVar[tuple[float, float, float]] = (0.0, 0.0, 0.0)
    _std: ClassVar[tuple[float, float, float]] = (1.0, 1.0, 1.0)
    _auxiliary_weight: ClassVar[float] = 0.5
    _normalize: ClassVar[bool | None] = None

    def normalize(self, images: Any) -> Any:
        """Return images of one size as a batch, less the mean and over the standard deviation."""
        batch = images if hasattr(images, "ndim") else ops.stack(list(images))
        if np.dtype(batch.dtype).kind != "f":
            batch = ops.astype(batch, np.float32)
        return normalized(batch, self._mean, self._std)

    def prepare(self, images: Any) -> Prepared:
        """Return images of one size as the input of the network."""
        batch = self.normalize(images)
        sizes = np.array([image.shape[1:] for image in images], np.int32)
        return Prepared(batch, sizes, sizes)

    def scores(self, batch: Any) -> Any:
        """Return the scores of each class at each pixel of a batch, ``(N, classes, H, W)``.

        The class with the highest score is predicted.
        """
        return self(batch)

    def finish(self, scores: Any, prepared: Prepared) -> Any:
        """Return the scores at the pixels of the images that were given."""
        return resized(scores, prepared.originals[0], align_corners=False)

    @where_it_lies
    def predict(self, images: Any, *, jit: bool = False) -> tuple[Any, ...]:
        """Return the class of each pixel.

        Images of the same size run in the network together, others one after the other.

        Parameters
        ----------
        images, jit
            As for `Detector.predict`; the network has a trace for each size of images.

        Returns
        -------
        tuple
            For each image an array of shape ``(H, W)``, int32, from 0.

        Raises
        ------
        ValueError, TypeError
            As for `Detector.predict`.
        """
        images = checked_images(self, images)
        network = _jitted_scores if jit else _scores
        found: dict[int, Any] = {}
        for members in _groups(images):
            scores = self._scores_of([images[i] for i in members], network)
            found |= zip(members, ops.astype(ops.argmax(scores, axis=1), np.int32), strict=True)
        return tuple(found[i] for i in range(len(images)))

    def _scores_of(self, images: Any, network: Any) -> Any:
        """Return the scores at the pixels of images of one size."""
        prepared = self.prepare(images)
        return self.finish(network(self, prepared.batch), prepared)

    @where_it_lies
    def losses(
        self, images: Any, label_maps: Any, *, key: Any = None, class_weight: Any = None
    ) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        The loss is the mean of the cross entropies between the softmax of the logits and the label
        over the pixels whose class is known: ``logsumexp(x) - x[t]``.

        Parameters
        ----------
        images
            As for `predict`; all of one size.
        label_maps
            The class of each pixel, shape ``(N, H, W)``, int32; -1 where it is unknown.
        key
            A random key, which drops elements.
        class_weight
            A weight for each class, shape ``(classes,)``.  The sum of the weighted losses is
            divided by the sum of the weights of all known pixels, as in PyTorch; in models that
            only ChainerCV has by their number, as in Chainer.

        Returns
        -------
        tuple
            A dict of scalars, whose sum is to be minimised, and the model with new running
            statistics.  The keys are ``"out"`` and, with an auxiliary classifier, ``"aux"``, whose
            loss has its weight (0.5 as in torchvision's training, 0.4 in `PSPNet_ResNet50`).

        Raises
        ------
        ValueError, TypeError
            If images differ in size, label maps have other sizes or a dtype other than integers, or
            a label is not a class; the message has the index of the image.
        """
        where = f"fdbr.vision.models.{type(self).__name__}.losses"
        images = checked_images(self, images, "losses")
        label_maps = _checked_label_maps(where, images, label_maps)
        logits, successor = self.train(self.normalize(images), key=key)

        def loss(values: Any) -> Any:
            _check_labels(where, label_maps, values.shape[1])
            return ops.softmax_cross_entropy(
                values,
                label_maps,
                axis=1,
                ignore_label=-1,
                weight=class_weight,
                normalize=self._normalize if class_weight is not None else None,
            )

        found = {"out": loss(logits.out)}
        if logits.aux is not None:
            found["aux"] = self._auxiliary_weight * loss(logits.aux)
        return found, successor


@public("fdbr.vision.models")
class SegmentationLogits(NamedTuple):
    """The outputs of a segmenter in training, shape ``(N, classes, H, W)``.

    Attributes
    ----------
    out
        The logits.
    aux
        Those of the auxiliary classifier, or `None`.
    """

    out: Any
    aux: Any = None


def resized(x: Any, size: Any, *, align_corners: bool) -> Any:
    """Return arrays ``(N, C, H, W)`` at another height and width, linearly interpolated."""
    height, width = (int(n) for n in size)
    if x.shape[2:] == (height, width):
        return x
    return ops.interpolate(x, (height, width), mode="bilinear", align_corners=align_corners)


def _checked_label_maps(where: str, images: Any, label_maps: Any) -> Any:
    """Return label maps as one array, or raise an error that has the index of one."""
    if len(label_maps) != len(images):
        raise ValueError(
            f"{where}: label_maps must be as many as images, {len(images)}, got {len(label_maps)}"
        )
    if not len(images):
        raise ValueError(f"{where}: images must have an image at least, got none")
    size = images[0].shape[1:]
    for i, (image, label_map) in enumerate(zip(images, label_maps, strict=True)):
        if image.shape[1:] != size:
            raise ValueError(
                f"{where}: all images must have the size of the first, {tuple(size)}, got "
                f"{describe(image)} of image {i}; crop or resize them"
            )
        if getattr(label_map, "shape", None) != size or label_map.dtype.kind not in "iu":
            raise ValueError(
                f"{where}: label map {i} must be integers of the shape {tuple(size)} of its image, "
                f"got {describe(label_map)}"
            )
    return label_maps if hasattr(label_maps, "ndim") else ops.stack(list(label_maps))


def _check_labels(where: str, label_maps: Any, classes: int) -> None:
    """Raise if a label is not a class.

    The condition is one for all labels, so that a trace has one guard, which no batch changes.
    """
    wrong = (label_maps < -1) | (label_maps >= classes)
    if not ops.any(wrong):
        return
    i, y, x = (int(index[0]) for index in ops.nonzero(wrong))
    raise ValueError(
        f"{where}: label map {i} must have classes from 0 to {classes - 1}, or -1 where the class "
        f"is unknown, got {int(label_maps[i, y, x])}"
    )


def _groups(images: Any) -> Iterable[Sequence[int]]:
    """Return the indices of the images of each size."""
    groups: dict[Any, list[int]] = {}
    for i, image in enumerate(images):
        groups.setdefault(tuple(image.shape), []).append(i)
    return groups.values()


def _detect(model: Any, *inputs: Any) -> Any:
    return model.detect(*inputs)


def _scores(model: Any, batch: Any) -> Any:
    return model.scores(batch)


_jitted_detect = jit(_detect)
_jitted_scores = jit(_scores)


def checked_images(
    model: Any, images: Any, method: str = "predict", channels: int = 3
) -> Sequence[Any]:
    """Return the images of a call of a model's method, or raise an error that has the index of one.

    In `fdbr.jit`, what is checked of elements is a guard of the trace.
    """
    where = f"fdbr.vision.models.{type(model).__name__}.{method}"
    if not hasattr(images, "__len__"):
        raise TypeError(f"{where}: images must be a sequence of arrays, got {describe(images)}")
    array = _first_array(model)
    for i, image in enumerate(images):
        if getattr(image, "ndim", None) != 3 or image.shape[0] != channels or 0 in image.shape:
            raise ValueError(
                f"{where}: image {i} must have the shape ({channels}, H, W), got {describe(image)}"
            )
        if np.dtype(image.dtype).kind not in "fui":
            raise TypeError(f"{where}: image {i} must be of real numbers, got {describe(image)}")
        if array is not None:
            check_device(f"{where}: image {i}", image, array, "the model")
        if isinstance(image, np.ndarray) and not np.isfinite(image).all():
            raise ValueError(f"{where}: image {i} has values that are not finite")
    return images


def _first_array(model: Any) -> Any:
    """Return the first parameter of a model; `None` if it has none."""
    return next(iter(optree.tree_iter(model, namespace=NAMESPACE)), None)


def check_device(what: str, array: Any, other: Any, of: str) -> None:
    """Raise an error if an array does not lie on the device of another one."""
    device, wanted = device_of(array), device_of(other)
    if device != wanted:
        names = ["in host memory" if d == "cpu" else f"on GPU {d}" for d in (device, wanted)]
        raise ValueError(
            f"{what} lies {names[0]}, but {of} {names[1]}; move it with "
            f"fdbr.device_put(x, {wanted!r})"
        )
