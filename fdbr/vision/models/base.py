"""The base classes of detectors and of segmenters."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from fdbr.compiler import jit
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.nn.models.network import Network
from fdbr.tree import frozen

__all__ = ["Detector", "Prepared", "Segmenter"]


class Prepared(NamedTuple):
    """Images as the input of a network.

    Attributes
    ----------
    batch
        The images resized, normalised and extended to one size, shape ``(N, 3, H, W)``.
    sizes
        The height and width of each image within ``batch``, shape ``(N, 2)``, int32.
    originals
        The height and width of each image as it was given, shape ``(N, 2)``, int32.
    """

    batch: Any
    sizes: Any
    originals: Any


@public("fdbr.vision.models")
@frozen
class Detector(Network):
    """The base class of models that find objects: `predict` and `losses`.

    A subclass defines `prepare`, `detect`, `finish` and `losses`.
    """

    def prepare(self, images: Any) -> Prepared:
        """Return images as the input of the network."""
        raise NotImplementedError

    def detect(self, batch: Any, sizes: Any) -> Any:
        """Return the padded objects in a batch, in its pixels; all shapes depend on ``batch``'s.

        It is a pure function of arrays, so that `fdbr.jit` traces it once for a shape of batches.
        """
        raise NotImplementedError

    def finish(self, found: Any, prepared: Prepared) -> Any:
        """Return the ragged result of `detect` in pixels of the images that were given."""
        raise NotImplementedError

    def predict(self, images: Any, *, jit: bool = False) -> Any:
        """Return the objects in images.

        Parameters
        ----------
        images
            A sequence of arrays of shape ``(3, H, W)``, of any sizes, or an array of shape
            ``(N, 3, H, W)``: red, green and blue from 0 to 255.
        jit
            Whether the network runs in `fdbr.jit`, which pays for many batches of one shape.

        Returns
        -------
        Detections, Instances or Keypoints
            With tuples of one array for each image.

        Raises
        ------
        ValueError, TypeError
            If an image has another shape, no pixels, a dtype that holds no real numbers, or values
            that are not finite; the message has its index.
        """
        images = checked_images(type(self).__name__, images)
        prepared = self.prepare(images)
        found = (_jitted_detect if jit else type(self).detect)(self, prepared.batch, prepared.sizes)
        return self.finish(found, prepared)

    def losses(self, images: Any, truths: Any, *, key: Any) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images
            As for `predict`.
        truths
            The objects in the images, `Truths`: ragged, or padded so that under `fdbr.jit` another
            number of objects needs no other trace.
        key
            A random key, which samples candidates and drops elements.

        Returns
        -------
        tuple
            A dict of scalars, whose sum is to be minimised, and the model with new running
            statistics.
        """
        raise NotImplementedError


@public("fdbr.vision.models")
@frozen
class Segmenter(Network):
    """The base class of models that give each pixel a class: `predict` and `losses`.

    A subclass defines `prepare`, `scores`, `finish` and `losses`.
    """

    def prepare(self, images: Any) -> Prepared:
        """Return images as the input of the network."""
        raise NotImplementedError

    def scores(self, batch: Any) -> Any:
        """Return the logits of each class at each pixel of a batch, ``(N, classes, H, W)``."""
        raise NotImplementedError

    def finish(self, scores: Any, prepared: Prepared) -> Any:
        """Return the classes of each pixel of the images that were given."""
        raise NotImplementedError

    def predict(self, images: Any, *, jit: bool = False) -> tuple[Any, ...]:
        """Return the class of each pixel.

        Parameters
        ----------
        images, jit
            As for `Detector.predict`.

        Returns
        -------
        tuple
            For each image an array of shape ``(H, W)``, int32, from 0.

        Raises
        ------
        ValueError, TypeError
            As for `Detector.predict`.
        """
        images = checked_images(type(self).__name__, images)
        prepared = self.prepare(images)
        scores = (_jitted_scores if jit else type(self).scores)(self, prepared.batch)
        return self.finish(scores, prepared)

    def losses(self, images: Any, label_maps: Any, *, key: Any) -> tuple[dict[str, Any], Self]:
        """Return the losses of training by their names, and the model's successor.

        Parameters
        ----------
        images
            As for `predict`; all of one size.
        label_maps
            The class of each pixel, shape ``(N, H, W)``, int32; -1 where it is unknown.
        key
            A random key, which drops elements.

        Returns
        -------
        tuple
            A dict of scalars, whose sum is to be minimised, and the model with new running
            statistics.
        """
        raise NotImplementedError


def _detect(model: Any, batch: Any, sizes: Any) -> Any:
    return model.detect(batch, sizes)


def _scores(model: Any, batch: Any) -> Any:
    return model.scores(batch)


_jitted_detect = jit(_detect)
_jitted_scores = jit(_scores)


def checked_images(name: str, images: Any) -> Sequence[Any]:
    """Return the images of a call of `predict`, or raise an error that has the index of one.

    Arrays that are traced are checked by their shapes and dtypes alone.
    """
    for i, image in enumerate(images):
        if getattr(image, "ndim", None) != 3 or image.shape[0] != 3 or 0 in image.shape:
            raise ValueError(
                f"fdbr.vision.models.{name}.predict: image {i} must have the shape (3, H, W), got "
                f"{describe(image)}"
            )
        if np.dtype(image.dtype).kind not in "fui":
            raise TypeError(
                f"fdbr.vision.models.{name}.predict: image {i} must be of real numbers, got "
                f"{describe(image)}"
            )
        if isinstance(image, np.ndarray) and not np.isfinite(image).all():
            raise ValueError(
                f"fdbr.vision.models.{name}.predict: image {i} has values that are not finite"
            )
    return images
