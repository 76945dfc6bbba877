"""Constructors of layers, which refuse the arguments of ``init`` and name it: ``Linear(4, 8)``."""

import functools
import inspect
import operator
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.errors.boundary import boundary
from fdbr.errors.checks import show
from fdbr.errors.tracebacks import is_users
from fdbr.pytrees.classes import fields_of

__all__ = ["constructor"]


def constructor(cls: Any, name: str, function: Any) -> Any:
    """Return the constructor of a class, which refuses a key, size or shape as its first field.

    The function itself is returned unless the class has an ``init`` that takes a key.  Only calls
    of the class come here, because `pytrees.structure` rebuilds nodes without a constructor.
    """
    init = getattr(cls, "init", None)
    code = getattr(inspect.unwrap(init), "__code__", None) if inspect.ismethod(init) else None
    fields = fields_of(cls)
    if code is None or code.co_varnames[1:2] != ("key",) or fields is None:
        return function
    first = operator.attrgetter(fields[0][0])

    def construct(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if not (args and _is_of_init(args[0])):
            try:
                function(self, *args, **kwargs)
            except TypeError as error:
                if not str(error).startswith(f"{function.__qualname__}() "):
                    raise
            else:
                if not _is_of_init(first(self)):
                    return
        raise TypeError(_use_init(cls, name, args, kwargs))

    def explain(error: Exception, _: Any) -> Exception:
        return error if is_users(error) else error.with_traceback(None)

    parameters = [*inspect.signature(construct).parameters.values()]
    call = "return construct(self, *args, **kwargs)"
    made = boundary(parameters, call, explain, {"construct": construct})
    return functools.update_wrapper(made, function)


def _use_init(cls: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return the message with the call of ``init`` for the same arguments, or its parameters."""
    given = {k: v for k, v in kwargs.items() if k != "key"}
    call = [_show(value) for value in args if not _is_key(value)]
    call += [f"{key}={_show(value)}" for key, value in given.items()]
    if not any(map(_is_size, (*args, *given.values()))):
        init = inspect.signature(cls.init).parameters.values()
        needed = (p for p in init if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
        call = [p.name for p in needed][1:]
    return (
        f"{name}: the constructor takes the fields ({', '.join(attrs.fields_dict(cls))}) "
        f"themselves; to make a layer with fresh parameters, use {name}.init"
        f"({', '.join(['key', *call])})"
    )


def _show(value: Any) -> str:
    return repr(value) if _is_size(value) else show(value)


def _is_of_init(value: Any) -> bool:
    return _is_size(value) or _is_key(value)


def _is_size(value: Any) -> bool:
    """Whether a value can only be a size or a shape.

    Trees of axes and masks have zero, negative numbers and truth values for arrays.
    """
    if type(value) is tuple:
        return bool(value) and all(type(size) is int and size > 0 for size in value)
    return isinstance(value, int | np.integer) and type(value) is not bool and bool(value > 0)


def _is_key(value: Any) -> bool:
    return getattr(value, "shape", None) == (2,) and getattr(value, "dtype", None) == np.uint64
