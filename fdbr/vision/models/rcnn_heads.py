"""The layers that propose and classify regions, and those that compute masks and points in them."""

from typing import Any, ClassVar

from fdbr import ops
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv, ConvTranspose
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = [
    "FastRCNNPredictor",
    "KeypointRCNNPredictor",
    "MaskRCNNPredictor",
    "RPNHead",
    "RegionProposalNetwork",
    "RoIHeads",
    "TwoMLPHead",
    "convolutions",
    "transposed",
]


@frozen
class RPNHead(Composite):
    """The convolutions of a region proposal network.

    Attributes
    ----------
    conv, cls_logits, bbox_pred
        A 3x3 convolution, and 1x1 convolutions for the logits and the codes of anchors.
    """

    conv: Conv
    cls_logits: Conv
    bbox_pred: Conv

    torch_names: ClassVar = {"conv": ("conv.0.0", "~conv")}
    chainer_names: ClassVar = {"cls_logits": "conf", "bbox_pred": "loc"}

    def _forward(self, of: Any, levels: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return for each level the logits ``(N, A)`` and the codes ``(N, A, 4)`` of anchors."""
        logits, codes = [], []
        for x in levels:
            x = ops.relu(of.conv(x))
            logit, code = (
                ops.permute_dims(layer(x), (0, 2, 3, 1)) for layer in (of.cls_logits, of.bbox_pred)
            )
            logits.append(ops.reshape(logit, (x.shape[0], -1)))
            codes.append(ops.reshape(code, (x.shape[0], logits[-1].shape[1], 4)))
        return logits, codes


@frozen
class RegionProposalNetwork(Composite):
    """A region proposal network.

    Attributes
    ----------
    head
        Its convolutions.
    """

    head: RPNHead

    chainer_names: ClassVar = {"head": ""}

    def _forward(self, of: Any, levels: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return what the head returns."""
        out: tuple[list[Any], list[Any]] = of.head(levels)
        return out


@frozen
class TwoMLPHead(Composite):
    """Two fully connected layers.

    Attributes
    ----------
    fc6, fc7
        The layers.
    """

    fc6: Linear
    fc7: Linear

    def _forward(self, of: Any, x: Any) -> Any:
        """Return features of regions, shape ``(R, features)``."""
        x = ops.reshape(x, (x.shape[0], -1))
        return ops.relu(of.fc7(ops.relu(of.fc6(x))))


@frozen
class FastRCNNPredictor(Composite):
    """The layers that classify regions and correct their boxes.

    Attributes
    ----------
    cls_score, bbox_pred
        Fully connected layers.
    """

    cls_score: Linear
    bbox_pred: Linear

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        """Return the logits ``(R, 1 + classes)`` and the codes ``(R, 1 + classes, 4)``."""
        logits = of.cls_score(x)
        return logits, ops.reshape(of.bbox_pred(x), (*logits.shape, 4))


@frozen
class MaskRCNNPredictor(Composite):
    """The layers that compute masks of twice the size of features.

    Attributes
    ----------
    conv5_mask, mask_fcn_logits
        A transposed convolution, and a 1x1 convolution with an output for each class.
    """

    conv5_mask: ConvTranspose
    mask_fcn_logits: Conv

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits, shape ``(R, 1 + classes, 2 S, 2 S)``."""
        return of.mask_fcn_logits(ops.relu(of.conv5_mask(x)))


@frozen
class KeypointRCNNPredictor(Composite):
    """The layer that computes maps of points of four times the size of features.

    Attributes
    ----------
    kps_score_lowres
        A transposed convolution, whose output is then resized linearly.
    """

    kps_score_lowres: ConvTranspose

    def _forward(self, of: Any, x: Any) -> Any:
        """Return the logits, shape ``(R, points, 4 S, 4 S)``."""
        return ops.interpolate(of.kps_score_lowres(x), scale_factor=2.0, mode="bilinear")


_HEAD_CHAINER = {
    "box_head.fc6": "bbox_head/fc1",
    "box_head.fc7": "bbox_head/fc2",
    "box_predictor.cls_score": "bbox_head/conf",
    "box_predictor.bbox_pred": "bbox_head/loc",
    "mask_predictor.conv5_mask": "mask_head/conv5",
    "mask_predictor.mask_fcn_logits": "mask_head/seg",
    **{f"mask_head.layers[{2 * i}]": f"mask_head/conv{i + 1}/conv" for i in range(4)},
}


@frozen
class RoIHeads(Composite):
    """The heads of a detector, each with its predictor.

    Attributes
    ----------
    box_head, box_predictor
        The layers that classify regions and correct their boxes.
    mask_head, mask_predictor, keypoint_head, keypoint_predictor
        The layers that compute masks, and maps of points; or `None`.
    """

    box_head: TwoMLPHead
    box_predictor: FastRCNNPredictor
    mask_head: Sequential | None = None
    mask_predictor: MaskRCNNPredictor | None = None
    keypoint_head: Sequential | None = None
    keypoint_predictor: KeypointRCNNPredictor | None = None

    torch_names: ClassVar = {
        f"mask_head.layers[{2 * i}]": (f"mask_head.{i}.0", f"~mask_head.mask_fcn{i + 1}")
        for i in range(4)
    }
    chainer_names: ClassVar = _HEAD_CHAINER

    def _forward(self, of: Any, x: Any) -> tuple[Any, Any]:
        """Return the logits and codes of regions."""
        out: tuple[Any, Any] = of.box_predictor(of.box_head(x))
        return out

    def masks(self, x: Any) -> Any:
        """Return the logits of masks of regions."""
        return self.mask_predictor(self.mask_head(x))  # type: ignore[misc]

    def points(self, x: Any) -> Any:
        """Return the logits of points of regions."""
        return self.keypoint_predictor(self.keypoint_head(x))  # type: ignore[misc]


def convolutions(of: Builder, inputs: int, channels: int, count: int) -> Sequential:
    """Return 3x3 convolutions with fresh parameters, each with a ReLU."""
    layers: list[Any] = []
    for _ in range(count):
        layers += [of.conv(inputs, channels, 3), ops.relu]
        inputs = channels
    return Sequential(*layers)


def transposed(of: Builder, inputs: int, outputs: int, kernel: int) -> ConvTranspose:
    """Return a transposed convolution with fresh parameters, which doubles height and width."""
    options = of.options()
    return ConvTranspose.init(
        of.key(), inputs, outputs, kernel, stride=2, padding=kernel // 2 - 1, **options
    )
