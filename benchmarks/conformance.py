"""`fdbr.ops` as the Array API suite sees it, with each function run under one transformation.

The modules ``benchmarks.conformance.vjp``, ``….jvp``, ``….vmap`` and ``….jit`` are namespaces of
the Python Array API standard: their functions are those of `fdbr.ops`, called on traced values,
and give what comes out of the transformation as plain arrays.  docs/array-api.md tells how the
suite (https://github.com/data-apis/array-api-tests) is run on one of them::

    ARRAY_API_TESTS_MODULE=benchmarks.conformance.vjp pytest array_api_tests

Under ``vmap`` the batch is of one example; under ``vjp`` and ``jvp`` functions of nothing that
floats are called as they are.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import fdbr
from fdbr import ops, tree

__all__ = ["namespace"]

_UNTRACED = {"from_dlpack"}  # it takes the arrays of other libraries
_ASKING = {"can_cast", "finfo", "iinfo", "isdtype", "result_type"}  # their answers are no arrays


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)


def _floats(leaf: Any) -> bool:
    return _is_array(leaf) and leaf.dtype.kind in "fc"


def _own(leaf: Any) -> Any:
    """A copy that may be written to, as the suite does with results of its own."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _vjp(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.vjp(f, *arrays)[0]


def _jvp(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.jvp(f, tuple(arrays), tuple(np.ones_like(x) for x in arrays))[0]


def _vmap(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return tree.map(lambda x: x[0, ...], fdbr.vmap(f)(*(np.asarray(x)[None] for x in arrays)))


def _jit(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.jit(f)(*arrays)


_WAYS = {
    "vjp": (_vjp, _floats),
    "jvp": (_jvp, _floats),
    "vmap": (_vmap, _is_array),
    "jit": (_jit, _is_array),
}


def _answer(way: Callable[..., Any], function: Callable[..., Any], arrays: list[Any]) -> Any:
    """What a function says of traced values."""
    answers = []

    def f(*traced: Any) -> Any:
        answers.append(function(*traced))
        return traced

    way(f, arrays)
    return answers[0]


def _under(
    way: Callable[..., Any], takes: Callable[..., bool], function: Any
) -> Callable[..., Any]:
    """A function whose arrays are traced by a transformation."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if takes(leaf)]
        if not places or kwargs.get("copy") is not None:  # who shares memory, plain arrays tell
            return function(*args, **kwargs)

        def f(*arrays: Any) -> Any:
            mixed = list(leaves)
            for i, x in zip(places, arrays, strict=True):
                mixed[i] = x
            positional, named = tree.unflatten(structure, mixed)
            return function(*positional, **named)

        given = [leaves[i] for i in places]
        if function.__name__ in _ASKING:
            return _answer(way, f, given)
        return tree.map(_own, way(f, given))

    return traced


def namespace(name: str, of: Any = ops) -> ModuleType:
    """A namespace of the standard whose functions run under the transformation of that name."""
    way, takes = _WAYS[name]
    module = ModuleType(f"{__name__}.{name}", of.__doc__)
    for member in [*dir(of), *(n for n in vars(of) if n.startswith("__array_"))]:
        value = getattr(of, member)
        if isinstance(value, ModuleType):
            value = namespace(name, value)
        elif inspect.isfunction(value) or hasattr(value, "primitive"):
            value = value if member in _UNTRACED else _under(way, takes, value)
        setattr(module, member, value)
    return module


for _name in _WAYS:
    sys.modules[f"{__name__}.{_name}"] = namespace(_name)
