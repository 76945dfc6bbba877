"""NumPy's protocols: what becomes of its functions and ufuncs when an argument is traced.

NumPy hands its functions here through ``__array_ufunc__`` and ``__array_function__``.  The tables
of `fdbr.core.tracer_methods` say what each of them is.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.array_modules import is_array
from fdbr.core.tracer_methods import functions, install, ufunc_methods, ufunc_sources, ufuncs
from fdbr.errors.checks import recoverable
from fdbr.interop.signatures import numpys_error, refuse
from fdbr.interop.ufunc_arguments import called


def _is_known(value: Any) -> bool:
    """Whether fdbr itself handles an operand, rather than the operand's own class.

    The arrays of every array module are among that: CuPy's operators come here for their right
    side by way of NumPy's ufuncs.
    """
    return is_array(value) or not hasattr(type(value), "__array_ufunc__")


def _name_of(ufunc: Any) -> str:
    """The name of a ufunc in messages: one of NumPy's, of SciPy's, or of somebody else's."""
    name = str(ufunc.__name__)
    for room, module in (("np", np), ("scipy.special", sys.modules.get("scipy.special"))):
        if getattr(module, name, None) is ufunc:
            return f"{room}.{name}"
    return f"scipy.special.{name}" if name[:1] == "_" else name


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    name = _name_of(ufunc) + ("" if method == "__call__" else f".{method}")
    if kwargs.pop("out", None) is not None:
        refuse(
            name,
            "out",
            "arrays are never written to here. Take the result instead; for x += y on an array x, "
            "write x = x + y, and for x[key] += y, x = ops.at(x)[key].add(y)",
        )
    if not all(map(_is_known, inputs)):
        return NotImplemented
    if method == "at":
        raise TypeError(
            f"{name} with a traced value: arrays are never written to here. Write "
            "B = ops.at(B)[key].add(x)."
        )
    op = _op_of(ufunc) if method == "__call__" else ufunc_methods.get((ufunc, method))
    if op is None:
        error = f"{name} of a traced value has no derivative rule in fdbr.ops"
        of_python = all(types == "O" * ufunc.nin + "->" + "O" * ufunc.nout for types in ufunc.types)
        advice = ". Write fdbr.vmap(f)(x) for np.frompyfunc(f, 1, 1)(x)"
        raise TypeError(error + advice * of_python)
    inputs = tuple(functions[np.asarray](v) if type(v) in (list, tuple) else v for v in inputs)
    try:
        if not kwargs or method != "__call__":
            return op(*inputs, **kwargs)
        return called(op, ufunc, name, inputs, **kwargs)
    except recoverable() as error:
        if "refuses" in vars(error):
            raise
        found = numpys_error(getattr(ufunc, method), error, inputs, kwargs)
        raise error if found is None else found.with_traceback(error.__traceback__) from None


def _op_of(ufunc: Any) -> Callable[..., Any] | None:
    if ufunc not in ufuncs:
        for source in ufunc_sources:
            ufuncs.update(source())
    return ufuncs.get(ufunc)


def _array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    implementation = functions.get(function)
    if implementation is None:
        raise TypeError(
            f"{function.__module__}.{function.__name__} of a traced value is not known to fdbr; "
            "write it with the functions of fdbr.ops, or with others of NumPy"
        )
    return implementation(*args, **kwargs)


install("__array_ufunc__", _array_ufunc)
install("__array_function__", _array_function)
install("__array_priority__", 1000)
