"""Trees of plain containers as texts of JSON, with their arrays beside: read without a `like`."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fdbr.core.array_modules import is_array, lock, to_numpy
from fdbr.errors.checks import describe
from fdbr.train.snapshots.leaves import PLAIN

__all__ = ["packed", "unpacked"]


def packed(function: str, value: Any, arrays: list[Any]) -> str:
    """A tree as a text; its arrays are appended to a list.

    Raises
    ------
    TypeError
        If there is something else in it than dicts, lists, tuples, arrays, numbers, truth values,
        strings and `None`; the message names its path.
    """
    return json.dumps(_packed(function, value, "", arrays), separators=(",", ":"))


def _packed(function: str, value: Any, path: str, arrays: list[Any]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if isinstance(value, Mapping):
        if all(type(key) in (str, int) for key in value):
            below = ((key, part, f"{path}[{key!r}]") for key, part in value.items())
            return {"dict": [[key, _packed(function, part, p, arrays)] for key, part, p in below]}
    elif kind in (tuple, list):
        parts = [_packed(function, v, f"{path}[{i}]", arrays) for i, v in enumerate(value)]
        return {"tuple": parts} if kind is tuple else parts
    elif is_array(value):
        if value.shape == () and value.dtype.name in PLAIN:
            form = "scalar" if isinstance(value, np.generic) else "number"
            return {form: [value.dtype.name, to_numpy(value).item()]}
        arrays.append(value)
        return {"array": len(arrays) - 1}
    raise TypeError(
        f"fdbr.train.{function}: the report holds {describe(value)} at {path.lstrip('.')}; what "
        "metrics are, and what stages keep, must be made of dicts, lists, tuples, arrays, numbers, "
        "strings and None"
    )


def unpacked(text: str, arrays: list[Any] | None) -> Any:
    """The tree that a text stands for; without arrays, a NaN stands for each of them."""
    return _unpacked(json.loads(text), arrays)


def _unpacked(value: Any, arrays: list[Any] | None) -> Any:
    if isinstance(value, list):
        return [_unpacked(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    ((form, content),) = value.items()
    if form == "dict":
        return {key: _unpacked(part, arrays) for key, part in content}
    if form == "tuple":
        return tuple(_unpacked(part, arrays) for part in content)
    if form == "complex":
        return complex(*content)
    if form == "array":
        return float("nan") if arrays is None else arrays[content]
    dtype, number = content
    found = np.asarray(number, dtype)
    return lock(found)[()] if form == "scalar" else lock(found)
