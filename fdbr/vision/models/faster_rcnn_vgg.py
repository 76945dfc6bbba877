"""Faster R-CNN over the features of VGG."""

from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.pooling.dimensions import MaxPool2d
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen, static
from fdbr.vision.models.proposals import STRIDE, ProposalHead, RegionDetector, SingleMapSettings

__all__ = ["FasterRCNN_VGG16", "VGG16RoIHead"]

_DEPTHS = (2, 2, 3, 3, 3)


@public("fdbr.vision.models")
@frozen
class VGG16RoIHead(Composite):
    """The layers that classify regions: ChainerCV's ``VGG16RoIHead``.

    Attributes
    ----------
    fc6, fc7, cls_loc, score
        Two fully connected layers, and those for encoded boxes and for logits of classes.
    """

    fc6: Linear
    fc7: Linear
    cls_loc: Linear
    score: Linear

    def _forward(self, of: Any, x: Any, boxes: Any, index: Any) -> tuple[Any, Any]:
        """Return encoded boxes ``(R, 4 * C)`` and logits ``(R, C)`` of boxes in images."""
        h = ops.roi_max_pool(x, boxes, 7, 1 / STRIDE, batch_index=index, box_format="yxyx")
        h = ops.relu(of.fc6(ops.reshape(h, (h.shape[0], -1))))
        h = ops.relu(of.fc7(h))
        return of.cls_loc(h), of.score(h)


@public("fdbr.vision.models")
@frozen
class FasterRCNN_VGG16(RegionDetector):
    """Faster R-CNN with proposals and regions from the last convolution of VGG16.

    Ren, He, Girshick & Sun, *Faster R-CNN: towards real-time object detection with region proposal
    networks*, NeurIPS 2015.  The structure is that of ChainerCV's ``FasterRCNNVGG16``:
    `nn.load_chainer_npz` loads its files.

    Attributes
    ----------
    extractor, rpn, head
        The layers.
    classes, settings
        The number of classes, and the thresholds and sizes.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.FasterRCNN_VGG16.init(
    ...     fdbr.random.key(0), 3, width=2, hidden=8, min_size=64
    ... )
    >>> found = model.predict([fdbr.ops.ones((3, 40, 60), dtype="float32")])
    >>> [boxes.shape[1] for boxes in found.boxes]
    [4]
    """

    extractor: Sequential
    rpn: ProposalHead
    head: VGG16RoIHead
    classes: int = static()
    settings: SingleMapSettings = static(default=SingleMapSettings())

    def chainer_names(self) -> dict[str, str]:
        """Return ChainerCV's names in files."""
        names, layer = {}, 0
        for stage, depth in enumerate(_DEPTHS, 1):
            for i in range(1, depth + 1):
                names[f"extractor.layers[{layer}]"] = f"extractor/conv{stage}_{i}/conv"
                layer += 2
            layer += 1
        return names

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 20,
        *,
        width: int = 64,
        hidden: int = 4096,
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
            The number of channels of the first stage; the last has eight times as many.
        hidden
            The number of features of the two fully connected layers.
        weight_init, dtype
            As for `nn.models.VGG.init`.
        settings
            Other values of ``settings``: ``min_size``, ``max_size``, ``anchor_sizes``,
            ``proposal_nms_threshold``, ``nms_threshold``, ``pre_train``, ``pre_test``,
            ``post_train``, ``post_test``, ``proposal_size``, ``region_count``,
            ``score_threshold`` (0.05 is ChainerCV's for evaluation) and ``limit``.

        Raises
        ------
        TypeError, ValueError
            If a size is not positive, or there is no such setting.
        """
        positive(cls, classes=classes, width=width, hidden=hidden)
        chosen = cls._settings(settings)
        of = Builder(key, weight_init, dtype)
        layers: list[Any] = []
        inputs = 3
        for stage, depth in enumerate(_DEPTHS):
            outputs = width * min(2**stage, 8)
            for _ in range(depth):
                layers += [of.conv(inputs, outputs, 3), ops.relu]
                inputs = outputs
            layers.append(MaxPool2d(2, cover_all=True))
        head = VGG16RoIHead(
            of.linear(inputs * 49, hidden),
            of.linear(hidden, hidden),
            of.linear(hidden, 4 * (classes + 1), 0.001),
            of.linear(hidden, classes + 1, 0.01),
        )
        rpn = ProposalHead.build(of, inputs, inputs, 3 * len(chosen.anchor_sizes))
        return cls(Sequential(*layers[:-1]), rpn, head, classes, chosen)

    def _features(self, of: Any, batch: Any) -> tuple[Any, Any]:
        x = of.extractor(batch)
        return x, x
