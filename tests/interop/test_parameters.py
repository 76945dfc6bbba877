"""Every parameter of every NumPy function and ufunc that takes traced values.

It works as in NumPy, whose own function gives the value, and the differences with which the
derivative is compared; or it is refused by an error that names the function and the parameter.
"""

import inspect
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr.core import tracer_methods
from fdbr.testing import assert_allclose
from interop.parameters import ARGUMENTS, NEEDED, OWN, TRIED
from interop.test_numpy_refusals import REFUSED

WRITING = {f for calls in REFUSED.values() for f in calls}
PRINTING = {np.array2string, np.array_repr, np.array_str}  # of a traced value they say so
SYMMETRIC = {np.linalg.eigh, np.linalg.eigvalsh, np.linalg.cholesky}
MAKING = {f for f in tracer_methods.functions if "like" in inspect.signature(f).parameters}
FUNCTIONS = [
    f for f in tracer_methods.functions if f not in WRITING | PRINTING | MAKING | {np.empty_like}
]


def name_of(function: Any) -> str:
    return f"{function.__module__.replace('numpy', 'np', 1)}.{function.__name__}"


def leaves(out: Any) -> list[Any]:
    """The arrays of a result of whatever form."""
    if isinstance(out, list | tuple):
        return [leaf for part in out for leaf in leaves(part)]
    return [out]


def arrays_in(value: Any) -> Any:
    """Whether an argument can be traced."""
    first = value[-1] if isinstance(value, list | tuple) and value else value
    return isinstance(first, np.ndarray) and first.dtype.kind in "fc"


class Call:
    """One call: its arguments, of which the first of floating numbers is traced."""

    def __init__(self, function: Any, arguments: dict[str, Any]) -> None:
        self.function, self.arguments = function, arguments
        # These say that they take it by name, and do not.
        self.unnamed = ["x"] if function.__name__.startswith("unique_") else []
        self.traced = next((k for k, v in arguments.items() if arrays_in(v)), None)

    def __call__(self, x: Any = None) -> Any:
        given = dict(self.arguments)
        if x is not None:
            old = given[self.traced]
            given[self.traced] = type(old)([*old[:-1], x]) if isinstance(old, list | tuple) else x
        positional, named = [], {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name not in given:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += given[name]
            elif parameter.kind is parameter.POSITIONAL_ONLY or name in self.unnamed:
                positional.append(given[name])
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= given[name]
            else:
                named[name] = given[name]
        return self.function(*positional, **named)

    @property
    def x(self) -> Any:
        value = self.arguments[self.traced]
        return value[-1] if isinstance(value, list | tuple) else value

    def number(self, x: Any) -> Any:
        """One number of which all floating results are part."""
        if self.function in SYMMETRIC:
            x = (x + x.T) / 2
        total: Any = 0.0
        for i, leaf in enumerate(leaves(self(x))):
            if (
                not isinstance(leaf, type)
                and getattr(leaf, "dtype", None)
                and leaf.dtype.kind in "fc"
            ):
                bent = np.where(np.isfinite(leaf), leaf, 0) * (1 + 0.3 * i)
                total = total + np.sum(np.real(bent * np.conj(bent)))
        return total


def base(function: Any) -> dict[str, Any]:
    own = ARGUMENTS.get(function.__name__, {})
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        needed = (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        )
        if name in own:
            found[name] = own[name]
        elif needed and (parameter.kind is not parameter.VAR_POSITIONAL or not found):
            found[name] = NEEDED[name]
    return found


def check(call: Call) -> None:
    """That a call has NumPy's value and the derivative of NumPy's function."""
    expected = call()
    traced, _ = fdbr.vjp(lambda x: (call(x), x), call.x)
    for got, wanted in zip(leaves(traced[0]), leaves(expected), strict=True):
        if hasattr(wanted, "dtype"):
            assert np.shape(got) == np.shape(wanted)
        if isinstance(wanted, np.ndarray | np.generic) and wanted.dtype.kind in "fcbiu":
            tolerance = 1e-5 if wanted.dtype.itemsize < 8 else 1e-10
            assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    x, step = call.x, np.random.default_rng(0).normal(size=call.x.shape)
    narrow = any(getattr(leaf, "dtype", None) in ("f4", "c8") for leaf in leaves(expected))
    h, tolerance = (1e-3, 2e-2) if narrow else (1e-6, 1e-5)
    if x.dtype.kind == "f":
        slope = np.sum(fdbr.grad(lambda x: call.number(x) + 0 * np.sum(x * (x == x)))(x) * step)
        with np.errstate(all="ignore"):
            difference = (call.number(x + h * step) - call.number(x - h * step)) / (2 * h)
        assert_allclose(slope, difference, rtol=tolerance, atol=tolerance)


def refused_by_name(call: Call, function: Any, parameter: str) -> None:
    """That a call raises an error that names the function and the parameter."""
    with pytest.raises((TypeError, ValueError)) as caught:
        fdbr.vjp(lambda x: (call(x), x), call.x)
    words = str(caught.value)
    assert function.__name__ in words, words
    assert parameter in words, words


REFUSES = {
    ("nan_to_num", "copy"),
    ("qr", "mode"),
    ("ravel", "order"),
    ("reshape", "order"),
    ("sliding_window_view", "writeable"),
    *((name, "dtype") for name in ("std", "var", "nanstd", "nanvar")),
}
"""What NumPy takes and traced values do not, besides ``out``, whose reasons messages give."""


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_every_parameter_works_as_in_numpy_or_is_refused_by_name(function):
    needed = base(function)
    if Call(function, needed).traced is None:
        return  # it takes shapes alone; traced values come to it by ``like``, below
    check(Call(function, needed))
    own = OWN.get(function.__name__, {})
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "like" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        values = own.get(name, [] if name in needed else TRIED.get(name))
        assert values is not None, f"say in parameters.py what to try of {name}"
        for value in values:
            call = Call(function, needed | {name: value})
            if name == "out":
                refused_by_name(call, function, name)
                continue
            try:
                call()
            except Exception:
                continue  # NumPy does not take it either
            try:
                check(call)
            except TypeError as error:
                if (function.__name__, name) not in REFUSES:
                    raise AssertionError(f"{name_of(function)} with {name}={value!r}") from error
                refused_by_name(call, function, name)
            except Exception as error:
                raise AssertionError(f"{name_of(function)} with {name}={value!r}") from error


A = np.array([[0.5, 1.5, 1.1], [2.0, 0.25, 0.75]])
KEYWORDS = {
    np.clip: [
        {"min": 0.6, "max": 1.2, "dtype": np.float32},
        {"min": 0.6, "casting": "same_kind"},
        {"max": 1.2, "order": "F", "subok": False},
        {"min": 0.6, "where": np.array([True, False, True])},
        {"min": 0.6, "out": np.zeros((2, 3))},
        {"min": 0.6, "nonsense": 1},
    ],
    np.pad: [
        {"pad_width": 1, "constant_values": 2.0},
        {"pad_width": ((0, 1), (2, 0)), "constant_values": ((1.0, 2.0), (3.0, 4.0))},
        *({"pad_width": 2, "mode": m, "stat_length": 1} for m in ("maximum", "mean", "minimum")),
        {"pad_width": 2, "mode": "median"},
        {"pad_width": 2, "mode": "linear_ramp", "end_values": (1.0, 3.0)},
        {"pad_width": 1, "mode": "reflect", "reflect_type": "odd"},
        {"pad_width": 1, "mode": "symmetric", "reflect_type": "odd"},
        {"pad_width": 1, "mode": "wrap", "reflect_type": "odd"},
        {"pad_width": 1, "nonsense": 1},
    ],
    np.einsum: [
        {"dtype": np.float32},
        {"dtype": np.float32, "casting": "same_kind"},
        {"order": "F"},
        {"optimize": True},
        {"nonsense": 1},
    ],
    np.piecewise: [{"scale": 2.0}],
    np.apply_along_axis: [{"scale": 2.0}],
}
FIRST = {
    np.einsum: lambda x, **named: np.einsum("ij,kj->ik", x, x, **named),
    np.piecewise: lambda x, **named: np.piecewise(
        x, [x < 1, x >= 1], [lambda v, scale: v * scale, lambda v, scale: v**2], **named
    ),
    np.apply_along_axis: lambda x, **named: np.apply_along_axis(
        lambda row, scale: row * scale, 1, x, **named
    ),
}


def outcome(call: Any) -> tuple[Any, Any]:
    """What a call gives, or the error that it raises."""
    try:
        return call(), None
    except (TypeError, ValueError) as error:
        return None, error


@pytest.mark.parametrize("function", KEYWORDS, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_keywords_that_a_signature_does_not_spell_out_work_or_are_refused_by_name(function):
    call = FIRST.get(function, function)
    for named in KEYWORDS[function]:
        expected, theirs = outcome(lambda named=named: call(A, **named))
        found, ours = outcome(lambda named=named: fdbr.vjp(lambda x: call(x, **named), A))
        if ours is not None:
            words = str(ours)
            assert function.__name__ in words, words
            assert theirs is not None or any(f"{name}=" in words for name in named), words
            continue
        assert theirs is None, f"{named} is refused by NumPy: {theirs}"
        value, pullback = found
        assert value.dtype == expected.dtype
        assert_allclose(value, expected, rtol=1e-6)
        h, tolerance = (1e-6, 1e-6) if value.dtype == float else (1e-3, 1e-2)
        step = h * np.cos(A)
        change = (call(A + step, **named) - call(A - step, **named)).sum(dtype=float)
        slope = np.sum(pullback(np.ones_like(value))[0] * step) * 2
        assert_allclose(slope, change, rtol=tolerance, atol=h * tolerance)


@pytest.mark.parametrize("function", sorted(MAKING, key=name_of), ids=name_of)
def test_what_is_made_like_a_traced_array_is_what_numpy_makes(function):
    if function is np.arange:  # whose first parameter has two names
        arguments = {"start_or_stop": 5}
    else:
        arguments = {k: v for k, v in base(function).items() if k != "like"}
    if function is np.fromfunction:
        arguments["function"] = lambda i, j: i + j
    if any(arrays_in(value) for value in arguments.values()):
        return
    made = []
    call = lambda like: Call(function, arguments | {"like": like})()
    try:
        expected = call(A)
    except (TypeError, ValueError):
        return  # NumPy does not make one of these arguments

    def f(x):
        made.append(call(x))
        return np.sum(x)

    for transform in (fdbr.grad, fdbr.jit, lambda f: lambda x: fdbr.vmap(f)(x[None])):
        transform(f)(A)
        value = made.pop()
        assert np.shape(value) == np.shape(expected)
        assert value.dtype == expected.dtype
        if function is not np.empty:
            assert np.array_equal(fdbr.stop_gradient(value), expected)
