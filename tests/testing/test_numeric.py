"""Derivatives by differences of values."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, numerical_grad

X = np.array([[0.5, 1.25, 2.0], [0.75, 0.25, 1.5]])


@fdbr.frozen
class Scale:
    factor: np.ndarray
    mean: np.ndarray = fdbr.buffer()
    name: str = fdbr.static(default="scale")

    def __call__(self, x):
        return (x - self.mean) * self.factor


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


def test_arguments_stay_on_their_devices_and_gradients_come_to_the_host(xp):
    x, n = xp.asarray(X), X[0]

    def f(x, n):
        assert type(x) is type(xp.asarray(X))
        return float((x * x).sum()) + float((n**3).sum())

    by_x, by_n = numerical_grad(f, x, n)
    assert_allclose(by_x, 2 * X, rtol=1e-9)
    assert_allclose(by_n, 3 * n**2, rtol=1e-9)
    assert type(by_x) is type(by_n) is np.ndarray


# --- cotangents ---------------------------------------------------------------------


def test_with_a_cotangent_it_is_what_the_pullback_gives(xp):
    rng = np.random.default_rng(0)
    f = lambda params, x: {
        "y": ops.sin(params["w"]) * x,
        "total": ops.sum(params["w"] * x),
        "count": 3,
    }
    params, x = {"w": xp.asarray(rng.normal(size=3)), "n": 2}, xp.asarray(rng.normal(size=(2, 3)))
    cotangent = {"y": xp.asarray(rng.normal(size=(2, 3))), "total": 0.5, "count": None}
    found = numerical_grad(f, params, x, cotangent=cotangent)
    _, pullback = fdbr.vjp(f, params, x)
    expected = pullback(cotangent | {"total": xp.asarray(0.5)[()] if xp is np else xp.asarray(0.5)})
    assert_allclose(found[0]["w"], fdbr.device_get(expected[0]["w"]), rtol=1e-8)
    assert_allclose(found[1], fdbr.device_get(expected[1]), rtol=1e-8)
    assert found[0]["n"] is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_it_is_so_for_complex_results_and_arguments(dtype):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=3) + (1j * rng.normal(size=3) if dtype[0] == "c" else 0)).astype(dtype)
    ct = rng.normal(size=3) + 1j * rng.normal(size=3)
    f = lambda x: x * x * (1 + 2j)
    out, pullback = fdbr.vjp(f, x)
    assert_allclose(
        numerical_grad(f, x, cotangent=ct), pullback(ct.astype(out.dtype))[0], rtol=1e-5, atol=1e-5
    )


def test_a_cotangent_that_does_not_fit_is_refused_by_name():
    with pytest.raises(
        ValueError, match=r"numerical_grad: the cotangent of .* must have the shape"
    ):
        numerical_grad(lambda x: x, np.ones(3), cotangent=np.ones(2))
    with pytest.raises(ValueError, match=r"numerical_grad: the cotangent of .*structure"):
        numerical_grad(lambda x: [x, x], np.ones(3), cotangent=np.ones(3))
    with pytest.raises(ValueError, match=r"at \[1\] must have the shape of float64\[3\]"):
        numerical_grad(lambda x: [x, x], np.ones(3), cotangent=[None, 1.0])
