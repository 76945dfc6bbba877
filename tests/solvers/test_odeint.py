"""Differential equations, and the derivatives of their solutions."""

import numpy as np
import pytest

import fdbr
from fdbr import ops, testing

TIMES = np.array([0.0, 0.5, 0.5, 2.0])
BACKWARD = ["adjoint", "recorded"]
SCIPY = ["RK23", "DOP853", "Radau", "BDF", "LSODA"]


def decay(y, t, rate):
    return -rate * y * np.cos(t)


def decayed(y0, t, rate):
    return y0 * np.exp(-rate * (np.sin(t) - np.sin(t[0])))


def van_der_pol(y, t, mu):
    return ops.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


@pytest.mark.parametrize("backward", BACKWARD)
@pytest.mark.parametrize("times", [TIMES, -TIMES, np.array([1.0]), np.array([1, 2])])
def test_the_solution_is_known(backward, times):
    found = fdbr.odeint(decay, 1.5, times, 0.7, backward=backward)
    np.testing.assert_allclose(found, decayed(1.5, times, 0.7), rtol=1e-6)


@pytest.mark.parametrize("method", SCIPY)
def test_methods_of_scipy_agree(method):
    found = fdbr.odeint(decay, 1.5, TIMES, 0.7, method=method, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found, decayed(1.5, TIMES, 0.7), rtol=1e-6)


@pytest.mark.parametrize("backward", BACKWARD)
def test_derivatives_by_start_times_and_arguments(backward):
    def solve(y0, t, rate):
        return fdbr.odeint(decay, y0, t, rate, backward=backward)

    args = (1.5, np.array([0.1, 0.5, 2.0]), 0.7)
    testing.check_grads(solve, *args, order=1, modes=("vjp", "jvp"), rtol=1e-5)
    derivatives = fdbr.jacrev(solve, argnums=(0, 1, 2))(*args)
    expected = fdbr.jacrev(decayed, argnums=(0, 1, 2))(*args)
    for one, other in zip(derivatives, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("backward", BACKWARD)
def test_second_derivatives_batches_and_jit(backward):
    def end(rate):
        return fdbr.odeint(decay, 1.0, TIMES, rate, backward=backward)[-1]

    rates = np.array([0.1, 2.0])
    expected = -np.sin(2.0) * np.exp(-rates * np.sin(2.0))
    np.testing.assert_allclose(fdbr.vmap(fdbr.grad(end))(rates), expected, rtol=1e-6)
    second = fdbr.grad(fdbr.grad(end))(0.5)
    np.testing.assert_allclose(second, np.sin(2.0) ** 2 * np.exp(-0.5 * np.sin(2.0)), rtol=1e-6)
    if backward == "adjoint":
        jitted = fdbr.jit(fdbr.grad(end))
        for rate in rates:
            np.testing.assert_allclose(jitted(rate), fdbr.grad(end)(rate), rtol=1e-14)


def test_a_recorded_run_is_jitted():
    def end(rate):
        return fdbr.odeint(decay, 1.0, TIMES[::3], rate, rtol=1e-3, atol=1e-3, backward="recorded")

    np.testing.assert_allclose(fdbr.jit(end)(0.3), end(0.3), rtol=1e-14)


def test_states_are_trees_on_every_array_module(xp, to_numpy):
    def move(y, t, w):
        return {"a": w @ y["a"], "z": 1j * y["z"], "n": None}

    y0 = {"a": xp.asarray(np.ones(2, "float32")), "z": xp.asarray(1 + 0j), "n": 3}
    times, w = xp.asarray([0.0, 1.0]), xp.asarray(-np.eye(2))
    found = fdbr.odeint(move, y0, times, w)
    assert found["a"].dtype == "float32"
    assert found["n"] == 3
    np.testing.assert_allclose(to_numpy(found["a"])[1], np.exp([-1, -1]), rtol=1e-6)
    np.testing.assert_allclose(to_numpy(found["z"])[1], np.exp(1j), rtol=1e-6)
    slope = fdbr.grad(lambda w: ops.sum(fdbr.odeint(move, y0, times, w)["a"][1]))(w)
    np.testing.assert_allclose(to_numpy(slope), np.full((2, 2), np.exp(-1)), rtol=1e-5)


@pytest.mark.parametrize("method", ["Radau", "BDF", "LSODA"])
def test_stiff_systems_are_solved_and_differentiated(method):
    def end(mu, tolerance=1e-8):
        return fdbr.odeint(
            van_der_pol, np.array([2.0, 0.0]), np.array([0.0, 1.0]), mu,
            method=method, rtol=tolerance, atol=tolerance,
        )[-1][0]  # fmt: skip

    by_differences = (end(50.05, 1e-11) - end(49.95, 1e-11)) / 0.1
    np.testing.assert_allclose(fdbr.grad(end)(50.0), by_differences, rtol=1e-3)


def test_what_dies_out_is_differentiated_by_the_adjoint():
    def end(rate):
        return fdbr.odeint(lambda y, t, r: -r * (y - 1), 2.0, np.array([0.0, 1.0]), rate)[-1]

    np.testing.assert_allclose(fdbr.grad(end)(60.0), -np.exp(-60.0), atol=1e-8)


def test_a_recorded_run_sees_what_is_around_it():
    def end(rate, backward):
        return fdbr.odeint(lambda y, t: -rate * y, 1.0, TIMES, backward=backward)[-1]

    np.testing.assert_allclose(fdbr.grad(end)(0.5, "recorded"), -2 * np.exp(-1.0), rtol=1e-6)
    with pytest.raises(TypeError, match=r"^fdbr.odeint: .* traced value .* pass it as one"):
        fdbr.grad(end)(0.5, "adjoint")


@pytest.mark.parametrize("method", ["dopri5", "DOP853", "Radau"])
@pytest.mark.parametrize(
    ("func", "options", "message"),
    [
        (lambda y, t: y * y, {}, "the steps became too small|Required step size|NaN"),
        (lambda y, t: y * np.nan, {}, "func returns NaN or infinity at t = 0"),
        (lambda y, t: np.sin(1000 * t) * y, {"mxstep": 5}, "more than mxstep=5 steps"),
    ],
)
def test_a_run_that_cannot_go_on_is_an_error(func, options, message, method):
    with pytest.raises(RuntimeError, match=rf"^fdbr.odeint: ({message})"):
        fdbr.odeint(func, 1.0, np.array([0.0, 2.0]), method=method, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fdbr.odeint(None, 1.0, TIMES), "func must be a function"),
        (lambda: fdbr.odeint(decay, 1, TIMES, 1.0), "y0 must have a floating or complex leaf"),
        (lambda: fdbr.odeint(decay, 1.0, [0.0, 2.0, 1.0], 1.0), "t must ascend or descend"),
        (lambda: fdbr.odeint(decay, 1.0, [0.0, np.nan], 1.0), "t must ascend or descend"),
        (lambda: fdbr.odeint(decay, 1.0, [0.0, np.inf], 1.0), "t must be finite"),
        (lambda: fdbr.odeint(decay, 1.0, 2.0, 1.0), "t must be a vector"),
        (lambda: fdbr.odeint(decay, 1.0, TIMES, 1.0, rtol=0), "rtol must be a positive number"),
        (lambda: fdbr.odeint(decay, 1.0, TIMES, 1.0, mxstep=0), "mxstep must be at least 1"),
        (lambda: fdbr.odeint(decay, 1.0, TIMES, 1.0, method="x"), "method must be one of"),
        (lambda: fdbr.odeint(decay, 1.0, TIMES, 1.0, backward="x"), "backward must be adjoint or"),
        (lambda: fdbr.odeint(lambda y, t: (y, y), 1.0, TIMES), "func must return as many"),
        (
            lambda: fdbr.odeint(decay, 1.0, TIMES, 1.0, method="BDF", backward="recorded"),
            "the steps of method 'BDF' are SciPy's",
        ),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^fdbr.odeint: {message}"):
        call()
