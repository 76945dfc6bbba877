"""Further layers and functions, of other numbers of dimensions and of other shapes."""

from typing import Any

import numpy as np

from benchmarks.layers.functions import both, row
from benchmarks.layers.rows import IMAGES, MAPS, WORDS, Row

__all__ = ["FURTHER"]

SOUND, VOLUME = (32, 64, 256), (4, 16, 16, 28, 28)


def _memory() -> np.ndarray:
    return np.random.default_rng(5).standard_normal(WORDS).astype(np.float32)


MEMORY = _memory()
AROUND = ((0, 0), (0, 0), (1, 1), (1, 1))

FURTHER = [
    Row(
        "Conv1d 64 to 64, 3",
        SOUND,
        lambda nn, key: nn.Conv1d.init(key, 64, 64, 3, padding=1),
        lambda nn: nn.Conv1d(64, 64, 3, padding=1),
    ),
    Row(
        "Conv3d 16 to 16, 3x3x3",
        VOLUME,
        lambda nn, key: nn.Conv3d.init(key, 16, 16, 3, padding=1),
        lambda nn: nn.Conv3d(16, 16, 3, padding=1),
    ),
    Row(
        "Conv2d 64 to 64, 3x3, dilation 2",
        MAPS,
        lambda nn, key: nn.Conv2d.init(key, 64, 64, 3, padding=2, dilation=2),
        lambda nn: nn.Conv2d(64, 64, 3, padding=2, dilation=2),
    ),
    Row(
        "ConvTranspose1d 64 to 32, 4, stride 2",
        SOUND,
        lambda nn, key: nn.ConvTranspose1d.init(key, 64, 32, 4, stride=2, padding=1),
        lambda nn: nn.ConvTranspose1d(64, 32, 4, stride=2, padding=1),
    ),
    Row(
        "Bilinear 64, 64 to 64",
        (256, 64),
        lambda nn, key: nn.Bilinear.init(key, 64, 64, 64),
        lambda nn: nn.Bilinear(64, 64, 64),
        call=lambda layer, x: layer(x, x),
        their_call=lambda layer, x: layer(x, x),
    ),
    Row(
        "InstanceNorm1d 64",
        SOUND,
        lambda nn, key: nn.InstanceNorm.init(key, 64, affine=True),
        lambda nn: nn.InstanceNorm1d(64, affine=True),
    ),
    Row(
        "TransformerDecoderLayer 128, 4 heads",
        WORDS,
        lambda nn, key: nn.TransformerDecoderLayer.init(key, 128, 4, 512),
        lambda nn: nn.TransformerDecoderLayer(128, 4, 512, batch_first=True, dropout=0.0),
        call=lambda layer, x: layer(x, MEMORY),
        their_call=lambda layer, x: layer.train()(x, _tensor(MEMORY)),
    ),
    Row(
        "LSTMCell 200 to 200",
        (64, 200),
        lambda nn, key: nn.LSTMCell.init(key, 200, 200),
        lambda nn: nn.LSTMCell(200, 200),
        call=lambda layer, x: layer(layer.initial_state((len(x),)), x)[1],
        their_call=lambda layer, x: layer(x)[0],
    ),
    Row(
        "GRUCell 200 to 200",
        (64, 200),
        lambda nn, key: nn.GRUCell.init(key, 200, 200),
        lambda nn: nn.GRUCell(200, 200),
        call=lambda layer, x: layer(layer.initial_state((len(x),)), x)[1],
        their_call=lambda layer, x: layer(x),
    ),
    both("max_pool1d", SOUND, 2),
    both("max_pool3d", VOLUME, 2),
    both("avg_pool1d", SOUND, 2),
    both("avg_pool3d", VOLUME, 2),
    both("lp_pool2d", MAPS, 2.0, 2),
    both("adaptive_avg_pool2d", MAPS, (7, 7)),
    both("unfold", MAPS, 3, padding=1),
    both("fold", (32, 144, 784), (28, 28), 3, padding=1),
    both("pixel_shuffle", MAPS, 2),
    both("pixel_unshuffle", MAPS, 2),
    both("channel_shuffle", MAPS, 4),
    both("normalize", MAPS),
    row(
        "pad reflect",
        MAPS,
        lambda fdbr, x: fdbr.ops.pad(x, AROUND, mode="reflect"),
        lambda torch, x: torch.nn.ReflectionPad2d(1)(x),
    ),
    row(
        "pad zeros",
        MAPS,
        lambda fdbr, x: fdbr.ops.pad(x, AROUND),
        lambda torch, x: torch.nn.ZeroPad2d(1)(x),
    ),
    row(
        "cosine_similarity",
        (256, 1_000),
        lambda fdbr, x: fdbr.ops.cosine_similarity(x, x[::-1], axis=1),
        lambda torch, x: torch.nn.functional.cosine_similarity(x, torch.flip(x, (0,)), dim=1),
    ),
    row(
        "pairwise_distance",
        (256, 1_000),
        lambda fdbr, x: fdbr.ops.pairwise_distance(x, x[::-1]),
        lambda torch, x: torch.nn.functional.pairwise_distance(x, torch.flip(x, (0,))),
    ),
    row(
        "interpolate nearest, 2x",
        MAPS,
        lambda fdbr, x: fdbr.ops.interpolate(x, scale_factor=2, mode="nearest"),
        lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest"),
    ),
    row(
        "interpolate bicubic, 2x",
        IMAGES,
        lambda fdbr, x: fdbr.ops.interpolate(
            x, scale_factor=2, mode="bicubic", align_corners=False
        ),
        lambda torch, x: torch.nn.functional.interpolate(
            x, scale_factor=2, mode="bicubic", align_corners=False
        ),
    ),
    row(
        "scaled_dot_product_attention, causal",
        (8, 4, 256, 32),
        lambda fdbr, x: fdbr.ops.scaled_dot_product_attention(x, x, x, is_causal=True),
        lambda torch, x: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    ),
]


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)
