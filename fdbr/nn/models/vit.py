"""The vision transformer: an image as a sequence of patches."""

import math
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.blocks import ViTBlock
from fdbr.nn.attention.multi_head import MultiHeadAttention
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.dropout import Dropout
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import ImageNetwork
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.nn.sequential import Sequential
from fdbr.tree import frozen

__all__ = [
    "ViT",
    "ViTEncoder",
    "ViT_B_16",
    "ViT_B_32",
    "ViT_H_14",
    "ViT_L_16",
    "ViT_L_32",
]


@public("fdbr.nn.models")
@frozen
class ViTEncoder(Composite):
    """The encoder: position embeddings, blocks and a normalisation.

    Attributes
    ----------
    pos_embedding
        The embeddings of positions, shape ``(1, positions, width)``.
    dropout, layers, ln
        Dropout, the tuple of `ViTBlock`, and a normalisation.
    """

    pos_embedding: Any
    dropout: Dropout
    layers: tuple[ViTBlock, ...]
    ln: LayerNorm

    def torch_names(self) -> dict[str, str]:
        """Return torchvision's names of the blocks."""
        return {f"layers[{i}]": f"layers.encoder_layer_{i}" for i in range(len(self.layers))}

    def _forward(self, of: Any, x: Any) -> Any:
        x = of.dropout(x + self.pos_embedding)
        for block in of.layers:
            x = block(x)
        return of.ln(x)


@public("fdbr.nn.models")
@frozen
class ViT(ImageNetwork):
    """The vision transformer; its subclasses set the sizes.

    Dosovitskiy et al., *An image is worth 16x16 words*, ICLR 2021.  The fields are torchvision's
    modules.  Images must be squares of the model's ``image_size``.

    Attributes
    ----------
    class_token
        The first position of the sequence, from which the class is predicted; shape ``(1, 1,
        width)``.
    conv_proj
        The convolution that embeds patches.
    encoder
        A `ViTEncoder`.
    heads
        The last layer.

    >>> import fdbr
    >>> from fdbr import nn
    >>> settings = dict(hidden_dim=8, num_layers=2, num_heads=2, mlp_dim=16)
    >>> model = nn.models.ViT_B_16.init(fdbr.random.key(0), 10, image_size=32, **settings)
    >>> images = fdbr.ops.ones((2, 3, 32, 32), dtype="float32")
    >>> model(images).shape, model.extract(images, ["encoder.layers[1]"])["encoder.layers[1]"].shape
    ((2, 10), (2, 5, 8))
    """

    class_token: Any
    conv_proj: Conv
    encoder: ViTEncoder
    heads: Linear

    torch_names: ClassVar[dict[str, str]] = {"heads": "heads.head"}
    _patch: ClassVar[int] = 16
    _sizes: ClassVar[tuple[int, int, int, int]] = (12, 12, 768, 3072)

    @classmethod
    def init(
        cls,
        key: Any,
        classes: int = 1000,
        *,
        image_size: int = 224,
        patch_size: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        hidden_dim: int | None = None,
        mlp_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        in_channels: int = 3,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        classes
            The number of classes.
        image_size
            The height and width of the images.
        patch_size
            The height and width of a patch.
        num_layers, num_heads, hidden_dim, mlp_dim
            The number of blocks, of attention heads, of features of each position, and of features
            within a block's fully connected layers; by default the class's.
        dropout, attention_dropout
            The dropout rates of features and of attention weights in `train`.
        in_channels
            The number of channels of the images.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers with the
            variances of torchvision's, except for the last layer's, which are zeros there.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or patches do not fill an image.
        """
        given = (num_layers, num_heads, hidden_dim, mlp_dim)
        layers, heads, width, inner = (
            default if size is None else size
            for size, default in zip(given, cls._sizes, strict=True)
        )
        patch = cls._patch if patch_size is None else patch_size
        positive(cls, classes=classes, image_size=image_size, patch_size=patch, num_layers=layers)
        positive(cls, hidden_dim=width, mlp_dim=inner, in_channels=in_channels)
        if image_size % patch:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: image_size {image_size} must be a multiple "
                f"of patch_size {patch}"
            )
        of = Builder(key, weight_init, dtype)
        proj = of.conv(
            in_channels, width, patch, patch, padding=0, stddev=(in_channels * patch**2) ** -0.5
        )
        positions = (image_size // patch) ** 2 + 1
        token = initializers.zeros()(of.key(), (1, 1, width), dtype)
        position = of.weight((1, positions, width), 0.02)
        blocks = [
            _block(of, width, heads, inner, dropout, attention_dropout) for _ in range(layers)
        ]
        encoder = ViTEncoder(position, Dropout(dropout), tuple(blocks), of.layer_norm(width, 1e-6))
        return cls(token, proj, encoder, of.linear(width, classes, 0.01))

    def _forward(self, of: Any, x: Any) -> Any:
        patch = self.conv_proj.weight.shape[-1]
        side = patch * math.isqrt(self.encoder.pos_embedding.shape[1] - 1)
        if x.shape[-2:] != (side, side):
            raise ValueError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: the model is for images of {side} by "
                    f"{side} pixels, got {describe(x)}; resize them, or give image_size to init"
                )
            )
        x = of.conv_proj(x)
        count, width = x.shape[:2]
        x = ops.swapaxes(ops.reshape(x, (count, width, -1)), 1, 2)
        token = ops.broadcast_to(self.class_token, (count, 1, width))
        x = of.encoder(ops.concat([token, x], axis=1))
        return of.heads(x[:, 0])


def _block(
    of: Builder, width: int, heads: int, inner: int, dropout: float, attention_dropout: float
) -> ViTBlock:
    attention = MultiHeadAttention.init(
        of.key(),
        width,
        heads,
        dropout=attention_dropout,
        **of.options((2 / (4 * width)) ** 0.5),
    )
    stddev = (2 / (width + inner)) ** 0.5
    mlp = Sequential(
        of.linear(width, inner, stddev),
        ops.gelu,
        Dropout(dropout),
        of.linear(inner, width, stddev),
        Dropout(dropout),
    )
    before, behind = of.layer_norm(width, 1e-6), of.layer_norm(width, 1e-6)
    return ViTBlock(before, attention, behind, mlp, dropout)


@public("fdbr.nn.models")
@frozen
class ViT_B_16(ViT):
    """`ViT` of 12 blocks of 768 features, with patches of 16 pixels: 86,567,656 parameters."""


@public("fdbr.nn.models")
@frozen
class ViT_B_32(ViT):
    """`ViT` of 12 blocks of 768 features, with patches of 32 pixels: 88,224,232 parameters."""

    _patch: ClassVar[int] = 32


@public("fdbr.nn.models")
@frozen
class ViT_L_16(ViT):
    """`ViT` of 24 blocks of 1,024 features, with patches of 16 pixels: 304,326,632 parameters."""

    _sizes: ClassVar[tuple[int, int, int, int]] = (24, 16, 1024, 4096)


@public("fdbr.nn.models")
@frozen
class ViT_L_32(ViT_L_16):
    """`ViT` of 24 blocks of 1,024 features, with patches of 32 pixels: 306,535,400 parameters."""

    _patch: ClassVar[int] = 32


@public("fdbr.nn.models")
@frozen
class ViT_H_14(ViT):
    """`ViT` of 32 blocks of 1,280 features, with patches of 14 pixels: 632,045,800 parameters."""

    _patch: ClassVar[int] = 14
    _sizes: ClassVar[tuple[int, int, int, int]] = (32, 16, 1280, 5120)
