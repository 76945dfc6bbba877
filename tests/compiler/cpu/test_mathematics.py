"""The functions of the kernel language, against NumPy in more digits."""

import numpy as np
import pytest
from scipy import special

from fdbr.compiler.backends.cpu import compiling
from fdbr.compiler.backends.cpu.compiling import address_of
from fdbr.compiler.backends.cpu.launching import launch_alone
from fdbr.kernels import machine

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.7, 88.73, -87.4, -103.9, -110.0]
EDGES += [709.7, 709.8, -745.0, -746.0, 0.625, 1.0, -1.0, 1e-310, 1e-40, 1e308, 3e38]

FUNCTIONS = {
    "exp": (np.exp, 2),
    "log": (np.log, 2),
    "log1p": (np.log1p, 3),
    "tanh": (np.tanh, 3),
    "sign": (np.sign, 0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
}


def points(dtype):
    generator = np.random.default_rng(0)
    spread = [generator.normal(size=20_000) * s for s in (1e-4, 0.1, 1, 10, 60)]
    with np.errstate(over="ignore"):
        return np.concatenate([*spread, EDGES]).astype(dtype)


LOOP = """
def kernel(table, start, stop, thread):
    x, out = data(table, 0, {code}(0)), data(table, 1, {code}(0))
    for i in range(start, stop):
        out[i] = {name}_{code}(x[i])
"""


def applied(name, dtype, x):
    out = np.empty_like(x)
    table = np.array([id(x), id(out)], np.int64)
    code = np.dtype(dtype).str[1:]
    launch_alone(address_of(LOOP.format(name=name, code=code)), table.ctypes.data, len(x))
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_a_few_units_in_the_last_place(name, dtype):
    reference, ulps = FUNCTIONS[name]
    x = points(dtype)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.longdouble)).astype(dtype)
        found = applied(name, dtype, x)
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        assert np.isfinite(exact[~same]).all()
        distance = np.abs(found[~same].astype(np.longdouble) - exact[~same])
        assert (distance <= ulps * np.spacing(np.abs(exact[~same]))).all()
    assert np.array_equal(np.signbit(found[same & (x == 0)]), np.signbit(exact[same & (x == 0)]))


def test_the_normal_distribution_is_exact_to_seven_digits():
    x = points(np.float32)
    x = x[np.isfinite(x)]
    exact = special.ndtr(x.astype(np.float64))
    found = applied("ndtr", np.float32, x)
    assert np.abs(found - exact).max() < 3e-7


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "log"])
@pytest.mark.parametrize("code", ["f4", "f8"])
def test_loops_over_functions_vectorise(name, code):
    text = machine.optimized(compiling.translated(LOOP.format(name=name, code=code)))
    assert f"x {'float' if code == 'f4' else 'double'}>" in text
