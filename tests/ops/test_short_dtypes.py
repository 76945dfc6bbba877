"""Every operation in floating dtypes of 16 bits: values, derivatives, and their dtypes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops, tree
from ops.cases import CASES, Case, few
from ops.short import SHORT, eps, every_short_dtype, wide


def dtypes(out: Any) -> list[Any]:
    return [getattr(leaf, "dtype", type(leaf)) for leaf in tree.leaves(out)]


def inexact(values: Any) -> list[Any]:
    """The floating and complex leaves."""
    return tree.leaves(tree.trainable(values))


def derivatives(function: Any, args: Any) -> tuple[Any, Any, Any]:
    """The value, the gradients by the floating arguments, and the tangents with all moved."""
    value, pullback = fdbr.vjp(lambda args: function(*args), args)
    ones = tree.map(lambda x: np.ones_like(x)[()] if inexact(x) else None, value)
    moves = [np.ones_like(x) if inexact(x) else None for x in args]
    return value, pullback(ones)[0], fdbr.jvp(function, args, moves)[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", {case.op: case for case in CASES}.values(), ids=repr)
def test_operations_are_differentiated_in_dtypes_of_16_bits(case: Case) -> None:
    @few(8)
    @given(case.arguments)
    def check(args: Any) -> None:
        for dtype in SHORT:
            in_dtype(case, dtype, args)

    check()


def in_dtype(case: Case, dtype: Any, args: Any) -> None:
    args = tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in args)
    exact = tuple(wide(x) if x.dtype == dtype else x for x in args)
    try:
        value = case.function(*args)
    except (TypeError, ValueError) as error:
        if not str(error).startswith("fdbr."):
            raise
        return  # NumPy refuses it, too
    if not inexact(value) or not inexact(args):
        return
    traced, grads, tangents = derivatives(case.function, args)
    assert dtypes(traced) == dtypes(value)
    _, right, moved = derivatives(case.function, exact)
    rough = 30 * eps(dtype)
    for x, found, expected in zip(args, grads, right, strict=True):
        if found is not None:
            assert found.dtype == x.dtype
            close(found, expected, rough)
    for found, expected in zip(inexact(tangents), inexact(moved), strict=True):
        close(found, expected, rough)


def close(found: Any, expected: Any, rough: float) -> None:
    size = np.max(np.abs(expected), initial=0.1)
    if size < 6e4:
        np.testing.assert_allclose(wide(found), expected, rough, rough * size)


ROWS = np.linspace(-2, 2, 12).reshape(3, 4)
IMAGE = ROWS.reshape(1, 2, 3, 2)
KEY = fdbr.random.key(3)

FUNCTIONS_OF_NETWORKS = {
    "threshold": lambda x, image: ops.threshold(x, -1.0, np.float64(-3.0)),
    "gelu": lambda x, image: ops.gelu(x, approximate=True) + ops.gelu(x),
    "softplus": lambda x, image: ops.softplus(x, 3.0, threshold=2.0),
    "bilinear": lambda x, image: ops.bilinear(x, x, ops.concat([x, x[:1]])[None]),
    "adaptive pooling": lambda x, image: ops.adaptive_avg_pool(image, (2, 2)),
    "pointwise convolution": lambda x, image: ops.conv(image, image[:, :, :1, :1], x[0, :1]),
    "its transpose": lambda x, image: ops.conv_transpose(image, image[0, :, :1, :1, None]),
    "attention": lambda x, image: ops.scaled_dot_product_attention(x, x, x, causal=True),
    "grouped attention": lambda x, image: ops.scaled_dot_product_attention(
        ops.stack([x, x]), x[None], x[None], enable_gqa=True
    ),
    "dropout": lambda x, image: ops.dropout(x, 0.3, key=KEY),
    "spatial_dropout": lambda x, image: ops.spatial_dropout(image, 0.3, key=KEY),
    "drop_path": lambda x, image: ops.drop_path(x, 0.3, key=KEY),
    "alpha_dropout": lambda x, image: ops.alpha_dropout(x, 0.3, key=KEY),
    "gaussian_dropout": lambda x, image: ops.gaussian_dropout(x, 0.3, key=KEY),
    "simplified_dropconnect": lambda x, image: ops.simplified_dropconnect(x, x, rate=0.3, key=KEY),
    "rrelu": lambda x, image: ops.rrelu(x, key=KEY),
    "gaussian": lambda x, image: ops.gaussian(x, x, key=KEY),
    "gumbel_softmax": lambda x, image: ops.gumbel_softmax(x, 0.7, key=KEY),
    "lerp": lambda x, image: ops.lerp(x, 0.5, 0.25) + ops.lerp(0.5, x, x),
}


@every_short_dtype
@pytest.mark.parametrize("name", FUNCTIONS_OF_NETWORKS)
def test_functions_of_networks_keep_dtypes_of_16_bits(name: str, dtype: Any) -> None:
    f = FUNCTIONS_OF_NETWORKS[name]
    x, image = ROWS.astype(dtype), IMAGE.astype(dtype)
    for found in (f, fdbr.jit(f)):
        assert found(x, image).dtype == x.dtype
    close(f(x, image), f(wide(x), wide(image)), 4 * eps(dtype))
    gradient = fdbr.grad(lambda x, image: ops.sum(f(x, image)), argnums=(0, 1))
    assert {g.dtype for g in gradient(x, image)} == {x.dtype}
    assert f(x.astype("float32"), image.astype("float32")).dtype == np.float32
