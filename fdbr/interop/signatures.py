"""NumPy's functions by their own signatures: which arguments reach fdbr's, and which are refused.

What stands for a function of NumPy is a function with the same parameter names, as far as these
have a meaning for traced values.  `bound` puts NumPy's signature before it: an argument that it
does not take is dropped where it changes nothing, and refused by name where it would.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.exceptions import AxisError

from fdbr.core.tracer import Tracer
from fdbr.core.tracer_methods import functions
from fdbr.errors.checks import recoverable

__all__ = ["as_scalar", "bound", "implements", "numpys_error", "refuse", "scalars"]

_HARMLESS = frozenset({"copy", "overwrite_input", "subok"})
"""Parameters that do not change values: how memory is used, and which class the result has."""

_REASONS = {
    "out": "arrays are never written to here. Take the result instead",
    "where": "elements left out would have no value. Use ops.where(condition, result, otherwise)",
    "writeable": "arrays are never written to here. Leave it out",
}
_COUNTING = frozenset({"axis", "axis1", "axis2", "source", "destination", "n", "repeats"})
_NO_MEANING = "this has no meaning for traced values. Leave it out"


def refuse(name: str, parameter: str, reason: str | None = None) -> NoReturn:
    """Raise the error for an argument of a NumPy function that traced values do not take."""
    reason = reason or _REASONS.get(parameter, _NO_MEANING)
    error = TypeError(f"{name}(…, {parameter}=…) with a traced value: {reason}.")
    vars(error)["refuses"] = parameter
    raise error


def implements(
    *names: str, module: Any = np, refuses: dict[str, str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as what those of these names in one of NumPy's modules do."""
    prefix = module.__name__.replace("numpy", "np", 1)

    def enter(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if hasattr(module, name):  # some came with a later version of NumPy
                function = getattr(module, name)
                label = f"{prefix}.{function.__name__}"
                functions[function] = bound(function, implementation, label, refuses or {})
        return implementation

    return enter


def scalars(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """Make results without dimensions scalars, as those of most of NumPy's functions are."""

    @functools.wraps(implementation)
    def plain(*args: Any, **kwargs: Any) -> Any:
        out = implementation(*args, **kwargs)
        if type(out) is tuple:
            return tuple(map(as_scalar, out))
        return as_scalar(out)

    return plain


def as_scalar(out: Any) -> Any:
    """A result without dimensions as a scalar."""
    return out[()] if issubclass(out.__class__, np.ndarray) and not out.ndim else out


def bound(
    function: Any, implementation: Callable[..., Any], name: str, refuses: dict[str, str]
) -> Callable[..., Any]:
    """``implementation``, called as ``function`` is.

    Parameters
    ----------
    function
        NumPy's own, whose signature counts.
    implementation
        It takes the first parameters in NumPy's order, by whatever name where they are positional
        only, and further ones by NumPy's names.
    name
        How messages call it.
    refuses
        Why it does not take a parameter, by its name.
    """
    own = inspect.signature(implementation)
    theirs = signature_of(function, own)
    first, names = _direct(own, theirs)

    def call(*args: Any, **kwargs: Any) -> Any:
        # NumPy's own functions say it.
        if kwargs and any(value is np._NoValue for value in kwargs.values()):
            kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
        try:
            if len(args) <= first and (not kwargs or kwargs.keys() <= names):
                return implementation(*args, **kwargs)
            return rebound(args, kwargs)
        except recoverable() as error:
            return settled(error, args, kwargs)

    def settled(error: Exception, args: Any, kwargs: Any) -> Any:
        found = None
        try:
            try:
                given = theirs.bind(*args, **kwargs).arguments
            except TypeError:
                raise error from None
            if "refuses" in vars(error) or given.get("out") is not None:  # NumPy would write to it
                raise error
            found = numpys_error(function, error, args, kwargs)
            first: Any = next(iter(given.values()), None)
            if found is None and isinstance(error, AxisError) and not np.ndim(first):
                # NumPy takes an array without dimensions as its one element, along axis 0 or -1.
                return called_with({**given, "axis": None})
            truths = {n: int(v) for n, v in given.items() if n in _COUNTING and isinstance(v, bool)}
            if found is None and truths:  # some of NumPy's functions take them for integers
                return called_with({**given, **truths})
            if found is None and given.get("axis", 0) is None:  # to some it is as if not given
                return called_with({n: v for n, v in given.items() if n != "axis"})
            raise error if found is None else found.with_traceback(error.__traceback__) from None
        finally:
            del error, found  # whose tracebacks refer to this frame

    def called_with(arguments: dict[str, Any]) -> Any:
        given = inspect.BoundArguments(theirs, arguments)
        return rebound(given.args, given.kwargs)

    def rebound(args: Any, kwargs: Any) -> Any:
        try:
            given = theirs.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        positional, named = _kept(given, own, name, refuses)
        return implementation(*positional, **named)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of traced values."
    call.__signature__ = theirs  # type: ignore[attr-defined]
    call.implementation = implementation  # type: ignore[attr-defined]
    return call


def numpys_error(function: Any, error: Exception, args: Any, kwargs: Any) -> Exception | None:
    """Return ``error``, in the type that NumPy's function raises; `None` where it raises nothing.

    NumPy's function is called on arrays of ones in the shapes and dtypes of the traced arguments,
    so its answer holds for errors that depend on nothing else.  A call that calls its arguments
    is not repeated.
    """
    if any(callable(v) and not isinstance(v, type) for v in [*args, *kwargs.values()]):
        return error
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            function(*map(_ones_like, args), **{k: _ones_like(v) for k, v in kwargs.items()})
    except Exception as theirs:
        kind = next(
            kind
            for kind in type(theirs).__mro__
            if kind.__module__ in ("builtins", "numpy.exceptions", "numpy.linalg")
        )
        return error if isinstance(error, kind) else kind(str(error))
    return None


def _ones_like(value: Any) -> Any:
    if isinstance(value, Tracer):
        like: Any = value
        return np.ones(like.shape, like.dtype)[()]
    if type(value) in (list, tuple):
        return type(value)(map(_ones_like, value))
    return value


def signature_of(function: Any, otherwise: inspect.Signature) -> inspect.Signature:
    """NumPy's signature of a function, where it can be found; it can of all in recent versions."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return otherwise


_ONE = inspect.Parameter.POSITIONAL_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_REST = inspect.Parameter.VAR_POSITIONAL
_NAMED = inspect.Parameter.KEYWORD_ONLY
_OTHERS = inspect.Parameter.VAR_KEYWORD


def _direct(own: inspect.Signature, theirs: inspect.Signature) -> tuple[float, frozenset[str]]:
    """The number of arguments by position, and the names of others, that mean the same in both."""
    first: float = 0
    for mine, other in zip(own.parameters.values(), theirs.parameters.values(), strict=False):
        if mine.kind is other.kind is _REST:
            first = float("inf")
        elif mine.kind is _ONE or (mine.kind is _EITHER and mine.name == other.name):
            first += 1
            continue
        break
    named = {p.name for p in own.parameters.values() if p.kind in (_EITHER, _NAMED)}
    return first, frozenset(named & theirs.parameters.keys())


def _kept(
    given: inspect.BoundArguments, own: inspect.Signature, name: str, refuses: dict[str, str]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for a function with the signature ``own``; the others must change nothing."""
    mine = own.parameters
    unnamed = sum(p.kind is _ONE for p in mine.values())
    others = any(p.kind is _OTHERS for p in mine.values())
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter, value in given.arguments.items():
        theirs = given.signature.parameters[parameter]
        if theirs.kind is _REST:
            positional += value
        elif theirs.kind is _OTHERS:
            for extra in value:
                if not others and extra not in mine:
                    refuse(name, extra, refuses.get(extra))
            named |= value
        elif len(positional) < unnamed or theirs.kind is _ONE:
            positional.append(value)
        elif parameter in mine or others:
            named[parameter] = value
        elif not _changes_nothing(parameter, value, theirs.default, refuses):
            refuse(name, parameter, refuses.get(parameter))
    return positional, named


def _changes_nothing(parameter: str, value: Any, default: Any, refuses: dict[str, str]) -> bool:
    if value is default or (parameter in _HARMLESS and parameter not in refuses):
        return True
    return (
        type(value) is type(default)
        and isinstance(value, str | int | float | tuple)
        and (value == default)
    )
