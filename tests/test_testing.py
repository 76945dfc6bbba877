"""`fdbr.testing`: it accepts what is right, and says precisely what is wrong."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads, numerical_grad

X = np.array([[0.5, 1.25, 2.0], [0.75, 0.25, 1.5]])


@fdbr.frozen
class Scale:
    factor: np.ndarray
    mean: np.ndarray = fdbr.buffer()
    name: str = fdbr.static(default="scale")

    def __call__(self, x):
        return (x - self.mean) * self.factor


# --- numerical_grad -----------------------------------------------------------------


@pytest.mark.parametrize("f", [np.exp, np.log, np.sin, np.sqrt, np.tanh, lambda x: 1 / x**3])
def test_numerical_gradients_agree_with_exact_ones(f):
    exact = fdbr.grad(lambda x: np.sum(f(x)))(X)
    assert_allclose(numerical_grad(lambda x: np.sum(f(x)), X), exact, rtol=1e-9, atol=1e-9)


def test_numerical_gradients_of_float32_are_computed_in_float64():
    gradient = numerical_grad(lambda x: np.sum(np.exp(x)), X.astype(np.float32))
    assert gradient.dtype == np.float64
    assert_allclose(gradient, np.exp(X), rtol=1e-9)


def test_numerical_gradients_have_the_structure_of_the_arguments():
    f = lambda p, x: np.sum(p["w"] * x) + p["b"] * p["n"]
    by_p, by_x = numerical_grad(f, {"w": X, "b": 2.0, "n": 3}, X)
    assert_allclose(by_p["w"], X, rtol=1e-9)
    assert_allclose(by_p["b"], 3.0, rtol=1e-9)
    assert by_p["n"] is None
    assert_allclose(by_x, X, rtol=1e-9)


def test_buffers_have_no_numerical_gradient():
    gradient = numerical_grad(lambda s: np.sum(s(X)), Scale(np.ones(3), np.zeros(3)))
    assert gradient.mean is None
    assert_allclose(gradient.factor, X.sum(axis=0), rtol=1e-9)


def test_numerical_gradients_of_complex_arguments_follow_the_convention_of_grad():
    f = lambda z: np.sum(np.abs(z) ** 2 + (z * z).imag)
    z = np.array([1 + 2j, 0.5 - 1j])
    gradient = fdbr.grad(lambda z: ops.sum(ops.abs(z) ** 2 + ops.imag(z * z)))(z)
    assert_allclose(numerical_grad(f, z), gradient, rtol=1e-9)


def test_the_step_can_be_chosen():
    assert numerical_grad(abs, 0.5, eps=2.0) != pytest.approx(1.0)
    assert numerical_grad(abs, 0.5, eps=0.1) == pytest.approx(1.0)


@pytest.mark.parametrize("f", [lambda x: x, lambda x: (1.0, 2.0), lambda x: 1j * x[0, 0]])
def test_numerical_gradients_need_a_real_number(f):
    with pytest.raises(TypeError, match="must return a real number"):
        numerical_grad(f, X)


# --- assert_allclose ----------------------------------------------------------------


def test_equal_arrays_of_any_module_pass(xp):
    x = xp.asarray(X)
    assert_allclose(x, X)
    assert_allclose(X, x)
    assert_allclose({"a": [x, 1.0]}, {"a": [X, 1.0]})
    assert_allclose([0.5, 1.25], np.array([0.5, 1.25]))
    assert_allclose(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]))


def test_tolerances_follow_the_less_precise_dtype():
    near, far = X * (1 + 1e-6), X * (1 + 1e-4)
    assert_allclose(near.astype(np.float32), X)
    assert_allclose(far.astype(np.float16), X)
    for actual in (near, far, far.astype(np.float32)):
        with pytest.raises(AssertionError):
            assert_allclose(actual, X)
    assert_allclose(far, X, rtol=1e-3)
    assert_allclose(X + 1e-4, X, atol=1e-3)


@pytest.mark.parametrize(
    ("actual", "desired", "words"),
    [
        (X, X[:1], ["shapes differ", "float64[2,3], not float64[1,3]"]),
        (X, X[0, 0], ["float64[2,3], not float64[]"]),
        ({"a": 1.0}, {"b": 1.0}, ["structures differ"]),
        ({"a": [1.0, X]}, {"a": [1.0, X + (X > 1.9)]}, ["at ['a'][1]", "element [0, 2]", "3.0"]),
        (np.array([1, 2]), np.array([1, 3]), ["element [1]", "0 is allowed"]),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), ["element [1] is nan, not 2.0"]),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), ["element [1] is 2.0, not inf"]),
        (1.0, 1.5, ["it is 1.0, not 1.5"]),
        (np.array([1.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0]), ["[2] is 9.0", "2 of 3 elements"]),
    ],
)
def test_differences_are_named(actual, desired, words):
    with pytest.raises(AssertionError) as caught:
        assert_allclose(actual, desired)
    for word in words:
        assert word in str(caught.value)


# --- check_grads --------------------------------------------------------------------


def wrong_in_first_order(x):
    return x * fdbr.stop_gradient(x)


def wrong_in_second_order(x):
    """Of value ``x**3`` and first derivative ``3 * x**2``."""
    y = fdbr.stop_gradient(x)
    return y**3 + 3 * y**2 * (x - y)


def wrong_at_one_element(x):
    return ops.where(np.array([[0, 0, 0], [0, 1, 0]]) == 1, wrong_in_first_order(x), x * x)


def test_right_derivatives_pass_for_trees_of_any_kind(xp):
    def f(model, pair, count):
        return {"out": model(pair[0]) * pair[1], "steps": count + 1, "none": None}

    check_grads(f, Scale(xp.ones(3), xp.zeros(3)), (xp.asarray(X), 2.0), 3, order=3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_right_derivatives_pass_in_every_dtype(dtype):
    check_grads(lambda x: np.exp(x) / (1 + x**2), X.astype(dtype))


def test_functions_of_complex_numbers_can_be_checked():
    check_grads(lambda z: ops.conj(z) * z * z, np.array([1 + 2j, 0.5 - 1j]))


@pytest.mark.parametrize(
    ("f", "args", "words"),
    [
        (wrong_in_first_order, (X,), ["of wrong_in_first_order: mode vjp, order 1", "6 of 6"]),
        (wrong_in_second_order, (X,), ["of wrong_in_second_order: mode vjp, order"]),
        (wrong_at_one_element, (X,), ["element [1, 1]", "(1 of 6 elements differ)"]),
        (lambda p, x: p["b"] * wrong_in_first_order(x), ({"b": 1.0}, X), ["args[1]"]),
        (lambda p: wrong_in_first_order(p["a"][1]), ({"a": [X, X]},), ["args[0]['a'][1]"]),
    ],
)
def test_wrong_derivatives_are_named_by_mode_order_argument_and_element(f, args, words):
    with pytest.raises(AssertionError) as caught:
        check_grads(f, *args)
    for word in words:
        assert word in str(caught.value)


def test_a_derivative_that_is_wrong_in_second_order_only_is_named():
    check_grads(wrong_in_second_order, X, order=1)
    with pytest.raises(AssertionError, match=r"order 2: the derivative by args\[0\]"):
        check_grads(wrong_in_second_order, X, order=2)


def test_the_tolerance_can_be_chosen():
    f = lambda x: x + 1e-5 * fdbr.stop_gradient(x)
    check_grads(f, X, rtol=1e-3)
    check_grads(f, X, atol=1e-3)
    with pytest.raises(AssertionError):
        check_grads(f, X)


def test_unknown_modes_and_functions_without_derivatives_are_rejected():
    with pytest.raises(ValueError, match="modes"):
        check_grads(np.sin, X, modes=("backward",))
    with pytest.raises(ValueError, match="modes 'vjp'"):
        check_grads(np.sin, X, modes="vjp")
    with pytest.raises(TypeError, match="no floating output"):
        check_grads(lambda x: x > 0, X)
    with pytest.raises(TypeError, match="no leaf to differentiate"):
        check_grads(lambda n: n * 1.0, np.array([1, 2]))
