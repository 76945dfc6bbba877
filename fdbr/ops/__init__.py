"""Operations on arrays, raw or traced, under the names of the Python Array API standard.

On raw arrays they cost about what the array module costs; inside a transformation they are
differentiated.  Functions for deep learning are here too, beside those of the standard.
"""

import typing as _typing
from math import e, inf, nan, pi
from types import ModuleType as _Module

from fdbr.errors.names import import_late as _import_late
from fdbr.errors.names import missing_from as _missing_from
from fdbr.ops.dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from fdbr.ops.elementwise.arithmetic import *
from fdbr.ops.elementwise.comparison import *
from fdbr.ops.elementwise.complex_parts import conj, imag, real
from fdbr.ops.elementwise.exponential import *
from fdbr.ops.elementwise.logistic import logaddexp, sigmoid
from fdbr.ops.elementwise.trigonometric import *
from fdbr.ops.indexing.reading import getitem, take, take_along_axis
from fdbr.ops.indexing.searching import *
from fdbr.ops.indexing.segments import *
from fdbr.ops.indexing.sets import *
from fdbr.ops.indexing.sorting import *
from fdbr.ops.indexing.updates import at
from fdbr.ops.inspection import *
from fdbr.ops.inspection import VERSIONS, __array_namespace_info__
from fdbr.ops.products import dot, einsum, inner, linear, matmul, outer, tensordot, vecdot
from fdbr.ops.reductions.cumulative import *
from fdbr.ops.reductions.reduce import *
from fdbr.ops.reductions.statistics import *
from fdbr.ops.shape.composed import *
from fdbr.ops.shape.creation import *
from fdbr.ops.shape.layout import *
from fdbr.ops.shape.manipulation import *
from fdbr.ops.shape.padding import *
from fdbr.ops.signal import *

newaxis = None
__array_api_version__ = VERSIONS[-1]
del VERSIONS

from fdbr.ops import fft, linalg, sparse  # noqa: E402

if _typing.TYPE_CHECKING:
    from fdbr.ops.on_demand import *

_PARTS = ("fft", "linalg", "sparse", "special")


def _public(space: dict[str, _typing.Any]) -> dict[str, _typing.Any]:
    return {
        name: member
        for name, member in space.items()
        if name[0] != "_" and (not isinstance(member, _Module) or name in _PARTS)
    }


_loaded = list(_public(globals()))


def _load_all() -> None:
    others = _public(vars(_import_late("fdbr.ops.on_demand")))
    for name, member in others.items():
        globals().setdefault(name, member)  # other code may have replaced it
    globals().setdefault("__all__", sorted({*_loaded, *others}))


def _get(name: str) -> _typing.Any:
    if name == "special":
        return _import_late("fdbr.ops.special")
    if name[0] != "_" or name == "__all__":  # Python asks modules for many other private names
        _load_all()
        if name in globals():
            return globals()[name]
    return _missing_from(__name__)(name)


def __dir__() -> list[str]:
    _load_all()
    return list(globals()["__all__"])  # `dir` shows the public names alone


globals().update(__getattr__=_get)  # type checkers see no `__getattr__`
