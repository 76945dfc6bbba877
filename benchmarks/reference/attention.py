"""Multi-head attention, and attention itself with its masks."""

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.reference import packed

D = torch.float64


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Layers of several settings, with masks of all kinds."""
    for i, (name, make, shapes, call) in enumerate(_layers()):
        torch.manual_seed(i)
        layer = torch.nn.MultiheadAttention(batch_first=True, dtype=D, **make)
        yield f"layer {name}", packed(_recorded(layer, shapes, **call))
    for i, (name, shapes, call) in enumerate(_calls()):
        torch.manual_seed(i)
        yield f"function {name}", packed(_function(shapes, call))


def _layers() -> Any:
    own = {"embed_dim": 4, "num_heads": 2}
    hidden = torch.tensor([[False, True, True], [False, False, True], [True, False, False]])
    padding = torch.tensor([[False, False, True], [False, True, False]])
    each = torch.arange(4 * 9).reshape(4, 3, 3) % 5 == 0
    more = {"add_bias_kv": True, "add_zero_attn": True}
    yield "plain", own, [(2, 3, 4)], {}
    yield "unbatched", own, [(3, 4)], {}
    yield "without bias", {**own, "bias": False}, [(2, 3, 4)], {}
    yield "masked", own, [(2, 3, 4)], {"attn_mask": hidden, "key_padding_mask": padding}
    yield "masked by head", own, [(2, 3, 4)], {"attn_mask": each}
    yield "numbers added", own, [(2, 3, 4)], {"attn_mask": torch.eye(3, dtype=D)}
    yield "more keys", {**own, **more}, [(2, 3, 4)], {"attn_mask": hidden}
    widths = {**own, "kdim": 5, "vdim": 4}
    yield "other widths", widths, [(2, 3, 4), (2, 4, 5), (2, 4, 4)], {}
    yield "memory", own, [(2, 3, 4), (2, 4, 4)], {"average_attn_weights": False}


def _numbers(shape: Any) -> Any:
    """Normal numbers on a grid: they take little space."""
    return (torch.randn(shape, dtype=D) * 16).round() / 16


def _recorded(layer: Any, shapes: Any, **call: Any) -> dict[str, Any]:
    inputs = [_numbers(shape).requires_grad_() for shape in shapes]
    query, key, value = (inputs + inputs[-1:] * 2)[:3]
    for p in layer.parameters():
        p.data = _numbers(p.shape) / 2
    y, weights = layer(query, key, value, **call)
    cts = _numbers(y.shape), _numbers(weights.shape)
    moving = [*inputs, *layer.parameters()]
    names = [f"in{i}" for i in range(len(inputs))] + [n for n, _ in layer.named_parameters()]
    derivatives = torch.autograd.grad((y, weights), moving, cts)
    parts = {"y": y, "weights": weights, "ct": cts[0], "ct of weights": cts[1]}
    parts |= {f"mask {k}": v for k, v in call.items() if hasattr(v, "shape")}
    parts |= dict(zip(names, moving, strict=True))
    return parts | {f"grad {n}": g for n, g in zip(names, derivatives, strict=True)}


def _calls() -> Any:
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    numbers = torch.randn(1, 3, 4, dtype=D).masked_fill(~mask, -torch.inf)
    shapes = [(2, 4, 3, 5), (2, 4, 4, 5), (2, 4, 4, 2)]
    grouped = [(2, 4, 3, 5), (2, 2, 4, 5), (2, 2, 4, 2)]
    yield "plain", shapes, {}
    yield "causal", shapes, {"is_causal": True}
    yield "scaled", shapes, {"scale": 0.1}
    yield "masked", shapes, {"attn_mask": mask}
    yield "numbers", shapes, {"attn_mask": numbers}
    yield "grouped", grouped, {"enable_gqa": True, "is_causal": True}
    yield "no keys", [(2, 3), (0, 3), (0, 2)], {}


def _function(shapes: Any, call: Any) -> dict[str, Any]:
    inputs = [_numbers(shape).requires_grad_() for shape in shapes]
    y = torch.nn.functional.scaled_dot_product_attention(*inputs, **call)
    ct = _numbers(y.shape)
    derivatives = torch.autograd.grad(y, inputs, ct)
    parts = {"y": y, "ct": ct, **{f"in{i}": x for i, x in enumerate(inputs)}}
    return parts | call | {f"grad in{i}": g for i, g in enumerate(derivatives)}
