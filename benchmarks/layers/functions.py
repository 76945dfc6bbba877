"""The functions of networks that are timed beside PyTorch's, as layers without parameters."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.layers.rows import MAPS, WORDS, Row

__all__ = ["FUNCTIONS", "both", "row"]

CLASSES = (128, 10_000)
LABELS = np.random.default_rng(2).integers(0, CLASSES[1], CLASSES[0])


def _module(nn: Any, function: Any) -> Any:
    """A module of PyTorch's with a function."""

    class Module(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return Module()


def _theirs(function: Any) -> Any:
    """A function of ``torch`` and the input as what makes a module."""

    def made(nn: Any) -> Any:
        import torch

        return _module(nn, lambda x: function(torch, x))

    return made


def _ours(function: Any) -> Any:
    """A function of ``fdbr`` and the input as what makes a layer."""

    def made(nn: Any, key: Any) -> Any:
        import fdbr

        return nn.Lambda(lambda x: function(fdbr, x))

    return made


def _turned() -> Any:
    """Places in images, turned a little, as ``grid_sample`` takes them."""
    side = np.linspace(-1, 1, 28)
    y, x = np.meshgrid(side, side, indexing="ij")
    grid = np.stack([0.9 * x + 0.3 * y + 0.1, 0.9 * y - 0.3 * x], axis=-1)
    return np.ascontiguousarray(np.broadcast_to(grid, (32, 28, 28, 2)), np.float32)


PLACES = _turned()


def _boxes(count: int, extent: tuple[int, int]) -> Any:
    """Boxes ``xyxy`` with sides from 16 to 200 in an image, and the index of the image."""
    generator = np.random.default_rng(3)
    low = generator.uniform(0, np.array(extent) - 200, (count, 2))
    corners = np.concatenate([low, low + generator.uniform(16, 200, (count, 2))], axis=1)
    return np.concatenate([np.zeros((count, 1)), corners], axis=1).astype(np.float32)


PROPOSALS, CANDIDATES = _boxes(1000, (1088, 800)), _boxes(10_000, (1088, 800))[:, 1:].copy()


def _suppressed(torch: Any, x: Any) -> Any:
    import torchvision

    return x[torchvision.ops.nms(torch.from_numpy(CANDIDATES), x.detach(), 0.5)[:1000]]


def _aligned(ratio: int) -> Any:
    def theirs(torch: Any, x: Any) -> Any:
        import torchvision

        return torchvision.ops.roi_align(x, torch.from_numpy(PROPOSALS), 7, 1 / 16, ratio)

    return theirs


COUNTERPARTS = Path(__file__).parents[2] / "fdbr" / "errors" / "counterparts" / "pytorch.json"


def counterpart(name: str) -> str:
    """The name in ``fdbr.ops`` of a function of ``torch.nn.functional``."""
    found = json.loads(COUNTERPARTS.read_text(encoding="utf-8"))["torch.nn.functional"][name]
    path = found["path"] if isinstance(found, dict) else found
    return path.removeprefix("fdbr.ops.")


def both(name: str, shape: tuple[int, ...], *arguments: Any, **settings: Any) -> Row:
    """A function that both libraries have, by PyTorch's name; arrays stand for tensors."""
    ours = counterpart(name)

    def theirs(torch: Any, x: Any) -> Any:
        given = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        return getattr(torch.nn.functional, name)(x, *given, **settings)

    return row(
        name, shape, lambda fdbr, x: getattr(fdbr.ops, ours)(x, *arguments, **settings), theirs
    )


def row(name: str, shape: tuple[int, ...], ours: Any, theirs: Any, **settings: Any) -> Row:
    """A function of each library, given the library itself and the input."""
    return Row(name, shape, _ours(ours), _theirs(theirs), **settings)


FUNCTIONS = [
    row(
        "softmax over 10,000",
        CLASSES,
        lambda fdbr, x: fdbr.ops.softmax(x),
        lambda torch, x: torch.softmax(x, -1),
    ),
    row(
        "log_softmax over 10,000",
        CLASSES,
        lambda fdbr, x: fdbr.ops.log_softmax(x),
        lambda torch, x: torch.log_softmax(x, -1),
    ),
    row(
        "cross_entropy over 10,000",
        CLASSES,
        lambda fdbr, x: fdbr.ops.cross_entropy(x, LABELS),
        lambda torch, x: torch.nn.functional.cross_entropy(x, torch.from_numpy(LABELS)),
    ),
    row(
        "dropout 0.5",
        MAPS,
        lambda fdbr, x: fdbr.ops.dropout(x, 0.5, key=fdbr.random.key(0)),
        lambda torch, x: torch.nn.functional.dropout(x, 0.5),
        random=True,
    ),
    Row(
        "PReLU 64",
        MAPS,
        lambda nn, key: nn.PReLU.init(key, 64),
        lambda nn: nn.PReLU(64),
    ),
    row(
        "gelu",
        WORDS,
        lambda fdbr, x: fdbr.ops.gelu(x),
        lambda torch, x: torch.nn.functional.gelu(x),
    ),
    row(
        "local_response_norm 5",
        MAPS,
        lambda fdbr, x: fdbr.ops.local_response_norm(x, 5),
        lambda torch, x: torch.nn.functional.local_response_norm(x, 5),
    ),
    row(
        "adaptive_max_pool 7x7",
        MAPS,
        lambda fdbr, x: fdbr.ops.adaptive_max_pool(x, (7, 7)),
        lambda torch, x: torch.nn.functional.adaptive_max_pool2d(x, (7, 7)),
    ),
    row(
        "interpolate bilinear, 2x",
        MAPS,
        lambda fdbr, x: fdbr.ops.interpolate(
            x, scale_factor=2, mode="bilinear", align_corners=False
        ),
        lambda torch, x: torch.nn.functional.interpolate(
            x, scale_factor=2, mode="bilinear", align_corners=False
        ),
    ),
    row(
        "grid_sample bilinear",
        MAPS,
        lambda fdbr, x: fdbr.ops.grid_sample(x, PLACES, align_corners=False),
        lambda torch, x: torch.nn.functional.grid_sample(
            x, torch.from_numpy(PLACES), align_corners=False
        ),
    ),
    row(
        "nms of 10,000 boxes",
        (len(CANDIDATES),),
        lambda fdbr, x: x[
            fdbr.vision.nms(CANDIDATES, x, limit=len(CANDIDATES), box_format="xyxy")[:1000]
        ],
        _suppressed,
    ),
    *(
        row(
            f"ROIAlign 7x7 of 1,000 boxes, {samples}",
            (1, 256, 50, 68),
            lambda fdbr, x, ratio=ratio: fdbr.ops.roi_average_align(x, PROPOSALS, 7, 1 / 16, ratio),
            _aligned(ratio),
        )
        for samples, ratio in (("2x2 samples", 2), ("all elements", -1))
    ),
]
