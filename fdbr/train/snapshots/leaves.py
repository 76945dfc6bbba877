"""Leaves of trees in files, and their kinds."""

import operator
import re
import sys
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import is_array
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe

__all__ = [
    "PAIRS",
    "PLAIN",
    "Leaf",
    "dtype_called",
    "leaf_of",
    "of_entry",
    "plain",
]

PLAIN = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)
"""The dtypes that are stored as they are."""

PAIRS = {"complex64": "float32", "complex128": "float64"}
"""Complex dtypes, and those of their parts."""

_RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "bfloat": 2, "complex": 3}

_SHORT = re.compile("bfloat16|float[468]_e[0-9]m[0-9][a-z0-9]*")  # of `ml_dtypes`


@attrs.frozen
class Leaf:
    """A leaf in a file, or the one that is expected there.

    ``dtype`` and ``shape`` are those of arrays; a ``dtype`` of `None` stands for any.  ``value``
    is the text of what is no array.
    """

    path: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    value: str = ""

    @property
    def is_tensor(self) -> bool:
        return self.kind in ("array", "scalar")

    @property
    def stored(self) -> tuple[str, tuple[int, ...]]:
        """The dtype and the shape of the tensor in the file."""
        assert self.dtype is not None
        if self.dtype in PAIRS:
            return PAIRS[self.dtype], (*self.shape, 2)
        if self.dtype in PLAIN:
            return self.dtype, self.shape
        return ("uint16" if self.dtype == "bfloat16" else "uint8"), self.shape

    def entry(self) -> list[Any]:
        """The entry in the header."""
        if self.is_tensor:
            return [self.path, self.kind, self.dtype, list(self.shape)]
        return [self.path, self.kind] if self.kind == "none" else [self.path, self.kind, self.value]

    def fits(self, other: "Leaf") -> bool:
        """Whether a leaf of a file is what this one expects.

        A scalar and an array of no axes are all one, and a number of Python goes with them as in
        arithmetic, either way: what is 0.0 before the first step may be an array after it.
        """
        if self.is_tensor and other.is_tensor:
            return self.shape == other.shape and self.dtype in (None, other.dtype)
        ours, theirs = self.rank, other.rank
        if ours is None or theirs is None:
            return self.kind == other.kind
        return ours == theirs or (0 < ours < theirs and not self.is_tensor)

    @property
    def rank(self) -> int | None:
        """The kind of a single number: 0 of a truth value, 1 of an integer, and so on."""
        name = self.kind if not self.is_tensor else "" if self.shape else self.dtype or ""
        return next((rank for kind, rank in _RANKS.items() if name.startswith(kind)), None)

    def __str__(self) -> str:
        if self.is_tensor:
            return f"{self.dtype or 'any dtype'}[{','.join(map(str, self.shape))}]"
        return {"none": "None"}.get(self.kind, self.kind)


def leaf_of(function: str, path: str, leaf: Any) -> Leaf:
    """A leaf of a tree; ``function`` is the one that messages name."""
    kind = type(leaf)
    if leaf is None:
        return Leaf(path, "none")
    if kind in (bool, str):
        return Leaf(path, kind.__name__, value=str(leaf))
    if kind is int:
        return Leaf(path, "int", value=str(leaf) if abs(leaf) < 10**20 else hex(leaf))
    if kind is float:
        return Leaf(path, "float", value=leaf.hex())
    if kind is complex:
        return Leaf(path, "complex", value=f"{leaf.real.hex()} {leaf.imag.hex()}")
    if isinstance(leaf, Tracer):
        raise TypeError(
            f"fdbr.train.{function}: the leaf {path or 'itself'} is a traced value, which has no "
            "elements of its own; call it outside of transformations"
        )
    if is_array(leaf):
        dtype = np.dtype(leaf.dtype)
        if dtype.name in PLAIN or dtype.name in PAIRS or _is_short_float(dtype):
            form = "scalar" if isinstance(leaf, np.generic) else "array"
            return Leaf(path, form, dtype.name, tuple(map(int, leaf.shape)))
    raise TypeError(
        f"fdbr.train.{function}: the leaf {path or 'itself'} is {describe(leaf)}; a tree in a file "
        "has arrays of numbers, Python's numbers, truth values, strings and None. Make what is "
        "structure a static field, fdbr.static()"
    )


def _is_short_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is one of those that `ml_dtypes` adds, and as wide as they are stored."""
    return _SHORT.fullmatch(dtype.name) is not None and (
        dtype.itemsize == (2 if dtype.name == "bfloat16" else 1)
    )


def of_entry(path: str, kind: str, what: Any = "", shape: Any = ()) -> Leaf:
    """The leaf of an entry; a KeyError or TypeError if that is not as `Leaf.entry` makes it."""
    if not isinstance(path, str) or not isinstance(what, str):
        raise TypeError(path)
    if kind in ("array", "scalar"):
        if what not in PLAIN and what not in PAIRS and not _SHORT.fullmatch(what):
            raise KeyError(what)
        return Leaf(path, kind, sys.intern(what), tuple(map(operator.index, shape)))
    if kind not in ("none", "str", *_PARSED):
        raise KeyError(kind)
    return Leaf(path, kind, value=what)


def dtype_called(leaf: Leaf) -> Any:
    """The dtype of an array in a file."""
    try:
        return np.dtype(leaf.dtype)
    except TypeError:
        raise ValueError(
            f"fdbr.train.load: {leaf.path or 'the leaf'} is of dtype {leaf.dtype}, which NumPy has "
            "from the package ml_dtypes; import that first"
        ) from None


def _complex(text: str) -> complex:
    real, imag = text.split(" ")
    return complex(float.fromhex(real), float.fromhex(imag))


_PARSED: dict[str, Any] = {
    "bool": lambda text: text == "True",
    "int": lambda text: int(text, 0),
    "float": float.fromhex,
    "complex": _complex,
}


def plain(leaf: Leaf) -> Any:
    """The value of a leaf that is no array."""
    if leaf.kind == "none":
        return None
    return leaf.value if leaf.kind == "str" else _PARSED[leaf.kind](leaf.value)
