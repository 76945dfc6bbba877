"""jvp, as a user sees it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose

A = np.array([[0.3, -0.8, 0.5], [1.1, 0.2, -0.4], [-0.6, 0.9, 0.7]])


@fdbr.frozen
class Affine:
    weight: object
    bias: object = None
    mean: object = fdbr.buffer(default=None)
    axis: int = fdbr.static(default=-1)


# Functions of a tree {"m": (3, 3), "v": (3,), "s": ()}, some with several outputs.
FUNCTIONS = {
    "products": lambda d: d["m"] @ d["v"] * d["s"],
    "NumPy": lambda d: np.sum(np.tanh(d["m"]) ** 2, axis=0) / np.sqrt(1 + np.mean(d["v"] ** 2)),
    "a tree": lambda d: {"a": np.sin(d["v"]) * d["s"], "b": (ops.softmax(d["m"]), d["s"] ** 3)},
    "indexing": lambda d: ops.at(d["m"][::-1, 1:])[0].set(d["v"][:2]) * d["v"][[0, 0, 2]][:, None],
    "a loop": lambda d: sum((d["v"] ** n * d["s"] for n in range(1, 4)), 0.0),
    "a branch": lambda d: ops.exp(d["m"]) if d["s"] > 0 else d["v"] * d["m"],
    "joined": lambda d: np.concatenate([d["m"].ravel(), d["v"], d["s"].reshape(1)]) ** 2,
    "einsum": lambda d: np.einsum("ij,j,k->ik", d["m"], d["v"], d["v"]),
    "reductions": lambda d: (ops.max(d["m"], axis=1), ops.cumulative_sum(d["v"]), d["m"].prod()),
    "nothing": lambda d: np.ones(2),
}
POINT = {"m": A, "v": np.array([0.4, -1.3, 0.8]), "s": np.array(0.9)}


def like(values, seed):
    """Random arrays of the shapes and dtypes of a tree's."""
    rng = np.random.default_rng(seed)
    return tree.map(lambda x: np.asarray(rng.normal(size=np.shape(x)), np.asarray(x).dtype), values)


def inner(a, b):
    return sum(float(np.sum(x * y)) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))


# --- laws ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
@given(seed=st.integers(0, 2**32 - 1))
def test_forward_and_reverse_are_transposes(name, seed):
    f = FUNCTIONS[name]
    point = tree.map(lambda x, d: x + 0.1 * d, POINT, like(POINT, seed))
    tangent = like(POINT, seed + 1)
    out, slope = fdbr.jvp(f, (point,), (tangent,))
    value, pullback = fdbr.vjp(f, point)
    cotangent = like(value, seed + 2)
    assert_allclose(out, value)
    assert np.isclose(inner(cotangent, slope), inner(pullback(cotangent)[0], tangent), rtol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_the_derivative_along_the_tangent(name):
    f = FUNCTIONS[name]
    tangent = like(POINT, 0)
    moved = lambda h: f(tree.map(lambda x, t: x + h * t, POINT, tangent))
    h = 1e-3  # the fourth-order central difference
    numeric = tree.map(
        lambda a, b, c, d: (8 * (b - a) - (d - c)) / (12 * h),
        *[moved(step) for step in (-h, h, -2 * h, 2 * h)],
    )
    assert_allclose(fdbr.jvp(f, (POINT,), (tangent,))[1], numeric, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_it_is_linear_in_the_tangent(name, a, b):
    slope = lambda tangent: fdbr.jvp(FUNCTIONS[name], (POINT,), (tangent,))[1]
    s, t = like(POINT, 1), like(POINT, 2)
    both = slope(tree.map(lambda x, y: a * x + b * y, s, t))
    assert_allclose(both, tree.map(lambda x, y: a * x + b * y, slope(s), slope(t)), 1e-9, 1e-11)


@given(x=st.floats(-2, 2), t=st.floats(-2, 2))
def test_the_chain_rule(x, t):
    inner_value, inner_derivative = fdbr.jvp(np.sin, (x,), (t,))
    by_parts = fdbr.jvp(lambda y: y**2 * np.exp(y), (inner_value,), (inner_derivative,))
    at_once = fdbr.jvp(lambda x: np.sin(x) ** 2 * np.exp(np.sin(x)), (x,), (t,))
    assert_allclose(at_once, by_parts)


# --- nesting ------------------------------------------------------------------------


def derivative(f):
    return lambda x: fdbr.jvp(f, (x,), (x * 0.0 + 1.0,))[1]


@given(x=st.floats(0.5, 2), order=st.integers(1, 6))
def test_derivatives_of_every_order_of_a_power(x, order):
    f, expected, exponent = lambda x: x**6, 1.0, 6
    for _ in range(order):
        f, expected, exponent = derivative(f), expected * exponent, exponent - 1
    assert np.isclose(f(x), expected * x**exponent)


NESTED = {
    "the classic example": (lambda x, d: x * d(lambda y: x + y)(1.0), lambda x: 1.0),
    "a product": (lambda x, d: x * d(lambda y: x * y)(2.0), lambda x: 2 * x),
    "at the outer variable": (lambda x, d: d(lambda y: x * y * y)(x), lambda x: 4 * x),
    "three deep": (
        lambda x, d: d(lambda y: y * d(lambda z: x * y * z * z)(y))(x),
        lambda x: 18 * x**2,
    ),
    "without its own variable": (lambda x, d: x * (d(lambda y: x * x)(1.0) + 1), lambda x: 1.0),
    "stopped": (lambda x, d: d(lambda y: fdbr.stop_gradient(x) * y * y)(x), lambda x: 2 * x),
    "the inner variable stopped": (
        lambda x, d: d(lambda y: fdbr.stop_gradient(y) * y * x)(x),
        lambda x: x,  # what is stopped is a constant outside too
    ),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("outer", [fdbr.grad, derivative], ids=["grad", "jvp"])
@pytest.mark.parametrize("inside", [fdbr.grad, derivative], ids=["grad", "jvp"])
@given(x=st.floats(0.5, 2))
def test_perturbations_do_not_mix(name, outer, inside, x):
    f, expected = NESTED[name]
    assert np.isclose(outer(lambda x: f(x, inside))(x), expected(x))


def test_a_traced_tangent_is_differentiated():
    f = lambda x: fdbr.jvp(np.sin, (0.3,), (x * x,))[1]
    assert np.isclose(fdbr.grad(f)(2.0), 4.0 * np.cos(0.3))
    assert np.isclose(fdbr.jvp(f, (2.0,), (1.0,))[1], 4.0 * np.cos(0.3))


def test_a_traced_value_of_around_is_a_constant():
    slope = lambda x: fdbr.jvp(lambda y: np.sin(x) * y, (1.0,), (1.0,))[1]
    assert np.isclose(fdbr.grad(slope)(0.7), np.cos(0.7))


# --- arguments and results ----------------------------------------------------------


def test_several_arguments_and_none_for_zero():
    f = lambda x, y: x**2 * y
    assert fdbr.jvp(f, (3.0, 2.0), (1.0, 1.0)) == (18.0, 21.0)
    assert fdbr.jvp(f, (3.0, 2.0), (1.0, None)) == (18.0, 12.0)
    assert fdbr.jvp(f, [3.0, 2.0], [None, 1.0]) == (18.0, 9.0)
    assert fdbr.jvp(f, (3.0, 2.0), (None, None)) == (18.0, 0.0)


def test_leaves_that_are_not_differentiated_have_no_tangent():
    layer = Affine(np.ones((2, 3)), np.zeros(2), np.ones(3))
    tangent = tree.replace(layer, weight=np.ones((2, 3)), bias=None, mean=None)
    f = lambda layer, n, mask: layer.weight @ layer.mean * n * mask + layer.bias
    out, slope = fdbr.jvp(f, (layer, 2, np.array([True, False])), (tangent, None, None))
    assert (out == [6, 0]).all()
    assert (slope == [6, 0]).all()


def test_results_that_have_no_derivative_have_no_tangent():
    f = lambda x: {"y": x * 2, "n": 3, "i": ops.argmax(x), "p": x > 0, "c": np.ones(2), "s": 1.5}
    out, slope = fdbr.jvp(f, (np.array([1.0, 2.0]),), (np.ones(2),))
    assert [slope[k] for k in "nip"] == [None, None, None]
    assert (slope["y"] == 2).all()
    assert (slope["c"] == 0).all()
    assert slope["s"] == 0.0
    assert out["i"] == 1


def test_constants_in_between_have_none_either():
    f = lambda x: np.floor(x) * x + ops.astype(x, int) + fdbr.stop_gradient(x) * x
    assert fdbr.jvp(f, (2.5,), (1.0,)) == (5.0 + 2 + 6.25, 2.0 + 2.5)


def test_further_results():
    f = lambda x: (x**2, {"square root": np.sqrt(x), "n": 3})
    out, slope, aux = fdbr.jvp(f, (4.0,), (1.0,), has_aux=True)
    assert (out, slope, aux) == (16.0, 8.0, {"square root": 2.0, "n": 3})


def test_further_results_of_an_inner_one_are_differentiated_outside():
    f = lambda x: fdbr.jvp(lambda y: (y, y * x), (x,), (1.0,), has_aux=True)[2]
    assert fdbr.grad(f)(3.0) == 6.0


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_dtypes_stay(dtype):
    x = np.arange(1, 4).astype(dtype)
    f = lambda x: {"a": 2.0 * np.exp(x) / (x + 1), "b": x.sum() ** 2, "c": x[0] * x}
    out, slope = fdbr.jvp(f, (x,), (x,))
    assert {leaf.dtype for leaf in tree.leaves((out, slope))} == {np.dtype(dtype)}
    numbers = fdbr.jvp(lambda x: 3.0 * x * x, (x[1],), (x[0],))
    assert [n.dtype for n in numbers] == [np.dtype(dtype)] * 2


def test_a_promotion_in_between_has_a_tangent_of_its_kind():
    single, double = np.ones(2, "float32"), np.ones(2)
    out, slope = fdbr.jvp(lambda x: x * double + 1j, (single,), (single,))
    assert out.dtype == slope.dtype == np.complex128
    assert (slope == 1).all()


def test_shapes_without_elements():
    empty = np.empty((0, 3))
    out, slope = fdbr.jvp(lambda x: (np.sin(x) @ A, x.sum()), (empty,), (empty,))
    assert out[0].shape == slope[0].shape == (0, 3)
    assert slope[1] == 0.0


def test_complex_functions():
    z, t = np.array([1 + 2j, -0.5j]), np.array([0.5 - 1j, 2.0])
    assert_allclose(
        fdbr.jvp(lambda z: z**2 * np.exp(z), (z,), (t,))[1], (2 * z + z**2) * np.exp(z) * t
    )
    assert_allclose(fdbr.jvp(np.conj, (z,), (t,))[1], np.conj(t))
    assert_allclose(
        fdbr.jvp(lambda z: z * np.conj(z), (z,), (t,))[1], 2 * (np.conj(z) * t).real + 0j
    )
    length, slope = fdbr.jvp(np.abs, (z,), (t,))
    assert slope.dtype == float
    assert_allclose(slope, (np.conj(z) * t).real / length)


def test_functions_of_modules_other_than_numpy(xp, to_numpy):
    x, t = xp.asarray([0.3, 0.7]), xp.asarray([1.0, -1.0])
    out, slope = fdbr.jvp(lambda x: ops.sin(x) * ops.sum(x), (x,), (t,))
    assert type(slope) is type(x)
    assert_allclose(to_numpy(slope), np.cos([0.3, 0.7]) * [1.0, -1.0])
    assert_allclose(to_numpy(out), np.sin([0.3, 0.7]))


# --- guarantees ---------------------------------------------------------------------


def test_results_are_read_only_and_stay_when_arguments_change():
    x, t = np.ones(5000), np.ones(5000)
    for f in (lambda x: x, lambda x: x.reshape(2, -1), lambda x: x * 1.0, lambda x: x[::2]):
        out, slope = fdbr.jvp(f, (x,), (t,))
        x[:], t[:] = 7.0, 8.0
        assert (out == 1).all()
        assert (slope == 1).all()
        assert not out.flags.writeable
        assert not slope.flags.writeable
        x[:], t[:] = 1.0, 1.0


def test_a_value_that_escaped_is_an_error():
    kept = []
    fdbr.jvp(lambda x: kept.append(x) or x, (1.0,), (1.0,))
    with pytest.raises(fdbr.EscapedTracerError, match=r"fdbr.ops.sin: a traced value of jvp\("):
        np.sin(kept[0])
    with pytest.raises(fdbr.EscapedTracerError, match=r"fdbr.jvp: a traced value of jvp\("):
        fdbr.jvp(lambda x: kept[0], (1.0,), (1.0,))
    with pytest.raises(fdbr.EscapedTracerError, match="the tangent of argument 0"):
        fdbr.jvp(np.sin, (1.0,), (kept[0],))


def test_an_exception_leaves_nothing_behind():
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fdbr.jvp(fails, (1.0,), (1.0,))
    assert fdbr.jvp(np.sin, (0.0,), (1.0,)) == (0.0, 1.0)


# --- errors -------------------------------------------------------------------------


def model(p, x):
    return p["w"] * x


P = {"w": np.ones(3), "n": 2}
ERRORS = {
    "no function": (
        lambda: fdbr.jvp(3, (1.0,), (1.0,)),
        TypeError,
        "fdbr.jvp: f must be a function, not int 3",
    ),
    "no sequences": (
        lambda: fdbr.jvp(np.sin, 1.0, 1.0),
        TypeError,
        "fdbr.jvp: primals and tangents must be tuples or lists, one entry an argument",
    ),
    "different lengths": (
        lambda: fdbr.jvp(model, (P, 1.0), (P,)),
        ValueError,
        "fdbr.jvp: 2 primals but 1 tangents",
    ),
    "structure": (
        lambda: fdbr.jvp(model, (P, 1.0), ({"v": P["w"], "n": None}, None)),
        ValueError,
        "fdbr.jvp: the tangent of argument 0 of model must have the structure of the primal",
    ),
    "shape": (
        lambda: fdbr.jvp(model, (P, 1.0), ({"w": np.ones(4), "n": None}, None)),
        ValueError,
        r"fdbr.jvp: the tangent of argument 0 at \['w'\] of model must have shape \(3,\), "
        r"not float64\[4\]",
    ),
    "shape of a number": (
        lambda: fdbr.jvp(model, (P, 1.0), (None, np.ones(1))),
        ValueError,
        r"fdbr.jvp: the tangent of argument 1 of model must have shape \(\), not float64\[1\]",
    ),
    "dtype": (
        lambda: fdbr.jvp(model, (P, 1.0), ({"w": np.ones(3, "float32"), "n": None}, None)),
        TypeError,
        r"fdbr.jvp: the tangent of argument 0 at \['w'\] of model must have dtype float64, "
        r"not float32\[3\]",
    ),
    "a complex tangent of a real number": (
        lambda: fdbr.jvp(np.sin, (1.0,), (1j,)),
        TypeError,
        "the tangent of argument 0 of sin must have dtype float64, not complex 1j",
    ),
    "a number for an array": (
        lambda: fdbr.jvp(model, (P, 1.0), ({"w": 1.0, "n": None}, None)),
        TypeError,
        r"at \['w'\] of model must have dtype float64, not float 1.0",
    ),
    "an integer leaf": (
        lambda: fdbr.jvp(model, (P, 1.0), ({"w": np.ones(3), "n": 1}, None)),
        TypeError,
        r"fdbr.jvp: argument 0 at \['n'\] of model is int64\[\] and not differentiated .*"
        "its tangent must be None",
    ),
    "a buffer": (
        lambda: fdbr.jvp(
            lambda layer: layer.weight,
            (Affine(np.ones(2), None, np.ones(3)),),
            (Affine(np.ones(2), None, np.ones(3)),),
        ),
        TypeError,
        r"fdbr.jvp: argument 0 at mean of .* is float64\[3\] and not differentiated",
    ),
    "has_aux without a pair": (
        lambda: fdbr.jvp(model, (P, 1.0), (None, 1.0), has_aux=True),
        TypeError,
        r"fdbr.jvp: with has_aux=True model must return a pair \(value, aux\), not float64\[3\]",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_argument_and_path(name):
    attempt, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        attempt()
