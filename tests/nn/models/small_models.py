"""A small model of each family, with weights that depend on their names alone."""

from typing import Any

import numpy as np

import fdbr
from benchmarks.named_weights import named_weights, numbers
from fdbr import nn

__all__ = ["IMAGES", "TEXTS", "images", "made"]

KEY = fdbr.random.key(0)

IMAGES: dict[str, tuple[int, dict[str, Any]]] = {
    "VGG11": (32, {"width": 4, "hidden": 16, "dropout": 0.0}),
    "VGG11 with batch_norm": (33, {"width": 4, "hidden": 16, "dropout": 0.0, "batch_norm": True}),
    "ResNet18": (32, {"width": 8}),
    "ResNet50": (33, {"width": 8, "depths": (1, 2, 1, 1)}),
    "ResNet50 of Chainer": (45, {"width": 8, "depths": (1, 1, 1, 1), "chainer": True}),
    "ResNeXt50_32x4d": (
        32,
        {"width": 8, "depths": (1, 2, 1, 1), "groups": 4, "width_per_group": 32},
    ),
    "SEResNet50": (32, {"width": 8, "depths": (1, 2, 1, 1)}),
    "GoogLeNet": (65, {"width": 8, "dropout": 0.0, "dropout_aux": 0.0}),
    "GoogLeNet of Chainer": (
        49,
        {"width": 8, "dropout": 0.0, "aux_logits": False, "chainer": True},
    ),
    "MobileNetV2": (33, {"width": 0.25, "dropout": 0.0}),
    "MobileNetV2 of Chainer": (38, {"width": 0.25, "chainer": True}),
    "MobileNet_V3_Large": (33, {"width": 0.25, "dropout": 0.0}),
    "MobileNet_V3_Small": (32, {"width": 0.25, "dropout": 0.0}),
    "ConvNeXt_Tiny": (37, {"width": 4, "depths": (1, 1, 2, 1), "stochastic_depth_prob": 0.0}),
    "ViT_B_16": (
        24,
        {
            "image_size": 24,
            "patch_size": 8,
            "hidden_dim": 12,
            "mlp_dim": 20,
            "num_layers": 2,
            "num_heads": 2,
        },
    ),
}
"""How many pixels a side images have, and the settings."""

TEXTS: dict[str, dict[str, Any]] = {
    "GPT2": {
        "vocab_size": 11,
        "n_positions": 8,
        "n_embd": 12,
        "n_layer": 2,
        "n_head": 3,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "BERT": {
        "vocab_size": 11,
        "max_position_embeddings": 8,
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
}


def made(name: str, dtype: Any = "float64", **changes: Any) -> Any:
    """The model of a name, as ``"ResNet50 of Chainer"``."""
    kind = getattr(nn.models, name.split()[0])
    if name in TEXTS:
        model = kind.init(KEY, **{**TEXTS[name], **changes}, dtype=dtype)
    else:
        model = kind.init(KEY, 5, **{**IMAGES[name][1], **changes}, dtype=dtype)
    shapes = {key: value.shape for key, value in nn.save_torch_state(model).items()}
    return nn.load_torch_state(model, named_weights(shapes))


def images(name: str, dtype: Any = "float64") -> Any:
    """Three images for it."""
    size = IMAGES[name][0]
    return np.asarray(numbers(name, (3, 3, size, size)), dtype)
