"""The padding layer."""

from typing import Any

from fdbr import ops
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.convolution.settings import MODES, check_room
from fdbr.nn.layer import Layer
from fdbr.nn.settings import refuse_either
from fdbr.tree import frozen, static

__all__ = ["Pad"]


@public("fdbr.nn")
@frozen
class Pad(Layer):
    """Padding of the spatial axes.

    Parameters
    ----------
    padding
        The number of elements: an integer for all ends of all axes after the first two; or a pair
        ``(before, after)`` for each of the last axes, in their order (PyTorch has the last axis
        first).
    mode
        ``"zeros"``; ``"reflect"``, the input mirrored at its edge; ``"replicate"``, the edge
        itself; ``"circular"``, the other end; ``"constant"``, a value.
    value
        The value of the mode ``"constant"``.

    Raises
    ------
    TypeError, ValueError
        If the padding is of another form or negative, or the mode is unknown.

    >>> import numpy as np
    >>> from fdbr import nn
    >>> nn.Pad([(1, 2)], mode="replicate")(np.array([[[3.0, 4.0]]]))
    array([[[3., 3., 4., 4., 4.]]])
    >>> nn.Pad(2)(np.zeros((5, 3, 8, 8))).shape
    (5, 3, 12, 12)
    """

    padding: Any = static()
    mode: str = static(default="zeros")
    value: float = static(default=0.0)

    def __init__(self, padding: Any, mode: str = "zeros", value: float = 0.0) -> None:
        where = "fdbr.nn.Pad"
        if mode not in {*MODES, "constant"}:
            raise ValueError(
                f"{where}: mode must be one of constant, {', '.join(MODES)}, got {mode!r}"
            )
        if isinstance(padding, list | tuple):
            if not padding or any(not isinstance(p, list | tuple) or len(p) != 2 for p in padding):
                raise ValueError(
                    f"{where}: padding must be an integer, or a pair (before, after) for each of "
                    f"the last axes, got {padding!r}"
                )
            padding = tuple(
                tuple(integer(where, "padding", n, least=0) for n in pair) for pair in padding
            )
        else:
            padding = integer(where, "padding", padding, least=0)
        self.__attrs_init__(padding, mode, value)  # type: ignore[attr-defined]

    def __call__(self, x: Any) -> Any:
        """Return the padded input.

        Raises
        ------
        ValueError
            If ``x`` has too few axes, or too few elements to reflect or to repeat.
        """
        x = ops.asarray(x)
        if isinstance(self.padding, int):
            refuse_either("Pad", self.padding, x, each=(self.padding, self.padding))
            pairs = ((self.padding, self.padding),) * (x.ndim - 2)
        else:
            pairs = self.padding
        if not 0 < len(pairs) < max(x.ndim, 1):
            raise ValueError(
                placed(
                    f"fdbr.nn.Pad: x must have an axis of channels and {max(len(pairs), 1)} "
                    f"spatial axes at least, got {describe(x)}; an integer counts for all axes "
                    "after the first two, pairs for the last ones"
                )
            )
        check_room(f"fdbr.nn.Pad with mode={self.mode!r}", self.mode, x, pairs)
        widths = ((0, 0),) * (x.ndim - len(pairs)) + pairs
        return ops.pad(x, widths, MODES.get(self.mode, "constant"), constant_values=self.value)
