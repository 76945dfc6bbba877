"""Models of `fdbr.nn.models` beside torchvision's, with the same random weights.

``python -m benchmarks.models_agreement`` compares all, with names those of some: outputs in
float32 (to 1e-4, or three times as far as PyTorch's are from its own in float64), outputs and
gradients by the input in float64 (to 1e-7), in evaluation and in training, where nothing is drawn
by chance, and then the running statistics too.  Numbers are the largest difference beside the
largest number.  SE-ResNets, Chainer's variants, BERT and GPT-2 are
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

__all__ = ["PAIRS", "TEXTS", "compare", "main"]

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


TEXTS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "GPT2": (
        lambda: models_in_torch.GPT2(50257, 1024, 768, 12, 12),
        {},
        "wte",
    ),
    "BERT": (
        lambda: models_in_torch.BERT(30522, 512, 768, 3072, 12, 12),
        {},
        "word_embeddings",
    ),
}
"""PyTorch's model, the arguments of fdbr's, and its table of tokens."""


def free(key: Any, shape: Any, dtype: Any) -> Any:
    """Weights that take no memory, for a model that is filled from elsewhere."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def shaken(module: Any) -> Any:
    """A module of PyTorch with no number left at its default."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            elif name.endswith("layer_scale"):
                value.uniform_(0.2, 0.6)
            elif value.is_floating_point() and value.ndim < 2:
                value.add_(0.1 * torch.randn(value.shape))
            elif value.is_floating_point() and not value.any():
                value.normal_(0, 0.05)
            if name.endswith("bn3.weight"):  # or values grow from block to block, and errors too
                value.mul_(0.3)
    return module.requires_grad_(False)


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
    """The name, the difference and the bound of each comparison."""
    return _compare_texts(name) if name in TEXTS else _compare_images(name)


def _compare_images(name: str) -> Iterator[tuple[str, float, float]]:
    make, settings, size = PAIRS[name]
    module = shaken(make()).double()
    kind = getattr(nn.models, name.split()[0])
    images = np.random.default_rng(1).normal(size=(IMAGES, 3, size, size))

    def loaded(dtype: str) -> Any:
        empty = kind.init(fdbr.random.key(0), 10, weight_init=free, dtype=dtype, **settings)
        return nn.load_torch_state(empty, arrays(module, dtype))

    model = loaded("float64")
    for training in (False, True):
        module.train(training)
        outs, gradient, successor = fdbr_run(model, images, training)
        expected, slope = torch_run(module, images)
        where = "training" if training else "evaluation"
        difference = max(apart(a, b) for a, b in zip(outs, expected, strict=True))
        yield f"{where}: output", difference, 1e-7
        yield f"{where}: gradient", apart(gradient, slope), 1e-7
        if not training:
            module, images = module.eval().float(), images.astype("float32")
            with torch.no_grad():
                theirs = module(torch.from_numpy(images)).numpy()
            ours = loaded("float32")(images)
            bound = max(1e-4, 3 * apart(theirs, expected[0]))
            yield "in float32", apart(ours, theirs), bound
            module, images = module.double(), images.astype("float64")
            model = loaded("float64")
    after = nn.load_torch_state(successor, arrays(module, "float64"))
    pairs = zip(tree.leaves(successor), tree.leaves(after), strict=True)
    yield "state", max(apart(a, b) for a, b in pairs), 1e-7


def _compare_texts(name: str) -> Iterator[tuple[str, float, float]]:
    make, settings, table = TEXTS[name]
    module = shaken(make())
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, 1000, (2, 24))
    inputs = [tokens]
    if name == "BERT":
        inputs += [(generator.random(tokens.shape) > 0.2).astype(int), tokens % 2]
    for dtype in ("float32", "float64"):
        module = module.to(getattr(torch, dtype))
        empty = getattr(nn.models, name).init(
            fdbr.random.key(0), weight_init=free, dtype=dtype, **settings
        )
        model = nn.load_torch_state(empty, arrays(module, dtype))
        (weight,) = (v for n, v in module.named_parameters() if n.endswith(f"{table}.weight"))
        weight.requires_grad_(True)
        expected = _listed(module(*map(torch.from_numpy, inputs)))
        total = sum((out * _weights(out)).sum() for out in expected)
        (slope,) = torch.autograd.grad(total, [weight])

        def total_of(rows: Any, model: Any = model) -> Any:
            outs = _listed(tree.replace(model, **{table: nn.Embed(rows)})(*inputs))
            value = sum((out * ops.asarray(_weights(out), dtype=out.dtype)).sum() for out in outs)
            return value, outs

        rows = getattr(model, table).weight
        (_, outs), gradient = fdbr.value_and_grad(total_of, has_aux=True)(rows)
        pairs = zip(outs, expected, strict=True)
        bound = 1e-4 if dtype == "float32" else 1e-7
        yield f"{dtype}: output", max(apart(a, b.detach()) for a, b in pairs), bound
        if dtype == "float64":
            yield f"{dtype}: gradient", apart(gradient, slope), bound


def main() -> None:
    """Compare the models that are named, or all, and print how far they are apart."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models_agreement", description=__doc__
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all by default")
    failed = []
    for name in parser.parse_args().models or [*PAIRS, *TEXTS]:
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
