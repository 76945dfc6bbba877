"""SegNet: a decoder that writes values at the positions of the encoder's maxima."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.random import fold_in
from fdbr.tree import frozen
from fdbr.vision.models.base import SegmentationLogits, Segmenter, resized

__all__ = ["SegNetBasic"]

_ENCODER = "conv1", "conv2", "conv3", "conv4"
_DECODER = "conv_decode4", "conv_decode3", "conv_decode2", "conv_decode1"


@public("fdbr.vision.models")
@frozen
class SegNetBasic(Segmenter):
    """SegNet with four convolutions before and four after; the fields are ChainerCV's links.

    Badrinarayanan, Kendall & Cipolla, *SegNet: a deep convolutional encoder-decoder architecture
    for image segmentation*, PAMI 2017.

    Attributes
    ----------
    conv1, conv1_bn to conv4, conv4_bn
        Convolutions, each followed by a rectifier and a pooling of 2x2 windows.
    conv_decode4, conv_decode4_bn to conv_decode1, conv_decode1_bn
        Convolutions, before each the values are written to the positions of the maxima that a
        pooling found, with zeros elsewhere.
    conv_classifier
        The last convolution.

    >>> import fdbr
    >>> from fdbr import vision
    >>> model = vision.models.SegNetBasic.init(fdbr.random.key(0), 3, width=4)
    >>> images = [fdbr.ops.ones((3, 20, 31), dtype="float32")]
    >>> model.predict(images)[0].shape
    (20, 31)
    """

    conv1: Conv
    conv1_bn: BatchNorm
    conv2: Conv
    conv2_bn: BatchNorm
    conv3: Conv
    conv3_bn: BatchNorm
    conv4: Conv
    conv4_bn: BatchNorm
    conv_decode4: Conv
    conv_decode4_bn: BatchNorm
    conv_decode3: Conv
    conv_decode3_bn: BatchNorm
    conv_decode2: Conv
    conv_decode2_bn: BatchNorm
    conv_decode1: Conv
    conv_decode1_bn: BatchNorm
    conv_classifier: Conv

    _normalize: ClassVar[bool | None] = True

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 11,
        *,
        width: int = 64,
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
            The number of channels of all convolutions.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default He's normal distribution.
        dtype
            The dtype of the parameters.
        """
        where = f"fdbr.vision.models.{cls.__name__}.init"
        integer(where, "classes", classes, least=1)
        integer(where, "width", width, least=1)
        init = initializers.he_normal() if weight_init is None else weight_init
        fields: dict[str, Any] = {}
        for i, name in enumerate((*_ENCODER, *_DECODER)):
            fields[name] = Conv.init(
                fold_in(key, i),
                width if i else 3,
                width,
                7,
                padding=3,
                bias=False,
                weight_init=init,
                dtype=dtype,
            )
            fields[f"{name}_bn"] = BatchNorm.init(
                key, width, eps=2e-5, bias_init=initializers.constant(0.001), dtype=dtype
            )
        fields["conv_classifier"] = Conv.init(
            fold_in(key, 8), width, classes, 1, weight_init=init, dtype=dtype
        )
        return cls(**fields)

    def _forward(self, of: Any, x: Any) -> Any:
        size = x.shape[2:]
        x = ops.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)
        indices = []
        for name in _ENCODER:
            x = ops.relu(getattr(of, f"{name}_bn")(getattr(of, name)(x)))
            x, found = ops.max_pool(_even(x), 2, return_indices=True)
            indices.append(found)
        for name in _DECODER:
            found = indices.pop()
            x = ops.max_unpool(x[:, :, : found.shape[2], : found.shape[3]], found, 2)
            x = getattr(of, f"{name}_bn")(getattr(of, name)(x))
        out = resized(of.conv_classifier(x), size, align_corners=False)
        return SegmentationLogits(out) if of.training else out


def _even(x: Any) -> Any:
    """Extend odd sizes at the end by zeros, which are no maxima of rectified values.

    Windows then cover all elements, as Chainer's do, and a decoder's array is twice as large.
    """
    odd = [n % 2 for n in x.shape[2:]]
    return ops.pad(x, ((0, 0), (0, 0), (0, odd[0]), (0, odd[1]))) if any(odd) else x
