"""Light-head R-CNN: regions from few position-sensitive maps."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static
from fdbr.vision.models.dilated_body import DilatedBody
from fdbr.vision.models.proposals import STRIDE, ProposalHead, RegionDetector, SingleMapSettings
from fdbr.vision.models.region_losses import RegionTargets

__all__ = ["GlobalContextModule", "LightHeadRCNN_ResNet101", "LightHeadRoIHead"]

_SIZE = 7
"""The number of windows along each side of a region."""

_MAPS = 10
"""The number of features of a window."""


@public("fdbr.vision.models")
@frozen
class GlobalContextModule(Composite):
    """Large separable convolutions: the sum of a column then a row, and of a row then a column.

    Peng, Zhang, Yu, Luo & Sun, *Large kernel matters*, CVPR 2017.

    Attributes
    ----------
    col_max, col, row_max, row
        The convolutions.
    """

    col_max: Conv
    col: Conv
    row_max: Conv
    row: Conv

    @classmethod
    def build(cls, of: Builder, inputs: int, hidden: int, outputs: int, kernel: int) -> Self:
        """Return the layers with fresh parameters."""

        def conv(first: int, last: int, *shape: int) -> Conv:
            padding = tuple(n // 2 for n in shape)
            return Conv.init(of.key(), first, last, shape, padding=padding, **of.options(0.01))

        return cls(
            conv(inputs, hidden, kernel, 1),
            conv(hidden, outputs, 1, kernel),
            conv(inputs, hidden, 1, kernel),
            conv(hidden, outputs, kernel, 1),
        )

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the rectified sum."""
        return ops.relu(of.col(of.col_max(x)) + of.row(of.row_max(x)))


@public("fdbr.vision.models")
@frozen
class LightHeadRoIHead(Composite):
    """The layers that classify regions: ChainerCV's ``LightHeadRCNNResNet101Head``.

    Attributes
    ----------
    global_context_module, fc1, score, cls_loc
        The layers.
    """

    global_context_module: GlobalContextModule
    fc1: Linear
    score: Linear
    cls_loc: Linear

    def _forward(self, of: Any, x: Any, boxes: Any, index: Any) -> tuple[Any, Any]:
        """Return encoded boxes ``(R, 4 * C)`` and logits ``(R, C)`` of boxes in images."""
        h = of.global_context_module(x)
        h = ops.ps_roi_max_align(
            h,
            stop_gradient(boxes),
            _SIZE,
            1 / STRIDE,
            2,
            batch_index=index,
            box_format="yxyx",
            chainer=True,
            empty=0.0,
        )
        h = ops.relu(of.fc1(ops.reshape(h, (h.shape[0], -1))))
        return of.cls_loc(h), of.score(h)


@public("fdbr.vision.models")
@frozen
class LightHeadRCNN_ResNet101(RegionDetector):
    """A detector with regions from 490 position-sensitive maps of a dilated ResNet-101.

    Li, Peng, Yu, Zhang, Deng & Sun, *Light-head R-CNN: in defense of two-stage object detector*,
    arXiv:1711.07264.  The structure is that of ChainerCV's ``LightHeadRCNNResNet101``:
    `nn.load_chainer_npz` loads its files.

    Attributes
    ----------
    extractor, rpn, head
        The layers.
    classes, settings
        The number of classes, and the thresholds and sizes.
    hard_examples
        The number of proposals of an image with the largest losses, which are trained.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.LightHeadRCNN_ResNet101.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), min_size=64, post_test=20
    ... )
    >>> found = model.predict([fdbr.ops.ones((3, 40, 60), dtype="float32")])
    >>> [boxes.shape[1] for boxes in found.boxes]
    [4]
    """

    extractor: DilatedBody
    rpn: ProposalHead
    head: LightHeadRoIHead
    classes: int = static()
    settings: SingleMapSettings = static(default=SingleMapSettings())
    hard_examples: int = static(default=256)

    _defaults: ClassVar[dict[str, Any]] = {
        "min_size": 800,
        "max_size": 1333,
        "anchor_sizes": (32, 64, 128, 256, 512),
        "post_test": 1000,
        "proposal_size": 0,
        "nms_threshold": 0.5,
        "region_count": None,
    }

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 80,
        *,
        width: int = 64,
        depths: Sequence[int] | None = None,
        hard_examples: int = 256,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
        **settings: Any,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes, without the background.
        width
            The number of channels of the first convolution, to which the others are proportional.
        depths
            The number of blocks of each of the four stages; by default ResNet-101's.
        hard_examples
            The number of proposals of an image that are trained: those with the largest losses
            (Shrivastava, Gupta & Girshick, *Training region-based object detectors with online
            hard example mining*, CVPR 2016).
        weight_init, dtype
            As for `nn.models.ResNet.init`.
        settings
            As for `FasterRCNN_VGG16.init`.

        Raises
        ------
        TypeError, ValueError
            If a size is not positive, or there is no such setting.
        """
        positive(cls, classes=classes, width=width, hard_examples=hard_examples)
        chosen = cls._settings(settings)
        of = Builder(key, weight_init, dtype)
        body = DilatedBody.build(of, width, depths, weight_init, MaxPool2d(3, stride=2, padding=1))
        maps, hidden = _MAPS * _SIZE**2, 32 * width
        head = LightHeadRoIHead(
            GlobalContextModule.build(of, 32 * width, 4 * width, maps, 15),
            of.linear(maps, hidden, 0.01),
            of.linear(hidden, classes + 1, 0.01),
            of.linear(hidden, 4 * (classes + 1), 0.001),
        )
        rpn = ProposalHead.build(of, 16 * width, 8 * width, 3 * len(chosen.anchor_sizes))
        return cls(body, rpn, head, classes, chosen, hard_examples)

    def _features(self, of: Any, batch: Any) -> tuple[Any, Any]:
        return of.extractor(batch)

    def head_losses(self, scores: Any, codes: Any, targets: RegionTargets) -> dict[str, Any]:
        """Return the losses of the regions whose losses are the largest.

        Parameters
        ----------
        scores, codes
            The logits and encoded boxes of the sampled regions.
        targets
            The result of `region_targets`.
        """
        _, is_positive, chosen = targets.sample
        entropy = ops.softmax_cross_entropy(scores, targets.labels, reduction="none")
        own = ops.take_along_axis(codes, targets.labels[:, :, None, None], axis=2)[:, :, 0]
        boxes = ops.smooth_l1_loss(own, targets.codes, reduction="none")
        boxes = ops.where(is_positive, ops.sum(boxes, axis=-1), 0)
        flat = ops.reshape(ops.where(chosen, entropy + boxes, -np.inf), (-1,))
        most = min(self.hard_examples * scores.shape[0], flat.shape[0])
        total, hardest = ops.top_k(flat, most)
        counted = total > -np.inf
        count = ops.maximum(ops.sum(ops.astype(counted, np.float32)), 1)
        entropy, boxes = (
            ops.sum(ops.where(counted, ops.take(ops.reshape(part, (-1,)), hardest), 0)) / count
            for part in (entropy, boxes)
        )
        return {"loss_classifier": entropy, "loss_box_reg": 2 * boxes}
