"""Convolutions, transposed ones, windows, and the blocks that are made of them.

Settings are drawn, hundreds of them; so are arrays, whose elements are quarters, so that sums of
products are exact and the file is small.  A family has two arrays: in ``settings`` a row for each
case, which `SETTINGS` and `AXES` name, and in ``sixteenths`` 16 times all their arrays, one after
the other.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

SETTINGS = ("rank", "batch", "inputs", "outputs", "groups", "bias", "mode")
"""What a row begins with; each axis follows, in three columns at most."""

AXES = ("size", "kernel", "stride", "low", "high", "dilation", "more")
MODES = ("constant", "reflect", "replicate", "circular", "same")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """All families."""
    for name, run, count in (("conv", _conv, 105), ("conv_transpose", _transposed, 80)):
        draw = np.random.default_rng(len(name))
        rows: list[Any] = []
        numbers: list[Any] = []
        while len(rows) < count:
            row = _drawn(draw, transposed=name == "conv_transpose")
            arrays = run(draw, row)
            if arrays is not None:
                rows.append(_flat(row))
                numbers += [np.ravel(part.detach().numpy()) for part in arrays]
        whole = 16 * np.concatenate(numbers)
        assert (whole == whole.astype(np.int16)).all()
        yield name, {"settings": np.array(rows, np.int8), "sixteenths": whole.astype(np.int16)}
    yield from _blocks()


def _drawn(draw: Any, transposed: bool) -> dict[str, Any]:
    """The settings of a case."""
    rank = int(draw.integers(1, 4))
    groups = int(draw.integers(1, 4))
    most = (8, 5, 3)[rank - 1]
    row: dict[str, Any] = {"rank": rank, "batch": int(draw.integers(0, 3)), "groups": groups}
    row["inputs"] = groups * int(draw.integers(1, 3))
    row["outputs"] = groups * int(draw.integers(1, 3))
    row["bias"] = int(draw.integers(0, 2))
    row["mode"] = 0 if transposed or draw.random() < 0.6 else int(draw.integers(1, len(MODES)))
    row["size"] = draw.integers(1, most + 1, rank).tolist()
    row["kernel"] = draw.integers(1, (5, 4, 3)[rank - 1], rank).tolist()
    row["dilation"] = draw.integers(1, 3, rank).tolist()
    row["stride"] = draw.integers(1, 4, rank).tolist()
    row["low"] = draw.integers(0, 3, rank).tolist()
    row["high"] = row["low"] if transposed or draw.random() < 0.5 else draw.integers(0, 3, rank)
    row["more"] = [int(draw.integers(0, stride)) for stride in row["stride"]]
    if MODES[row["mode"]] == "same":
        row["stride"] = [1] * rank
    return row


def _of(row: dict[str, Any], names: str) -> list[Any]:
    return [row[name] for name in names.split()]


def _flat(row: dict[str, Any]) -> list[int]:
    axes = [[*row[name], *[0] * (3 - row["rank"])] for name in AXES]
    return [row[name] for name in SETTINGS] + [int(n) for axis in axes for n in axis]


def _quarters(draw: Any, *shape: int) -> torch.Tensor:
    """Multiples of a quarter, whose gradients are wanted."""
    return torch.tensor(draw.integers(-4, 5, shape) / 4, dtype=torch.float64, requires_grad=True)


def _with_derivatives(draw: Any, y: torch.Tensor, moving: list[torch.Tensor]) -> list[torch.Tensor]:
    """The arrays, the result, a cotangent, and the gradients."""
    ct = _quarters(draw, *y.shape)
    return [*moving, y, ct, *torch.autograd.grad(y, moving, ct)]


def _conv(draw: Any, row: dict[str, Any]) -> list[torch.Tensor] | None:
    rank, mode = row["rank"], MODES[row["mode"]]
    pairs = list(zip(row["low"], row["high"], strict=True))
    sides = [side for pair in pairs[::-1] for side in pair]  # the last axis first
    axes = list(zip(*_of(row, "size kernel dilation low high"), strict=True))
    extents = [d * (k - 1) + 1 for _, k, d, _, _ in axes]
    if mode != "same" and any(
        n + low + high < e for (n, _, _, low, high), e in zip(axes, extents, strict=True)
    ):
        return None
    if mode in ("reflect", "circular"):
        most = 1 if mode == "reflect" else 0
        if any(max(low, high) > n - most for n, _, _, low, high in axes):
            return None
    lead = (row["batch"],) if row["batch"] else ()
    x = _quarters(draw, *lead, row["inputs"], *row["size"])
    weight = _quarters(draw, row["outputs"], row["inputs"] // row["groups"], *row["kernel"])
    bias = _quarters(draw, row["outputs"]) if row["bias"] else None
    function = getattr(functional, f"conv{rank}d")
    settings = {"stride": row["stride"], "dilation": row["dilation"], "groups": row["groups"]}
    if mode == "same":
        y = function(x, weight, bias, padding="same", **settings)
    else:
        whole = x if lead else x[None]
        padded = functional.pad(whole, sides, mode=mode)
        y = function(padded if lead else padded[0], weight, bias, **settings)
    return _with_derivatives(draw, y, [x, weight] + ([bias] if row["bias"] else []))


def _transposed(draw: Any, row: dict[str, Any]) -> list[torch.Tensor] | None:
    rank = row["rank"]
    axes = zip(*_of(row, "size kernel dilation stride low more"), strict=True)
    lengths = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + m for n, k, d, s, p, m in axes]
    if min(lengths) < 1 or math.prod(lengths) > 300:
        return None
    lead = (row["batch"],) if row["batch"] else ()
    x = _quarters(draw, *lead, row["inputs"], *row["size"])
    weight = _quarters(draw, row["inputs"], row["outputs"] // row["groups"], *row["kernel"])
    bias = _quarters(draw, row["outputs"]) if row["bias"] else None
    y = getattr(functional, f"conv_transpose{rank}d")(
        x,
        weight,
        bias,
        stride=row["stride"],
        padding=row["low"],
        output_padding=row["more"],
        groups=row["groups"],
        dilation=row["dilation"],
    )
    return _with_derivatives(draw, y, [x, weight] + ([bias] if row["bias"] else []))


# --- blocks -------------------------------------------------------------------------


class _SqueezeExcitation(torch.nn.Module):
    """As in torchvision."""

    def __init__(self, channels: int, inside: int) -> None:
        super().__init__()
        self.fc1 = torch.nn.Conv2d(channels, inside, 1)
        self.fc2 = torch.nn.Conv2d(inside, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.fc2(torch.relu(self.fc1(functional.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(scale)


class _ConvNeXtBlock(torch.nn.Module):
    """As in torchvision."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer_scale = torch.nn.Parameter(torch.linspace(-1, 1, dim).reshape(dim, 1, 1))
        self.block = torch.nn.ModuleDict(
            {
                "0": torch.nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
                "2": torch.nn.LayerNorm(dim, eps=1e-6),
                "3": torch.nn.Linear(dim, 4 * dim),
                "5": torch.nn.Linear(4 * dim, dim),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = self.block["2"](self.block["0"](x).permute(0, 2, 3, 1))
        inside = self.block["5"](functional.gelu(self.block["3"](inside)))
        return x + self.layer_scale * inside.permute(0, 3, 1, 2)


class _Inception(torch.nn.Module):
    """As in Chainer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(2, 1, 1)
        self.proj3 = torch.nn.Conv2d(2, 2, 1)
        self.conv3 = torch.nn.Conv2d(2, 2, 3, padding=1)
        self.proj5 = torch.nn.Conv2d(2, 1, 1)
        self.conv5 = torch.nn.Conv2d(1, 2, 5, padding=2)
        self.projp = torch.nn.Conv2d(2, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [
            self.conv1(x),
            self.conv3(torch.relu(self.proj3(x))),
            self.conv5(torch.relu(self.proj5(x))),
            self.projp(functional.max_pool2d(x, 3, stride=1, padding=1)),
        ]
        return torch.relu(torch.cat(parts, 1))


def _blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    torch.manual_seed(3)
    for name, layer, shape in (
        ("SqueezeExcitation", _SqueezeExcitation(3, 2), (2, 3, 3, 2)),
        ("ConvNeXtBlock", _ConvNeXtBlock(3), (2, 3, 4, 5)),
        ("Inception", _Inception(), (2, 2, 4, 3)),
    ):
        layer.double()
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        y = layer(x)
        ct = torch.randn(y.shape, dtype=torch.float64)
        parameters = dict(layer.named_parameters())
        derivatives = torch.autograd.grad(y, [x, *parameters.values()], ct)
        parts = {"x": x, "y": y, "ct": ct, **parameters}
        parts |= {f"grad {n}": g for n, g in zip(["x", *parameters], derivatives, strict=True)}
        yield name, parts
    for size, settings in (
        ((5, 4), {"kernel_size": (3, 2), "padding": (1, 0), "stride": (2, 1)}),
        ((7, 3), {"kernel_size": (2, 3), "dilation": (3, 1), "padding": (0, 1)}),
    ):
        x = _quarters(np.random.default_rng(1), 2, 2, *size)
        y = functional.unfold(x, **settings)
        back = functional.fold(y, size, **settings)
        yield (
            f"unfold {size[0]}",
            {
                "x": x,
                "y": y,
                "back": back,
                **{key: np.array(value) for key, value in settings.items()},
            },
        )
