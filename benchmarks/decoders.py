"""Parts of transformers that the workloads share: blocks of attention and of perceptrons."""

from typing import Any

__all__ = ["linear", "normed", "torch_hidden"]


def linear(x: Any, pair: Any) -> Any:
    """A layer with weight and bias, for modules that are like NumPy."""
    weight, bias = pair
    return x @ weight.T + bias


def normed(np: Any, x: Any, pair: Any) -> Any:
    """Layer norm with scale and shift, for modules that are like NumPy."""
    scale, shift = pair
    away = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(away * away, axis=-1, keepdims=True)
    return away / np.sqrt(variance + 1e-5) * scale + shift


def torch_hidden(parameters: Any, tokens: Any, heads: int) -> Any:
    """The last hidden values of a decoder, normed, with `torch.nn.functional`."""
    from torch.nn.functional import (
        embedding,
        gelu,
        layer_norm,
        linear,
        scaled_dot_product_attention,
    )

    def normed(x: Any, pair: Any) -> Any:
        return layer_norm(x, x.shape[-1:], *pair)

    def block(of: dict[str, Any], x: Any) -> Any:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, heads, -1).transpose(1, 2)
            for part in linear(normed(x, of["norm"]), *of["attention"]).chunk(3, dim=-1)
        )
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + linear(seen.transpose(1, 2).reshape(batch, length, width), *of["mix"])
        wide = gelu(linear(normed(x, of["second_norm"]), *of["widen"]), approximate="tanh")
        return x + linear(wide, *of["narrow"])

    x = embedding(tokens, parameters["tokens"]) + parameters["positions"][: tokens.shape[1]]
    for of in parameters["blocks"]:
        x = block(of, x)
    return normed(x, parameters["norm"])
