"""Pickling of functions that transformations and factories return.

Such a function is a closure, which pickle cannot find by its name.  Its pickle holds the call
that made it, and unpickling repeats the call.
"""

import copy
import functools
import inspect
import operator
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, TypeVar

import attrs

from fdbr.errors.checks import name_of, named_as, recoverable
from fdbr.errors.public import name_of_public, public
from fdbr.errors.tracebacks import hide_frames

__all__ = ["FactoryResult", "Transformed", "factory", "made_of", "public_factory"]

Made = TypeVar("Made", bound=Callable[..., Any])


class _Uncopied:
    """The copy of a function is the function."""

    __slots__ = ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Transformed(_Uncopied):
    """A function that a transformation returned; it has the name and signature of its argument."""

    __wrapped__: Any

    def __init__(
        self, f: Any, call: Callable[..., Any], make: Any, args: Any, kwargs: dict[str, Any]
    ) -> None:
        if type(f) is FunctionType:  # `named_as` takes longer
            vars(self)["__wrapped__"] = f
            vars(self).update((name, getattr(f, name)) for name in functools.WRAPPER_ASSIGNMENTS)
        else:
            named_as(f)(self)
        self._call = call
        self._made_by = make, args, kwargs

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except recoverable() as error:
            hide_frames(error)
            raise

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        make, args, kwargs = self._made_by
        return _Call(make, (self.__wrapped__, *args), kwargs).__reduce__()

    def __repr__(self) -> str:
        return f"<function {name_of(self)}>"


def made_of(f: Any, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Decorate the function that ``make(f, *args, **kwargs)`` returns."""

    def decorate(call: Callable[..., Any]) -> Transformed:
        return Transformed(f, call, make, args, kwargs)

    return decorate


def _repeat(make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return make(*args, **kwargs)


class _Call:
    """The call of a factory.  Unpickling repeats the call and gives its result."""

    __slots__ = ("args", "factory", "kwargs")

    def __init__(self, factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.factory, self.args, self.kwargs = factory, args, kwargs

    def __reduce__(self) -> Any:
        make = _importable(self.factory)
        if not _by_value():
            given = inspect.signature(make).bind(*self.args, **self.kwargs).arguments
            for name, value in given.items():
                for path, function in _unpicklable(name, value):
                    raise pickle.PicklingError(
                        f"{name_of_public(make) or 'fdbr'}: {path} is {function}, which "
                        "cannot be pickled. Define functions at the top level of a module and "
                        "bind their settings with functools.partial. Give lists, not iterators"
                    )
        return _repeat, (make, self.args, self.kwargs)


class FactoryResult(_Uncopied, functools.partial):  # a class in C: a call costs no frame
    """A function in the result of a factory: the result, or an attribute of the result."""

    __slots__ = ("attribute", "call")  # not in the dict, which `jit` watches

    call: _Call
    attribute: str

    @classmethod
    def of(cls, function: Any, call: _Call, attribute: str = "") -> "FactoryResult":
        """Return the function with the call that made it."""
        made = cls(function.func if isinstance(function, cls) else function)
        vars(made).update(vars(function))
        for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            vars(made)[name] = getattr(function, name)
        made.call, made.attribute = call, attribute
        return made

    def __reduce__(self) -> Any:
        if self.attribute:
            return getattr, (self.call, self.attribute)
        return self.call.__reduce__()

    def __repr__(self) -> str:
        return f"<function {name_of(self)}>"


def factory(make: Made) -> Made:
    """Decorate a factory: the functions that it returns can be pickled if its arguments can.

    It may return a function, or an attrs object with functions as fields.  The factory must be a
    function at the top level of a module, or a method.
    """
    recorded = _recorded  # the code below runs with the globals of `make`, as doctest needs

    def around(*args: Any, **kwargs: Any) -> Any:
        return recorded(make, args, kwargs)

    decorated: Any = FunctionType(
        around.__code__, make.__globals__, make.__name__, None, around.__closure__
    )
    made: Any = functools.update_wrapper(decorated, make)
    return made


def public_factory(room: str) -> Callable[[Made], Made]:
    """Declare a `factory` public in a module of fdbr."""
    declare = public(room)

    def decorate(make: Made) -> Made:
        return declare(factory(make))

    return decorate


class _Running(threading.local):
    """Whether a factory runs in this thread; its calls of other factories need no record."""

    is_inside = False


_running = _Running()


def _recorded(make: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a factory, and replace the functions in its result by `FactoryResult`s."""
    if _running.is_inside:
        return make(*args, **kwargs)
    _running.is_inside = True
    try:
        made = make(*args, **kwargs)
    finally:
        _running.is_inside = False
    if any(made is value for value in (*args, *kwargs.values())):
        return made
    call = _Call(make, args, kwargs)
    if isinstance(made, _FUNCTIONS):
        return FactoryResult.of(made, call)
    functions = {
        field.name: value
        for field in (attrs.fields(type(made)) if attrs.has(type(made)) else ())
        if isinstance(value := getattr(made, field.name), _FUNCTIONS)
    }
    if not functions:
        return made
    made = copy.copy(made)  # the factory may have returned a shared object
    for name, function in functions.items():
        object.__setattr__(made, name, FactoryResult.of(function, call, name))
    return made


_FUNCTIONS = (FunctionType, FactoryResult)


# --- what pickle can do -------------------------------------------------------------


def _importable(function: Any) -> Any:
    """Return the object that a module has by the name of a function; decorators may wrap it."""
    try:
        found = operator.attrgetter(function.__qualname__)(sys.modules[function.__module__])
    except (AttributeError, KeyError):
        return function
    return found if _is_around(found, function) else function


def _is_around(found: Any, function: Any) -> bool:
    while found is not function and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found is function


def _unpicklable(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the paths of local functions and of iterators, which a factory has used up."""
    if isinstance(value, FactoryResult):  # it checks its own arguments
        return
    if isinstance(value, FunctionType):
        try:
            found = operator.attrgetter(value.__qualname__)(sys.modules[value.__module__])
        except (AttributeError, KeyError):
            found = None
        if found is not value:
            yield path, f"the function {name_of(value)}"
    elif isinstance(value, Iterator):
        yield path, f"a {type(value).__name__}"
    elif isinstance(value, functools.partial):
        yield from _unpicklable(f"{path}.func", value.func)
        yield from _unpicklable(f"{path}.args", value.args)
        yield from _unpicklable(f"{path}.keywords", value.keywords)
    elif isinstance(value, MethodType):
        yield from _unpicklable(f"{path}.__self__", value.__self__)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _unpicklable(f"{path}[{key!r}]", one)
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _unpicklable(f"{path}[{index}]", one)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _unpicklable(f"{path}.{field.name}", getattr(value, field.name, None))


def _by_value() -> bool:
    """Whether cloudpickle or dill is pickling, which store local functions by their code."""
    frame = sys._getframe()
    while frame is not None:
        if {"cloudpickle", "dill"} & set(frame.f_globals.get("__name__", "").split(".")):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
