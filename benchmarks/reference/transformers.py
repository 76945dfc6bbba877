"""Layers and stacks of transformers."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.reference import packed

D = torch.float64


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Encoders, decoders and both, with masks, norms first and last; a block of torchvision's."""
    torch.set_default_dtype(D)
    for i, (name, make, shapes, call) in enumerate(_cases()):
        torch.manual_seed(i)
        yield name, packed(_recorded(make(), shapes, **call))
    torch.set_default_dtype(torch.float32)


def _cases() -> Any:
    some = {"dropout": 0.1, "batch_first": True}
    sizes = (4, 2, 3)
    encoder = partial(torch.nn.TransformerEncoderLayer, *sizes, **some)
    decoder = partial(torch.nn.TransformerDecoderLayer, *sizes, **some)
    x, memory = (2, 3, 4), (2, 2, 4)
    later = torch.nn.Transformer.generate_square_subsequent_mask(3) < 0
    padding = torch.tensor([[False, False, True], [False, True, False]])
    masks = {"src_mask": later, "src_key_padding_mask": padding}
    yield "encoder layer", encoder, [x], masks
    first = {"norm_first": True, "activation": "gelu"}
    yield "encoder layer with norms first", partial(encoder, **first), [x], {}
    masks = {"tgt_mask": later, "memory_key_padding_mask": padding[:, 1:]}
    yield "decoder layer", decoder, [x, memory], masks
    yield "decoder layer with norms first", partial(decoder, **first), [x, memory], {}
    stack = partial(torch.nn.Transformer, 4, 2, 1, 1, 3, **some)
    yield "transformer", stack, [memory, x], {"tgt_mask": later}
    yield "vision block", _vision_block, [x], {}


def _vision_block() -> Any:
    try:
        import torchvision.models.vision_transformer as vision
    except RuntimeError as error:  # of an operator that a build of PyTorch lacks
        sys.exit(f"torchvision cannot be imported: {error}")
    norm = partial(torch.nn.LayerNorm, eps=1e-6)
    return vision.EncoderBlock(2, 4, 3, 0.1, 0.1, norm)


def _recorded(layer: Any, shapes: Any, **call: Any) -> dict[str, Any]:
    layer.eval()
    inputs = [_numbers(shape).requires_grad_() for shape in shapes]
    for p in layer.parameters():
        p.data = _numbers(p.shape) / 2
    y = layer(*inputs, **call)
    ct = _numbers(y.shape)
    parameters = dict(layer.named_parameters())
    derivatives = torch.autograd.grad(y, [*inputs, *parameters.values()], ct)
    names = [*(f"in{i}" for i in range(len(inputs))), *(f"p {n}" for n in parameters)]
    parts = dict(zip(names, [*inputs, *parameters.values()], strict=True)) | {"y": y, "ct": ct}
    parts |= {f"mask {n}": m for n, m in call.items()}
    return parts | {f"grad {n}": g for n, g in zip(names, derivatives, strict=True)}


def _numbers(shape: Any) -> Any:
    """Normal numbers on a grid: they take little space."""
    return (torch.randn(shape, dtype=D) * 16).round() / 16
