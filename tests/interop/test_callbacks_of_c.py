"""Functions of C that call a Python function of traced values: an error says what to use."""

import ctypes
import sys

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.sparse.linalg

import fdbr
from fdbr.core import tracer_methods

ROOTS = "fdbr.root, fdbr.fixed_point or fdbr.minimize"
INTEGRALS = "fdbr.odeint"


def of_brackets(find):
    return lambda a: find(lambda x: x**3 - a, 0.0, 5.0)


def matrix(a):
    return scipy.sparse.linalg.LinearOperator((2, 2), matvec=lambda v: v * a)


REFUSED = {
    "brentq": (of_brackets(scipy.optimize.brentq), ROOTS),
    "brenth": (of_brackets(scipy.optimize.brenth), ROOTS),
    "ridder": (of_brackets(scipy.optimize.ridder), ROOTS),
    "bisect": (of_brackets(scipy.optimize.bisect), ROOTS),
    "toms748": (of_brackets(scipy.optimize.toms748), ROOTS),
    "brentq, bracket": (lambda a: scipy.optimize.brentq(np.cos, 0.0, a), ROOTS),
    "brentq, more": (lambda a: scipy.optimize.brentq(np.multiply, -1.0, 5.0, args=(a,)), ROOTS),
    "root_scalar": (
        lambda a: scipy.optimize.root_scalar(lambda x: x - a, bracket=(0.0, 5.0)).root, ROOTS
    ),
    "fsolve": (lambda a: scipy.optimize.fsolve(lambda x: x - a, 1.0)[0], ROOTS),
    "root": (lambda a: scipy.optimize.root(lambda x: x - a, 1.0).x[0], ROOTS),
    "leastsq": (lambda a: scipy.optimize.leastsq(lambda x: x - a, 1.0)[0][0], ROOTS),
    "minimize": (
        lambda a: scipy.optimize.minimize(lambda x: (x[0] - a) ** 2, [1.0]).x[0], "fdbr.minimize"
    ),
    "differential_evolution": (
        lambda a: scipy.optimize.differential_evolution(lambda x: (x[0] - a) ** 2, [(0, 5)]).fun,
        ROOTS,
    ),
    "quad": (lambda a: scipy.integrate.quad(lambda x: a * x, 0.0, 1.0)[0], INTEGRALS),
    "quad, limit": (lambda a: scipy.integrate.quad(np.cos, 0.0, a)[0], INTEGRALS),
    "dblquad": (
        lambda a: scipy.integrate.dblquad(lambda x, y: a * x, 0.0, 1.0, 0.0, 1.0)[0], INTEGRALS
    ),
    "odeint": (lambda a: scipy.integrate.odeint(lambda y, t: a * y, 1.0, [0.0, 1.0])[1], INTEGRALS),
    "ode": (
        lambda a: scipy.integrate.ode(lambda t, y: a * y).set_initial_value(1.0).integrate(1)[0],
        INTEGRALS,
    ),
    "cg": (lambda a: scipy.sparse.linalg.cg(matrix(a), np.ones(2))[0][0], "ops.linalg.cg"),
    "vectorize": (lambda a: np.vectorize(lambda x: a * x)(np.ones(2))[0], "fdbr.vmap(f)(x)"),
    "vectorize, argument": (lambda a: np.vectorize(lambda x: 2 * x)(a), "fdbr.vmap(f)(x)"),
    "frompyfunc": (lambda a: np.frompyfunc(lambda x: 2 * x, 1, 1)(a), "fdbr.vmap(f)(x)"),
    "apply_along_axis": (
        lambda a: np.apply_along_axis(lambda row: a * row, 0, np.ones((2, 2)))[0, 0],
        "fdbr.vmap(f)(x)",
    ),
    "fromiter": (lambda a: np.fromiter((a * i for i in range(2)), float)[0], "ops.at(B)[key].set"),
    "ctypes": (
        lambda a: ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: a * x)(2.0),
        "fdbr.custom_vjp",
    ),
    "float": (lambda a: ctypes.c_double(a).value, "fdbr.stop_gradient"),
}  # fmt: skip
TRANSFORMS = {
    "grad": fdbr.grad,
    "jvp": lambda f: lambda a: fdbr.jvp(f, (a,), (1.0,)),
    "grad of jit": lambda f: fdbr.grad(fdbr.jit(f)),
    "hessian": fdbr.hessian,
    "checkpoint": lambda f: fdbr.grad(fdbr.checkpoint(f)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", REFUSED)
def test_the_error_says_what_to_use(name, transform):
    function, instead = REFUSED[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        TRANSFORMS[transform](function)(2.0)
    text = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert instead in text
    assert name in ("fromiter",) or isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", ["brentq", "fsolve", "leastsq", "quad", "fromiter", "ctypes"])
def test_jit_calls_them_with_plain_numbers(name):
    function, _ = REFUSED[name]
    np.testing.assert_allclose(fdbr.jit(function)(2.0), function(2.0))


TAKEN = {
    "sorted": lambda a: sorted([3.0, 1.0, 2.5], key=lambda x: (x - a) ** 2)[0] * a,
    "max": lambda a: max([a, 2 * a, 0.5 * a], key=lambda x: -x),
    "newton": lambda a: scipy.optimize.newton(lambda x: x**3 - a, 1.0),
    "frompyfunc": lambda a: np.frompyfunc(lambda x: a * x, 1, 1)(np.arange(3.0)).sum(),
    "caught": lambda a: a * a if number_or_none(a) is None else 0.0,
}


def number_or_none(x):
    try:
        return float(x)
    except TypeError:
        return None


@pytest.mark.parametrize("name", TAKEN)
def test_python_functions_in_callbacks_are_differentiated(name):
    function = TAKEN[name]
    expected = {
        "sorted": 2.5,
        "max": 0.5,
        "newton": 2 ** (-2 / 3) / 3,
        "frompyfunc": 3,
        "caught": 4,
    }
    np.testing.assert_allclose(fdbr.grad(function)(2.0), expected[name], rtol=1e-6)


def test_an_error_that_the_function_raises_itself_stays():
    def function(a):
        try:
            return float(a)
        except TypeError as error:
            raise KeyError("mine") from error

    with pytest.raises(KeyError, match="mine"):
        fdbr.grad(function)(2.0)


def test_an_error_of_scipy_without_traced_callbacks_stays():
    def function(a):
        return a * scipy.optimize.brentq(np.cos, 0.0, 0.1)

    with pytest.raises(ValueError, match="different signs"):
        fdbr.grad(function)(2.0)


def test_errors_of_others_that_c_discards_go_to_the_hook_before(monkeypatch):
    seen = []
    monkeypatch.setattr("fdbr.core.tracer_methods._other_hook", seen.append)
    monkeypatch.setattr(sys, "unraisablehook", tracer_methods._note_discarded)
    callback = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: "no number")
    fdbr.grad(lambda a: a * callback(2.0))(1.0)  # ctypes gives any number then
    assert [type(one.exc_value) for one in seen] == [TypeError]
