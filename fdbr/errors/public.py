"""Public names.  Messages of errors begin with the name of the function that the user called.

Every call of a public function goes through a `boundary`, which catches its errors:

- Errors that the function has named are raised again.  Other errors get the name and the arguments.
- Public functions call each other.  The user called the outermost one, so its name is used.
- Errors that have passed through code of the user stay the same.  Errors with the name of a
  function that the user gave stay the same, too, and errors of rules in a backward pass.
- The call that makes a generator or a context manager has a boundary.  Its body has none.
"""

import functools
import inspect
import re
import traceback
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, TypeVar

from fdbr.errors.annotations import checks_of
from fdbr.errors.boundary import boundary
from fdbr.errors.checks import show
from fdbr.errors.constructors import constructor
from fdbr.errors.layer_path import placed
from fdbr.errors.tracebacks import hide_frames, is_users

__all__ = ["explaining", "name_of_public", "public", "unexplained"]

T = TypeVar("T")

_UNCHECKED = ("fdbr.ops", "fdbr.tree")  # these check their operands themselves

_NAMED = re.compile(r"fdbr\.(?:\w+\.)*(\w+)")
_ADDED = re.compile(r"data type '(bfloat16|float8_\w+)' not understood")
_KINDS: dict[type[Exception], type[Exception]] = {
    RecursionError: ValueError,
    OverflowError: ValueError,
    UnicodeError: ValueError,
    AttributeError: TypeError,
    KeyError: KeyError,
}


def public(room: str, name: str = "", *, explained: bool = True) -> Callable[[T], T]:
    """Declare a function, or a class with its constructors, public in a module of fdbr.

    Errors that leave it begin with its public name.  Arguments must be of the types that
    `checks_of` reads in the signature.  Operations and functions of trees check their operands
    themselves.

    Parameters
    ----------
    room
        The module that lists it in ``__all__``.
    name
        Its name there, if it differs from the name of the definition.
    explained
        Whether its errors are explained.  A function that takes any values saves the call.

    >>> @public("fdbr.ops")
    ... def mean(x):
    ...     return sum(x) / len(x)
    >>> mean([])
    Traceback (most recent call last):
        ...
    ZeroDivisionError: fdbr.ops.mean: division by zero (got x=list); help(fdbr.ops.mean) says what
    it takes
    """

    def declare(value: Any) -> Any:
        public_name = f"{room}.{name or value.__name__}"
        if isinstance(value, type):
            _explain_constructors(value, public_name)
        elif explained:
            value = _explaining(value, public_name, not room.startswith(_UNCHECKED))
        value.__public__ = public_name
        return value

    return declare


def explaining(name: str) -> Callable[[T], T]:
    """Let the errors of a method begin with the name of the function that made its object."""
    return lambda method: _explaining(method, name, False)


def name_of_public(value: Any) -> str | None:
    """Return the name that `public` has given a function or class, or `None`."""
    name: str | None = vars(value).get("__public__")  # a class does not inherit it
    return name


def _explain_constructors(cls: Any, name: str) -> None:
    """Let the constructors that a class defines explain their errors."""
    for method, value in list(vars(cls).items()):
        if method == "__init__" and isinstance(value, FunctionType):
            cls.__init__ = constructor(cls, name, _explaining(value, name, True))
        elif isinstance(value, classmethod) and method[0] != "_":
            made = _explaining(value.__func__, f"{name}.{method}", True)
            setattr(cls, method, classmethod(made))


def _explaining(function: Any, name: str, checked: bool) -> Any:
    """Return the function within a boundary, which names its errors."""
    parameters = inspect.signature(function).parameters
    checks = checks_of(parameters.values(), name) if checked else {}

    def explain(error: Exception, given: dict[str, Any]) -> Exception:
        chosen = {k: v for k, v in given.items() if v is not parameters[k].default}
        error = _explained(error, _asked(name, given), chosen)
        text = _text(error)
        if len(error.args) == 1 and text.startswith("fdbr."):
            error.args = (placed(text),)
        return error

    bare = [p.replace(annotation=p.empty, default=p.empty) for p in parameters.values()]
    arguments = (f"{p.name}={p}" if p.kind is p.KEYWORD_ONLY else str(p) for p in bare)
    statements = [f"{p} is default_{p} or check_{p}({p})" for p in checks]
    statements.append(f"return function_({', '.join(arguments)})")
    names = {f"check_{p}": check for p, check in checks.items()} | {"function_": function}
    made = boundary([*parameters.values()], "; ".join(statements), explain, names)
    return functools.update_wrapper(made, function)


def _asked(name: str, given: dict[str, Any]) -> str:
    """Return the name of a constructor with the class of the call, which may inherit it."""
    room, _, method = name.rpartition(".")
    if method[0] == "_" and "self" in given:  # the constructor of a private base
        return f"{room}.{type(given['self']).__name__}"
    cls = given.get("cls")
    if not isinstance(cls, type) or not cls.__module__.startswith("fdbr."):
        return name
    return f"{room.rpartition('.')[0]}.{cls.__name__}.{method}"


def _explained(error: Exception, name: str, given: dict[str, Any]) -> Exception:
    """Return the error to raise instead of an error that leaves a public function."""
    if is_users(error):
        hide_frames(error)
        return error
    text, named = _text(error), _NAMED.match(_text(error))
    if text.startswith((f"{name}:", f"{name}.", f"{name} of ")):
        return error.with_traceback(None)  # it says all, so the user's line is the last one
    if isinstance(error, AssertionError) or type(error).__module__.startswith("fdbr."):
        return error
    if named and ("is_from_rule" in vars(error) or _is_of_given(error, named[1], given.values())):
        return error
    origin = unexplained(error)
    if origin is error and named and text[named.end() :].startswith(": "):
        renamed = _made(error, f"{name}{text[named.end() :]}")
        renamed.__cause__ = error.__cause__
        return renamed
    text = _text(origin)
    if isinstance(origin, RecursionError):
        text = "an argument is nested too deep, or holds itself"
    elif isinstance(origin, KeyError):
        text = f"there is no {text!r}"
    elif _ADDED.fullmatch(text):
        text += "; it is one of ml_dtypes', which NumPy knows once that is imported"
    arguments = ", ".join(f"{k}={show(v)}" for k, v in given.items() if k not in ("self", "cls"))
    got = f" (got {arguments})" if arguments else ""
    made = _made(origin, f"{name}: {text}{got}; help({name}) says what it takes")
    made.__cause__ = origin
    vars(made)["explains"] = True
    return made


def unexplained(error: Exception) -> Exception:
    """Return the error that a public function explained by its arguments, or the error itself."""
    cause = error.__cause__
    return cause if "explains" in vars(error) and isinstance(cause, Exception) else error


def _is_of_given(error: Exception, name: str, values: Iterable[Any]) -> bool:
    """Whether a named error comes out of a function among the arguments, or one that it wraps."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    value: Any
    for value in filter(callable, values):
        for _ in range(16):  # a function may wrap itself
            if name in (str(getattr(value, "__name__", "")), type(value).__name__):
                return True
            if getattr(value, "__code__", None) in codes:
                return True
            wrapped = "func" if isinstance(value, functools.partial) else "__wrapped__"
            value = getattr(value, wrapped, None)
    return False


def _text(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def _made(error: Exception, text: str) -> Exception:
    """Return an error of the kind of another error, with another text."""
    kind = next((new for old, new in _KINDS.items() if isinstance(error, old)), type(error))
    try:
        return kind(text)
    except TypeError:  # a class whose errors are not made from a text
        return RuntimeError(text)
