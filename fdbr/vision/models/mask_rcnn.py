"""Mask R-CNN: Faster R-CNN with a head for masks."""

from typing import Any, ClassVar

from fdbr import ops
from fdbr.errors.public import public
from fdbr.nn.models.building import Builder
from fdbr.nn.models.resnet import ResNet, ResNet101
from fdbr.tree import frozen
from fdbr.vision.boxes import paste_masks
from fdbr.vision.models.base import Prepared
from fdbr.vision.models.rcnn import FasterRCNN
from fdbr.vision.models.rcnn_heads import (
    MaskRCNNPredictor,
    convolutions,
    transposed,
)
from fdbr.vision.models.region_features import JoinedLevels
from fdbr.vision.models.region_losses import RegionTargets, mask_losses
from fdbr.vision.results import Instances, Truths

__all__ = ["MaskRCNN_ResNet50_FPN", "MaskRCNN_ResNet101_FPN"]


@public("fdbr.vision.models")
@frozen
class MaskRCNN_ResNet50_FPN(FasterRCNN):
    """`FasterRCNN` with a head for masks: 44,401,393 parameters for 90 classes.

    He, Gkioxari, Dollár & Girshick, *Mask R-CNN*, ICCV 2017.  `predict` returns `Instances`.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> model = models.MaskRCNN_ResNet50_FPN.init(
    ...     fdbr.random.key(0), 3, width=2, depths=(1, 1, 1, 1), min_size=64
    ... )
    >>> found = model.predict([np.zeros((3, 40, 60), "float32")])
    >>> [masks.shape[1:] for masks in found.masks]
    [(40, 60)]
    """

    _needs: ClassVar[tuple[str, ...]] = ("masks",)
    _result: ClassVar[Any] = Instances

    @classmethod
    def _further_heads(
        cls, of: Builder, width: int, outputs: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the head for masks."""
        channels = 4 * width
        predictor = MaskRCNNPredictor(
            transposed(of, channels, channels, 2), of.conv(channels, outputs, 1)
        )
        return {
            "mask_head": convolutions(of, channels, channels, 4),
            "mask_predictor": predictor,
        }

    def detect(self, batch: Any, sizes: Any) -> Instances:
        """Return the padded objects in a batch, in its pixels.

        Parameters
        ----------
        batch, sizes
            As for `FasterRCNN.detect`.

        Returns
        -------
        Instances
            The masks are probabilities within boxes, of shape ``(N, D, 28, 28)``.
        """
        found, joined = self._detected(batch, sizes)
        labels = ops.reshape(found.labels, (-1, 1, 1, 1)) + 1

        def masks(features: Any, index: Any) -> Any:
            logits, own = self.roi_heads.masks(features), ops.take(labels, index, axis=0)
            return ops.sigmoid(ops.take_along_axis(logits, own, axis=1)[:, 0])

        return Instances(*found, self._of_found(found, joined, masks, (28, 28)))

    def finish(self, found: Any, prepared: Prepared) -> Instances:
        """Return the ragged result of `detect` in pixels of the images that were given."""
        ragged = super().finish(found, prepared)
        masks = (
            paste_masks(mask, boxes, size.tolist(), chainer=self.chainer)
            for mask, boxes, size in zip(
                ragged.masks, ragged.boxes, prepared.originals, strict=True
            )
        )
        return Instances(ragged.boxes, ragged.labels, ragged.scores, tuple(masks))

    def _head_losses(
        self, joined: JoinedLevels, targets: RegionTargets, truths: Truths
    ) -> dict[str, Any]:
        """Return the losses of the heads."""
        logits = self.roi_heads.masks(self._positive(joined, targets))
        logits = ops.reshape(logits, (targets.labels.shape[0], -1, *logits.shape[1:]))
        return {
            **super()._head_losses(joined, targets, truths),
            **mask_losses(logits, targets, truths.masks, chainer=self.chainer),
        }


@public("fdbr.vision.models")
@frozen
class MaskRCNN_ResNet101_FPN(MaskRCNN_ResNet50_FPN):
    """`MaskRCNN_ResNet50_FPN` over a `ResNet101`."""

    _network: ClassVar[type[ResNet]] = ResNet101
