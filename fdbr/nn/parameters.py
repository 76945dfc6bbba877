"""New parameters of layers: their shapes, their keys, and their initial values."""

from typing import Any

from fdbr import random
from fdbr.errors.checks import integer
from fdbr.nn import initializers

__all__ = ["Init", "affine_parameters", "shape_of", "split_key", "weight_and_bias"]

Init = initializers.Initializer | None


def weight_and_bias(
    key: Any,
    shape: tuple[int, ...],
    outputs: int,
    bias: bool,
    weight_init: Init,
    bias_init: Init,
    dtype: Any,
) -> tuple[Any, Any]:
    """Return a new weight of the shape, and a bias of ``outputs`` elements or `None`.

    By default the weight is drawn from LeCun's normal distribution, and the bias is zero.
    """
    weight_key, bias_key = random.split(key)
    weight = (weight_init or initializers.lecun_normal())(weight_key, shape, dtype)
    if not bias:
        return weight, None
    return weight, (bias_init or initializers.zeros())(bias_key, (outputs,), dtype)


def affine_parameters(
    key: Any,
    shape: tuple[int, ...],
    weight_init: Init,
    bias_init: Init,
    dtype: Any,
    bias: bool,
    weight: bool = True,
) -> tuple[Any, Any]:
    """Return a weight, by default ones, and a bias, by default zeros; either may be `None`."""
    drawn = key is not None and (weight or bias)
    weight_key, bias_key = random.split(key) if drawn else (None, None)
    return (
        (weight_init or initializers.ones())(weight_key, shape, dtype) if weight else None,
        (bias_init or initializers.zeros())(bias_key, shape, dtype) if bias else None,
    )


def shape_of(where: str, name: str, value: Any) -> tuple[int, ...]:
    """Return a shape, which may be given as one positive integer or a sequence of them."""
    lengths = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple([integer(where, name, length, least=1) for length in lengths])


def split_key(key: Any, count: int) -> Any:
    """Split a key into ``count`` keys; without a key, or for no layers, each is `None`."""
    return [None] * count if key is None or not count else random.split(key, count)
