"""Declare the shapes and dtypes of a function's arrays, and check each call."""

import ast
import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["typed"]

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
    "int": "iu",
    "float": "f",
    "complex": "c",
    "inexact": "fc",
    "real": "iuf",
}
_WEAK = {
    bool: frozenset("biufc"),
    int: frozenset("iufc"),
    float: frozenset("fc"),
    complex: frozenset("c"),
}
"""The kinds of dtypes that a Python number, which is weakly typed, is accepted for."""

_NAME = re.compile(r"\*?[A-Za-z_]\w*|\d+|\.\.\.")
_MOST = 1 << 10  # shapes and dtypes remembered for each function, which bounds its memory


@attrs.frozen
class Pattern:
    """The shape and dtype that one array must have.

    Attributes
    ----------
    text
        The pattern as it was declared.
    kinds
        Letters of NumPy's kinds of dtypes, or the dtype itself; `None` for any.
    before, rest, after
        The lengths of the first axes, the name for any number of axes in the middle (`None` if
        there is none), and the lengths of the last axes.
    """

    text: str
    kinds: Any
    before: tuple[str, ...]
    rest: str | None
    after: tuple[str, ...]


def _parse(text: Any, where: str) -> Pattern:
    if not isinstance(text, str):
        raise TypeError(f"{where} must be a string such as 'float[n c]', not {describe(text)}")
    dtype, bracket, axes = text.rpartition("[") if text.endswith("]") else ("", "", text)
    axes = axes[:-1] if bracket else axes
    names = axes.replace(",", " ").split()
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    many = [name for name in names if name[0] == "*" or name == "..."]
    if wrong or len(many) > 1:
        raise ValueError(
            f"{where}: {text!r} must list axes by names, numbers, and at most one '...' or "
            f"'*name' for any number of axes, not {wrong[0] if wrong else ' and '.join(many)!r}"
        )
    at = names.index(many[0]) if many else len(names)
    kinds = _kinds(dtype.strip(), where)
    return Pattern(
        text, kinds, tuple(names[:at]), many[0] if many else None, tuple(names[at + 1 :])
    )


def _kinds(name: str, where: str) -> Any:
    if not name:
        return None
    if name in _KINDS:
        return _KINDS[name]
    try:
        return np.dtype(name)
    except TypeError:
        raise ValueError(
            f"{where}: {name!r} is neither a dtype nor a kind of dtypes; the kinds are "
            f"{list(_KINDS)}"
        ) from None


# --- the check ----------------------------------------------------------------------


class _Check:
    """The check of one call: the lengths of named axes so far, and the arguments they came from."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.known: dict[str, tuple[Any, str]] = {}

    def fits(self, name: str, pattern: Pattern, value: Any) -> None:
        """Raise unless a value fits its pattern."""
        number = (
            value.__class__ if value.__class__ in _WEAK else None
        )  # a traced number has the class of its value
        shape = () if number else getattr(value, "shape", None)
        if not isinstance(shape, tuple):
            raise self.error(TypeError, name, pattern, value, "which is not an array")
        if number:
            fits = pattern.kinds is None or not _WEAK[number].isdisjoint(_letters(pattern.kinds))
        else:
            fits = pattern.kinds is None or _has_kind(value.dtype, pattern.kinds)
        if not fits:
            raise self.error(TypeError, name, pattern, value, "which has another dtype")
        fixed = len(pattern.before) + len(pattern.after)
        if len(shape) < fixed or (pattern.rest is None and len(shape) > fixed):
            least = "at least " * (pattern.rest is not None)
            why = f"which has {len(shape)} axes instead of {least}{fixed}"
            raise self.error(ValueError, name, pattern, value, why)
        end = len(shape) - len(pattern.after)
        for axis, label in [*enumerate(pattern.before), *enumerate(pattern.after, end)]:
            self._length(name, pattern, value, label, axis, shape[axis])
        if pattern.rest not in (None, "..."):
            self._axes(name, pattern, value, tuple(shape[len(pattern.before) : end]))

    def _length(
        self, name: str, pattern: Pattern, value: Any, label: str, axis: int, found: int
    ) -> None:
        if label == "_":
            return
        wanted, source = (int(label), "") if label.isdigit() else self.known.get(label, (None, ""))
        if wanted is None:
            self.known[label] = found, f"{name} {describe(value)}"
        elif found != wanted:
            why = f"whose axis {axis} has length {found}"
            why += f"; {label} is {wanted} by {source}" if source else f" instead of {wanted}"
            raise self.error(ValueError, name, pattern, value, why)

    def _axes(self, name: str, pattern: Pattern, value: Any, found: tuple[int, ...]) -> None:
        label = str(pattern.rest)
        wanted, source = self.known.setdefault(label, (found, f"{name} {describe(value)}"))
        if found != wanted:
            why = f"which has {found} for {label}; that is {wanted} by {source}"
            raise self.error(ValueError, name, pattern, value, why)

    def error(self, kind: type, name: str, pattern: Pattern, value: Any, why: str) -> Exception:
        """Make the error for a value that does not fit."""
        error: Exception = kind(
            f"{self.function}: {name} must be {pattern.text!r}, got {describe(value)}, {why}"
        )
        return error


def _letters(kinds: Any) -> str:
    return kinds if type(kinds) is str else dtype_kind(kinds)


def _has_kind(dtype: Any, kinds: Any) -> bool:
    return dtype_kind(dtype) in kinds if type(kinds) is str else bool(dtype == kinds)


# --- the decorator ------------------------------------------------------------------


@public("fdbr")
def typed(f: Any = None, /, *, returns: Any = None, **patterns: str) -> Any:
    """Declare the shapes and dtypes of the arrays that a function takes and returns.

    Each call is checked, under every transformation; an array that does not fit raises an error
    that names the function, the argument and the array.  Shapes and dtypes that passed once are
    remembered, so that a check costs a few microseconds.

    Parameters
    ----------
    f
        The function.  If `typed` is a decorator with arguments: nothing, or a mapping of further
        patterns, for names with dots: ``typed({"self.weight": "o c"}, x="n c")``.
    returns
        A pattern for the result, or a tuple of patterns.
    patterns
        A pattern for each argument to check, by its name.  Arguments that are `None` by default
        may be `None`.

    Returns
    -------
    function
        The function with the check.  As plain ``@typed``, patterns are its string annotations.

    Raises
    ------
    TypeError, ValueError
        At the declaration, if a pattern cannot be parsed or an argument does not exist.  At a
        call, if an array has another dtype (TypeError) or another shape (ValueError).

    Notes
    -----
    A pattern lists the axes: ``"n c h w"``.  A name means the same length everywhere in one call,
    a number that length, ``_`` any length, ``...`` any number of axes, and ``*name`` the same axes
    everywhere, any number of them.  A dtype may precede them, ``"float32[n c]"``, or a kind of
    dtypes: ``bool``, ``int``, ``float``, ``complex``, ``real``, ``inexact``, or a kind of the Array
    API's ``isdtype``.  ``""`` and ``"float[]"`` are scalars.  Under `vmap` a pattern describes one
    example.

    >>> import fdbr, numpy as np
    >>> @fdbr.typed(x="float[*batch c]", weight="o c", returns="*batch o")
    ... def project(x, weight):
    ...     return x @ weight.T
    >>> project(np.ones((5, 2)), np.ones((3, 2))).shape
    (5, 3)
    >>> project(np.ones((5, 2)), np.ones((3, 4)))
    Traceback (most recent call last):
        ...
    ValueError: project: weight must be 'o c', got float64[3,4], whose axis 1 has length 4; c is 2 \
by x float64[5,2]
    """
    if f is None or isinstance(f, Mapping):
        given = dict(f or {}) | patterns
        return lambda function: _with_check(function, given, returns)
    if not callable(f):
        raise TypeError(f"fdbr.typed: it takes a function, not {describe(f)}")
    return (
        _with_check(f, patterns, returns)
        if patterns or returns
        else _with_check(f, *_annotated_patterns(f))
    )


def _annotated_patterns(f: Callable[..., Any]) -> tuple[dict[str, str], Any]:
    """Collect the patterns among a function's annotations: those written as strings."""
    found = dict(getattr(f, "__annotations__", {}))
    # With ``from __future__ import annotations`` every annotation is a string of its source;
    # CPython marks such functions by this flag.
    if getattr(getattr(f, "__code__", None), "co_flags", 0) & 0x1000000:
        found = {k: ast.literal_eval(v) for k, v in found.items() if v[:1] in ("'", '"')}
    found = {name: text for name, text in found.items() if isinstance(text, str)}
    return {name: text for name, text in found.items() if name != "return"}, found.get("return")


def _with_check(f: Callable[..., Any], given: Mapping[str, str], returns: Any) -> Any:
    name = getattr(f, "__qualname__", type(f).__qualname__).rpartition("<locals>.")[2]
    parameters = inspect.signature(f).parameters
    arguments: list[_Argument] = []
    for path, text in given.items():
        head, _, rest = path.partition(".")
        parameter = parameters.get(head)
        if parameter is None:
            raise TypeError(
                f"fdbr.typed: {name} has no argument {head!r}; there are {list(parameters)}"
            )
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"fdbr.typed: {head} of {name} collects any number of arguments")
        named = parameter.kind is parameter.KEYWORD_ONLY
        arguments.append(
            _Argument(
                path,
                _parse(text, f"fdbr.typed: the pattern of {path} of {name}"),
                sys.maxsize if named else list(parameters).index(head),
                head,
                _MISSING if parameter.default is parameter.empty else parameter.default,
                operator.attrgetter(rest) if rest else None,
            )
        )
    single = isinstance(returns, str)
    expected = [] if returns is None else [returns] if single else list(returns)
    results = [
        _parse(text, f"fdbr.typed: the pattern of the result of {name}") for text in expected
    ]
    seen: set[Any] = set()

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        values = []
        count = len(args)
        for _, _, position, head, default, get in arguments:
            value = args[position] if position < count else kwargs.get(head, default)
            values.append(value if get is None or value is _MISSING else get(value))
        key = _key(values)
        known = key in seen
        check = None if known else _check(name, arguments, values)
        out = f(*args, **kwargs)
        if results:
            outs: Any = (out,) if single else out
            key += _key(outs) if single or type(out) is tuple else ()
            known = known and key in seen
            if not known:
                _check_results(check or _check(name, arguments, values), results, outs, single)
        if not known:
            _remember(seen, _key(values), key)
        return out

    return checked


_MISSING: Any = object()


class _Argument(NamedTuple):
    """An argument to check: its position in a call and its pattern."""

    path: str
    pattern: Pattern
    position: int
    name: str
    default: Any
    get: Callable[[Any], Any] | None


def _key(values: Iterable[Any]) -> tuple[Any, ...]:
    """Make a key of shapes and dtypes, by which values that passed are recognized."""
    key: list[Any] = []
    for value in values:
        try:
            key += (value.shape or value.__class__, value.dtype)  # numbers are weak
        except AttributeError:
            key.append(type(value))
    return tuple(key)


def _check(name: str, arguments: Sequence[_Argument], values: Sequence[Any]) -> _Check:
    check = _Check(name)
    for argument, value in zip(arguments, values, strict=True):
        # The function itself raises the error for a missing argument.
        if value is not _MISSING and not (value is None is argument.default):
            check.fits(argument.path, argument.pattern, value)
    return check


def _check_results(check: _Check, results: Sequence[Pattern], outs: Any, single: bool) -> None:
    if not single and (not isinstance(outs, Sequence) or len(outs) != len(results)):
        raise TypeError(
            f"{check.function}: the result must be a tuple of {len(results)}, got {describe(outs)}"
        )
    for number, (pattern, out) in enumerate(zip(results, outs, strict=True)):
        check.fits("the result" if single else f"result {number}", pattern, out)


def _remember(seen: set[Any], *keys: Any) -> None:
    if len(seen) >= _MOST:
        seen.clear()
    seen.update(keys)
