"""Shapes and dtypes of cotangents: checks of given ones, and the form of returned gradients."""

from collections.abc import Set
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock, locked_copy, module_of, number_of, owner, several
from fdbr.core.devices import is_host, there
from fdbr.core.primitive import dispatch, registry
from fdbr.core.tracer import Tracer, ended, escaped
from fdbr.errors.checks import describe
from fdbr.pytrees.dtypes import dtype_kind, is_added

__all__ = ["CotangentAval", "check_cotangent"]


class CotangentAval:
    """The shape, dtype and type (array, scalar or number) of a leaf's gradient."""

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
        """Return the array module bound to the leaf's device, which need not be the current one."""
        return self.xp if self._number is None else there(self.xp, self._number)

    def _like(self, cotangent: Any) -> Any:
        """Convert a traced 0-d cotangent to a scalar or an array, as the leaf is one."""
        value = cotangent
        while isinstance(value, Tracer):
            value = value.value
        if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:  # not a batch
            if self.type is np.ndarray and isinstance(value, np.generic):
                return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})
            if self.type is not np.ndarray and type(value) is np.ndarray:
                return cotangent[()]
        return cotangent

    def _rounded(self, cotangent: Any) -> Any:
        """Convert a cotangent to the leaf's dtype.

        With dtypes that another package has added, Python's floats are not weak, and a rule may
        have returned float32.
        """
        if not is_added(self.dtype) or cotangent.dtype == self.dtype:
            return cotangent
        return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})

    def finish(self, cotangent: Any, seeds: Set[int]) -> Any:
        """Return an input's cotangent as the user gets it: read-only, in memory of its own.

        ``seeds`` are the identities of the arrays that own the memory of the user's cotangents.
        """
        if cotangent is None:
            cotangent = self.maker().zeros(self.shape, dtype=self.dtype)
        elif isinstance(cotangent, Tracer):
            return self._rounded(cotangent if self.shape else self._like(cotangent))
        if self.type is not np.ndarray and is_host(self.xp):
            return self.dtype.type(cotangent)  # the leaf is a number or a NumPy scalar
        if type(cotangent) is not self.type:
            cotangent = self.maker().asarray(cotangent)
        cotangent = self._rounded(cotangent)
        if not _is_ours(cotangent, seeds):
            return locked_copy(cotangent)
        return lock(cotangent)


_MOST_RETAINED = 4  # a returned view may keep memory of this many times its own size alive


def _is_ours(cotangent: Any, seeds: Set[int]) -> bool:
    """Whether a cotangent can be returned without a copy.

    The user must not own its memory.  It may be a view, as the gradient of a transposed array is,
    if it keeps little more memory alive than its own.
    """
    whole = owner(cotangent)
    if whole is cotangent:
        return not seeds or id(whole) not in seeds
    if type(whole) is not np.ndarray or id(whole) in seeds:
        return False
    return bool(whole.nbytes <= _MOST_RETAINED * cotangent.nbytes)


def check_cotangent(ct: Any, aval: CotangentAval, where: object) -> Any:
    """Return a cotangent as the backward pass needs it; errors begin with ``where``."""
    if ct is None:
        return None
    if isinstance(ct, Tracer) and ended(ct._trace):
        raise escaped(ct._trace, str(where))
    shape, dtype = aval.shape, aval.dtype
    if type(ct) in (int, float, complex) and shape == () and dtype_kind(dtype) in "fc":
        if type(ct) is complex and dtype_kind(dtype) == "f":
            raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
        return aval.maker().asarray(ct, dtype=dtype)[()]
    # The gradient by an array of the other byte order has the machine's byte order.
    if not hasattr(ct, "dtype") or (ct.dtype != dtype and ct.dtype != dtype.newbyteorder("=")):
        raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
    if ct.shape != shape:
        raise ValueError(f"{where} must have shape {shape}, not {describe(ct)}")
    return ct
