"""The form of a tree of arrays, which a rank tells another that is to receive one."""

from typing import Any

import numpy as np

from fdbr import tree

__all__ = ["form_of", "zeros_of"]


def form_of(x: Any) -> Any:
    """The structure, and the shape and dtype of each leaf, as an object that can be pickled."""
    return tree.map(_Form, x)


def zeros_of(form: Any) -> Any:
    """Zeros of a form."""
    return tree.map(lambda leaf: leaf.zeros(), form)


class _Form:
    def __init__(self, leaf: Any) -> None:
        self.shape = tuple(getattr(leaf, "shape", ()))
        self.dtype = str(getattr(leaf, "dtype", np.asarray(0.0).dtype))

    def zeros(self) -> Any:
        return np.broadcast_to(np.zeros((), _dtype(self.dtype)), self.shape)


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
