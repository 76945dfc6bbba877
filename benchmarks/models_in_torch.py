"""Plain modules of PyTorch for models that torchvision does not have."""

from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torchvision.models.googlenet import BasicConv2d, GoogLeNet, Inception, InceptionAux
from torchvision.models.resnet import Bottleneck, ResNet

__all__ = ["BERT", "GPT2", "Biased", "chainer_googlenet", "chainer_resnet50", "se_resnet"]

DEPTHS = {"50": [3, 4, 6, 3], "101": [3, 4, 23, 3], "152": [3, 8, 36, 3]}


class Excited(Bottleneck):
    """A bottleneck with squeeze and excitation before the addition."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        channels = self.conv3.out_channels
        self.se = torchvision.ops.SqueezeExcitation(channels, channels // 16)

    def forward(self, x: Any) -> Any:
        """The block's output."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.se(self.bn3(self.conv3(y)))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def se_resnet(name: str, classes: int) -> Any:
    """SE-ResNet or SE-ResNeXt of a depth, as SEResNet50."""
    groups = {"groups": 32, "width_per_group": 4} if "NeXt" in name else {}
    depth = name.removeprefix("SEResNet").removeprefix("SEResNeXt")
    return ResNet(Excited, DEPTHS[depth], num_classes=classes, **groups)


def chainer_resnet50(classes: int) -> Any:
    """ResNet-50 as Chainer has it."""
    model = in_chainers_way(ResNet(Bottleneck, DEPTHS["50"], num_classes=classes))
    model.conv1 = nn.Conv2d(3, 64, 7, 2, 3)
    return model


def in_chainers_way(model: Any) -> Any:
    """A residual network with Chainer's settings, but for the bias of the first layer."""
    model.maxpool = nn.MaxPool2d(3, 2, ceil_mode=True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 2e-5
        if isinstance(module, Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
    return model


class Biased(BasicConv2d):
    """A convolution with a bias and no batch normalisation, of a share of the channels."""

    part = 1

    def __init__(self, inputs: int, outputs: int, **settings: Any) -> None:
        nn.Module.__init__(self)
        inputs = inputs if inputs == 3 else inputs // self.part
        self.conv = nn.Conv2d(inputs, outputs // self.part, **settings)

    def forward(self, x: Any) -> Any:
        """The rectified result."""
        return functional.relu(self.conv(x))


class Wide(Inception):
    """A block whose third branch has windows of 5 by 5."""

    def __init__(self, inputs: int, *channels: int) -> None:
        super().__init__(inputs, *channels, conv_block=Biased)
        self.branch3[1] = Biased(channels[3], channels[4], kernel_size=5, padding=2)


class Head(InceptionAux):
    """An auxiliary head with a pooling of its own, and no dropout."""

    def __init__(self, inputs: int, classes: int, **_: Any) -> None:
        super().__init__(inputs, classes, conv_block=Biased, dropout=0.0)

    def forward(self, x: Any) -> Any:
        """The logits."""
        x = self.conv(functional.avg_pool2d(x, 5, 3)).flatten(1)
        return self.fc2(functional.relu(self.fc1(x)))


class Caffe(GoogLeNet):
    """GoogLeNet as in the paper, in Caffe and in Chainer."""

    def __init__(self, classes: int) -> None:
        blocks = [Biased, Wide, Head]
        super().__init__(classes, init_weights=False, blocks=blocks, dropout=0.0)
        norm = nn.LocalResponseNorm(5)
        first, second = (nn.MaxPool2d(3, 2, ceil_mode=True) for _ in range(2))
        self.maxpool1: Any = nn.Sequential(first, norm)
        self.maxpool2: Any = nn.Sequential(norm, second)
        self.maxpool4 = nn.MaxPool2d(3, 2, ceil_mode=True)


def chainer_googlenet(classes: int) -> Any:
    """GoogLeNet as Chainer has it."""
    torch.manual_seed(0)
    return Caffe(classes)


class Conv1D(nn.Module):
    """The fully connected layer as it lies in GPT-2's files."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Any) -> Any:
        """The output."""
        return x @ self.weight + self.bias


def _heads(x: Any, heads: int) -> Any:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attended(query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Attention of heads, by its formula."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    seen = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value
    return seen.transpose(1, 2).flatten(2)


def _named(**parts: Any) -> nn.ModuleDict:
    return nn.ModuleDict(parts)


class GPT2(nn.Module):
    """GPT-2, without dropout, with Hugging Face's names."""

    def __init__(self, tokens: int, places: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        blocks = [
            _named(
                ln_1=nn.LayerNorm(width),
                attn=_named(c_attn=Conv1D(width, 3 * width), c_proj=Conv1D(width, width)),
                ln_2=nn.LayerNorm(width),
                mlp=_named(c_fc=Conv1D(width, 4 * width), c_proj=Conv1D(4 * width, width)),
            )
            for _ in range(layers)
        ]
        self.transformer = _named(
            wte=nn.Embedding(tokens, width),
            wpe=nn.Embedding(places, width),
            h=nn.ModuleList(blocks),
            ln_f=nn.LayerNorm(width),
        )
        self.lm_head = nn.Linear(width, tokens, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens: Any) -> Any:
        """The logits."""
        of: Any = self.transformer
        length = tokens.shape[1]
        past = torch.ones(length, length, dtype=torch.bool).tril()
        x = of["wte"](tokens) + of["wpe"](torch.arange(length))
        for block in of["h"]:
            parts = block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1)
            query, key, value = (_heads(part, self.heads) for part in parts)
            x = x + block["attn"]["c_proj"](_attended(query, key, value, past))
            wide = functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x)), approximate="tanh")
            x = x + block["mlp"]["c_proj"](wide)
        return self.lm_head(of["ln_f"](x))


class BERT(nn.Module):
    """BERT, without dropout, with Hugging Face's names."""

    def __init__(
        self, tokens: int, places: int, width: int, inner: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.embeddings = _named(
            word_embeddings=nn.Embedding(tokens, width),
            position_embeddings=nn.Embedding(places, width),
            token_type_embeddings=nn.Embedding(2, width),
            LayerNorm=nn.LayerNorm(width, eps=1e-12),
        )
        blocks = [
            _named(
                attention=_named(
                    self=_named(**{n: nn.Linear(width, width) for n in ("query", "key", "value")}),
                    output=_named(
                        dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps=1e-12)
                    ),
                ),
                intermediate=_named(dense=nn.Linear(width, inner)),
                output=_named(
                    dense=nn.Linear(inner, width), LayerNorm=nn.LayerNorm(width, eps=1e-12)
                ),
            )
            for _ in range(layers)
        ]
        self.encoder = _named(layer=nn.ModuleList(blocks))
        self.pooler = _named(dense=nn.Linear(width, width))

    def forward(self, tokens: Any, mask: Any, types: Any) -> tuple[Any, Any]:
        """The features of all tokens, and of the first one through the pooler."""
        of: Any = self.embeddings
        x = of["word_embeddings"](tokens) + of["token_type_embeddings"](types)
        x = of["LayerNorm"](x + of["position_embeddings"](torch.arange(tokens.shape[1])))
        blocks: Any = self.encoder["layer"]
        for block in blocks:
            inner = block["attention"]["self"]
            query, key, value = (
                _heads(inner[name](x), self.heads) for name in ("query", "key", "value")
            )
            seen = _attended(query, key, value, mask[:, None, None, :].bool())
            out = block["attention"]["output"]
            x = out["LayerNorm"](x + out["dense"](seen))
            wide = functional.gelu(block["intermediate"]["dense"](x))
            x = block["output"]["LayerNorm"](x + block["output"]["dense"](wide))
        pooled: Any = self.pooler["dense"]
        return x, pooled(x[:, 0]).tanh()
