"""PSPNet: means over the parts of an image at several scales, and prediction by windows."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder, numbers_of_blocks
from fdbr.nn.models.residual import BlockSettings, Bottleneck
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static
from fdbr.vision.models.base import Prepared, SegmentationLogits, Segmenter, resized
from fdbr.vision.models.units import ConvUnit

__all__ = ["PSPNet_ResNet50", "PSPNet_ResNet101", "PyramidPooling", "convolution_crop"]


@public("fdbr.vision.models")
@frozen
class PyramidPooling(Composite):
    """Means over windows of several sizes, each with a 1x1 convolution, beside the input.

    Zhao, Shi, Qi, Wang & Jia, *Pyramid scene parsing network*, CVPR 2017.

    Attributes
    ----------
    convs
        A convolution for each size of windows.
    kernel_sizes
        The height and width of the windows.

    >>> import fdbr
    >>> layer = PyramidPooling.init(fdbr.random.key(0), 8, (6, 9), bins=(3, 1))
    >>> layer(fdbr.ops.ones((1, 8, 6, 9), dtype="float32")).shape
    (1, 16, 6, 9)
    """

    convs: tuple[ConvUnit, ...]
    kernel_sizes: tuple[tuple[int, int], ...] = static()

    chainer_names: ClassVar[dict[str, str]] = {"convs": ""}

    @classmethod
    def init(
        cls,
        key: Any,
        channels: int,
        size: tuple[int, int],
        *,
        bins: Sequence[int] = (6, 3, 2, 1),
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        channels
            The number of channels of the input; the output has twice as many.
        size
            The height and width for which the windows are computed.
        bins
            The numbers of windows along each side.
        weight_init
            ``init(key, shape, dtype)`` for all weights.
        dtype
            The dtype of the parameters.
        """
        of = Builder(key, weight_init, dtype, eps=2e-5)
        outputs = channels // len(bins)
        kernels = tuple((max(size[0] // n, 1), max(size[1] // n, 1)) for n in bins)
        return cls(tuple(ConvUnit.build(of, channels, outputs, 1) for _ in bins), kernels)

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the input and the resized means, joined along the channels."""
        size = x.shape[2:]
        parts = [x]
        for conv, kernel in zip(of.convs, self.kernel_sizes, strict=True):
            kernel = min(kernel[0], size[0]), min(kernel[1], size[1])
            parts.append(resized(conv(ops.avg_pool(x, kernel)), size, align_corners=True))
        return ops.concat(parts, axis=1)


@frozen
class DilatedResNet(Composite):
    """The residual network of PSPNet; returns the outputs of the last two stages.

    It begins with three convolutions of 3x3, and all blocks of a dilated stage are dilated alike.
    """

    conv1_1: ConvUnit
    conv1_2: ConvUnit
    conv1_3: ConvUnit
    pool1: MaxPool2d
    res2: Sequential
    res3: Sequential
    res4: Sequential
    res5: Sequential

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``DilatedResNet`` in files."""
        found = {}
        for stage in ("res2", "res3", "res4", "res5"):
            for i in range(len(getattr(self, stage))):
                own = f"{stage}.layers[{i}]"
                there = f"{stage}/{f'b{i}' if i else 'a'}"
                for n in (1, 2, 3):
                    found[f"{own}.conv{n}"] = f"{there}/conv{n}/conv"
                    found[f"{own}.bn{n}"] = f"{there}/conv{n}/bn"
                found[f"{own}.downsample.layers[0]"] = f"{there}/residual_conv/conv"
                found[f"{own}.downsample.layers[1]"] = f"{there}/residual_conv/bn"
        return found

    @classmethod
    def build(cls, of: Builder, width: int, depths: Sequence[int]) -> Self:
        """Return a network whose first convolution has ``width`` channels."""
        stem = (
            ConvUnit.build(of, 3, width, 3, 2),
            ConvUnit.build(of, width, width, 3),
            ConvUnit.build(of, width, 2 * width, 3),
        )
        settings = BlockSettings(1, 64, True, None)
        inputs, stages = 2 * width, []
        for stage, (depth, stride, dilation) in enumerate(
            zip(depths, (1, 2, 1, 1), (1, 1, 2, 4), strict=True)
        ):
            blocks = []
            for i in range(depth):
                planes = width * 2**stage
                step = 1 if i else stride
                blocks.append(Bottleneck.build(of, inputs, planes, step, settings, dilation))
                inputs = 4 * planes
            stages.append(Sequential(*blocks))
        pool = MaxPool2d(3, stride=2, padding=1, cover_all=True)
        return cls(*stem, pool, *stages)

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        x = of.pool1(of.conv1_3(of.conv1_2(of.conv1_1(x))))
        x = of.res4(of.res3(of.res2(x)))
        return x, of.res5(x)


class Window(NamedTuple):
    """A window of an image: its rows and columns in the image, and those within the window."""

    rows: slice
    columns: slice
    own_rows: slice
    own_columns: slice


def _spans(length: int, size: int, stride: int) -> list[tuple[slice, slice]]:
    """Return the parts of an axis in each window, within the axis and within the window."""
    count = max(math.ceil((length - size) / stride), 0) + 1
    start = -(size + stride * (count - 1) - length) // 2
    spans = []
    for i in range(count):
        low = start + i * stride
        first, last = max(low, 0), min(low + size, length)
        spans.append((slice(first, last), slice(first - low, last - low)))
    return spans


def _windows(shape: Sequence[int], size: Sequence[int], stride: Sequence[int]) -> list[Window]:
    rows, columns = (_spans(n, m, s) for n, m, s in zip(shape, size, stride, strict=True))
    return [Window(r, c, own_r, own_c) for r, own_r in rows for c, own_c in columns]


@public("fdbr.vision.models")
def convolution_crop(
    image: Any, size: tuple[int, int], stride: tuple[int, int]
) -> tuple[Any, tuple[Window, ...]]:
    """Return windows of an image at constant steps, which cover the image and are centred in it.

    Parameters
    ----------
    image
        Shape ``(C, H, W)``.
    size
        The height and width of the windows.
    stride
        The vertical and horizontal steps.

    Returns
    -------
    tuple
        The windows, shape ``(n, C, *size)``, with zeros outside the image; and for each window its
        slices: ``windows[i][:, own_rows, own_columns] == image[:, rows, columns]``.

    >>> import numpy as np
    >>> from fdbr import vision
    >>> image = np.arange(5.0).reshape(1, 1, 5)
    >>> windows, where = vision.models.convolution_crop(image, (1, 4), (1, 2))
    >>> windows[:, 0, 0]
    array([[0., 0., 1., 2.],
           [1., 2., 3., 4.]])
    """
    image = ops.asarray(image)
    found = _windows(image.shape[1:], size, stride)
    parts = []
    for window in found:
        pads = [
            (own.start, n - own.stop)
            for own, n in zip((window.own_rows, window.own_columns), size, strict=True)
        ]
        parts.append(ops.pad(image[:, window.rows, window.columns], ((0, 0), *pads)))
    return ops.stack(parts), tuple(found)


@public("fdbr.vision.models")
@frozen
class PSPNet_ResNet50(Segmenter):
    """PSPNet, `PyramidPooling` over a dilated ResNet-50; the fields are ChainerCV's links.

    Zhao, Shi, Qi, Wang & Jia, *Pyramid scene parsing network*, CVPR 2017.

    `predict` resizes an image to fit in ``input_size``, or divides a larger one in windows of that
    size, which overlap by a third; probabilities are means over windows and their mirror images.

    Attributes
    ----------
    extractor, ppm, head_conv1, head_conv2
        The residual network, the pyramid, and the layers after it.
    aux_conv1, aux_conv2
        The auxiliary classifier after the third stage, whose loss helps training, or `None`.  It is
        not in ChainerCV's files.
    input_size
        The height and width of the network's input in `predict`.
    scales
        The factors by which `predict` resizes images; probabilities are means over them.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.PSPNet_ResNet50.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), input_size=(48, 48)
    ... )
    >>> images = [fdbr.ops.ones((3, 20, 70), dtype="float32")]
    >>> model.predict(images)[0].shape
    (20, 70)
    """

    extractor: DilatedResNet
    ppm: PyramidPooling
    head_conv1: ConvUnit
    head_conv2: Conv
    aux_conv1: ConvUnit | None
    aux_conv2: Conv | None
    input_size: tuple[int, int] = static(default=(713, 713))
    scales: tuple[float, ...] = static(default=(1.0,))

    chainer_names: ClassVar[dict[str, Any]] = {"aux_conv1": None, "aux_conv2": None}
    _depths: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)
    _mean: ClassVar[tuple[float, float, float]] = (123.68, 116.779, 103.939)
    _auxiliary_weight: ClassVar[float] = 0.4
    _normalize: ClassVar[bool | None] = True

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 19,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        input_size: tuple[int, int] = (713, 713),
        scales: Sequence[float] = (1.0,),
        aux_loss: bool = True,
        weight_init: Any = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        width, depths
            The number of channels of the first convolution, and of blocks of each stage.
        input_size
            The height and width of the network's input in `predict`, which determine the windows of
            the pyramid: (713, 713) for Cityscapes and (473, 473) for ADE20K.
        scales
            The factors by which `predict` resizes images.
        aux_loss
            Whether the model has the auxiliary classifier.
        weight_init
            ``init(key, shape, dtype)`` for all weights.
        dtype
            The dtype of the parameters.
        """
        where = f"fdbr.vision.models.{cls.__name__}.init"
        integer(where, "classes", classes, least=1)
        integer(where, "width", width, least=1)
        depths = numbers_of_blocks(cls, cls._depths if depths is None else depths, 4)
        of = Builder(key, weight_init, dtype, eps=2e-5)
        extractor = DilatedResNet.build(of, width, depths)
        init = of.options()["weight_init"]
        size = input_size[0] // 8, input_size[1] // 8
        ppm = PyramidPooling.init(of.key(), 32 * width, size, weight_init=init, dtype=dtype)
        head = ConvUnit.build(of, 64 * width, 8 * width, 3), of.conv(8 * width, classes, 1)
        aux: tuple[Any, Any] = (None, None)
        if aux_loss:
            aux = ConvUnit.build(of, 16 * width, 8 * width, 3), of.conv(8 * width, classes, 3)
        rows, columns = input_size
        return cls(extractor, ppm, *head, *aux, (rows, columns), tuple(map(float, scales)))

    def _forward(self, of: Any, x: Any) -> Any:
        size = x.shape[2:]
        early, last = of.extractor(x)
        y = of._left_out(of.head_conv1(of.ppm(last)), 0.1)
        out = resized(of.head_conv2(y), size, align_corners=True)
        if not of.training:
            return out
        if self.aux_conv1 is None:
            return SegmentationLogits(out)
        y = of._left_out(of.aux_conv1(early), 0.1)
        return SegmentationLogits(out, resized(of.aux_conv2(y), size, align_corners=True))

    def scores(self, batch: Any) -> Any:
        """Return the probability of each class at each pixel, ``(N, classes, H, W)``."""
        return ops.softmax(self(batch), axis=1)

    def _is_windowed(self, height: int, width: int) -> bool:
        return max(height, width) > max(self.input_size)

    def _stride(self) -> tuple[int, int]:
        return math.ceil(self.input_size[0] * 2 / 3), math.ceil(self.input_size[1] * 2 / 3)

    def _contained(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the height, width, top and left of an image that is resized to fit."""
        rows, columns = self.input_size
        scale = min(rows / height, columns / width)
        height, width = max(int(height * scale), 1), max(int(width * scale), 1)
        return height, width, (rows - height) // 2, (columns - width) // 2

    def prepare(self, images: Any) -> Prepared:
        """Return the windows of images of one size, each followed by its mirror image."""
        batch = self.normalize(images)
        height, width = batch.shape[2:]
        if self._is_windowed(height, width):
            parts = [convolution_crop(image, self.input_size, self._stride())[0] for image in batch]
            windows = ops.concat(parts)
        else:
            h, w, top, left = self._contained(height, width)
            if (h, w) != (height, width):
                batch = ops.interpolate(batch, (h, w), mode="bilinear", antialias=True)
            rows, columns = self.input_size
            pads = (top, rows - h - top), (left, columns - w - left)
            windows = ops.pad(batch, ((0, 0), (0, 0), *pads))
        pairs = ops.stack([windows, windows[:, :, :, ::-1]], axis=1)
        size = np.array([[height, width]] * len(images), np.int32)
        return Prepared(ops.reshape(pairs, (-1, *windows.shape[1:])), size, size)

    def finish(self, scores: Any, prepared: Prepared) -> Any:
        """Return the mean probabilities at the pixels of the images that were given."""
        scores = ops.asarray(scores)
        scores = (scores[::2] + scores[1::2, :, :, ::-1]) / 2
        height, width = (int(n) for n in prepared.originals[0])
        if not self._is_windowed(height, width):
            h, w, top, left = self._contained(height, width)
            inner = scores[:, :, top : top + h, left : left + w]
            return resized(inner, (height, width), align_corners=True)
        windows = _windows((height, width), self.input_size, self._stride())
        xp = array_module(scores)
        images = len(scores) // len(windows)
        total = xp.zeros((images, scores.shape[1], height, width), scores.dtype)
        counts = xp.zeros((height, width), scores.dtype)
        for i, window in enumerate(windows):
            part = scores[i :: len(windows), :, window.own_rows, window.own_columns]
            total[:, :, window.rows, window.columns] += part
            counts[window.rows, window.columns] += 1
        return total / counts

    def _scores_of(self, images: Any, network: Any) -> Any:
        height, width = images[0].shape[1:]
        total = None
        for scale in self.scales:
            batch = images
            if scale != 1.0:
                size = max(int(height * scale), 1), max(int(width * scale), 1)
                batch = ops.interpolate(
                    ops.astype(ops.stack(list(images)), np.float32),
                    size,
                    mode="bilinear",
                    antialias=True,
                )
            prepared = self.prepare(batch)
            # A pair of windows at a time bounds the memory, and has one shape for all images.
            parts = [
                network(self, prepared.batch[i : i + 2]) for i in range(0, len(prepared.batch), 2)
            ]
            scores = self.finish(ops.concat(parts), prepared)
            scores = resized(scores, (height, width), align_corners=True)
            total = scores if total is None else total + scores
        return total


@public("fdbr.vision.models")
@frozen
class PSPNet_ResNet101(PSPNet_ResNet50):
    """`PSPNet_ResNet50` over a dilated ResNet-101."""

    _depths: ClassVar[tuple[int, ...]] = (3, 4, 23, 3)
