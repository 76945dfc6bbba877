"""Models of `fdbr.nn.models` beside torchvision's, with the same random weights.

``python -m benchmarks.models_agreement`` compares all, with names those of some: outputs in
float32 (to 1e-4), outputs and gradients by the input in float64 (to 1e-7), in evaluation and in
training, where nothing is drawn by chance, and then the running statistics too.  Numbers are the
largest difference beside the largest number.  SE-ResNets, Chainer's variants, BERT and GPT-2 are
compared with plain modules of PyTorch in `benchmarks.models_in_torch`.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torchvision

import fdbr
from benchmarks import models_in_torch
from fdbr import nn, ops, tree

__all__ = ["PAIRS", "compare", "main"]

Pair = tuple[Callable[[], Any], dict[str, Any], int]
"""PyTorch's model, the arguments of fdbr's, and how many pixels a side images have."""

IMAGES = 2


def _vision(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(torchvision.models, name)(num_classes=10, **options)


PAIRS: dict[str, Pair] = {
    **{
        name: (_vision(name.lower(), dropout=0.0), {"dropout": 0.0}, 64)
        for name in ("VGG11", "VGG13", "VGG16", "VGG19")
    },
    "VGG11 with batch_norm": (
        _vision("vgg11_bn", dropout=0.0),
        {"dropout": 0.0, "batch_norm": True},
        64,
    ),
    **{
        name: (_vision(name.lower()), {}, 64)
        for name in (
            *("ResNet18", "ResNet34", "ResNet50", "ResNet101", "ResNet152"),
            *("ResNeXt50_32x4d", "ResNeXt101_32x8d", "ResNeXt101_64x4d"),
            *("Wide_ResNet50_2", "Wide_ResNet101_2"),
        )
    },
    **{
        name: (lambda name=name: models_in_torch.se_resnet(name, 10), {}, 64)  # type: ignore[misc]
        for name in ("SEResNet50", "SEResNet101", "SEResNet152", "SEResNeXt50", "SEResNeXt101")
    },
    "ResNet50 of Chainer": (lambda: models_in_torch.chainer_resnet50(10), {"chainer": True}, 97),
    "GoogLeNet": (
        _vision("googlenet", dropout=0.0, dropout_aux=0.0, init_weights=False, aux_logits=True),
        {"dropout": 0.0, "dropout_aux": 0.0},
        97,
    ),
    "GoogLeNet of Chainer": (
        lambda: models_in_torch.chainer_googlenet(10),
        {"chainer": True, "dropout": 0.0},
        224,
    ),
    "MobileNet_V3_Large": (_vision("mobilenet_v3_large", dropout=0.0), {"dropout": 0.0}, 65),
    "MobileNet_V3_Small": (_vision("mobilenet_v3_small", dropout=0.0), {"dropout": 0.0}, 65),
    **{
        f"ConvNeXt_{size}": (
            _vision(f"convnext_{size.lower()}", stochastic_depth_prob=0.0),
            {"stochastic_depth_prob": 0.0},
            64,
        )
        for size in ("Tiny", "Small", "Base", "Large")
    },
    **{
        name: (_vision(name.lower(), image_size=size), {"image_size": size}, size)
        for name, size in (
            *(("ViT_B_16", 64), ("ViT_B_32", 64), ("ViT_L_16", 32), ("ViT_L_32", 64)),
            ("ViT_H_14", 28),
        )
    },
}


def free(key: Any, shape: Any, dtype: Any) -> Any:
    """Weights that take no memory, for a model that is filled from elsewhere."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def shaken(module: Any) -> Any:
    """A module of PyTorch with no number left at its default."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.is_floating_point() and value.ndim < 2:
                value.add_(0.1 * torch.randn(value.shape))
            elif name.endswith("layer_scale"):
                value.uniform_(0.2, 0.6)
            elif value.is_floating_point() and not value.any():
                value.normal_(0, 0.05)
    return module.requires_grad_(False)


def calibrated(module: Any, size: int) -> Any:
    """A module whose running statistics are those of some images, as after training."""
    norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if norms:
        usual = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 1.0
        module.train()(torch.randn(4, 3, size, size))
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
    return module


def arrays(module: Any, dtype: str) -> dict[str, Any]:
    """A module's state, of a dtype."""
    state = {n: v.detach().numpy() for n, v in module.state_dict().items()}
    return {n: v.astype(dtype) if v.dtype.kind == "f" else v for n, v in state.items()}


def apart(found: Any, expected: Any) -> float:
    """The largest difference, beside the largest number."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        raise ValueError(f"shapes differ: {found.shape} and {expected.shape}")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


def torch_run(module: Any, x: Any) -> tuple[list[Any], Any]:
    """A module's outputs, and the gradient of their weighted sum by the input."""
    given = torch.from_numpy(x).requires_grad_(True)
    outs = _listed(module(given))
    total = sum((out * _weights(out)).sum() for out in outs)
    total.backward()
    return [out.detach().numpy() for out in outs], given.grad.numpy()


def _weights(out: Any) -> Any:
    weights = np.cos(np.arange(np.prod(out.shape))).reshape(tuple(out.shape))
    return torch.from_numpy(weights).to(out) if isinstance(out, torch.Tensor) else weights


def fdbr_run(model: Any, x: Any, training: bool) -> tuple[list[Any], Any, Any]:
    """The same of a model of fdbr, and its successor."""

    def total(x: Any) -> Any:
        outs, successor = model.train(x) if training else (model(x), model)
        outs = _listed(outs)
        value = sum((out * ops.asarray(_weights(out), dtype=out.dtype)).sum() for out in outs)
        return value, (outs, successor)

    (_, (outs, successor)), gradient = fdbr.value_and_grad(total, has_aux=True)(x)
    return outs, gradient, successor


def compare(name: str) -> Iterator[tuple[str, float, float]]:
    """What was compared, how far apart it was, and how far it may be."""
    make, settings, size = PAIRS[name]
    module = calibrated(shaken(make()), size)
    kind = getattr(nn.models, name.split()[0])
    images = np.random.default_rng(1).normal(size=(IMAGES, 3, size, size))
    for dtype in ("float32", "float64"):
        x = images.astype(dtype)
        module = module.to(getattr(torch, dtype))
        empty = kind.init(fdbr.random.key(0), 10, weight_init=free, dtype=dtype, **settings)
        model = nn.load_torch_state(empty, arrays(module, dtype))
        for training in (False, True):
            module.train(training)
            if dtype == "float32" and training:
                continue
            outs, gradient, successor = fdbr_run(model, x, training)
            expected, slope = torch_run(module, x)
            where = f"{dtype} {'training' if training else 'evaluation'}"
            limit = 1e-4 if dtype == "float32" else 1e-7
            difference = max(apart(a, b) for a, b in zip(outs, expected, strict=True))
            yield f"{where}: output", difference, limit
            if dtype == "float64":
                yield f"{where}: gradient", apart(gradient, slope), limit
            if training:
                after = nn.load_torch_state(successor, arrays(module, dtype))
                pairs = zip(tree.leaves(successor), tree.leaves(after), strict=True)
                difference = max(apart(a, b) for a, b in pairs)
                yield f"{where}: state", difference, limit


def main() -> None:
    """Compare the models that are named, or all, and print how far they are apart."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models_agreement", description=__doc__
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all by default")
    failed = []
    for name in parser.parse_args().models or PAIRS:
        start = time.perf_counter()
        results = list(compare(name))
        gc.collect()
        worst = {what: difference for what, difference, _ in results}
        failed += [f"{name}, {what}" for what, difference, limit in results if difference > limit]
        text = ", ".join(f"{what} {difference:.0e}" for what, difference in worst.items())
        print(f"{name} ({time.perf_counter() - start:.0f} s): {text}", flush=True)
    if failed:
        raise SystemExit("too far apart: " + "; ".join(failed))


if __name__ == "__main__":
    main()
