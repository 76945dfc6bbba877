"""Keypoint R-CNN: Faster R-CNN with a head for points."""

from typing import Any, ClassVar

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, to_numpy
from fdbr.errors.public import public
from fdbr.nn.models.building import Builder, positive
from fdbr.tree import frozen
from fdbr.vision.models.base import Prepared
from fdbr.vision.models.rcnn import FasterRCNN
from fdbr.vision.models.rcnn_heads import (
    KeypointRCNNPredictor,
    convolutions,
    transposed,
)
from fdbr.vision.models.region_features import JoinedLevels
from fdbr.vision.models.region_losses import RegionTargets, keypoint_losses
from fdbr.vision.results import Keypoints, Truths, unpad

__all__ = ["KeypointRCNN_ResNet50_FPN"]


@public("fdbr.vision.models")
@frozen
class KeypointRCNN_ResNet50_FPN(FasterRCNN):
    """`FasterRCNN` with a head for points: 59,137,258 parameters for 1 class and 17 points.

    He, Gkioxari, Dollár & Girshick, *Mask R-CNN*, ICCV 2017, section 5.  `init` has the further
    setting ``num_keypoints``, by default 17.  `predict` returns `Keypoints`.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr.vision import models
    >>> model = models.KeypointRCNN_ResNet50_FPN.init(
    ...     fdbr.random.key(0), 1, width=2, depths=(1, 1, 1, 1), min_size=64, num_keypoints=5
    ... )
    >>> found = model.predict([np.zeros((3, 40, 60), "float32")])
    >>> [points.shape[1:] for points in found.points]
    [(5, 2)]
    """

    _further_settings: ClassVar[tuple[str, ...]] = ("num_keypoints",)
    _needs: ClassVar[tuple[str, ...]] = ("points", "visible")
    _result: ClassVar[Any] = Keypoints

    @classmethod
    def _further_heads(
        cls, of: Builder, width: int, outputs: int, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the head for points."""
        points = settings.get("num_keypoints", 17)
        positive(cls, num_keypoints=points)
        return {
            "keypoint_head": convolutions(of, 4 * width, 8 * width, 8),
            "keypoint_predictor": KeypointRCNNPredictor(transposed(of, 8 * width, points, 4)),
        }

    def detect(self, batch: Any, sizes: Any) -> Keypoints:
        """Return the padded objects in a batch, in its pixels.

        Parameters
        ----------
        batch, sizes
            As for `FasterRCNN.detect`.

        Returns
        -------
        Keypoints
            ``points`` are logits within boxes, of shape ``(N, D, K, 56, 56)``, and
            ``point_scores`` their maxima.
        """
        found, joined = self._detected(batch, sizes)
        count = self.roi_heads.keypoint_predictor.kps_score_lowres.bias.shape[0]  # type: ignore[union-attr]
        logits = self._of_found(
            found, joined, lambda features, _: self.roi_heads.points(features), (count, 56, 56)
        )
        return Keypoints(*found, logits, ops.max(logits, axis=(3, 4)))

    def finish(self, found: Any, prepared: Prepared) -> Keypoints:
        """Return the ragged result of `detect` in pixels of the images that were given.

        Maps are resized to their boxes by cubic interpolation, and points are where they are
        largest.
        """
        ragged = unpad(found)
        points, scores = [], []
        for maps, boxes in zip(ragged.points, ragged.boxes, strict=True):
            each = [points_of(m, b) for m, b in zip(maps, to_numpy(boxes), strict=True)]
            xp, count = array_module(boxes), maps.shape[1]
            points.append(
                ops.stack([p for p, _ in each])
                if each
                else xp.zeros((0, count, 2), dtype=np.float32)
            )
            scores.append(
                ops.stack([s for _, s in each]) if each else xp.zeros((0, count), dtype=np.float32)
            )
        whole = super().finish(found, prepared)
        ratios = np.asarray(prepared.originals, np.float32) / np.asarray(prepared.sizes, np.float32)
        moved = (
            p * array_module(p).asarray(ratio) for p, ratio in zip(points, ratios, strict=True)
        )
        return Keypoints(whole.boxes, whole.labels, whole.scores, tuple(moved), tuple(scores))

    def _head_losses(
        self, joined: JoinedLevels, targets: RegionTargets, truths: Truths
    ) -> dict[str, Any]:
        """Return the losses of the heads."""
        logits = self.roi_heads.points(self._positive(joined, targets))
        logits = ops.reshape(logits, (targets.labels.shape[0], -1, *logits.shape[1:]))
        return {
            **super()._head_losses(joined, targets, truths),
            **keypoint_losses(logits, targets, truths),
        }


def points_of(maps: Any, box: Any) -> tuple[Any, Any]:
    """Return the points ``(K, 2)`` of the maxima of maps ``(K, S, S)`` of a box, and these.

    The box lies in host memory, because its size is that of an array.
    """
    low, high = np.float32(box[:2]), np.float32(box[2:])
    sides = np.maximum(high - low, np.float32(1))
    size = tuple(int(n) for n in np.ceil(sides))
    resized = ops.interpolate(maps[:, None], size=size, mode="bicubic")[:, 0]
    flat = ops.reshape(resized, (resized.shape[0], -1))
    best = ops.argmax(flat, axis=1)
    xp = array_module(maps)
    position = ops.stack([best // size[1], best % size[1]], axis=1)
    step = xp.asarray(sides / np.array(size, np.float32))
    points = (ops.astype(position, np.float32) + 0.5) * step + xp.asarray(low)
    return points, ops.max(flat, axis=1)
