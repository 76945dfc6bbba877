"""Solvers in jitted functions: loops of the program, with the results and errors of eager mode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.solvers import running
from fdbr.testing import assert_allclose

TIMES = np.array([0.0, 0.3, 1.0])


def logistic(y, t, rate):
    return rate * y * (1 - y)


def grown(y0, t, rate):
    return y0 / (y0 + (1 - y0) * ops.exp(-rate * t))


def end(y0, t, rate):
    return fdbr.odeint(logistic, y0, t, rate)[-1]


def known_end(y0, t, rate):
    return grown(y0, t[-1] - t[0], rate)


def solve(x0, w, b):
    return fdbr.fixed_point(lambda x, w, b: ops.tanh(w @ x + b), x0, w, b)


def contraction(seed, n, scale=0.4):
    generator = np.random.default_rng(seed)
    w = generator.normal(size=(n, n))
    return w * scale / max(np.linalg.norm(w, 2), 1e-3), generator.normal(size=n)


@settings(max_examples=5, deadline=None)
@given(st.floats(0.05, 0.9), st.floats(-2, 2), st.booleans())
def test_a_jitted_differential_equation_is_the_eager_one_and_the_known_one(y0, rate, backward):
    times = TIMES[::-1] if backward else TIMES
    jitted = fdbr.jit(fdbr.value_and_grad(end, argnums=(0, 1, 2)))
    found, derivatives = jitted(y0, times, rate)
    eager, eager_derivatives = fdbr.value_and_grad(end, argnums=(0, 1, 2))(y0, times, rate)
    assert_allclose(found, eager, rtol=1e-12)
    assert_allclose(derivatives, eager_derivatives, rtol=1e-9, atol=1e-12)
    known = fdbr.grad(known_end, argnums=(0, 1, 2))(y0, times, rate)
    assert_allclose(found, known_end(y0, times, rate), rtol=1e-6)
    assert_allclose(derivatives, known, rtol=1e-5, atol=1e-7)


def test_second_derivatives_of_a_differential_equation():
    known = fdbr.grad(fdbr.grad(known_end, argnums=2), argnums=2)(0.2, TIMES, 1.5)
    along = lambda f: fdbr.jvp(lambda rate: f(0.2, TIMES, rate), (1.5,), (1.0,))[1]
    assert_allclose(along(fdbr.grad(end, argnums=2)), known, rtol=1e-5)
    assert_allclose(fdbr.grad(fdbr.grad(end, argnums=2), argnums=2)(0.2, TIMES, 1.5), known, 1e-5)


@pytest.mark.slow
def test_second_derivatives_of_a_differential_equation_in_every_order_of_modes():
    point = np.array([0.2, 1.5])
    f = lambda x: end(x[0], TIMES, x[1])
    known = fdbr.hessian(lambda x: known_end(x[0], TIMES, x[1]))(point)
    for outer in (fdbr.jacfwd, fdbr.jacrev):
        for inner in (fdbr.jacfwd, fdbr.jacrev):
            assert_allclose(outer(inner(f))(point), known, rtol=1e-5, atol=1e-6)
    assert_allclose(fdbr.jit(fdbr.hessian(f))(point), known, rtol=1e-5, atol=1e-6)


def test_a_start_at_rest_has_the_derivative_of_what_is_near_it():
    """The steps at rest are long, and their own derivative is far from the solution's."""
    f = lambda y0: fdbr.odeint(lambda y, t: 60.0 * (1 - y), y0, TIMES)[-1]
    for g in (fdbr.grad(f), fdbr.jit(fdbr.grad(f))):
        assert_allclose(g(1.0), np.exp(-60.0), atol=1e-8)


def test_examples_take_the_steps_that_each_needs():
    rates = np.array([0.1, 1.0, 30.0])
    for f in (end, fdbr.grad(end, argnums=2)):
        each = np.stack([f(0.2, TIMES, rate) for rate in rates])
        over = fdbr.vmap(f, (None, None, 0))
        assert_allclose(over(0.2, TIMES, rates), each, rtol=1e-9, atol=1e-12)
        assert_allclose(fdbr.jit(over)(0.2, TIMES, rates), each, rtol=1e-7, atol=1e-9)


def test_cotangents_of_a_batch_go_through_a_loop_that_is_none():
    jacobian = fdbr.jacrev(lambda y0: fdbr.odeint(logistic, y0, TIMES, 1.5)[-1])
    y0 = np.array([0.2, 0.6])
    known = fdbr.jacrev(lambda y0: known_end(y0, TIMES, 1.5))(y0)
    assert_allclose(jacobian(y0), known, rtol=1e-6, atol=1e-9)
    assert_allclose(fdbr.jit(jacobian)(y0), known, rtol=1e-6, atol=1e-9)


def test_no_solver_calls_the_host_in_a_jitted_function(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("the host is called")

    monkeypatch.setattr(running, "on_host", refused)
    fdbr.jit(end)(0.2, TIMES, 1.5)
    fdbr.jit(fdbr.grad(end, argnums=2))(0.2, TIMES, 1.5)
    loss = lambda a: fdbr.fixed_point(lambda x, a: ops.cos(a * x), 0.5, a).x
    fdbr.jit(fdbr.value_and_grad(loss))(0.9)
    report = fdbr.jit(lambda b: ops.linalg.cg(lambda v: 2 * v, b)[0])
    report(np.ones(3))
    assert "iteration by iteration" not in str(report.report())


def test_functions_that_decide_on_values_are_solved_all_the_same():
    def bent(y, t, rate):
        return -rate * y if y > 0.5 else -0.5 * rate * y

    f = lambda rate: fdbr.odeint(bent, 1.0, TIMES, rate)[-1]
    assert_allclose(fdbr.jit(f)(2.0), f(2.0), rtol=1e-12)
    assert_allclose(fdbr.jit(fdbr.grad(f))(2.0), fdbr.grad(f)(2.0), rtol=1e-9)
    rates = np.array([0.1, 2.0])
    assert_allclose(fdbr.vmap(f)(rates), [f(r) for r in rates], rtol=1e-12)

    g = lambda a: fdbr.fixed_point(lambda x, a: a * x if x > 1 else ops.cos(a * x), 3.0, a).x
    assert_allclose(fdbr.jit(g)(0.7), g(0.7), rtol=1e-12)


@pytest.mark.parametrize(
    ("func", "options", "message"),
    [
        (lambda y, t, a: a * y * y, {}, "the steps became too small|func returns NaN"),
        (lambda y, t, a: a * y * np.nan, {}, "func returns NaN or infinity at t = 0"),
        (lambda y, t, a: ops.sin(1000 * t * a) * y, {"mxstep": 5}, "more than mxstep=5 steps"),
    ],
)
def test_a_jitted_run_that_cannot_continue_is_an_error(func, options, message):
    f = fdbr.jit(lambda a: fdbr.odeint(func, 1.0, np.array([0.0, 2.0]), a, **options)[-1])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=rf"^fdbr.odeint: ({message})"):
            f(1.0)
    over = fdbr.jit(fdbr.vmap(lambda a: fdbr.odeint(func, 1.0, np.array([0.0, 2.0]), a, **options)))
    with pytest.raises(RuntimeError, match=r"^fdbr.odeint: "):
        over(np.array([1.0, 1.1]))


def test_jitted_times_out_of_order_are_an_error():
    f = fdbr.jit(lambda t: fdbr.odeint(logistic, 0.2, t, 1.0))
    for times, message in (([0.0, 2.0, 1.0], "t must ascend"), ([0.0, np.inf], "t must be finite")):
        with pytest.raises(ValueError, match=f"^fdbr.odeint: {message}"):
            f(np.array(times))


def test_a_derivative_that_cannot_be_computed_is_an_error():
    """The derivative of the square root of 0 is infinite."""
    f = lambda y0: fdbr.odeint(lambda y, t: ops.sqrt(y), y0, np.array([0.0, 1.0]))[-1]
    for g in (fdbr.grad(f), fdbr.jit(fdbr.grad(f))):
        with (
            np.errstate(all="ignore"),
            pytest.raises(RuntimeError, match=r"^fdbr.odeint: func returns NaN or infinity"),
        ):
            g(0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trees_and_arguments_of_all_kinds(dtype):
    def move(y, t, p, count):
        return {"a": -p["w"] * y["a"] * count, "n": None, "z": 1j * y["z"]}

    y0 = {"a": np.ones(2, dtype), "n": np.array([3, 4]), "z": 1.0 + 0j}
    p = {"w": np.array([0.5, 1.0], dtype), "name": "w"}
    f = lambda w, count: fdbr.odeint(move, y0, TIMES, {**p, "w": w}, count)
    found = fdbr.jit(f)(p["w"], np.array(2))
    assert found["a"].dtype == dtype
    assert found["n"].tolist() == [3, 4]
    assert_allclose(found["a"][-1], np.exp(-2 * p["w"]), rtol=1e-6)
    slope = fdbr.jit(fdbr.grad(lambda w: ops.sum(f(w, 2)["a"][-1])))(p["w"])
    assert slope.dtype == dtype
    assert_allclose(slope, -2 * np.exp(-2 * p["w"]), rtol=1e-5)


def test_recorded_steps_in_a_jitted_function_are_differentiated_with_what_is_captured():
    def f(rate):
        return fdbr.odeint(lambda y, t: -rate * y, 1.0, TIMES, backward="recorded")[-1]

    for _ in range(2):
        assert_allclose(fdbr.jit(fdbr.grad(f))(0.5), fdbr.grad(f)(0.5), rtol=1e-12)


# --- fixed points --------------------------------------------------------------------


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 6))
def test_a_jitted_fixed_point_is_the_eager_one(seed, n):
    w, b = contraction(seed, n)
    loss = lambda w, b: ops.sum(solve(np.zeros(n), w, b).x ** 2)
    x = solve(np.zeros(n), w, b).x
    assert_allclose(np.tanh(w @ x + b), x, rtol=1e-13, atol=1e-15)
    assert_allclose(fdbr.jit(lambda w, b: solve(np.zeros(n), w, b).x)(w, b), x, rtol=1e-12)
    derivatives = fdbr.grad(loss, argnums=(0, 1))(w, b)
    assert_allclose(
        fdbr.jit(fdbr.grad(loss, argnums=(0, 1)))(w, b), derivatives, rtol=1e-10, atol=1e-13
    )
    matrix = np.eye(n) - (1 - x**2)[:, None] * w
    assert_allclose(
        derivatives[1], (1 - x**2) * np.linalg.solve(matrix.T, 2 * x), rtol=1e-9, atol=1e-13
    )


def test_second_derivatives_of_a_fixed_point_are_the_known_ones():
    root = lambda a: fdbr.fixed_point(lambda x, a: (x + a / x) / 2, 1.0, a).x
    for f in (fdbr.hessian(root), fdbr.grad(fdbr.grad(root)), fdbr.jit(fdbr.hessian(root))):
        assert_allclose(f(4.0), -1 / 32, rtol=1e-10)
    assert_allclose(fdbr.jvp(fdbr.grad(root), (4.0,), (1.0,))[1], -1 / 32, rtol=1e-10)


def test_examples_take_the_iterations_that_each_needs():
    solved = lambda a: fdbr.fixed_point(lambda x, a: ops.cos(a * x), 0.5, a).x
    a = np.array([0.1, 0.9, 0.0])
    for f in (solved, fdbr.grad(solved)):
        each = [f(one) for one in a]
        assert_allclose(fdbr.vmap(f)(a), each, rtol=1e-12)
        assert_allclose(fdbr.jit(fdbr.vmap(f))(a), each, rtol=1e-11, atol=1e-14)


def test_what_is_no_contraction_is_found_by_newtons_method():
    """The iteration jumps to and fro, or comes near to the fixed point by steps too small."""
    for slope in (-1.0, 0.9999):
        f = lambda a, slope=slope: fdbr.fixed_point(lambda x, a: slope * (x - a) + a, 5.0, a).x
        for g in (f, fdbr.jit(f)):
            assert_allclose(g(2.0), 2.0, rtol=1e-9)
        for g in (fdbr.grad(f), fdbr.jit(fdbr.grad(f))):
            assert_allclose(g(2.0), 1.0, rtol=1e-9)


def test_a_jitted_search_that_fails_is_an_error_or_says_so():
    f = lambda a, **more: fdbr.fixed_point(lambda x, a: x + a, 1.0, a, **more)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^fdbr.fixed_point: no solution of .*<lambda>"):
            fdbr.jit(lambda a: f(a).x)(1.0)
    found = fdbr.jit(lambda a: f(a, throw=False))(1.0)
    assert not found.converged
    assert np.isnan(fdbr.jit(fdbr.grad(lambda a: f(a, throw=False).x))(1.0))
    with pytest.raises(RuntimeError, match=r"^fdbr.fixed_point: no solution"):
        fdbr.jit(fdbr.vmap(lambda a: f(a).x))(np.array([0.0, 1.0]))


def test_fixed_points_of_many_unknowns_are_differentiated_by_iterations():
    n = 600
    scale = np.linspace(0.1, 0.8, n)
    f = lambda b: ops.sum(fdbr.fixed_point(lambda x, b: scale * ops.roll(x, 1) + b, 0 * b, b).x)
    known = np.linalg.solve((np.eye(n) - scale[:, None] * np.roll(np.eye(n), 1, 0)).T, np.ones(n))
    for g in (fdbr.grad(f), fdbr.jit(fdbr.grad(f))):
        assert_allclose(g(np.ones(n)), known, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 600])
def test_a_derivative_is_solved_directly_only_if_its_iteration_fails(n):
    scale = np.linspace(0.1, 0.8, n)
    f = lambda b: ops.sum(fdbr.fixed_point(lambda x, b: scale * ops.roll(x, 1) + b, 0 * b, b).x)
    jitted = fdbr.jit(fdbr.grad(f))
    jitted(np.ones(n))
    steps = jitted.programs()[0].steps
    names = [step.primitive.name for step in steps if hasattr(step, "primitive")]
    assert "loop" in names
    assert not {"on_host", "solve", "slogdet"} & set(names)


def test_a_captured_traced_value_is_refused_or_right():
    closed = lambda a: fdbr.fixed_point(lambda x: ops.cos(a * x), 0.5).x
    for wrap in (fdbr.grad, fdbr.jit, fdbr.vmap):
        with pytest.raises(TypeError, match=r"fixed_point: .* traced value .* pass it as"):
            wrap(closed)(np.ones(()) if wrap is not fdbr.vmap else np.ones(2))
    both = lambda a, b: fdbr.fixed_point(lambda x, b: ops.cos(a * x) + b, 0.5, b).x
    with pytest.raises(TypeError, match="pass it as"):
        fdbr.grad(both, argnums=(0, 1))(0.5, 0.1)
    assert_allclose(fdbr.jit(both)(0.5, 0.1), both(0.5, 0.1), rtol=1e-12)


# --- linear equations ----------------------------------------------------------------


def test_conjugate_gradients_with_captured_values_in_a_jitted_batch():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(3, 4, 4))
    a, b = x @ x.swapaxes(1, 2) + np.eye(4), generator.normal(size=(3, 4))
    one = lambda a, b: ops.linalg.cg(lambda v: a @ v, b, tol=1e-13)[0]
    loss = fdbr.grad(lambda a, b: ops.sum(one(a, b) ** 2), argnums=(0, 1))
    assert_allclose(fdbr.jit(fdbr.vmap(one))(a, b), np.linalg.solve(a, b[..., None])[..., 0])
    assert_allclose(fdbr.jit(fdbr.vmap(loss))(a, b), fdbr.vmap(loss)(a, b), rtol=1e-7, atol=1e-10)


def test_conjugate_gradients_with_an_operator_that_decides_on_values():
    f = lambda b: ops.linalg.cg(lambda v: 2 * v if v[0] > -9 else 2.0 * v, b)[0]
    assert_allclose(fdbr.jit(f)(np.ones(3)), np.full(3, 0.5))
