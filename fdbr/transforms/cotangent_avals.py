"""Types, shapes and dtypes of cotangents, as they are given and as they are handed out."""

from collections.abc import Set
from typing import Any

import numpy as np

from fdbr.core.array_modules import copy_of, lock, module_of, number_of, owner, several
from fdbr.core.devices import there
from fdbr.core.primitive import dispatch, registry
from fdbr.core.tracer import Tracer, ended, escaped
from fdbr.errors.checks import describe
from fdbr.pytrees.dtypes import dtype_kind, is_added

__all__ = ["Kind", "fitted"]


class Kind:
    """The form of a leaf's gradient: an array, a scalar or a number, and its dtype."""

    __slots__ = ("_number", "dtype", "shape", "type", "xp")

    type: Any
    xp: Any

    def __init__(self, leaf: Any) -> None:
        if type(leaf) is np.ndarray:  # the usual case
            self.shape, self.type, self.dtype = leaf.shape, np.ndarray, leaf.dtype
            self.xp, self._number = np, None
            return
        self.shape = getattr(leaf, "shape", ())
        while isinstance(leaf, Tracer):
            leaf = leaf.value
        self.type = type(leaf)
        self.dtype = getattr(leaf, "dtype", None) or np.dtype(self.type)
        self.xp = module_of(type(leaf), leaf) or np
        self._number = number_of(leaf) if several else None

    def maker(self) -> Any:
        """The array module on the leaf's device; where a pullback runs, another may be current."""
        return self.xp if self._number is None else there(self.xp, self._number)

    def _like(self, cotangent: Any) -> Any:
        """A traced cotangent without dimensions, with a scalar or an array of the leaf's type."""
        value = cotangent
        while isinstance(value, Tracer):
            value = value.value
        if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:  # else it is a batch
            if self.type is np.ndarray and isinstance(value, np.generic):
                return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})
            if self.type is not np.ndarray and type(value) is np.ndarray:
                return cotangent[()]
        return cotangent

    def _rounded(self, cotangent: Any) -> Any:
        """A cotangent in the leaf's dtype.

        Beside dtypes that are none of NumPy's own Python's floats are not weak, and rules made
        float32 of it.
        """
        if not is_added(self.dtype) or cotangent.dtype == self.dtype:
            return cotangent
        return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})

    def finish(self, cotangent: Any, seeds: Set[int]) -> Any:
        """An input's cotangent as it is handed out: read-only, and nobody else's memory.

        ``seeds`` are the identities of what owns the cotangents that somebody else gave.
        """
        if cotangent is None:
            cotangent = self.maker().zeros(self.shape, dtype=self.dtype)
        elif isinstance(cotangent, Tracer):
            return self._rounded(cotangent if self.shape else self._like(cotangent))
        if self.type is not np.ndarray and self.xp is np:
            return self.dtype.type(cotangent)  # of a number, and of an array's scalar
        if type(cotangent) is not self.type:
            cotangent = self.maker().asarray(cotangent)
        cotangent = self._rounded(cotangent)
        if not _is_ours(cotangent, seeds):
            cotangent = copy_of(cotangent)
        return lock(cotangent)


_SPACIOUS = 4  # how many times its own memory an array that is handed out may keep


def _is_ours(cotangent: Any, seeds: Set[int]) -> bool:
    """Whether a cotangent can be handed out: nobody else writes to it, and it keeps little more.

    So it may be a view, as the gradient of a transposed or repeated array is.
    """
    whole = owner(cotangent)
    if whole is cotangent:
        return not seeds or id(whole) not in seeds
    if type(whole) is not np.ndarray or id(whole) in seeds:
        return False
    return bool(whole.nbytes <= _SPACIOUS * cotangent.nbytes)


def fitted(ct: Any, kind: Kind, where: object) -> Any:
    """A cotangent as backward takes it, or an error, which says ``where``, if it does not fit."""
    if ct is None:
        return None
    if isinstance(ct, Tracer) and ended(ct._trace):
        raise escaped(ct._trace, str(where))
    shape, dtype = kind.shape, kind.dtype
    if type(ct) in (int, float, complex) and shape == () and dtype_kind(dtype) in "fc":
        if type(ct) is complex and dtype_kind(dtype) == "f":
            raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
        return kind.maker().asarray(ct, dtype=dtype)[()]
    # Gradients by numbers of the other byte order are of the machine's own.
    if not hasattr(ct, "dtype") or (ct.dtype != dtype and ct.dtype != dtype.newbyteorder("=")):
        raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
    if ct.shape != shape:
        raise ValueError(f"{where} must have shape {shape}, not {describe(ct)}")
    return ct
