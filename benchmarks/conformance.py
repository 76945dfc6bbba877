"""`fdbr.ops` as the Array API suite sees it, with each function run under one transformation.

The modules ``benchmarks.conformance.vjp``, ``….jvp``, ``….vmap`` and ``….jit`` are namespaces of
the Python Array API standard: their functions are those of `fdbr.ops`, called on traced values,
and return the results as plain arrays.  docs/array-api.md tells how the
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
_OF_DTYPES = {"can_cast", "finfo", "iinfo", "isdtype", "result_type"}  # they return no arrays


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)


def _floats(leaf: Any) -> bool:
    return _is_array(leaf) and leaf.dtype.kind in "fc"


def _own(leaf: Any) -> Any:
    """Return a copy, because the suite writes to results."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _vjp(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.vjp(f, *arrays)[0]


def _jvp(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.jvp(f, tuple(arrays), tuple(np.ones_like(x) for x in arrays))[0]


def _vmap(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return tree.map(lambda x: x[0, ...], fdbr.vmap(f)(*(np.asarray(x)[None] for x in arrays)))


def _jit(f: Callable[..., Any], arrays: list[Any]) -> Any:
    return fdbr.jit(f)(*arrays)


_TRANSFORMATIONS = {
    "vjp": (_vjp, _floats),
    "jvp": (_jvp, _floats),
    "vmap": (_vmap, _is_array),
    "jit": (_jit, _is_array),
}


def _result_on_traced(
    transform: Callable[..., Any], function: Callable[..., Any], arrays: list[Any]
) -> Any:
    """Return what a function of traced values returns."""
    results = []

    def f(*traced: Any) -> Any:
        results.append(function(*traced))
        return traced

    transform(f, arrays)
    return results[0]


def _under(
    transform: Callable[..., Any], takes: Callable[..., bool], function: Any
) -> Callable[..., Any]:
    """Return a function whose arrays are traced by a transformation."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        positions = [i for i, leaf in enumerate(leaves) if takes(leaf)]
        if not positions or kwargs.get("copy") is not None:  # it is about shared memory
            return function(*args, **kwargs)

        def f(*arrays: Any) -> Any:
            mixed = list(leaves)
            for i, x in zip(positions, arrays, strict=True):
                mixed[i] = x
            positional, named = tree.unflatten(structure, mixed)
            return function(*positional, **named)

        given = [leaves[i] for i in positions]
        if function.__name__ in _OF_DTYPES:
            return _result_on_traced(transform, f, given)
        return tree.map(_own, transform(f, given))

    return traced


def namespace(name: str, of: Any = ops) -> ModuleType:
    """Return a namespace of the standard whose functions run under the named transformation."""
    transform, takes = _TRANSFORMATIONS[name]
    module = ModuleType(f"{__name__}.{name}", of.__doc__)
    for member in [*dir(of), *(n for n in vars(of) if n.startswith("__array_"))]:
        value = getattr(of, member)
        if isinstance(value, ModuleType):
            value = namespace(name, value)
        elif inspect.isfunction(value) or hasattr(value, "primitive"):
            value = value if member in _UNTRACED else _under(transform, takes, value)
        setattr(module, member, value)
    return module


for _name in _TRANSFORMATIONS:
    sys.modules[f"{__name__}.{_name}"] = namespace(_name)
