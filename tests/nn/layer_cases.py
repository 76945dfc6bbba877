"""Layers at work: one case for each way of using a layer that has mathematics of its own.

`test_layers.py` runs the laws of layers over all of them.  The cases of a family of layers stand
in ``cases_FAMILY.py`` beside this file; `CASES` gathers them.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr import random

__all__ = ["CASES", "KEY", "LayerCase", "case", "numbers"]

KEY = random.key(11)


@attrs.frozen(repr=False)
class LayerCase:
    """One layer at one setting.

    Attributes
    ----------
    name
        In test reports: the layer's public name, with the setting.
    make
        The layer, for a dtype: its arrays, and the input's, are of that dtype.
    inputs
        The arguments of a call, for a dtype; integers stay integers.
    key
        Whether `train` needs a key.
    order
        How many derivatives of derivatives are checked.
    call
        How the layer is called, ``call(layer, *inputs)``; its result is a tree of arrays.
    """

    name: str
    make: Callable[[Any], Any]
    inputs: Callable[[Any], tuple[Any, ...]]
    key: bool = False
    order: int = 2
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)

    def __repr__(self) -> str:
        return self.name


CASES: list[LayerCase] = []


def case(name: str, make: Any, inputs: Any, **options: Any) -> None:
    """Add a case; ``inputs`` is a tuple of shapes, or a function of a dtype."""
    given = inputs if callable(inputs) else lambda dtype: tuple(numbers(s, dtype) for s in inputs)
    CASES.append(LayerCase(name, make, given, **options))


def numbers(shape: Any, dtype: Any, seed: int = 5) -> Any:
    """Normal numbers, the same in every run, which nobody may write to."""
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    values.flags.writeable = False
    return values


for _path in sorted(Path(__file__).parent.glob("cases_*.py")):
    importlib.import_module(f"nn.{_path.stem}")
