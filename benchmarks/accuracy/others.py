"""Every other elementwise operation, in float32 beside itself in float64.

Their exact results are not written out.  In float64 an operation has digits to spare, so that its
own result there, rounded, is what float32 should have given: what is found is what single
precision loses, and not what the method does.
"""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

import fdbr
from fdbr import ops
from fdbr.core.primitive import registry
from fdbr.ops.declare import Unknown

__all__ = ["LARGE", "OF_VALUES", "REASONS", "Row", "in_large", "losses", "others"]

LARGE = 1 << 18  # numbers of an array that a kernel computes

RANGES = ((0.05, 0.95), (0.3, 5.0), (-0.95, 0.95), (-5.0, 5.0), (1.0, 40.0))
PARAMETERS: dict[str, dict[str, Any]] = {
    "hard_shrink": {"lambd": 0.5},
    "hard_sigmoid": {"slope": 1 / 6},
    "leaky_relu": {"slope": 0.1},
    "polygamma": {"n": 1},
    "soft_shrink": {"lambd": 0.5},
}
WHOLE = ("eval_hermite", "eval_hermitenorm", "ldexp")  # which take integers of no other dtype
OF_VALUES = "the value is that of SciPy's own loop in single precision"
REASONS = {
    "hard_swish": "the slope has a zero",
    "kl_div": "a difference next to its zero, and a slope that has one",
    "rel_entr": "the slope has a zero",
    "swish": "the product of the operands is rounded, and counts where the sigmoid is small",
}


@attrs.frozen
class Row:
    """The largest errors of an operation's value and derivatives, and where the largest is."""

    eager: tuple[float, ...]
    jitted: tuple[float, ...]
    worst: tuple[float, ...]


def others(known: Any) -> list[str]:
    """The public elementwise operations that have a derivative and are not ``known``."""
    return [
        name
        for name, primitive in registry.items()
        if primitive.kind == "elementwise"
        and primitive.value.__module__.startswith("fdbr.")
        and any(_differentiable(primitive))
        and _is_public(name)
        and name not in known
    ]


def _is_public(name: str) -> bool:
    if name == "gaussian":  # a sample, beside which there is a bell of that name
        return False
    named = name in ops.special.__all__ or isinstance(getattr(np, name, None), np.ufunc)
    return named or (name in dir(ops) and callable(getattr(ops, name)))


def _differentiable(primitive: Any) -> list[bool]:
    rules = primitive.rules
    return [rule is not None and not isinstance(rule, Unknown) for rule in rules]


def losses(name: str, count: int) -> Row:
    """The largest errors in ulps, of the value first, then of each derivative."""
    primitive, params = registry[name], PARAMETERS.get(name, {})
    places = [i for i, known in enumerate(_differentiable(primitive)) if known]

    def everything(*operands: Any) -> Any:
        def chosen(*xs: Any) -> Any:
            full = list(operands)
            for i, x in zip(places, xs, strict=True):
                full[i] = x
            return primitive.apply(*full, **params)

        value, pullback = fdbr.vjp(chosen, *(operands[i] for i in places))
        return [value, *pullback(np.ones_like(value))]

    largest: dict[bool, list[float]] = {}
    worst: tuple[float, tuple[float, ...]] = (-1.0, ())
    jit = fdbr.jit(everything)
    for jitted, run in ((False, everything), (False, in_large(everything)), (True, jit)):
        for operands in _operands(name, _differentiable(primitive), count):
            with np.errstate(all="ignore"):
                exact = everything(
                    *(x.astype("float64") if x.dtype == "float32" else x for x in operands)
                )
                found = run(*operands)
            errors = [_ulps(f, e) for f, e in zip(found, exact, strict=True)]
            largest[jitted] = [
                max(pair)
                for pair in zip(
                    largest.get(jitted, [0.0] * len(errors)), map(np.max, errors), strict=True
                )
            ]
            total = np.max(errors, axis=0)
            at = int(np.argmax(total))
            worst = max(worst, (float(total[at]), tuple(float(x[at]) for x in operands)))
    return Row(tuple(largest[False]), tuple(largest[True]), worst[1])


def in_large(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that are repeated until kernels compute them, and its first results."""

    def repeated(*operands: Any) -> list[Any]:
        count = len(operands[0])
        return [part[:count] for part in function(*(np.resize(x, LARGE) for x in operands))]

    return repeated


def _operands(name: str, differentiable: list[bool], count: int) -> Iterator[list[Any]]:
    """Numbers for each operand; those in which nothing is differentiated are whole."""
    random = np.random.default_rng(0)
    for low, high in RANGES:
        yield [
            random.uniform(low, high, count).astype("float32")
            if mine
            else random.integers(0, 4, count).astype("int32" if name in WHOLE else "float32")
            for mine in differentiable
        ]


def _ulps(found: Any, exact: Any) -> Any:
    """How far numbers are from exact ones, which have no error where they are not normal."""
    found, exact = np.asarray(found), np.asarray(exact)
    limits = np.finfo("float32")
    normal = (abs(exact) >= limits.tiny) & (abs(exact) < limits.max)
    with np.errstate(all="ignore"):
        unit = np.spacing(abs(exact).astype("float32")).astype("float64")
        errors = abs(found.astype(exact.dtype) - exact) / unit
    return np.where(normal, np.nan_to_num(errors, nan=np.inf), 0.0)
