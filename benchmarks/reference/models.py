"""Small models of each family: torchvision's, and plain ones where it has none."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.googlenet import BasicConv2d, GoogLeNet, Inception, InceptionAux
from torchvision.models.mobilenetv2 import mobilenet_v2
from torchvision.models.mobilenetv3 import mobilenet_v3_large, mobilenet_v3_small
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.vgg import VGG, make_layers
from torchvision.models.vision_transformer import VisionTransformer

from benchmarks import models_in_torch
from benchmarks.named_weights import named_weights, numbers

CLASSES = 5


def _vgg(batch_norm: bool) -> Any:
    channels = [4, "M", 8, "M", 16, 16, "M", 32, 32, "M", 32, 32, "M"]
    model = VGG(make_layers(channels, batch_norm), init_weights=False)
    layers = [nn.Linear(32 * 49, 16), nn.ReLU(), nn.Identity()]
    model.classifier = nn.Sequential(
        *layers, nn.Linear(16, 16), nn.ReLU(), nn.Identity(), nn.Linear(16, CLASSES)
    )
    return model


def _resnet(block: Any, depths: list[int], **groups: int) -> Any:
    model = ResNet(block, [1, 1, 1, 1], **groups)
    model.inplanes = 8
    model.conv1, model.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
    for stage, depth in enumerate(depths):
        layer = model._make_layer(block, 8 * 2**stage, depth, stride=1 + bool(stage))
        setattr(model, f"layer{stage + 1}", layer)
    model.fc = nn.Linear(model.inplanes, CLASSES)
    return model


def _chainer_resnet() -> Any:
    model = models_in_torch.in_chainers_way(_resnet(Bottleneck, [1, 1, 1, 1]))
    model.conv1 = nn.Conv2d(3, 8, 7, 2, 3)
    return model


class _Narrow(BasicConv2d):
    """A convolution with an eighth of the channels."""

    def __init__(self, inputs: int, outputs: int, **settings: Any) -> None:
        super().__init__(inputs if inputs == 3 else inputs // 8, outputs // 8, **settings)


class _NarrowBlock(Inception):
    def __init__(self, *channels: int) -> None:
        super().__init__(*channels, conv_block=_Narrow)


class _NarrowHead(InceptionAux):
    def __init__(self, inputs: int, classes: int, **_: Any) -> None:
        super().__init__(inputs, classes, conv_block=_Narrow, dropout=0.0)
        self.fc1, self.fc2 = nn.Linear(256, 128), nn.Linear(128, classes)


def _googlenet() -> Any:
    blocks = [_Narrow, _NarrowBlock, _NarrowHead]
    model = GoogLeNet(CLASSES, init_weights=False, blocks=blocks, dropout=0.0)
    model.fc = nn.Linear(128, CLASSES)
    return model


def _chainer_googlenet() -> Any:
    models_in_torch.Biased.part = 8
    model = models_in_torch.chainer_googlenet(CLASSES)
    models_in_torch.Biased.part = 1
    model.aux1 = model.aux2 = None
    model.aux_logits = False
    model.fc = nn.Linear(128, CLASSES)
    return model


class _Same(nn.Conv2d):
    """A convolution padded as in TensorFlow."""

    def forward(self, x: Any) -> Any:
        pads = []
        for n, k, s in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            pads += [total // 2, total - total // 2]
        return self._conv_forward(functional.pad(x, pads), self.weight, self.bias)


def _chainer_mobilenet() -> Any:
    model = mobilenet_v2(num_classes=CLASSES, width_mult=0.25, dropout=0.0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.__class__, module.padding = _Same, (0, 0)
        if isinstance(module, nn.BatchNorm2d):
            module.eps, module.momentum = 1e-3, 1e-3
    model.classifier = nn.Sequential(nn.Identity(), nn.Conv2d(1280, CLASSES, 1), nn.Flatten())
    model._forward_impl = lambda x: model.classifier(model.features(x).mean((2, 3), keepdim=True))
    return model


def _convnext() -> Any:
    settings = [(4, 8, 1), (8, 16, 1), (16, 32, 2), (32, None, 1)]
    return ConvNeXt([CNBlockConfig(*s) for s in settings], num_classes=CLASSES)


IMAGES: dict[str, tuple[Any, int]] = {
    "VGG11": (lambda: _vgg(False), 32),
    "VGG11 with batch_norm": (lambda: _vgg(True), 33),
    "ResNet18": (lambda: _resnet(BasicBlock, [2, 2, 2, 2]), 32),
    "ResNet50": (lambda: _resnet(Bottleneck, [1, 2, 1, 1]), 33),
    "ResNet50 of Chainer": (_chainer_resnet, 45),
    "ResNeXt50_32x4d": (
        lambda: _resnet(Bottleneck, [1, 2, 1, 1], groups=4, width_per_group=32),
        32,
    ),
    "SEResNet50": (lambda: _resnet(models_in_torch.Excited, [1, 2, 1, 1]), 32),
    "GoogLeNet": (_googlenet, 65),
    "GoogLeNet of Chainer": (_chainer_googlenet, 49),
    "MobileNetV2": (
        lambda: mobilenet_v2(num_classes=CLASSES, width_mult=0.25, dropout=0.0),
        33,
    ),
    "MobileNetV2 of Chainer": (_chainer_mobilenet, 38),
    "MobileNet_V3_Large": (
        lambda: mobilenet_v3_large(num_classes=CLASSES, width_mult=0.25, dropout=0.0),
        33,
    ),
    "MobileNet_V3_Small": (
        lambda: mobilenet_v3_small(num_classes=CLASSES, width_mult=0.25, dropout=0.0),
        32,
    ),
    "ConvNeXt_Tiny": (_convnext, 37),
    "ViT_B_16": (lambda: VisionTransformer(24, 8, 2, 2, 12, 20, num_classes=CLASSES), 24),
}
"""PyTorch's model, and how many pixels a side the images have."""


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Outputs, some gradients, and in training a sum of each of the running statistics."""
    for name, (make, size) in IMAGES.items():
        module = _filled(make())
        for training in (False, True):
            module.train(training)
            x = torch.from_numpy(numbers(name, (3, 3, size, size))).requires_grad_(True)
            outs = module(x)
            outs = list(outs) if isinstance(outs, tuple) else [outs]
            (slope,) = torch.autograd.grad(sum((out**2).sum() for out in outs), x)
            parts = [*outs, slope[:, :, ::9, ::9]]
            if training:
                parts += [
                    (value * torch.from_numpy(numbers(key, value.shape))).sum()
                    for key, value in module.named_buffers()
                    if "running" in key
                ]
            yield f"{name}, {'training' if training else 'evaluation'}", _joined(parts)
    yield from _texts()


def _texts() -> Iterator[tuple[str, dict[str, Any]]]:
    tokens = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    gpt2 = _filled(models_in_torch.GPT2(11, 8, 12, 2, 3))
    table = gpt2.transformer["wte"].weight
    y = gpt2(tokens)
    (slope,) = torch.autograd.grad((y**2).sum(), table)
    yield "GPT2", _joined([y, slope])
    bert = _filled(models_in_torch.BERT(11, 8, 12, 20, 2, 3))
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    types = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
    ys = bert(tokens, mask, types)
    (slope,) = torch.autograd.grad(
        sum((y**2).sum() for y in ys), bert.embeddings["word_embeddings"].weight
    )
    yield "BERT", _joined([*ys, slope])


def _joined(parts: Any) -> dict[str, Any]:
    """All numbers one after the other."""
    return {"values": torch.cat([part.detach().reshape(-1) for part in parts])}


def _filled(module: Any) -> Any:
    """A module with weights by their names."""
    module = module.double()
    state = named_weights({name: value.shape for name, value in module.state_dict().items()})
    if "lm_head.weight" in state:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    return module
