"""Roots, fixed points and minima, and their derivatives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, testing
from fdbr.solvers import implicit
from fdbr.testing import assert_allclose

ROOT = "hybr lm broyden1 broyden2 anderson diagbroyden krylov df-sane".split()
MINIMIZE = """BFGS L-BFGS-B CG TNC Nelder-Mead Powell Newton-CG trust-ncg trust-krylov
    trust-exact""".split()


def equations(x, p):
    """Equations in a tree of real and complex unknowns."""
    return {"u": p["A"] @ x["u"] + ops.tanh(x["u"]) - p["b"], "z": x["z"] ** 3 - p["c"]}


def parameters(xp):
    return {
        "A": xp.asarray([[2.0, 0.5], [0.1, 3.0]]),
        "b": xp.asarray([1.0, 2.0]),
        "c": xp.asarray(1 + 2j),
        "label": "no number",
        "count": 3,
    }


def start(xp):
    return {"u": xp.asarray([0.0, 0.0]), "z": xp.asarray(1 + 1j)}


def square_root(a, **options):
    return fdbr.root(lambda x, a: x**2 - a, 1.0, a, **options).x


# --- values -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ROOT)
def test_every_method_finds_a_root_to_the_last_digits(method):
    a = np.array([1.0, 2.0])
    found = fdbr.root(lambda x, a: np.cos(x) - a * x, np.array([0.5, 0.6]), a, method=method)
    assert found.converged
    assert found.iterations > 0
    np.testing.assert_allclose(np.cos(found.x), a * found.x, rtol=1e-14)


@pytest.mark.parametrize("method", MINIMIZE)
def test_every_method_finds_a_minimum(method):
    def rosenbrock(x, a):
        return ops.sum(a * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    found = fdbr.minimize(rosenbrock, np.array([-1.0, 1.0, 0.3]), 100.0, method=method)
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-12)
    assert found.converged
    assert found.value < 1e-20


@pytest.mark.parametrize("method", ["iteration", "anderson", "hybr"])
def test_a_fixed_point_is_where_nothing_changes(method):
    found = fdbr.fixed_point(lambda x, a: ops.cos(a * x), np.array([0.5, 1.0]), 0.9, method=method)
    np.testing.assert_allclose(np.cos(0.9 * found.x), found.x, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_a_solution_has_the_dtype_of_the_start(dtype):
    found = fdbr.root(lambda x, a: x**2 - a, np.array([1.0], dtype), np.array([2.0], dtype))
    assert found.x.dtype == dtype
    np.testing.assert_allclose(found.x, np.sqrt(2), rtol=2 * np.finfo(dtype).eps)


def test_unknowns_are_trees_on_every_array_module(xp, to_numpy):
    p, x0 = parameters(xp), start(xp)
    found = fdbr.root(equations, x0, p)
    for rest in fdbr.tree.leaves(equations(found.x, p)):
        np.testing.assert_allclose(to_numpy(rest), 0, atol=1e-14)
    assert type(found.x["u"]) is type(x0["u"])


# --- derivatives --------------------------------------------------------------------


def test_the_derivative_of_a_root_is_that_of_its_arguments(xp):
    x0, p = start(xp), parameters(xp)
    testing.check_grads(lambda p: fdbr.root(equations, x0, p).x["u"], p, order=1)
    testing.check_grads(lambda a: square_root(a), 3.0)


def test_derivatives_of_a_root_are_right_in_every_order():
    f = square_root
    for order, factor in enumerate((0.5, -0.25, 0.375), 1):
        f = fdbr.grad(f)
        np.testing.assert_allclose(f(4.0), factor * 4.0 ** (0.5 - order), rtol=1e-13)
    np.testing.assert_allclose(fdbr.hessian(square_root)(4.0), -0.25 * 4.0**-1.5, rtol=1e-13)


def test_the_start_has_no_derivative():
    slope = fdbr.grad(lambda x0: fdbr.root(lambda x: x**3 - x - 1, x0).x)(1.0)
    assert slope == 0.0


def test_the_derivative_of_a_minimum_and_of_its_value():
    def energy(x, a, b):
        return ops.sum((x - a) ** 2) + ops.sum((x - b) ** 4)

    def found(a, b):
        best = fdbr.minimize(energy, np.zeros(2), a, b)
        return best.x, best.value

    testing.check_grads(found, np.array([0.2, -1.0]), np.array([1.0, 0.5]), order=1, rtol=1e-6)


def test_the_derivative_of_a_fixed_point():
    def found(w, b):
        return fdbr.fixed_point(lambda x, w, b: ops.tanh(w @ x + b), np.zeros(2), w, b).x

    w = np.array([[0.3, -0.2], [0.1, 0.4]])
    testing.check_grads(found, w, np.array([0.5, -1.0]), modes=("vjp", "jvp"))


@pytest.mark.parametrize("mode", ["dense", "iterative"])
def test_large_systems_are_differentiated_without_their_matrix(mode, monkeypatch):
    monkeypatch.setattr(implicit, "DENSE", 500 if mode == "dense" else 1)
    w = np.array([[3.0, 1.0, 0.2], [0.5, 2.0, 0.0], [0.0, -0.3, 2.5]])

    def found(b):
        return fdbr.root(lambda x, b: w @ x + ops.tanh(x) - b, np.zeros(3), b).x

    testing.check_grads(found, np.array([0.3, 0.7, -0.2]), order=1)
    b = np.array([0.3, 0.7, -0.2])
    second = fdbr.hvp(lambda b: ops.sum(found(b) ** 3), (b,), (np.ones(3),))
    direct = fdbr.jvp(fdbr.grad(lambda b: ops.sum(found(b) ** 3)), (b,), (np.ones(3),))[1]
    np.testing.assert_allclose(second, direct, rtol=1e-8)


def test_beyond_500_unknowns_nothing_of_their_square_is_made():
    b = np.linspace(0.0, 1.0, 600)

    def found(b):
        return fdbr.root(lambda x, b: 3 * x + ops.tanh(ops.roll(x, 1)) - b, 0 * b, b).x

    x = found(b)
    np.testing.assert_allclose(3 * x + np.tanh(np.roll(x, 1)), b, atol=1e-6)
    slope = fdbr.grad(lambda b: ops.sum(found(b)))(b)
    assert slope.shape == (600,)
    step = np.eye(600)[7] * 1e-3
    by_differences = (found(b + step).sum() - found(b - step).sum()) / 2e-3
    np.testing.assert_allclose(slope[7], by_differences, rtol=1e-3)


# --- batches, and jit ---------------------------------------------------------------


@settings(max_examples=10)
@given(st.lists(st.floats(-4, 4).filter(lambda a: abs(a) > 0.1), max_size=4))
def test_each_example_converges_or_not_by_itself(values):
    a = np.array(values, dtype=float)

    def solve(a):
        return fdbr.root(lambda x, a: x**2 - a, 1.0, a, throw=False)

    found = fdbr.vmap(solve)(a)
    derivatives = fdbr.vmap(fdbr.grad(lambda a: solve(a).x))(a)
    assert found.converged.tolist() == (a > 0).tolist()
    good = a > 0
    np.testing.assert_allclose(found.x[good], np.sqrt(a[good]), rtol=1e-12)
    np.testing.assert_allclose(derivatives[good], 0.5 / np.sqrt(a[good]), rtol=1e-12)
    assert np.isnan(derivatives[~good]).all()
    assert np.array_equal(
        fdbr.grad(lambda a: ops.sum(fdbr.vmap(solve)(a).x))(a), derivatives, equal_nan=True
    )


def test_jit_gives_what_the_functions_give():
    def all_of_them(a):
        return (
            square_root(a),
            fdbr.grad(square_root)(a),
            fdbr.fixed_point(lambda x, a: ops.cos(a * x), 0.5, a / 4).x,
            fdbr.minimize(lambda x, a: ops.sum((x - a) ** 2 + x**4), np.ones(2), a).x,
        )

    jitted = fdbr.jit(all_of_them)
    for a in (2.0, 3.0, 2.5):
        for found, expected in zip(jitted(a), all_of_them(a), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-14)


# --- nothing is silently wrong ------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: fdbr.root(lambda x: x**2 + 1, 1.0, **o),
        lambda **o: fdbr.root(lambda x: x * np.nan, 1.0, **o),
        lambda **o: fdbr.root(lambda x: 0 * x + 1e-9, 1.0, **o),
        lambda **o: fdbr.root(lambda x: ops.exp(-x), 1.0, maxiter=20, **o),
        lambda **o: fdbr.fixed_point(lambda x: x + 1, 1.0, **o),
        lambda **o: fdbr.minimize(lambda x: 2 * x, 0.0, **o),
        lambda **o: fdbr.minimize(lambda x: -(x**2), 0.0, **o),
        lambda **o: fdbr.minimize(lambda x: x[0] ** 2 - x[1] ** 2, np.zeros(2), **o),
    ],
)
def test_what_is_no_solution_is_an_error_or_says_so(call):
    with pytest.raises(RuntimeError, match=r"^fdbr\.\w+: no solution of .*<lambda> was found"):
        call()
    assert not call(throw=False).converged


def test_a_root_whose_derivative_does_not_exist_has_nan_for_it():
    slope = fdbr.grad(lambda a: fdbr.root(lambda x, a: (x - a) ** 2, 0.0, a).x)
    assert np.isnan(slope(1.0))
    both = fdbr.vmap(fdbr.grad(lambda a: fdbr.root(lambda x, a: (x - 1) * (x - a), 1.0, a).x))(
        np.array([1.0, 3.0])
    )
    assert np.isnan(both[0])
    assert both[1] == 0.0


def test_a_traced_value_that_is_no_argument_is_refused():
    for wrap in (fdbr.grad, fdbr.jit):
        with pytest.raises(TypeError, match=r"^fdbr.root: .* traced value .* pass it as one"):
            wrap(lambda a: fdbr.root(lambda x: x**2 - a, 1.0).x)(4.0)


def test_errors_of_the_function_stay_what_they_are():
    def broken(x):
        raise KeyError("mine")

    for solve in (fdbr.root, fdbr.fixed_point, fdbr.minimize):
        with pytest.raises(KeyError, match="mine"):
            solve(broken, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fdbr.root(None, 1.0), "root: f must be a function, not NoneType"),
        (lambda: fdbr.root(abs, 1), "root: x0 must have a floating or complex leaf"),
        (lambda: fdbr.root(lambda x: (x, x), 1.0), "root: f must return as many .* 1, .* 2"),
        (lambda: fdbr.root(abs, 1.0, method="?"), "root: method must be one of hybr"),
        (lambda: fdbr.root(abs, 1.0, tol=-1), "root: tol must be a positive number"),
        (lambda: fdbr.root(abs, 1.0, maxiter=0), "root: maxiter must be at least 1"),
        (lambda: fdbr.fixed_point(lambda x: None, 1.0), "fixed_point: f must return as many"),
        (lambda: fdbr.minimize(lambda x: x, np.ones(2)), "minimize: f must return one real"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^fdbr.{message}"):
        call()


def test_minima_of_many_unknowns_with_flat_directions_are_found_to_the_last_digits():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 51))
    labels = np.eye(10)[rng.integers(10, size=60)]

    def loss(w, decay):  # softmax does not see what all columns have in common
        own = w - ops.mean(w, axis=1, keepdims=True)
        return -ops.mean(ops.sum(labels * ops.log_softmax(x @ w), axis=1)) + decay * ops.sum(own**2)

    found = fdbr.minimize(loss, np.zeros((51, 10)), 1e-2)
    assert found.converged
    assert found.residual < 1e-12


def test_derivatives_of_minima_of_many_unknowns_of_different_scale_are_right():
    scales = np.logspace(0, 4, 600)

    def total(t):
        return ops.sum(fdbr.minimize(lambda x, t: ops.sum(scales * (x - t) ** 2), t * 0, t).x)

    testing.assert_allclose(fdbr.grad(total)(np.linspace(-1, 1, 600)), np.ones(600), rtol=1e-7)


@pytest.mark.parametrize("unknowns", [3, 501])
def test_the_value_of_a_minimum_has_a_derivative_even_where_there_are_many_minima(unknowns):
    valley = lambda x, a: (ops.sum(x) - a) ** 2 + a**3
    value = lambda a: fdbr.minimize(valley, np.zeros(unknowns), a).value
    assert_allclose(fdbr.grad(value)(2.0), 12.0, rtol=1e-10)
    assert_allclose(fdbr.jvp(value, (2.0,), (1.0,))[1], 12.0, rtol=1e-10)
    assert_allclose(fdbr.vmap(fdbr.grad(value))(np.array([2.0, 1.0])), [12.0, 3.0], rtol=1e-10)
    bowl = lambda x, a: (x[0] - a**2) ** 2 * a + ops.sum(x**2)
    value = lambda a: fdbr.minimize(bowl, np.zeros(unknowns), a).value  # a**5 / (1 + a)
    for second in (fdbr.hessian(value), fdbr.grad(fdbr.grad(value))):
        assert_allclose(second(1.0), 7.75, rtol=1e-7)


def test_the_value_of_what_is_no_minimum_has_no_derivative():
    falling = lambda a: fdbr.minimize(lambda x, a: -a * x, 1.0, a, throw=False).value
    assert np.isnan(fdbr.grad(falling)(2.0))


def test_of_no_unknowns_the_minimum_is_the_value():
    value = lambda a: fdbr.minimize(lambda x, a: ops.sum(x**2) + a, np.zeros(0), a).value
    assert (value(2.0), fdbr.grad(value)(2.0)) == (2.0, 1.0)
    assert fdbr.odeint(lambda y, t: -y, np.zeros((0, 2)), np.array([0.0, 1.0])).shape == (2, 0, 2)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("factor", [0.5, 0.9, -0.9, 0.001])
def test_a_fixed_point_is_iterated_up_to_the_tolerance(factor, tol):
    f = lambda x, a: a * x + 1
    find = lambda x, a: fdbr.fixed_point(f, x, a, tol=tol)
    for g in (find, fdbr.jit(find)):
        found = g(0.0, factor)
        right = 1 / (1 - factor)
        assert found.converged
        assert abs(found.x - right) <= 1.01 * tol * (1 + abs(right))
        # The first change is 1, and each is a factor smaller.  So many changes add up to tol.
        rate = abs(factor)
        needed = np.log(tol * (1 + abs(right)) * (1 - rate)) / np.log(rate)
        assert found.iterations <= needed + 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [3.0, -2.0, 50.0])
def test_newtons_method_finds_the_fixed_point_from_which_an_iteration_diverges(factor):
    f = lambda x, a: a * x + 1
    x = lambda a: fdbr.fixed_point(f, 0.0, a).x
    for g in (x, fdbr.jit(x)):
        np.testing.assert_allclose(g(factor), 1 / (1 - factor))
        np.testing.assert_allclose(fdbr.grad(g)(factor), 1 / (1 - factor) ** 2)
