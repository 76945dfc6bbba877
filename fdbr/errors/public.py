"""Errors of public functions, which begin with the function's name and say what to do.

Checks in the functions themselves tell what is wrong with an argument, where that is worth a
sentence of its own.  What is left over (an error that Python, NumPy or another function raised
within) is explained here, on its way out: by the name of the function that was called, and the
arguments that it got.  Nothing is checked before, so a call that succeeds costs one function call
more, and operations, which `core.dispatch` explains, not even that.

Within a call of a layer they end with its path in the model (`fdbr.errors.layer_path`).

Errors of functions that the user gave (of the function that is differentiated) stay what they are,
and so do those of fdbr's own functions where the user gave these, and of rules in a backward pass.
"""

import functools
import inspect
import numbers
import operator
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType, ModuleType, NoneType, UnionType
from typing import Any, TypeVar

import attrs
import numpy as np

from fdbr.errors.checks import describe, is_interrupt
from fdbr.errors.layer_path import placed
from fdbr.pytrees.classes import fields_of

__all__ = ["explaining", "name_of_public", "public", "unexplained"]

_OURS = frozenset(sys.stdlib_module_names) | {
    "attr", "attrs", "cupy", "fdbr", "h5py", "hypothesis", "llvmlite", "numpy", "optree",
    "safetensors", "scipy", "tqdm",
}  # fmt: skip
Function = Callable[..., Any]
T = TypeVar("T")

_UNCHECKED = ("fdbr.ops", "fdbr.tree")  # these check their operands themselves

_HANDING_ON = {"_array_ufunc", "_array_function", "backward"}  # to what NumPy, and a tape, call
_INTEGERS = (int, np.integer)
_BARE = "_fdbr_text"
"""The attribute of an error explained here that has the text without the arguments."""
_INNER = re.compile(r"fdbr\.[\w.]+: ")
_ADDED = re.compile(r"data type '(bfloat16|float8_\w+)' not understood")
_KINDS: dict[type[BaseException], type[Exception]] = {
    RecursionError: ValueError,
    OverflowError: ValueError,
    UnicodeError: ValueError,
    AttributeError: TypeError,
    KeyError: KeyError,
}


def public(room: str, name: str = "", *, explained: bool = True) -> Callable[[T], T]:
    """Declare a function, or a class with its constructors, public in a module of fdbr.

    Errors that leave it begin with its public name.  Arguments must be what the signature says, as
    far as that is a flag, an integer, a number, a string or a function; operations and functions
    of trees check their operands themselves.

    Parameters
    ----------
    room
        The module in whose ``__all__`` it stands.
    name
        Its name there, if that is not the one of the definition.
    explained
        Whether its errors are explained.  A function that is called for every operation, and takes
        any values, saves the call that this costs.

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
            made: Any = value
        elif not explained:
            made = value
        else:
            made = _explaining(value, public_name, not room.startswith(_UNCHECKED))
        made.__public__ = public_name
        return made

    return declare


def explaining(name: str) -> Callable[[T], T]:
    """Have the errors of a method begin with the name of what made its object."""

    def declare(method: Any) -> Any:
        return _explaining(method, name, False)

    return declare


def name_of_public(value: Any) -> str | None:
    """The name by which a function or class was declared `public`; `None` if it was not."""
    name: str | None = vars(value).get("__public__")  # a class does not inherit it
    return name


def _explain_constructors(cls: Any, name: str) -> None:
    """Have the constructors that a class defines explain their errors."""
    for method, value in list(vars(cls).items()):
        if method == "__init__" and isinstance(value, FunctionType):
            made = _explaining(value, name, True)
            cls.__init__ = _constructor(made, cls, name) if _is_made_by_init(cls) else made
        elif isinstance(value, classmethod) and method[0] != "_":
            made = _explaining(value.__func__, f"{name}.{method}", True)
            setattr(cls, method, classmethod(made))


def _is_made_by_init(cls: type) -> bool:
    """Whether a frozen class has an ``init`` that draws its arrays by a key, as layers have."""
    init = getattr(cls, "init", None)
    code = getattr(inspect.unwrap(init), "__code__", None) if inspect.ismethod(init) else None
    return code is not None and code.co_varnames[1:2] == ("key",) and fields_of(cls) is not None


def _constructor(constructor: Any, cls: Any, name: str) -> Any:
    """The same constructor, which refuses what ``init`` takes and names it: ``Linear(4, 8)``.

    Only calls of the class come here: `pytrees.structure` makes nodes without it, so what their
    fields hold is not looked at.
    """
    first = operator.attrgetter(fields_of(cls)[0][0])  # type: ignore[index]

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            constructor(self, *args, **kwargs)
        except TypeError as error:
            within = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if within and not (args and _is_of_init(args[0])):
                raise
            raise TypeError(_use_init(cls, name, args, kwargs)) from error
        if _is_of_init(first(self)):
            raise TypeError(_use_init(cls, name, args, kwargs))

    return functools.update_wrapper(__init__, constructor)


def _use_init(cls: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The message that shows the call of ``init`` with the same arguments, or its declaration."""
    given = {k: v for k, v in kwargs.items() if k != "key"}
    call = [_shown_size(value) for value in args if not _is_key(value)]
    call += [f"{key}={_shown_size(value)}" for key, value in given.items()]
    if not any(map(_is_size, (*args, *given.values()))):
        init = inspect.signature(cls.init).parameters.values()
        needed = (p for p in init if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)
        call = [p.name for p in needed][1:]
    return (
        f"{name}: the constructor takes the fields ({', '.join(attrs.fields_dict(cls))}) "
        f"themselves; to make a layer with fresh parameters, use {name}.init"
        f"({', '.join(['key', *call])})"
    )


def _shown_size(value: Any) -> str:
    return repr(value) if _is_size(value) else _shown(value)


def _is_of_init(value: Any) -> bool:
    """Whether a value is what ``init`` takes first: a key, a size or a shape."""
    return _is_size(value) or _is_key(value)


def _is_size(value: Any) -> bool:
    """Whether a value can only be a size or a shape.

    Zero, negative numbers and truth values may be in the place of arrays, in trees of axes
    and of masks.
    """
    if type(value) is tuple:
        return bool(value) and all(type(size) is int and size > 0 for size in value)
    return isinstance(value, _INTEGERS) and type(value) is not bool and bool(value > 0)


def _is_key(value: Any) -> bool:
    return getattr(value, "shape", None) == (2,) and getattr(value, "dtype", None) == np.uint64


def _explaining(function: Any, name: str, checked: bool) -> Any:
    """The same function, whose errors begin with a name."""

    def explain(error: Exception, given: dict[str, Any]) -> Exception:
        if is_interrupt(error):
            return error
        usual = {p.name: p.default for p in inspect.signature(function).parameters.values()}
        chosen = {key: value for key, value in given.items() if value is not usual[key]}
        explained = _explained(error, _asked(name, given), chosen)
        if len(explained.args) == 1 and _text(explained).startswith("fdbr."):
            explained.args = (placed(_text(explained)),)
        return explained

    parameters = list(inspect.signature(function).parameters.values())
    return _around(function, parameters, explain, _checks(parameters, name) if checked else {})


def _asked(name: str, given: dict[str, Any]) -> str:
    """The name of a constructor by the class that was asked, which may have inherited it."""
    room, _, method = name.rpartition(".")
    if method[0] == "_" and "self" in given:  # the constructor of a private base
        return f"{room}.{type(given['self']).__name__}"
    room, _, owner = room.rpartition(".")
    cls = given.get("cls")
    if not isinstance(cls, type) or not room or cls.__name__ == owner:
        return name
    return f"{room}.{cls.__name__}.{method}" if cls.__module__.startswith("fdbr.") else name


def _around(
    function: Any,
    parameters: list[inspect.Parameter],
    explain: Function,
    checks: dict[str, Function],
) -> Any:
    """A function of the same signature around another, spelled out, as that takes least time."""
    heads: list[str] = []
    calls = []
    after_star = False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not after_star:
            heads.append("*")
            after_star = True
        star = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        after_star = after_star or star == "*"
        default = "" if p.default is p.empty else "=None"
        heads.append(f"{star}{p.name}{default}")
        calls.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else f"{star}{p.name}")
        rest = parameters[i + 1 :]
        if p.kind is p.POSITIONAL_ONLY and (not rest or rest[0].kind is not p.POSITIONAL_ONLY):
            heads.append("/")
    names = ", ".join(f"{p.name!r}: {p.name}" for p in parameters)
    usual = {p.name: p.default for p in parameters}
    checked = "; ".join(f"{key} is usual_{key} or check_{key}({key})" for key in checks)
    line = sys._getframe().f_lineno + 1  # tracebacks show the lines that follow
    source = "\n" * line + (
        "def make(function_, explain_, checks_, usual_):\n"
        f" {''.join(f'check_{key}, ' for key in checks) or '_'} = checks_\n"
        f" {''.join(f'usual_{key}, ' for key in checks) or '_'} = usual_\n"
        f" def around({', '.join(heads)}):\n"
        "  try:\n"
        f"   {checked or 'pass'}\n"
        f"   return function_({', '.join(calls)})\n"
        f"  except Exception as error_: explained_ = explain_(error_, {{{names}}})\n"
        "  try: raise explained_\n"
        "  finally: del explained_\n"  # its traceback has this frame, which must not have it
        " return around\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), scope)
    defaults = tuple(usual[key] for key in checks)
    around = scope["make"](function, explain, tuple(checks.values()), defaults)
    # In the namespace of the function itself, where doctest looks for it.
    made: Any = FunctionType(
        around.__code__, function.__globals__, function.__name__, None, around.__closure__
    )
    optional = [p for p in parameters if p.default is not p.empty]
    made.__defaults__ = tuple(p.default for p in optional if p.kind is not p.KEYWORD_ONLY)
    made.__kwdefaults__ = {p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY}
    made.__dict__.update(vars(function))
    for attribute in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(made, attribute, getattr(function, attribute))
    made.__wrapped__ = function
    return made


# --- what signatures say ------------------------------------------------------------


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or hasattr(value, "dtype")


def _is_integer(value: Any) -> bool:
    return (hasattr(value, "__index__") and not isinstance(value, bool)) or hasattr(value, "dtype")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) or hasattr(value, "dtype")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_KNOWN: dict[Any, tuple[Function, str]] = {
    bool: (_is_flag, "must be True or False, not"),
    int: (_is_integer, "must be an integer, got"),
    float: (_is_number, "must be a number, not"),
    str: (_is_text, "must be a string, not"),
    Callable: (callable, "must be a function, not"),
}


def _checks(parameters: list[inspect.Parameter], name: str) -> dict[str, Function]:
    """For each parameter whose annotation tells what it must be, a function that checks it."""
    found = {}
    for p in parameters:
        kinds: Any = [p.annotation]
        if typing.get_origin(p.annotation) in (UnionType, typing.Union):
            kinds = [kind for kind in typing.get_args(p.annotation) if kind is not NoneType]
        kind = typing.get_origin(kinds[0]) or kinds[0]
        if len(kinds) == 1 and kind in _KNOWN and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            fits, message = _KNOWN[kind]
            if p.default is not None and kinds[0] is not p.annotation:
                fits = _or_none(fits)
            found[p.name] = _check(f"{name}: {p.name}", fits, message)
    return found


def _or_none(fits: Function) -> Function:
    return lambda value: value is None or fits(value)


def _check(what: str, fits: Function, message: str) -> Function:
    def check(value: Any) -> None:
        if not fits(value):
            raise TypeError(f"{what} {message} {describe(value)}")

    return check


# --- what an error says -------------------------------------------------------------


def _explained(error: Exception, name: str, given: dict[str, Any]) -> Exception:
    """The error to raise for one that a public function is about to raise."""
    text = _text(error)
    if text.startswith((f"{name}:", f"{name} of ")) or _says_all(error):
        return error
    if _passes_through_others(error):
        return error
    if text.startswith("fdbr.") and _passes_through(error, given.values()):
        return error
    bare = unexplained(error)
    if bare is not error:  # a public function within has explained it, by its own arguments
        return _with_arguments(bare, vars(error)[_BARE], name, given)
    inner = _INNER.match(text)
    if inner is not None:  # a function within has said what is wrong
        return _made(error, f"{name}: {text[inner.end() :]}")
    if isinstance(error, RecursionError):
        text = "an argument is nested too deep, or holds itself"
    elif isinstance(error, KeyError):
        text = f"there is no {text!r}"
    elif _ADDED.fullmatch(text):
        text += "; it is one of ml_dtypes', which NumPy knows once that is imported"
    return _with_arguments(error, text, name, given)


def _with_arguments(error: Exception, text: str, name: str, given: dict[str, Any]) -> Exception:
    """The error that says which public function was called, and with which arguments."""
    arguments = ", ".join(f"{k}={_shown(v)}" for k, v in given.items() if k not in ("self", "cls"))
    got = f" (got {arguments})" if arguments else ""
    made = _made(error, f"{name}: {text}{got}; help({name}) says what it takes")
    vars(made)[_BARE] = text
    return made


def unexplained(error: Exception) -> Exception:
    """Return the error that a public function explained by its arguments; others as they are."""
    cause = error.__cause__
    return cause if _BARE in vars(error) and isinstance(cause, Exception) else error


def _says_all(error: Exception) -> bool:
    """Whether an error is a finding, or of a kind of fdbr's own."""
    return isinstance(error, AssertionError) or type(error).__module__.startswith("fdbr.")


def _text(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def _made(error: Exception, text: str) -> Exception:
    """An error of the kind of another, with another text, caused by it."""
    kind = next((new for old, new in _KINDS.items() if isinstance(error, old)), type(error))
    try:
        made = kind(text)
    except TypeError:  # a class whose errors are not made of a text
        made = RuntimeError(text)
    made.__cause__ = error
    return made


def _passes_through_others(error: Exception) -> bool:
    """Whether an error comes out of code that is neither fdbr's nor of what it is built on."""
    for frame in _frames(error):
        name = frame.f_globals.get("__name__") or ""
        if name and name.partition(".")[0] not in _OURS:  # ours is also what was made by eval
            return True
    return False


def _passes_through(error: Exception, given: Iterable[Any]) -> bool:
    """Whether an error comes out of a function among the arguments, or of a rule on a tape."""
    codes = {id(code) for value in given if callable(value) for code in _codes(value)}
    return any(
        id(frame.f_code) in codes or frame.f_code.co_name in _HANDING_ON for frame in _frames(error)
    )


def _frames(error: Exception) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _codes(function: Any) -> Iterator[CodeType]:
    """The code that runs when a function, or what can be called as one, is called."""
    if isinstance(function, functools.partial):
        yield from _codes(function.func)
    for called in (function, inspect.getattr_static(type(function), "__call__", None)):
        code = getattr(called, "__code__", None)  # of a method, that of its function
        if isinstance(code, CodeType):
            yield code


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) < 40 else f"{value[:40]!r}…"
    if isinstance(value, type | FunctionType | ModuleType):
        return getattr(value, "__qualname__", None) or value.__name__
    if isinstance(value, int) and abs(value) > 10**20:
        return f"an integer of {value.bit_length()} bits"
    return describe(value)
