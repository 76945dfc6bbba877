"""What is timed: one module a workload, and the curves along which some of them are followed."""

import importlib
from types import ModuleType
from typing import Any, NamedTuple

import attrs

NAMES = (
    *("rosen10", "mlp", "lstm", "lstm_sequence", "cnn", "transformer"),
    *("per_example", "hvp", "resnet18"),
    *("gpt2", "vgg16", "resnet50"),
)


class Curve(NamedTuple):
    """A workload at several values of one of its sizes."""

    workload: str
    field: str
    values: tuple[int, ...]


CURVES = {
    "mlp_batch": Curve("mlp", "batch", (1, 10, 100, 1000)),
    "mlp_width": Curve("mlp", "width", (25, 100, 400, 1600)),
    "mlp_depth": Curve("mlp", "depth", (1, 4, 16, 64)),
    "transformer_length": Curve("transformer", "length", (16, 64, 256)),
}


def load(name: str) -> ModuleType:
    """A workload's module."""
    return importlib.import_module(f"benchmarks.workloads.{name}")


def resized(workload: ModuleType, changes: dict[str, int], tiny: bool = False) -> Any:
    """The sizes of a workload with some of them changed."""
    return attrs.evolve(workload.TINY if tiny else workload.Sizes(), **changes)
