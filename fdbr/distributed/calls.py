"""One call of a collective: what all ranks must agree about."""

import functools
import json
from collections.abc import Sequence
from typing import Any

import attrs

from fdbr.core.array_modules import number_of

__all__ = ["Call", "Record"]

_ROOTED = frozenset({"reduce", "broadcast", "gather", "scatter"})


@attrs.frozen
class Call:
    """A collective, as a rank asks for it.

    Attributes
    ----------
    name
        The collective's name: that of a public function.
    op
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``, of those that reduce.
    root
        The rank from which or to which everything goes.
    to, source, tag
        The other rank of a message, and the number by which it is found.
    wire
        The dtype in which floating numbers travel; empty for their own.
    asked
        The public function that was called, where that is another: `reduce` and `reduce_scatter`
        find extreme values by `all_reduce`, and all ranks must have called the same of them.
    masked
        Whether the results of a reduction to extreme values are followed by masks: where this
        rank has them.
    structure
        The structure of the tree whose leaves are given, as a text; empty if nobody compares it.
    where
        The line of the program that called, for messages: calls from different lines are equal.
    backward
        Whether it carries cotangents, in a backward pass.
    """

    name: str
    op: str = ""
    root: int = 0
    to: int = -1
    source: int = -1
    tag: int = 0
    wire: str = ""
    asked: str = ""
    masked: bool = False
    structure: str = ""
    where: str = attrs.field(default="", eq=False)
    backward: bool = attrs.field(default=False, eq=False)

    def __str__(self) -> str:
        said = [f"{key}={value!r}" for key, value in self._said().items()]
        return f"{self.asked or self.name}({', '.join(said)})"

    def _said(self) -> dict[str, Any]:
        rooted = (self.asked or self.name).removesuffix("_object") in _ROOTED
        return {
            **({"op": self.op} if self.op else {}),
            **({"root": self.root} if rooted else {}),
            **({"to": self.to} if self.to >= 0 else {}),
            **({"source": self.source} if self.source >= 0 else {}),
            **({"tag": self.tag} if self.tag else {}),
            **({"wire": self.wire} if self.wire else {}),
        }


@attrs.frozen
class Record:
    """The words in which a rank tells others of its call: it, and the kinds of its arrays.

    Attributes
    ----------
    call
        The call as text, which is the same on all ranks.
    arrays
        Dtype, as ``"float32"`` or, of one on a device, ``"gpu:float32"``, and shape of each array;
        `None` where a rank gives none, and takes what it gets.
    where
        The line of the program.
    structure
        The structure of the tree of these arrays, as a text; empty if it is not compared.
    """

    call: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...] | None
    where: str
    structure: str = ""

    @classmethod
    def of(cls, call: Call, arrays: Sequence[Any] | None) -> "Record":
        kinds = None if arrays is None else tuple(map(_kind, arrays))
        return cls(str(call), kinds, call.where, call.structure)

    def encoded(self) -> bytes:
        return json.dumps([self.call, self.arrays, self.where, self.structure]).encode()

    @classmethod
    def decoded(cls, text: bytes) -> "Record":
        call, arrays, where, structure = json.loads(text)
        kinds = None if arrays is None else tuple((name, tuple(shape)) for name, shape in arrays)
        return cls(call, kinds, where, structure)

    def told(self, structure: str = "") -> str:
        """The words of a message, with a structure if it is told."""
        kinds = self.arrays or ()
        said = ", ".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in kinds[:4])
        more = f" and {len(kinds) - 4} more arrays" if len(kinds) > 4 else ""
        of = f" of {said}{more}" if kinds else ""
        inside = f" in {structure}" if structure else ""
        return f"{self.call}{of}{inside}{f' at {self.where}' if self.where else ''}"

    def __str__(self) -> str:
        return self.told()


def _kind(array: Any) -> tuple[str, tuple[int, ...]]:
    place = "" if number_of(array) is None else "gpu:"
    return place + _name(array.dtype), tuple(array.shape)


@functools.cache
def _name(dtype: Any) -> str:
    """NumPy puts the name of a dtype together each time."""
    return str(dtype.name)
