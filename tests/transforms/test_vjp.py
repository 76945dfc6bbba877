"""vjp, grad, value_and_grad and stop_gradient, as a user sees them."""

import functools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree

FINITE = st.floats(-3, 3)


@fdbr.frozen
class Affine:
    weight: object
    bias: object = None
    mean: object = fdbr.buffer(default=None)
    axis: int = fdbr.static(default=-1)


# --- higher order -------------------------------------------------------------------


@given(st.floats(0.5, 2), st.integers(0, 6))
def test_gradients_of_every_order_of_a_power(x, order):
    f = lambda x: x**6
    expected, exponent = 1.0, 6
    for _ in range(order):
        f = fdbr.grad(f)
        expected, exponent = expected * exponent, exponent - 1
    assert np.isclose(f(x), expected * x**exponent)


@pytest.mark.parametrize(
    ("f", "derivatives"),
    [
        (np.sin, [np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin]),
        (np.exp, [np.exp] * 4),
        (lambda x: 1 / x, [lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4]),
        (np.log, [lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3]),
        (np.sqrt, [lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5]),
    ],
)
def test_derivatives_of_derivatives(f, derivatives):
    for expected in derivatives:
        f = fdbr.grad(f)
        assert np.isclose(f(0.7), expected(0.7))


def test_a_hessian_by_rows():
    a = np.array([[2.0, 1.0], [0.0, 3.0]])
    slope = fdbr.grad(lambda x: x @ a @ x)
    rows = [fdbr.grad(lambda x, i=i: slope(x)[i])(np.ones(2)) for i in range(2)]
    assert np.allclose(rows, a + a.T)


def test_a_hessian_times_a_vector():
    f = lambda x: np.sum(np.sin(x) * x[::-1])
    x, v = np.array([0.3, 0.5, 0.9]), np.array([1.0, 2.0, 3.0])
    product = fdbr.grad(lambda x: ops.sum(fdbr.grad(f)(x) * v))(x)
    step = 1e-6
    numerical = (fdbr.grad(f)(x + step * v) - fdbr.grad(f)(x - step * v)) / (2 * step)
    assert np.allclose(product, numerical)


def test_value_and_grad_nests():
    inner = fdbr.value_and_grad(lambda x: x**3)

    def f(x):
        value, slope = inner(x)
        return value * slope  # 3x⁵

    value, slope = fdbr.value_and_grad(f)(2.0)
    assert (value, slope) == (96.0, 240.0)


# --- perturbations do not mix -------------------------------------------------------

MIXED = {
    "a closure over the outer variable": (
        lambda x: x * fdbr.grad(lambda y: x + y)(1.0),
        lambda x: 1.0,
    ),
    "the inner derivative is of the product": (
        lambda x: x * fdbr.grad(lambda y: x * y)(2.0),
        lambda x: 2 * x,
    ),
    "at the outer variable": (
        lambda x: fdbr.grad(lambda y: x * y * y)(x),
        lambda x: 4 * x,
    ),
    "three deep": (
        lambda x: fdbr.grad(lambda y: y * fdbr.grad(lambda z: x * y * z * z)(y))(x),
        lambda x: 18 * x**2,  # z: 2xy², times y: 2xy³, in y: 6xy² = 6x³
    ),
    "an inner function that ignores its own variable": (
        lambda x: x * (fdbr.grad(lambda y: x * x)(1.0) + 1),
        lambda x: 1.0,
    ),
    "an inner function that returns the outer variable": (
        lambda x: x + fdbr.value_and_grad(lambda y: x)(1.0)[0],
        lambda x: 2.0,
    ),
    "a pullback made inside": (
        lambda x: fdbr.vjp(lambda y: x * y**2, x)[1](1.0)[0],
        lambda x: 4 * x,
    ),
    "a traced cotangent": (
        lambda x: fdbr.vjp(lambda y: y**2, 3.0)[1](x)[0],
        lambda x: 6.0,
    ),
    "a traced cotangent of a closure": (
        lambda x: fdbr.vjp(lambda y: x * y**2, x)[1](x)[0],
        lambda x: 6 * x**2,
    ),
    "a pullback made inside and called deeper": (
        lambda x: (lambda pullback: fdbr.grad(lambda z: pullback(z * z)[0] * x)(x))(
            fdbr.vjp(lambda y: y**3, x)[1]
        ),
        lambda x: 24 * x**3,  # 3x²z²·x in z: 6x³z = 6x⁴
    ),
    "the gradient function made outside": (
        lambda x: CUBE_DERIVATIVE(x) * x,
        lambda x: 9 * x**2,
    ),
    "aux of an inner transformation": (
        lambda x: fdbr.grad(lambda y: (y * x, y * y * x), has_aux=True)(x)[1],
        lambda x: 3 * x**2,
    ),
    "the outer variable stopped inside": (
        lambda x: fdbr.grad(lambda y: fdbr.stop_gradient(x) * y * y)(x),
        lambda x: 2 * x,
    ),
    "two gradients of one closure": (
        lambda x: fdbr.grad(lambda y: x * y)(1.0) * fdbr.grad(lambda y: x * y * y)(1.0),
        lambda x: 4 * x,
    ),
}
CUBE_DERIVATIVE = fdbr.grad(lambda y: y**3)


@pytest.mark.parametrize("name", MIXED)
@given(x=st.floats(0.5, 2))
def test_perturbations_do_not_mix(name, x):
    f, derivative = MIXED[name]
    assert np.isclose(fdbr.grad(f)(x), derivative(x))
    arrays = fdbr.vjp(lambda x: f(x), x)
    assert np.isclose(arrays[1](1.0)[0], derivative(x))


def test_the_classic_example():
    assert fdbr.grad(lambda x: x * fdbr.grad(lambda y: x + y)(1.0))(1.0) == 1.0


def test_an_outer_pullback_called_in_a_later_transformation():
    _, pullback = fdbr.vjp(np.sin, 0.5)
    slope = fdbr.grad(lambda c: pullback(c * c)[0] * c)(2.0)
    assert np.isclose(slope, 12.0 * np.cos(0.5))


def test_an_outer_pullback_called_with_traced_cotangents_of_arrays():
    a = np.arange(6.0).reshape(2, 3)
    _, pullback = fdbr.vjp(lambda x: a @ x, np.ones(3))
    _, transposed = fdbr.vjp(lambda c: pullback(c)[0], np.ones(2))
    v = np.array([1.0, -1.0, 2.0])
    assert np.allclose(transposed(v)[0], a @ v)


def test_an_optimization_inside_a_function_is_differentiated():
    def minimum(a):
        y = a * 0.0
        for _ in range(60):
            y = y - 0.2 * fdbr.grad(lambda y: (y - a * a) ** 2)(y)
        return y

    assert np.isclose(fdbr.grad(minimum)(3.0), 6.0)


# --- arguments ----------------------------------------------------------------------


def product(x, y, z=1.0):
    return x * y**2 * z


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, 9.0),
        (1, 12.0),
        (-1, 12.0),
        (-2, 9.0),
        ((0,), (9.0,)),
        ((1, 0), (12.0, 9.0)),
        ([0, -1], (9.0, 12.0)),
        (range(2), (9.0, 12.0)),
        (np.int64(1), 12.0),
        ((), ()),
    ],
)
def test_argnums_choose_arguments(argnums, expected):
    assert fdbr.grad(product, argnums)(2.0, 3.0) == expected
    assert fdbr.value_and_grad(product, argnums=argnums)(2.0, 3.0) == (18.0, expected)


@pytest.mark.parametrize("argnums", [2, -3, (0, 2)])
def test_argnums_out_of_range_are_refused(argnums):
    with pytest.raises(
        TypeError, match=r"fdbr\.grad: argnums=.* but product was called with 2 pos"
    ):
        fdbr.grad(product, argnums)(2.0, 3.0)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2)])
def test_argnums_that_name_an_argument_twice_are_refused(argnums):
    with pytest.raises(TypeError, match=r"fdbr\.grad: argnums=.* names an argument twice"):
        fdbr.grad(product, argnums)(2.0, 3.0)


@pytest.mark.parametrize("argnums", [None, "x", 1.0, (0, "y")])
def test_argnums_that_are_no_integers_are_refused_at_once(argnums):
    with pytest.raises(TypeError, match=r"fdbr\.grad: argnums must be an integer or a sequence"):
        fdbr.grad(product, argnums)


def test_keyword_arguments_are_passed_on_undifferentiated():
    assert fdbr.grad(product)(2.0, 3.0, z=10.0) == 90.0
    assert fdbr.grad(product)(2.0, y=3.0) == 9.0
    assert fdbr.grad(lambda x, *, n: x**n)(2.0, n=3) == 12.0


def test_an_argument_by_keyword_cannot_be_differentiated():
    with pytest.raises(TypeError, match="0 positional arguments, and arguments given by keyword"):
        fdbr.grad(product)(x=2.0, y=3.0)


def test_methods_partials_and_callable_objects_are_functions():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return self.factor * x

        def method(self, x):
            return self.factor * x * x

    assert fdbr.grad(Scale(3.0))(1.0) == 3.0
    assert fdbr.grad(Scale(3.0).method)(1.0) == 6.0
    assert fdbr.grad(functools.partial(product, y=3.0))(2.0) == 9.0
    assert fdbr.grad(functools.partial(product, 2.0))(3.0) == 12.0
    assert fdbr.grad(np.sin)(0.0) == 1.0


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "vjp"])
def test_what_is_no_function_is_refused(name):
    with pytest.raises(TypeError, match=rf"fdbr\.{name}: f must be a function, not int 3"):
        getattr(fdbr, name)(3, *([1.0] if name == "vjp" else []))


def test_the_gradient_function_is_named_and_documented_as_the_function():
    def energy(x):
        """The energy."""
        return x * x

    assert fdbr.grad(energy).__name__ == "energy"
    assert fdbr.grad(energy).__doc__ == "The energy."


def test_vjp_without_arguments_has_no_cotangents():
    out, pullback = fdbr.vjp(lambda: 3.0)
    assert out == 3.0
    assert pullback(1.0) == ()


# --- functions that use their argument oddly ----------------------------------------


@pytest.mark.parametrize("x", [1.5, np.float32(1.5), np.ones(3), np.ones((2, 0), np.float32)])
def test_a_function_that_ignores_its_argument_has_gradient_zero(x):
    value, slope = fdbr.value_and_grad(lambda x: 3.0)(x)
    assert value == 3.0
    assert (np.shape(slope), np.asarray(slope).dtype) == (np.shape(x), np.asarray(x).dtype)
    assert not np.any(slope)


def test_one_argument_used_and_another_not():
    gradients = fdbr.grad(lambda x, y: (x * x).sum(), argnums=(0, 1))(np.ones(2), np.ones(3))
    assert gradients[0].tolist() == [2.0, 2.0]
    assert gradients[1].tolist() == [0.0, 0.0, 0.0]
    assert not gradients[1].flags.writeable


@given(st.integers(1, 8), FINITE)
def test_uses_add_up(uses, x):
    assert fdbr.grad(lambda x: sum([x] * uses))(x) == uses
    total = fdbr.grad(lambda x: ops.sum(ops.stack([x] * uses)))(np.full(2, x))
    assert (total == uses).all()


def test_one_array_as_two_arguments_has_two_gradients():
    x = np.full(2, 3.0)
    gradients = fdbr.grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1))(x, x)
    assert gradients[0].tolist() == [9.0, 9.0]
    assert gradients[1].tolist() == [18.0, 18.0]


def test_one_array_twice_in_a_tree_has_two_gradients():
    x = np.full(2, 3.0)
    slope = fdbr.grad(lambda t: (t[0] * t[1] * t[1]).sum())([x, x])
    assert [s.tolist() for s in slope] == [[9.0, 9.0], [18.0, 18.0]]


def test_the_identity():
    x = np.array(2.0)
    value, slope = fdbr.value_and_grad(lambda x: x)(x)
    assert (value, slope) == (2.0, 1.0)
    out, pullback = fdbr.vjp(lambda x: x, np.ones(3))
    assert out.tolist() == [1.0, 1.0, 1.0]
    assert pullback(np.arange(3.0))[0].tolist() == [0.0, 1.0, 2.0]


def test_control_flow_is_pythons():
    def f(x):
        count = 0
        while x < 100:
            x = x * x if x > 1 else x + 1
            count += 1
        return x * count

    assert fdbr.grad(f)(3.0) == 3 * 8 * 3.0**7  # squared three times
    assert np.isclose(fdbr.grad(f)(0.5), 5 * 16 * 1.5**15)  # one more, then squared four times


# --- trees --------------------------------------------------------------------------


def test_leaves_that_are_not_floating_get_none():
    argument = {
        "weight": 2.0,
        "count": 3,
        "flag": True,
        "name": "text",
        "nothing": None,
        "indices": np.arange(2),
        "mask": np.ones(2, bool),
        "objects": np.array([1.0], object),
        "function": len,
        "nest": [(1.0, 2), Affine(np.ones(2), mean=np.ones(2))],
    }

    def f(t):
        layer = t["nest"][1]
        return t["weight"] * t["count"] + (layer.weight * layer.mean).sum() + 2 * t["nest"][0][0]

    slope = fdbr.grad(f)(argument)
    none = ["count", "flag", "name", "nothing", "indices", "mask", "objects", "function"]
    assert all(slope[name] is None for name in none)
    assert slope["weight"] == 3.0
    assert slope["nest"][0] == (2.0, None)
    assert slope["nest"][1] == Affine(np.ones(2))


LEAVES = (
    FINITE
    | st.integers(-3, 3)
    | st.sampled_from(["text", True, None])
    | FINITE.map(np.float32)
    | st.integers(0, 3).map(lambda n: np.arange(float(n)))
    | st.integers(0, 3).map(lambda n: np.ones((n, 2), np.complex64))
)


def containers(children):
    return (
        st.lists(children, max_size=3)
        | st.tuples(children, children)
        | st.dictionaries(st.sampled_from("abc"), children)
        | st.builds(Affine, children, children, children, axis=st.integers(0, 1))
    )


@given(st.recursive(LEAVES, containers, max_leaves=8))
def test_the_gradient_of_a_sum_of_squares_is_twice_the_conjugate_of_each_trainable_leaf(t):
    trainable = tree.trainable(t)

    def length(t):
        return sum((ops.sum(ops.abs(leaf) ** 2) for leaf in tree.leaves(tree.trainable(t))), 0.0)

    if not tree.leaves(trainable):
        with pytest.raises(TypeError, match="has no leaf to differentiate"):
            fdbr.grad(length)(t)
        return
    slope = fdbr.grad(length)(t)
    assert tree.structure(slope) == tree.structure(trainable)
    for s, leaf in zip(tree.leaves(slope), tree.leaves(trainable), strict=True):
        assert np.allclose(s, 2 * np.conj(leaf), atol=1e-5)
        assert s.dtype == np.asarray(leaf).dtype
        assert s.shape == np.shape(leaf)


def test_the_gradient_of_a_frozen_object_is_one():
    layer = Affine(np.ones((2, 3)), np.zeros(3), axis=0)
    slope = fdbr.grad(lambda layer: (layer.weight.sum(axis=layer.axis) * 2 + layer.bias).sum())(
        layer
    )
    assert slope == Affine(np.full((2, 3), 2.0), np.ones(3), axis=0)


def test_a_method_of_a_frozen_object_is_differentiated_in_the_object():
    @fdbr.frozen
    class Line:
        slope: float
        shift: float

        def __call__(self, x):
            return self.slope * x + self.shift

    assert fdbr.grad(Line.__call__)(Line(2.0, 1.0), 5.0) == Line(np.float64(5.0), np.float64(1.0))


# --- dtypes and shapes --------------------------------------------------------------

FLOATING = ["float16", "float32", "float64", "longdouble"]
COMPLEX = ["complex64", "complex128"]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 0), (2, 1, 3)])
def test_gradients_have_dtype_shape_and_kind_of_the_input(dtype, shape):
    x = np.ones(shape, dtype)
    value, slope = fdbr.value_and_grad(lambda x: ops.sum(x * x * 2.0 + 1))(x)
    assert value.dtype == x.dtype
    assert type(slope) is np.ndarray
    assert (slope.dtype, slope.shape) == (x.dtype, x.shape)
    assert (slope == 4).all()


@pytest.mark.parametrize("dtype", FLOATING)
def test_the_gradient_of_a_numpy_scalar_is_one(dtype):
    x = np.dtype(dtype).type(3)
    slope = fdbr.grad(lambda x: x * x)(x)
    assert type(slope) is type(x)
    assert slope == 6


@pytest.mark.parametrize("x", [3.0, np.float64(3.0)])
def test_the_gradient_of_a_number_is_a_number(x):
    slope = fdbr.grad(lambda x: x * x)(x)
    assert type(slope) is np.float64
    assert slope == 6.0


def test_a_gradient_in_a_narrow_dtype_survives_wider_company():
    def f(x):
        return ops.sum(x * np.arange(3.0)) + ops.sum(ops.astype(x, "float64") ** 2)

    slope = fdbr.grad(f)(np.ones(3, np.float32))
    assert slope.dtype == np.float32
    assert slope.tolist() == [2.0, 3.0, 4.0]


def test_python_numbers_are_weak():
    value, slope = fdbr.value_and_grad(lambda x, c: ops.sum(x * c))(np.ones(2, np.float32), 2.0)
    assert value.dtype == slope.dtype == np.float32
    assert fdbr.grad(lambda c, x: ops.sum(x * c))(2.0, np.ones(2, np.float32)) == 2.0


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_real_loss_of_a_complex_array_follows_the_convention_of_jax(dtype):
    z = np.array([3 + 4j, 1 - 2j], dtype)
    slope = fdbr.grad(lambda z: ops.sum(ops.abs(z) ** 2))(z)
    assert slope.dtype == dtype
    assert np.allclose(slope, 2 * z.conj())
    assert np.allclose(fdbr.grad(lambda z: z.real.sum())(z), 1)
    assert np.allclose(fdbr.grad(lambda z: z.imag.sum())(z), -1j)


def test_a_complex_number():
    slope = fdbr.grad(lambda z: (z * z).real)(3 + 4j)
    assert type(slope) is np.complex128
    assert slope == 2 * (3 + 4j)


def test_descent_on_a_complex_argument_conjugates_the_gradient():
    z, target = 0j, 2 - 3j
    for _ in range(60):
        z = z - 0.2 * np.conj(fdbr.grad(lambda z: ops.abs(z - target + 1e-9) ** 2)(z))
    assert np.isclose(z, target, atol=1e-6)


def test_a_real_argument_of_a_complex_function_has_a_real_gradient():
    slope = fdbr.grad(lambda x: ops.sum(ops.abs(x * (3 + 4j))))(np.ones(2, np.float32))
    assert slope.dtype == np.float32
    assert np.allclose(slope, 5.0)


def test_a_holomorphic_function_has_a_complex_vjp():
    z = np.array([1 + 2j])
    _, pullback = fdbr.vjp(lambda z: z * z, z)
    assert np.allclose(pullback(np.array([1 + 0j]))[0], 2 * z)
    assert np.allclose(pullback(np.array([1j]))[0], 2j * z)


# --- what a loss must be ------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x: x * np.ones(2), r"float64\[2\]; reduce it with ops\.sum"),
        (lambda x: np.ones((2, 3)), r"float64\[2,3\]; reduce it"),
        (lambda x: (x, x), "tuple; for a pair .* has_aux=True"),
        (lambda x: None, "NoneType; return a real floating scalar"),
        (lambda x: 3, "int 3"),
        (lambda x: x > 0, "bool"),
        (lambda x: x * 1j, "complex"),
        (lambda x: [x], "list"),
        (lambda x: f"{x}", "str"),
        (lambda x: (x for _ in "a"), "generator"),
    ],
)
@pytest.mark.parametrize("name", ["grad", "value_and_grad"])
def test_a_loss_that_is_no_real_scalar_is_refused(name, result, words):
    message = rf"^fdbr\.{name}: .*lambda> must return a real floating scalar, but .* {words}"
    with pytest.raises(TypeError, match=message):
        getattr(fdbr, name)(result)(1.0)


def test_the_refusal_names_the_function():
    def my_loss(x):
        return x

    with pytest.raises(TypeError, match=r"my_loss must return .* float32\[3\]"):
        fdbr.grad(my_loss)(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (3, "the argument itself: int 3"),
        (np.arange(3), r"the argument itself: int64\[3\]"),
        ({"a": 1, "b": [np.ones(2, bool)]}, r"\['a'\]: int 1, \['b'\]\[0\]: bool\[2\]"),
        (Affine(1, mean=1.0), r"weight: int 1, mean: float 1\.0"),
        ([], "no leaf at all"),
        (None, "no leaf at all"),
        ("text", "str"),
    ],
)
def test_an_argument_without_anything_to_differentiate_is_refused(argument, words):
    def my_loss(y, x):
        return 1.0

    with pytest.raises(TypeError, match=rf"argument 1 of .*my_loss has no leaf.* {words}"):
        fdbr.grad(my_loss, argnums=1)(1.0, argument)
    with pytest.raises(TypeError, match=r"fdbr\.vjp: no argument of .*my_loss has a leaf"):
        fdbr.vjp(my_loss, 1, argument)


# --- aux ----------------------------------------------------------------------------


def with_aux(x):
    y = x * x
    return y.sum(), {"y": y, "positive": x > 0, "text": "t", "none": None, "list": [1, x]}


def test_aux_is_passed_out_untraced():
    (value, aux), slope = fdbr.value_and_grad(with_aux, has_aux=True)(np.full(2, 3.0))
    assert value == 18.0
    assert slope.tolist() == [6.0, 6.0]
    assert type(aux["y"]) is np.ndarray
    assert aux["y"].tolist() == [9.0, 9.0]
    assert aux["positive"].tolist() == [True, True]
    assert (aux["text"], aux["none"], aux["list"][0]) == ("t", None, 1)
    assert type(aux["list"][1]) is np.ndarray
    slope, again = fdbr.grad(with_aux, has_aux=True)(np.full(2, 3.0))
    assert again["y"].tolist() == [9.0, 9.0]


def test_aux_of_vjp():
    out, pullback, aux = fdbr.vjp(lambda x: (x * 2, x * 3), np.ones(2), has_aux=True)
    assert (out.tolist(), aux.tolist()) == ([2.0, 2.0], [3.0, 3.0])
    assert pullback(np.ones(2))[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("result", [lambda x: x, lambda x: (x, x, x), lambda x: [x, x]])
def test_has_aux_needs_a_pair(result):
    with pytest.raises(TypeError, match=r"with has_aux=True .*lambda> must return a pair"):
        fdbr.grad(result, has_aux=True)(1.0)
    with pytest.raises(TypeError, match=r"fdbr\.vjp: with has_aux=True"):
        fdbr.vjp(result, 1.0, has_aux=True)


# --- pullbacks ----------------------------------------------------------------------


@given(st.lists(FINITE, min_size=3, max_size=3), st.lists(FINITE, min_size=3, max_size=3))
def test_a_pullback_is_linear_and_always_gives_the_same(a, b):
    _, pullback = fdbr.vjp(lambda x: np.sin(x) * x[::-1], np.array([0.1, 0.7, -0.4]))
    a, b = np.array(a), np.array(b)
    one, other, both = pullback(a)[0], pullback(b)[0], pullback(2 * a + b)[0]
    assert np.allclose(both, 2 * one + other)
    assert np.array_equal(pullback(a)[0], one)


def test_outputs_and_cotangents_are_trees():
    def f(p, x):
        return {"sum": p.weight + x, "rest": (p.weight * x, None, 3, "text", x > 0)}

    out, pullback = fdbr.vjp(f, Affine(2.0), 3.0)
    assert (out["sum"], out["rest"]) == (5.0, (6.0, None, 3, "text", True))
    by_sum = pullback({"sum": 1.0, "rest": (None, None, None, None, None)})
    assert by_sum == (Affine(np.float64(1.0)), 1.0)
    by_both = pullback({"sum": 1.0, "rest": (10.0, None, None, None, None)})
    assert by_both == (Affine(np.float64(31.0)), 21.0)
    nothing = pullback({"sum": None, "rest": (None, None, None, None, None)})
    assert nothing == (Affine(np.float64(0.0)), 0.0)


def test_outputs_that_do_not_depend_on_the_primals_have_no_influence():
    _, pullback = fdbr.vjp(lambda x: (x * 2, np.ones(2)), np.ones(2))
    assert pullback((np.ones(2), np.ones(2)))[0].tolist() == [2.0, 2.0]


def test_a_python_number_will_do_as_the_cotangent_of_a_scalar():
    for x in (1.0, np.float32(1), np.array(1, np.float32)):
        _, pullback = fdbr.vjp(lambda x: x * 3, x)
        assert pullback(2)[0] == 6
        assert pullback(2.0)[0].dtype == np.asarray(x).dtype


@pytest.mark.parametrize(
    ("ct", "error", "words"),
    [
        (np.ones(3), ValueError, r"at \[0\] must have shape \(2,\), not float64\[3\]"),
        (np.ones(2, np.float32), TypeError, r"at \[0\] must have dtype float64, not float32\[2\]"),
        (1.0, TypeError, r"at \[0\] must have dtype float64, not float 1\.0"),
        (np.ones(2, complex), TypeError, "must have dtype float64, not complex128"),
        ("text", TypeError, "not str"),
        ([np.ones(2)], TypeError, "must have dtype float64, not list"),
    ],
)
def test_a_cotangent_that_does_not_fit_is_refused(ct, error, words):
    def mapping(x):
        return (x * 2,)

    _, pullback = fdbr.vjp(mapping, np.ones(2))
    with pytest.raises(error, match=rf"^fdbr\.vjp: the cotangent of .*mapping.*{words}"):
        pullback((ct,))


def test_a_complex_number_is_no_cotangent_of_a_real_scalar():
    _, pullback = fdbr.vjp(lambda x: x, 1.0)
    with pytest.raises(TypeError, match="must have dtype float64, not complex"):
        pullback(1j)


def test_a_cotangent_of_another_structure_is_refused():
    def mapping(x):
        return x, x

    _, pullback = fdbr.vjp(mapping, np.ones(2))
    with pytest.raises(ValueError, match=r"must have the structure of the output of .*mapping"):
        pullback([np.ones(2), np.ones(2)])


def test_a_pullback_tells_whose_it_is():
    def mapping(x):
        return x

    assert repr(fdbr.vjp(mapping, 1.0)[1]).endswith("mapping>")


# --- stop_gradient ------------------------------------------------------------------


def test_stop_gradient_makes_constants_of_the_leaves_of_a_tree():
    def f(x):
        t = fdbr.stop_gradient({"a": x, "b": [x * x, 3, "text", None]})
        assert type(t["a"]) is float
        assert t["b"][1:] == [3, "text", None]
        return x * t["a"] + t["b"][0]

    assert fdbr.grad(f)(3.0) == 3.0


def test_stop_gradient_of_untraced_values_is_the_identity():
    x = np.ones(3)
    assert fdbr.stop_gradient(x) is x
    assert fdbr.stop_gradient([1, "a"]) == [1, "a"]


def test_stop_gradient_takes_off_every_level():
    def f(x):
        return fdbr.grad(lambda y: fdbr.stop_gradient(x * y) * y)(2.0)

    assert fdbr.value_and_grad(f)(3.0) == (6.0, 0.0)


def test_stopped_values_may_be_kept():
    kept = []
    fdbr.grad(lambda x: kept.append(fdbr.stop_gradient(x * x)) or x)(3.0)
    assert kept == [9.0]


# --- traced values that escaped -----------------------------------------------------


def escaped(transform=fdbr.grad, value=1.0):
    kept = []

    def leak(x):
        kept.append(x * 1.0)
        return x * 2.0

    transform(leak)(value)
    return kept[0]


def through_vjp(f):
    return lambda x: fdbr.vjp(f, x)


def nested(f):
    return lambda x: fdbr.grad(lambda y: fdbr.grad(f)(y) * y)(x)


def aborted(f):
    def run(x):
        with pytest.raises(ZeroDivisionError):
            fdbr.grad(lambda y: f(y) / 0 if f(y) is None else 1 / 0)(x)

    return run


USES = {
    "an operator": lambda leaked: leaked + 1.0,
    "the other way round": lambda leaked: np.ones(2) * leaked,
    "a method": lambda leaked: leaked.sum(),
    "NumPy": np.sin,
    "ops": lambda leaked: ops.stack([leaked, leaked]),
    "indexing": lambda leaked: leaked[None],
    "comparison": lambda leaked: leaked > 0,
    "stop_gradient": fdbr.stop_gradient,
    "a constant of another function": lambda leaked: fdbr.grad(lambda x: x * leaked)(1.0),
    "the result of another function": lambda leaked: fdbr.value_and_grad(lambda x: leaked)(1.0),
    "a result among others": lambda leaked: fdbr.vjp(lambda x: [x, {"k": leaked}], 1.0),
    "aux": lambda leaked: fdbr.grad(lambda x: (x, [leaked]), has_aux=True)(1.0),
    "an argument": lambda leaked: fdbr.grad(lambda x: x)(leaked),
    "an argument of vjp": lambda leaked: fdbr.vjp(lambda x: x, leaked),
    "a cotangent": lambda leaked: fdbr.vjp(lambda x: x, 1.0)[1](leaked),
    "inside a later run": lambda leaked: fdbr.grad(lambda x: fdbr.grad(lambda y: leaked * y)(x))(
        1.0
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "transform", [fdbr.grad, fdbr.value_and_grad, through_vjp, nested, aborted]
)
def test_an_escaped_value_raises_an_error_wherever_it_is_used(use, transform):
    leaked = escaped(transform)
    message = r"traced value of \w+\(.*\) was used after .* had returned.*has_aux=True"
    with pytest.raises(fdbr.EscapedTracerError, match=message):
        USES[use](leaked)


def test_the_error_names_the_operation_and_the_function():
    with pytest.raises(
        fdbr.EscapedTracerError, match=r"^fdbr\.ops\.add: .* of grad\(escaped\.<locals>\.leak\) was"
    ):
        escaped() + 1.0


def test_an_escaped_value_still_tells_what_it_was():
    leaked = escaped(value=np.float32(2))
    assert (leaked.shape, leaked.dtype) == ((), np.float32)
    assert "leak" in repr(leaked)


def test_a_pullback_that_holds_escaped_values_raises():
    kept = []

    def f(x):
        kept.append(fdbr.vjp(lambda y: y * x, x)[1])
        return x

    fdbr.grad(f)(2.0)
    with pytest.raises(fdbr.EscapedTracerError):
        kept[0](1.0)


OTHERS = {
    "an integer": 2,
    "None": None,
    "a truth value": True,
    "an array of integers": np.arange(1, 4),
    "a string": "mean",
    "a tuple": (1, None),
    "nothing": {},
}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_arguments_without_a_leaf_to_differentiate_have_the_gradient_none(other, first):
    value, x = OTHERS[other], np.array([0.5, 1.0, 2.0])
    none = tree.map(lambda leaf: None, value)

    def f(*args):
        x, n = args[::-1] if first else args
        return x**2 * n if isinstance(n, int | np.ndarray) else x**2

    def placed(a, b):
        return (b, a) if first else (a, b)

    primals, tangents = placed(x, value), placed(np.ones(3), None)
    out, slope = fdbr.jvp(f, primals, tangents)
    found, pullback = fdbr.vjp(f, *primals)
    assert np.array_equal(found, out)
    by_x, by_other = placed(*pullback(np.ones(3)))
    assert by_other == none
    assert np.allclose(by_x, slope)
    found, linear = fdbr.linearize(f, *primals)
    assert np.array_equal(found, out)
    assert np.allclose(linear(*tangents), slope)
    for jacobian in (fdbr.jacrev, fdbr.jacfwd):
        by_x, by_other = placed(*jacobian(f, (0, 1))(*primals))
        assert by_other == none
        assert np.allclose(by_x, np.diag(slope))
    by_x, by_other = placed(*fdbr.hvp(lambda *args: f(*args).sum(), primals, tangents))
    assert by_other is None
    assert np.allclose(by_x, slope / x)
    fdbr.testing.check_grads(f, *primals)


def test_a_message_about_nothing_to_differentiate_names_some_leaves_of_many():
    for attempt in (fdbr.grad(lambda x: 1.0), lambda x: fdbr.vjp(lambda x: 1.0, x)):
        with pytest.raises(TypeError, match=r"int 7, and 992 more") as caught:
            attempt(list(range(1000)))
        assert len(str(caught.value)) < 600


def test_vjp_without_anything_to_differentiate_is_an_error_that_says_what_there_is():
    with pytest.raises(TypeError, match=r"no argument of f has a leaf .* \[0\]: int 1\. Convert"):
        fdbr.vjp(_identity_of_both, 1, None)


def _identity_of_both(a, b):
    return a, b


_identity_of_both.__qualname__ = "f"


def test_the_gradient_of_a_sum_along_rows_repeats_a_copy_of_the_cotangent():
    x, ct = np.ones((1000, 1000)), np.arange(1000.0)
    _, pullback = fdbr.vjp(lambda x: ops.sum(x, axis=0), x)
    tracemalloc.start()
    (gradient,) = pullback(ct)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < x.nbytes / 10
    ct[:] = 0  # the caller's own memory, which the gradient must not share
    assert np.array_equal(gradient, np.tile(np.arange(1000.0), (1000, 1)))
    assert not gradient.flags.writeable
