"""The layers that are timed, at usual sizes, in both libraries."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

__all__ = ["ROWS", "Row"]


@attrs.frozen
class Row:
    """One layer at one size.

    Attributes
    ----------
    name
        The layer's public name, and the size.
    shape
        Of the input.
    ours
        ``ours(nn, key)`` is fdbr's layer.
    theirs
        ``theirs(torch.nn)`` is PyTorch's module, whose parameters have the same names.
    input
        ``input(generator, shape)``; normal float32 numbers by default.
    call, their_call
        What is computed of the layer and the input, where it is not ``layer(x)``.
    train
        Whether the layer is run as in training.
    random
        Whether each library draws numbers of its own, so that results are not compared.
    forward
        ``forward(layer, x, jitted)`` for what is computed without derivatives: a list of results.
    """

    name: str
    shape: tuple[int, ...]
    ours: Callable[[Any, Any], Any]
    theirs: Callable[[Any], Any]
    input: Callable[[Any, tuple[int, ...]], Any] = lambda generator, shape: (
        generator.standard_normal(shape).astype(np.float32)
    )
    call: Callable[..., Any] = lambda layer, x: layer(x)
    their_call: Callable[..., Any] = lambda layer, x: layer(x)
    train: bool = False
    random: bool = False
    forward: Callable[[Any, Any, bool], list[Any]] | None = None


def _tokens(generator: Any, shape: tuple[int, ...]) -> Any:
    return generator.integers(0, 10_000, shape)


IMAGES, MAPS = (32, 3, 64, 64), (32, 64, 28, 28)
WORDS, SEQUENCE = (16, 64, 128), (35, 20, 200)
LENGTHS = (50, 41, 37, 30, 30, 22, 17, 12, 9, 5, 3, 1)


def _ragged(layer: Any, x: Any) -> Any:
    """The outputs for sequences of `LENGTHS`, the first elements of the columns of an array."""
    import fdbr

    ys, _ = layer([x[:length, i] for i, length in enumerate(LENGTHS)])
    return fdbr.ops.pad_sequence(ys)


def _packed(layer: Any, x: Any) -> Any:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    return pad_packed_sequence(layer(pack_padded_sequence(x, LENGTHS))[0])[0]


ROWS = [
    Row(
        "Linear 784 to 512",
        (128, 784),
        lambda nn, key: nn.Linear.init(key, 784, 512),
        lambda nn: nn.Linear(784, 512),
    ),
    Row(
        "Conv 3 to 64, 3x3",
        IMAGES,
        lambda nn, key: nn.Conv.init(key, 3, 64, 3, padding=1),
        lambda nn: nn.Conv2d(3, 64, 3, padding=1),
    ),
    Row(
        "Conv 64 to 64, 3x3",
        MAPS,
        lambda nn, key: nn.Conv.init(key, 64, 64, 3, padding=1),
        lambda nn: nn.Conv2d(64, 64, 3, padding=1),
    ),
    Row(
        "Conv 64 to 128, 1x1",
        MAPS,
        lambda nn, key: nn.Conv.init(key, 64, 128, 1),
        lambda nn: nn.Conv2d(64, 128, 1),
    ),
    Row(
        "Conv 64 to 128, 3x3, stride 2",
        MAPS,
        lambda nn, key: nn.Conv.init(key, 64, 128, 3, stride=2, padding=1),
        lambda nn: nn.Conv2d(64, 128, 3, stride=2, padding=1),
    ),
    Row(
        "Conv 64, 3x3, of 32 groups",
        MAPS,
        lambda nn, key: nn.Conv.init(key, 64, 64, 3, padding=1, groups=32),
        lambda nn: nn.Conv2d(64, 64, 3, padding=1, groups=32),
    ),
    Row(
        "Conv 64, 7x7, depthwise",
        MAPS,
        lambda nn, key: nn.Conv.init(key, 64, 64, 7, padding=3, groups=64),
        lambda nn: nn.Conv2d(64, 64, 7, padding=3, groups=64),
    ),
    Row(
        "ConvTranspose 64 to 32, 4x4, stride 2",
        MAPS,
        lambda nn, key: nn.ConvTranspose.init(key, 64, 32, 4, stride=2, padding=1),
        lambda nn: nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
    ),
    Row(
        "MaxPool2d 2",
        MAPS,
        lambda nn, key: nn.MaxPool2d(2),
        lambda nn: nn.MaxPool2d(2),
    ),
    Row(
        "MaxPool2d 3, stride 2",
        MAPS,
        lambda nn, key: nn.MaxPool2d(3, stride=2, padding=1),
        lambda nn: nn.MaxPool2d(3, stride=2, padding=1),
    ),
    Row(
        "AvgPool2d 2",
        MAPS,
        lambda nn, key: nn.AvgPool2d(2),
        lambda nn: nn.AvgPool2d(2),
    ),
    Row(
        "AdaptiveAvgPool2d 1",
        MAPS,
        lambda nn, key: nn.AdaptiveAvgPool2d(1),
        lambda nn: nn.AdaptiveAvgPool2d(1),
    ),
    Row(
        "BatchNorm 64, training",
        MAPS,
        lambda nn, key: nn.BatchNorm.init(key, 64),
        lambda nn: nn.BatchNorm2d(64),
        train=True,
    ),
    Row(
        "BatchNorm 64, inference",
        MAPS,
        lambda nn, key: nn.BatchNorm.init(key, 64),
        lambda nn: nn.BatchNorm2d(64),
    ),
    Row(
        "GroupNorm 8 of 64",
        MAPS,
        lambda nn, key: nn.GroupNorm.init(key, 8, 64),
        lambda nn: nn.GroupNorm(8, 64),
    ),
    Row(
        "LayerNorm 128",
        WORDS,
        lambda nn, key: nn.LayerNorm.init(key, 128),
        lambda nn: nn.LayerNorm(128),
    ),
    Row(
        "LayerNorm 768",
        (32, 128, 768),
        lambda nn, key: nn.LayerNorm.init(key, 768),
        lambda nn: nn.LayerNorm(768),
    ),
    Row(
        "GroupNorm 8 of 64, 56x56",
        (32, 64, 56, 56),
        lambda nn, key: nn.GroupNorm.init(key, 8, 64),
        lambda nn: nn.GroupNorm(8, 64),
    ),
    Row(
        "InstanceNorm 64",
        MAPS,
        lambda nn, key: nn.InstanceNorm.init(key, 64, affine=True),
        lambda nn: nn.InstanceNorm2d(64, affine=True),
    ),
    Row(
        "BatchNorm 512, training",
        (256, 512),
        lambda nn, key: nn.BatchNorm.init(key, 512),
        lambda nn: nn.BatchNorm1d(512),
        train=True,
    ),
    Row(
        "RMSNorm 128",
        WORDS,
        lambda nn, key: nn.RMSNorm.init(key, 128),
        lambda nn: nn.RMSNorm(128),
    ),
    Row(
        "Embed 10,000 x 128",
        (16, 64),
        lambda nn, key: nn.Embed.init(key, 10_000, 128),
        lambda nn: nn.Embedding(10_000, 128),
        _tokens,
    ),
    Row(
        "Embed 50,000 x 256",
        (16, 64),
        lambda nn, key: nn.Embed.init(key, 50_000, 256),
        lambda nn: nn.Embedding(50_000, 256),
        _tokens,
    ),
    Row(
        "LSTM 200 to 200, 35 steps",
        SEQUENCE,
        lambda nn, key: nn.LSTM.init(key, 200, 200),
        lambda nn: nn.LSTM(200, 200),
        call=lambda layer, x: layer(x)[0],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "GRU 200 to 200, 35 steps",
        SEQUENCE,
        lambda nn, key: nn.GRU.init(key, 200, 200),
        lambda nn: nn.GRU(200, 200),
        call=lambda layer, x: layer(x)[0],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "RNN 200 to 200, 35 steps",
        SEQUENCE,
        lambda nn, key: nn.RNN.init(key, 200, 200),
        lambda nn: nn.RNN(200, 200),
        call=lambda layer, x: layer(x)[0],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "LSTM 200 to 200, 2 layers, both directions",
        SEQUENCE,
        lambda nn, key: nn.LSTM.init(key, 200, 200, 2, bidirectional=True),
        lambda nn: nn.LSTM(200, 200, 2, bidirectional=True),
        call=lambda layer, x: layer(x)[0],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "LSTM 200 to 200, 200 steps",
        (200, 20, 200),
        lambda nn, key: nn.LSTM.init(key, 200, 200),
        lambda nn: nn.LSTM(200, 200),
        call=lambda layer, x: layer(x)[0],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "LSTM 100 to 100, sequences of 1 to 50 steps",
        (max(LENGTHS), len(LENGTHS), 100),
        lambda nn, key: nn.LSTM.init(key, 100, 100),
        lambda nn: nn.LSTM(100, 100),
        call=_ragged,
        their_call=_packed,
    ),
    Row(
        "MultiHeadAttention 128, 4 heads",
        WORDS,
        lambda nn, key: nn.MultiHeadAttention.init(key, 128, 4),
        lambda nn: nn.MultiheadAttention(128, 4, batch_first=True),
        call=lambda layer, x: layer(x),
        their_call=lambda layer, x: layer(x, x, x, need_weights=False)[0],
    ),
    Row(
        "TransformerEncoderLayer 128, 4 heads",
        WORDS,
        lambda nn, key: nn.TransformerEncoderLayer.init(key, 128, 4, 512),
        lambda nn: nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0),
        # In training, with a rate of 0: in inference PyTorch takes another way.
        their_call=lambda layer, x: layer.train()(x),
    ),
]
