"""DeepLabv3+: an encoder of separable convolutions, a pyramid of dilations, and a decoder."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.models.building import Builder
from fdbr.random import fold_in
from fdbr.tree import frozen, static
from fdbr.vision.models.base import Prepared, SegmentationLogits, Segmenter, resized
from fdbr.vision.models.units import ConvUnit, SeparableConvUnit

__all__ = ["DeepLabV3Plus_Xception65", "SeparableASPP", "Xception65"]


@frozen
class XceptionBlock(Composite):
    """Three separable convolutions; returns the output, and that of the second, not rectified."""

    separable1: SeparableConvUnit
    separable2: SeparableConvUnit
    separable3: SeparableConvUnit
    conv: ConvUnit | None
    skip: bool = static()
    act_first: bool = static()

    @classmethod
    def build(
        cls,
        of: Builder,
        inputs: int,
        channels: Sequence[int],
        stride: int = 1,
        dilation: int = 1,
        *,
        skip: str,
    ) -> Self:
        """Return a block; ``skip`` is ``"conv"``, ``"sum"``, or ``"none"`` for the last block."""
        first, second, last = channels
        is_last = skip == "none"
        inner = ops.relu if is_last else None
        unit = SeparableConvUnit.build
        return cls(
            unit(of, inputs, first, 1, dilation, dw_act=inner),
            unit(of, first, second, 1, dilation, dw_act=inner, pw_act=None),
            unit(of, second, last, stride, dilation, dw_act=inner, pw_act=inner),
            ConvUnit.build(of, inputs, last, 1, stride, act=None) if skip == "conv" else None,
            skip == "sum",
            not is_last,
        )

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        y = of.separable1(ops.relu(x) if self.act_first else x)
        second = of.separable2(y)
        y = of.separable3(ops.relu(second))
        if self.conv is not None:
            y = y + of.conv(x)
        elif self.skip:
            y = y + x
        return y if self.act_first else ops.relu(y), second


@public("fdbr.vision.models")
@frozen
class Xception65(Composite):
    """The network of DeepLabv3+; the fields are ChainerCV's links.

    Chollet, *Xception: deep learning with depthwise separable convolutions*, CVPR 2017, as changed
    by Chen, Zhu, Papandreou, Schroff & Adam, *Encoder-decoder with atrous separable convolution for
    semantic image segmentation*, ECCV 2018.

    Attributes
    ----------
    entryflow_conv1, entryflow_conv2, entryflow_block1, entryflow_block2, entryflow_block3
        The layers that make the image smaller by 8.
    middleflow
        Sixteen blocks, in ChainerCV ``middleflow_block1`` …
    exitflow_block1, exitflow_block2
        The last blocks.  A call returns the output of the second block's second convolution, of
        stride 4, and the last one, of stride 8.
    """

    entryflow_conv1: ConvUnit
    entryflow_conv2: ConvUnit
    entryflow_block1: XceptionBlock
    entryflow_block2: XceptionBlock
    entryflow_block3: XceptionBlock
    middleflow: tuple[XceptionBlock, ...]
    exitflow_block1: XceptionBlock
    exitflow_block2: XceptionBlock

    def chainer_names(self) -> dict[str, str]:
        """Return the names of ChainerCV's ``Xception65`` in files."""
        return {f"middleflow[{i}]": f"middleflow_block{i + 1}" for i in range(len(self.middleflow))}

    @classmethod
    def build(cls, of: Builder, width: int, depth: int) -> Self:
        """Return a network whose first convolution has ``width`` channels."""
        block = XceptionBlock.build
        w32, w64, w128, w256 = width, 2 * width, 4 * width, 8 * width
        w728, w1024, w1536, w2048 = 728 * width // 32, 32 * width, 48 * width, 64 * width
        return cls(
            ConvUnit.build(of, 3, w32, 3, 2),
            ConvUnit.build(of, w32, w64, 3),
            block(of, w64, (w128,) * 3, 2, skip="conv"),
            block(of, w128, (w256,) * 3, 2, skip="conv"),
            block(of, w256, (w728,) * 3, skip="conv"),
            tuple(block(of, w728, (w728,) * 3, dilation=2, skip="sum") for _ in range(depth)),
            block(of, w728, (w728, w1024, w1024), dilation=2, skip="conv"),
            block(of, w1024, (w1536, w1536, w2048), dilation=4, skip="none"),
        )

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        x, _ = of.entryflow_block1(of.entryflow_conv2(of.entryflow_conv1(x)))
        x, low = of.entryflow_block2(x)
        x, _ = of.entryflow_block3(x)
        for block in of.middleflow:
            x, _ = block(x)
        x, _ = of.exitflow_block1(x)
        return low, of.exitflow_block2(x)[0]


@public("fdbr.vision.models")
@frozen
class SeparableASPP(Composite):
    """Atrous spatial pyramid pooling by separable convolutions; the fields are ChainerCV's links.

    Attributes
    ----------
    image_pooling_conv
        A 1x1 convolution of the mean over all pixels.
    conv1x1, atrous1, atrous2, atrous3
        Convolutions of the input.
    proj
        A 1x1 convolution of all outputs; dropout of rate 0.5 follows in `train`.
    """

    image_pooling_conv: ConvUnit
    conv1x1: ConvUnit
    atrous1: SeparableConvUnit
    atrous2: SeparableConvUnit
    atrous3: SeparableConvUnit
    proj: ConvUnit

    @classmethod
    def build(cls, of: Builder, inputs: int, outputs: int, rates: Sequence[int]) -> Self:
        """Return a layer; ``rates`` are the three dilations."""
        first, second, third = (
            SeparableConvUnit.build(of, inputs, outputs, dilation=rate, dw_act=ops.relu)
            for rate in rates
        )
        return cls(
            ConvUnit.build(of, inputs, outputs, 1),
            ConvUnit.build(of, inputs, outputs, 1),
            first,
            second,
            third,
            ConvUnit.build(of, 5 * outputs, outputs, 1),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the output, of the height and width of ``x``."""
        mean = of.image_pooling_conv(ops.mean(x, axis=(2, 3), keepdims=True))
        mean = ops.broadcast_to(mean, (*mean.shape[:2], *x.shape[2:]))
        parts = [mean, of.conv1x1(x), of.atrous1(x), of.atrous2(x), of.atrous3(x)]
        return of._left_out(of.proj(ops.concat(parts, axis=1)), 0.5)


@frozen
class Decoder(Composite):
    """The layers that join earlier features with the pyramid's output."""

    feature_proj: ConvUnit
    conv1: SeparableConvUnit
    conv2: SeparableConvUnit
    conv_logits: Conv

    def _forward(self, of: Any, low: Any, high: Any) -> Any:
        low = of.feature_proj(low)
        high = resized(high, low.shape[2:], align_corners=True)
        return of.conv_logits(of.conv2(of.conv1(ops.concat([high, low], axis=1))))


@public("fdbr.vision.models")
@frozen
class DeepLabV3Plus_Xception65(Segmenter):
    """DeepLabv3+ over Xception-65; the fields are ChainerCV's links.

    Chen, Zhu, Papandreou, Schroff & Adam, *Encoder-decoder with atrous separable convolution for
    semantic image segmentation*, ECCV 2018.

    `predict` extends small images by grey to ``min_input_size``.

    Attributes
    ----------
    feature_extractor, aspp, decoder
        The network, the pyramid and the decoder.
    min_input_size
        The least height and width of the network's input in `predict`.
    scales
        The factors by which `predict` resizes images; probabilities are means over them.
    flip
        Whether `predict` takes means over images and their mirror images.
    chainer
        Whether `predict` resizes probabilities, as ChainerCV does, instead of logits.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.DeepLabV3Plus_Xception65.init(
    ...     fdbr.random.key(0), 3, width=2, depth=1, channels=4, min_input_size=(33, 33)
    ... )
    >>> images = [fdbr.ops.ones((3, 20, 40), dtype="float32")]
    >>> model.predict(images)[0].shape
    (20, 40)
    """

    feature_extractor: Xception65
    aspp: SeparableASPP
    decoder: Decoder
    min_input_size: tuple[int, int] = static(default=(513, 513))
    scales: tuple[float, ...] = static(default=(1.0,))
    flip: bool = static(default=False)
    chainer: bool = static(default=False)

    _mean: ClassVar[tuple[float, float, float]] = (127.5, 127.5, 127.5)
    _std: ClassVar[tuple[float, float, float]] = (127.5, 127.5, 127.5)
    _normalize: ClassVar[bool | None] = True

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 21,
        *,
        width: int = 32,
        depth: int = 16,
        channels: int = 256,
        rates: Sequence[int] = (12, 24, 36),
        min_input_size: tuple[int, int] = (513, 513),
        scales: Sequence[float] = (1.0,),
        flip: bool = False,
        chainer: bool = False,
        momentum: float = 0.1,
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
        width
            The number of channels of the first convolution.
        depth
            The number of blocks in the middle of the network.
        channels
            The number of channels of the pyramid and the decoder.
        rates
            The dilations of the pyramid.
        min_input_size, scales, flip
            The settings of `predict`: (1025, 2049) for Cityscapes.
        chainer
            Whether `predict` resizes probabilities, as ChainerCV does.  By default it resizes
            logits, as the paper's authors do and as the loss does, so that borders are sharper.
        momentum
            That of batch normalisation; 0.0003 where the published weights were trained.
        weight_init
            ``init(key, shape, dtype)`` for all weights.
        dtype
            The dtype of the parameters.

        Notes
        -----
        Batch normalisation has the ``eps`` of the published weights: 1e-3 in the network, 1e-5 in
        the pyramid and the decoder, but Chainer's 2e-5 in the decoder's first layer.
        """
        where = f"fdbr.vision.models.{cls.__name__}.init"
        for name, size in (("classes", classes), ("width", width), ("channels", channels)):
            integer(where, name, size, least=1)
        network, above, projection = (
            Builder(fold_in(key, i), weight_init, dtype, eps=eps, momentum=momentum)
            for i, eps in enumerate((1e-3, 1e-5, 2e-5))
        )
        extractor = Xception65.build(network, width, depth)
        aspp = SeparableASPP.build(above, 64 * width, channels, rates)
        inner = max(48 * channels // 256, 1)
        unit = SeparableConvUnit.build
        decoder = Decoder(
            ConvUnit.build(projection, 8 * width, inner, 1),
            unit(above, channels + inner, channels, dw_act=ops.relu),
            unit(above, channels, channels, dw_act=ops.relu),
            above.conv(channels, classes, 1),
        )
        sizes = tuple(min_input_size), tuple(map(float, scales))
        return cls(extractor, aspp, decoder, *sizes, bool(flip), bool(chainer))  # type: ignore[arg-type]

    def _logits(self, of: Any, x: Any) -> Any:
        """Return the logits at a quarter of the input's height and width."""
        low, high = of.feature_extractor(x)
        return of.decoder(low, of.aspp(high))

    def _forward(self, of: Any, x: Any) -> Any:
        out = resized(self._logits(of, x), x.shape[2:], align_corners=True)
        return SegmentationLogits(out) if of.training else out

    def scores(self, batch: Any) -> Any:
        """Return the probability of each class at each pixel, ``(N, classes, H, W)``."""
        if not self.chainer:
            return ops.softmax(self(batch), axis=1)
        scores = ops.softmax(self._logits(self, batch), axis=1)
        return resized(scores, batch.shape[2:], align_corners=True)

    def prepare(self, images: Any) -> Prepared:
        """Return images of one size as a batch, extended by grey at the bottom and the right."""
        prepared = super().prepare(images)
        height, width = prepared.batch.shape[2:]
        rows, columns = self.min_input_size
        pads = (0, max(rows - height, 0)), (0, max(columns - width, 0))
        return prepared._replace(batch=ops.pad(prepared.batch, ((0, 0), (0, 0), *pads)))

    def finish(self, scores: Any, prepared: Prepared) -> Any:
        """Return the probabilities at the pixels of the images that were given."""
        height, width = (int(n) for n in prepared.originals[0])
        return scores[:, :, :height, :width]

    def _scores_of(self, images: Any, network: Any) -> Any:
        batch = ops.stack(list(images))
        height, width = batch.shape[2:]
        total = None
        for scale in self.scales:
            size = max(int(height * scale), 1), max(int(width * scale), 1)
            x = batch
            if size != (height, width):
                x = ops.interpolate(
                    ops.astype(batch, np.float32), size, mode="bilinear", antialias=True
                )
            for flipped in (False, True) if self.flip else (False,):
                prepared = self.prepare(x[:, :, :, ::-1] if flipped else x)
                scores = self.finish(network(self, prepared.batch), prepared)
                scores = scores[:, :, :, ::-1] if flipped else scores
                scores = resized(scores, (height, width), align_corners=False)
                total = scores if total is None else total + scores
        return total
