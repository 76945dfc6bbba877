"""Convolutions, and what is made of them, give what PyTorch's give."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.testing import assert_allclose
from nn.recorded import recorded

CASES = recorded("convolution")
SETTINGS = ("rank", "batch", "inputs", "outputs", "groups", "bias", "mode")
AXES = ("size", "kernel", "stride", "low", "high", "dilation", "more")
MODES = ("zeros", "reflect", "replicate", "circular", "same")
LAYERS = {
    "conv": (nn.Conv, (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
    "conv_transpose": (
        nn.ConvTranspose,
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    ),
}


def rows(family):
    """The settings of each case."""
    for row in CASES[family]["settings"].tolist():
        given = dict(zip(SETTINGS, row, strict=False))
        for i, name in enumerate(AXES):
            start = len(SETTINGS) + 3 * i
            given[name] = tuple(row[start : start + given["rank"]])
        yield given


def arrays(family):
    """The settings of each case, and its arrays: ``x, weight, bias, y, ct`` and gradients."""
    numbers = CASES[family]["sixteenths"] / 16
    start = 0
    for given in rows(family):
        lead = (given["batch"],) * bool(given["batch"])
        channels = given["inputs"], given["outputs"]
        first, second = channels[::-1] if family == "conv" else channels
        weight = (first, second // given["groups"], *given["kernel"])
        x = (*lead, given["inputs"], *given["size"])
        y = (*lead, given["outputs"], *lengths(family, given))
        moving = [x, weight, *[(given["outputs"],)] * given["bias"]]
        found = []
        for shape in (*moving, y, y, *moving):
            count = int(np.prod(shape))
            found.append(numbers[start : start + count].reshape(shape))
            start += count
        yield given, found
    assert start == len(numbers)


def lengths(family, given):
    """The spatial axes of the result."""
    if MODES[given["mode"]] == "same":
        return given["size"]
    axes = zip(*(given[name] for name in AXES), strict=True)
    if family == "conv":
        return [(n + low + high - d * (k - 1) - 1) // s + 1 for n, k, s, low, high, d, _ in axes]
    return [(n - 1) * s - low - high + d * (k - 1) + 1 + m for n, k, s, low, high, d, m in axes]


def layer_of(family, given, weight, bias):
    any_rank, of_rank = LAYERS[family]
    kind = of_rank[given["rank"] - 1] if given["batch"] else any_rank
    mode = MODES[given["mode"]]
    pairs = tuple(zip(given["low"], given["high"], strict=True))
    stride = given["stride"][0] if len(set(given["stride"])) == 1 else given["stride"]
    settings = {"stride": stride, "dilation": given["dilation"], "groups": given["groups"]}
    if family == "conv_transpose":
        return kind(weight, bias, padding=given["low"], output_padding=given["more"], **settings)
    if mode == "same":
        return kind(weight, bias, padding="same", **settings)
    return kind(weight, bias, padding=pairs, padding_mode=mode, **settings)


@pytest.mark.parametrize("family", LAYERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_settings_give_pytorchs_values_and_gradients(family, dtype):
    """The numbers are sixteenths, and few: no result is rounded."""
    for given, found in arrays(family):
        found = [part.astype(dtype) for part in found]
        x, weight, *rest = found
        bias = rest.pop(0) if given["bias"] else None
        y, ct, *derivatives = rest
        layer = layer_of(family, given, weight, bias)
        out, pullback = fdbr.vjp(lambda layer, x: layer(x), layer, x)
        by_layer, by_x = pullback(ct)
        assert out.dtype == by_x.dtype == by_layer.weight.dtype == dtype
        mine = [out, by_x, by_layer.weight] + [by_layer.bias] * given["bias"]
        for one, other in zip(mine, [y, *derivatives], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(given))


def test_the_size_of_a_transposed_result_may_be_given_in_the_place_of_padding():
    for given, (x, weight, *rest) in arrays("conv_transpose"):
        y = rest[given["bias"]]
        layer = layer_of("conv_transpose", given, weight, rest[0] if given["bias"] else None)
        layer = tree.replace(layer, output_padding=0)
        np.testing.assert_array_equal(layer(x, output_size=y.shape[-given["rank"] :]), y)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("unfold")])
def test_windows_are_unfolded_and_folded_as_in_pytorch(case):
    given = CASES[case]
    settings = {
        name: tuple(given[name].tolist())
        for name in ("kernel_size", "padding", "stride", "dilation")
        if name in given
    }
    y = ops.unfold(given["x"], **settings)
    np.testing.assert_array_equal(y, given["y"])
    np.testing.assert_array_equal(ops.fold(y, given["x"].shape[2:], **settings), given["back"])


BLOCKS = {
    "SqueezeExcitation": lambda key: nn.SqueezeExcitation.init(key, 3, 2, dtype="float64"),
    "ConvNeXtBlock": lambda key: nn.ConvNeXtBlock.init(key, 3, dtype="float64"),
    "Inception": lambda key: nn.Inception.init(key, 2, 1, 2, 2, 1, 2, 1, dtype="float64"),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-10), ("float32", 1e-5)])
def test_blocks_take_pytorchs_names_and_give_its_values_and_gradients(name, dtype, rtol):
    given = {key: part.astype(dtype) for key, part in CASES[name].items()}
    others = ("x", "y", "ct")
    state = {k: v for k, v in given.items() if k not in others and not k.startswith("grad ")}
    layer = nn.load_torch_state(BLOCKS[name](random.key(0)), state)
    layer = tree.map(lambda leaf: leaf.astype(dtype), layer)
    y, pullback = fdbr.vjp(lambda layer, x: layer(x), layer, given["x"])
    by_layer, by_x = pullback(given["ct"])
    atol = 10 * rtol
    assert_allclose(y, given["y"], rtol=rtol, atol=atol)
    assert_allclose(by_x, given["grad x"], rtol=rtol, atol=atol)
    derivatives = nn.save_torch_state(by_layer)
    assert set(derivatives) == set(state)
    for key, slope in derivatives.items():
        assert_allclose(slope, given[f"grad {key}"], rtol=rtol, atol=atol)
