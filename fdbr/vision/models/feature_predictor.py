"""Prepares images for a classifier, and takes the mean of its outputs over crops."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.compiler import jit as compiled
from fdbr.core.array_modules import where_it_lies
from fdbr.errors.public import public
from fdbr.tree import frozen, static
from fdbr.vision.models.base import checked_images
from fdbr.vision.models.resizing import normalized

__all__ = ["FeaturePredictor"]


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _sequence(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


@public("fdbr.vision.models")
@frozen
class FeaturePredictor:
    """A classifier with the preparation of its images: scaling, cropping and normalising.

    Attributes
    ----------
    model
        A function of a batch of images, such as a classifier of `fdbr.nn.models`.
    crop_size
        The height and width of crops: an integer or a pair.
    scale_size
        The length to which the shorter side of an image is resized, or a pair of height and width;
        with `None` images are not resized.
    crop
        ``"center"``, or ``"10"`` for the centre, the four corners, and their mirror images; they
        are those of `transforms.center_crop` and ``transforms.ten_crop(chainer=True)``.
    mean, std
        The mean and standard deviation of each channel, of values from 0 to 255.  Images have as
        many channels as there are means; one standard deviation is that of all channels.
    layers
        Names of layers, whose outputs the model's `extract` returns; with `None` the model's
        output is returned.

    >>> import fdbr
    >>> from fdbr import nn, vision
    >>> model = nn.models.ResNet18.init(fdbr.random.key(0), 10, width=4)
    >>> predictor = vision.models.FeaturePredictor(model, 32, scale_size=40, crop="10")
    >>> images = [fdbr.ops.ones((3, 50, 60), dtype="float32")]
    >>> predictor.predict(images).shape
    (1, 10)
    """

    model: Callable[..., Any]
    crop_size: tuple[int, int] = static(converter=_pair)
    scale_size: int | tuple[int, int] | None = static(default=None)
    crop: str = static(default="center")
    mean: tuple[float, ...] = static(default=(123.68, 116.779, 103.939), converter=tuple)
    std: tuple[float, ...] = static(default=(1.0,), converter=tuple)
    layers: tuple[str, ...] | None = static(default=None, converter=_sequence)

    def __attrs_post_init__(self) -> None:
        if self.crop not in ("center", "10"):
            raise ValueError(
                f"fdbr.vision.models.FeaturePredictor: crop must be 'center' or '10', got "
                f"{self.crop!r}"
            )
        if len(self.std) not in (1, len(self.mean)):
            raise ValueError(
                "fdbr.vision.models.FeaturePredictor: std must have one number, or one for each of "
                f"the {len(self.mean)} channels of mean, got {self.std}"
            )

    def prepare(self, images: Any) -> Any:
        """Return the crops of all images, shape ``(N * crops, C, *crop_size)``.

        Parameters
        ----------
        images
            As for `Detector.predict`, but of the channels of ``mean``.
        """
        images = checked_images(self, images, channels=len(self.mean))
        return ops.concat([self._crops(i, image) for i, image in enumerate(images)])

    def _crops(self, number: int, image: Any) -> Any:
        x = ops.asarray(image)
        if np.dtype(x.dtype).kind != "f":
            x = ops.astype(x, np.float32)
        height, width = x.shape[1:]
        size = self.scale_size
        if isinstance(size, int):
            short = min(height, width)
            size = (size * height // short, size * width // short)
        if size is not None and tuple(size) != (height, width):
            x = ops.interpolate(x[None], tuple(size), mode="bilinear", antialias=True)[0]
        rows, columns = self.crop_size
        bottom, right = x.shape[1] - rows, x.shape[2] - columns
        if bottom < 0 or right < 0:
            raise ValueError(
                f"fdbr.vision.models.FeaturePredictor: image {number} has {x.shape[1]} by "
                f"{x.shape[2]} pixels after scaling, fewer than crop_size {self.crop_size}; give a "
                "larger scale_size"
            )
        corners = [(round(bottom / 2), round(right / 2))]
        if self.crop == "10":
            corners = [(bottom // 2, right // 2), (0, 0), (bottom, 0), (0, right), (bottom, right)]
        crops = [x[:, top : top + rows, left : left + columns] for top, left in corners]
        if self.crop == "10":
            crops += [crop[:, :, ::-1] for crop in crops]
        return normalized(ops.stack(crops), self.mean, self.std)

    @where_it_lies
    def predict(self, images: Any, *, jit: bool = False) -> Any:
        """Return the model's output for each image, the mean over its crops.

        Parameters
        ----------
        images, jit
            As for `Detector.predict`.

        Returns
        -------
        array or dict
            Shape ``(N, …)``; with ``layers`` a dict of them by the names.  The mean over ten crops
            of features with a height and width has no meaning for single positions.

        Raises
        ------
        ValueError, TypeError
            As for `Detector.predict`; or if an image is smaller than a crop.
        """
        if not len(images):
            raise ValueError("fdbr.vision.models.FeaturePredictor.predict: there are no images")
        found = (_jitted_features if jit else _features)(self, self.prepare(images))
        if self.layers is None:
            return self._mean_of_crops(found, len(images))
        return {name: self._mean_of_crops(out, len(images)) for name, out in found.items()}

    def _mean_of_crops(self, out: Any, count: int) -> Any:
        return ops.mean(ops.reshape(out, (count, -1, *out.shape[1:])), axis=1)


def _features(predictor: FeaturePredictor, batch: Any) -> Any:
    if predictor.layers is None:
        return predictor.model(batch)
    return predictor.model.extract(batch, list(predictor.layers))  # type: ignore[attr-defined]


_jitted_features = compiled(_features)
