"""What a jitted function must give: what the function itself gives."""

import functools
from typing import Any

import numpy as np

import fdbr
from fdbr import tree
from fdbr.compiler import Jitted
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.passes import optimise

ULPS = 8


def plainly(f: Any, max_traces: int = 64) -> Jitted:
    """A function that is jitted without passes and kernels: its results are bitwise the same."""
    return Jitted(f, functools.partial(Code, passes=(), products=False), max_traces)


def optimised(f: Any, max_traces: int = 64) -> Jitted:
    """A function that is jitted with passes, and without kernels."""
    return Jitted(f, functools.partial(Code, passes=(optimise,), products=False), max_traces)


def assert_as_eager(f: Any, *calls: Any, ulps: int = ULPS) -> Any:
    """Check that a jitted function gives what the function gives, call by call.

    Each call is a tuple of arguments.  The jitted function is given back.  Without passes it gives
    the very bits; but for large products, for which a test allows more ``ulps``.
    """
    reference, jitted = plainly(f), fdbr.jit(f)
    for args in calls:
        desired = f(*args)
        assert_same(reference(*args), desired, ulps=0 if ulps == ULPS else ulps)
        assert_same(jitted(*args), desired, ulps)
    return jitted


def assert_same(found: Any, desired: Any, ulps: int = ULPS) -> None:
    """Check that two trees have one structure, and leaves of one type, dtype, shape and value.

    Floating elements may differ by some units in the last place of the largest.
    """
    ours, structure = tree.flatten(found)
    theirs, shape = tree.flatten(desired)
    assert structure == shape
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other), f"{mine!r} is no {type(other).__name__}, as {other!r} is"
        if not hasattr(other, "dtype") and not isinstance(other, float | complex):
            assert mine == other
            continue
        assert np.shape(mine) == np.shape(other)
        assert getattr(mine, "dtype", None) == getattr(other, "dtype", None)
        assert distance(mine, other) <= ulps, f"{mine!r} is not {other!r}"


def distance(found: Any, desired: Any) -> float:
    """How far two arrays are apart, in units in the last place of the largest magnitude."""
    found, desired = np.asarray(found), np.asarray(desired)
    if desired.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, desired) else np.inf
    finite = np.isfinite(desired)
    if not np.array_equal(found[~finite], desired[~finite], equal_nan=True):
        return np.inf
    away = np.abs(found[finite] - desired[finite]).max(initial=0.0)
    largest = np.abs(desired[finite]).max(initial=0.0)
    unit = np.spacing(max(largest, np.finfo(desired.dtype).tiny))
    return float(away / unit)
