"""`check_grads`: it accepts what is right, and says precisely what is wrong."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops.declare import aligned, fit, leading, linear, multilinear, opaque, shifted
from fdbr.testing import check_grads

X = np.array([[0.5, 1.25, 2.0], [0.75, 0.25, 1.5]])
V = np.array([0.5, 1.25, 2.0])


@fdbr.frozen
class Scale:
    factor: np.ndarray
    mean: np.ndarray = fdbr.buffer()
    name: str = fdbr.static(default="scale")

    def __call__(self, x):
        return (x - self.mean) * self.factor


# --- what is right ------------------------------------------------------------------


def test_right_derivatives_pass_for_trees_of_any_kind(xp):
    def f(model, pair, count):
        return {"out": model(pair[0]) * pair[1], "steps": count + 1, "none": None}

    check_grads(f, Scale(xp.ones(3), xp.zeros(3)), (xp.asarray(X), 2.0), 3, order=3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_right_derivatives_pass_in_every_dtype(dtype):
    check_grads(lambda x: np.exp(x) / (1 + x**2), X.astype(dtype))


def test_functions_of_complex_numbers_can_be_checked():
    check_grads(lambda z: ops.conj(z) * z * z, np.array([1 + 2j, 0.5 - 1j]))
    check_grads(lambda z, x: (ops.abs(z * x), z), np.array([1 + 2j, 0.5 - 1j]), V[:2])


def test_arrays_of_no_element_and_results_that_depend_on_nothing_pass():
    check_grads(lambda x: (x * x, ops.sum(x)), np.zeros((2, 0)))
    check_grads(lambda x, y: (x * x, 3.0, np.ones(2)), 1.5, np.ones(2))


def test_functions_that_decide_by_values_pass():
    def f(x):
        return x * x if x[0] > 0.5 else 3 * x

    check_grads(f, V, modes=("vmap",))  # of the batch around it, some examples are above


def test_arrays_on_different_devices_pass(xp):
    check_grads(lambda x, y: (x * x, y * y * y), xp.asarray(X), V.astype(np.float32))


def test_many_arguments_pass():
    check_grads(lambda a, b, c, d, e: a * b + c * d * e, *(x + V for x in range(5)))


def test_the_order_may_be_nought(xp):
    check_grads(lambda x: x * fdbr.stop_gradient(x), xp.asarray(X), order=0)


# --- what is wrong by itself --------------------------------------------------------


def wrong_in_first_order(x):
    return x * fdbr.stop_gradient(x)


def wrong_in_second_order(x):
    """Of value ``x**3`` and first derivative ``3 * x**2``."""
    y = fdbr.stop_gradient(x)
    return y**3 + 3 * y**2 * (x - y)


def wrong_at_one_element(x):
    return ops.where(np.array([[0, 0, 0], [0, 1, 0]]) == 1, wrong_in_first_order(x), x * x)


@pytest.mark.parametrize(
    ("f", "args", "words"),
    [
        (wrong_in_first_order, (X,), ["of wrong_in_first_order: mode vjp, order 1", "6 of 6"]),
        (wrong_in_second_order, (X,), ["wrong_in_second_order: mode vjp of vjp, order 2"]),
        (wrong_at_one_element, (X,), ["element [1, 1]", "(1 of 6 elements differ)"]),
        (lambda p, x: p["b"] * wrong_in_first_order(x), ({"b": 1.0}, X), ["args[1]"]),
        (lambda p: wrong_in_first_order(p["a"][1]), ({"a": [X, X]},), ["args[0]['a'][1]"]),
    ],
)
def test_wrong_derivatives_are_named_by_mode_order_argument_and_element(f, args, words):
    check_says(f, args, words)


def check_says(f, args, words, **options):
    with pytest.raises(AssertionError) as caught:
        check_grads(f, *args, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("f", "args", "words"),
    [
        (
            wrong_in_first_order,
            (V,),
            [
                "mode jvp, order 1: the tangent of the result: element",
                "wrong along args[0], element",
            ],
        ),
        (
            lambda x: {"right": x * x, "wrong": [wrong_in_first_order(x)]},
            (1.5,),
            [
                "the tangent of the result['wrong'][0]: it is",
                "; it is wrong along args[0], where it",
            ],
        ),
        (
            lambda p, x: p["w"] * wrong_in_first_order(x[1]),
            ({"w": V}, (X, V)),
            ["the tangent of the result", "wrong along args[1][1], element [2], where element [2]"],
        ),
        (
            wrong_in_second_order,
            (V,),
            ["mode jvp of jvp, order 2: the tangent of the tangent of the result: element [2]"],
        ),
        (lambda z: z * fdbr.stop_gradient(z.conj()), (V * 1j,), ["wrong along args[0], element"]),
    ],
)
def test_wrong_tangents_are_named_by_result_and_by_the_argument_that_makes_them_so(f, args, words):
    check_says(f, args, words, modes=("jvp",))


def test_a_derivative_that_is_wrong_in_second_order_only_is_named():
    check_grads(wrong_in_second_order, X, order=1)
    with pytest.raises(AssertionError, match=r"order 2: the gradient by args\[0\]"):
        check_grads(wrong_in_second_order, X, order=2)


def test_every_mode_is_checked_at_every_order():
    for modes in (("vjp",), ("jvp",), ("vmap", "jvp"), ("jvp", "vjp")):
        with pytest.raises(AssertionError, match="order 2"):
            check_grads(wrong_in_second_order, X, modes=modes)
    check_grads(wrong_in_second_order, X, modes=("vmap",))  # vmap agrees with a loop


# --- what is wrong in the rules of an operation -------------------------------------


def pair(pull, push, batch=aligned):
    """A square with some rules; registered under the name of the test that asks."""
    return opaque(x=(pull, push), batch=batch)


@pair(lambda ct, x: 2 * ct * x, lambda t, x: 3 * t * x)
def _wrongly_jvp(xp, x):
    return x * x


@pair(lambda ct, x: 3 * ct * x, lambda t, x: 2 * t * x)
def _wrongly_vjp(xp, x):
    return x * x


@pair(lambda ct, x: 2 * ct * x, lambda t, x: (2 + 2e-8) * t * x)
def _nearly_jvp(xp, x):
    return x * x


@pair(
    lambda ct, x: 2 * ct * x,
    lambda t, x: 2 * t * x,
    lambda apply, values, batched, size, params: apply(values[0][::-1]),
)
def _wrongly_batched(xp, x):
    return x * x


@pair(
    lambda ct, x: 2 * ct * x,
    lambda t, x: 2 * t * x,
    lambda apply, values, batched, size, params: apply(fdbr.stop_gradient(values[0])),
)
def _cut_off_in_batches(xp, x):
    return x * x


@linear(x=lambda ct, axis: _backwards(ct, axis=axis), batch=shifted("axis"))
def _forwards(xp, x, *, axis):
    return xp.flip(x, axis=axis)


@linear(
    x=lambda ct, axis: _forwards(ct, axis=axis),
    batch=lambda apply, values, batched, size, params: apply(values[0], axis=0),
)
def _backwards(xp, x, *, axis):
    return xp.flip(x, axis=axis)


def _first_batched_only(apply, values, batched, size, params):
    x, y = values
    return apply(x, y if batched[1] else y * 2)


@multilinear(x=lambda ct, y: ct * y, y=lambda ct, x: ct * x, batch=_first_batched_only)
def _wrong_if_shared(xp, x, y):
    return x * y


@multilinear(
    x=lambda ct, y, like: fit(ct @ y.mT, like),
    y=lambda ct, x, like: fit(x.mT @ ct, like),
    batch=leading(2),
)
def _right_product(xp, x, y):
    return x @ y


@multilinear(x=lambda ct, y: ct @ y.mT, y=lambda ct, x: x.mT @ ct, batch=leading(2))
def _product_that_forgets_to_fit(xp, x, y):
    return x @ y


@pytest.mark.parametrize(
    ("f", "args", "words"),
    [
        (_wrongly_vjp, (V,), ["mode vjp, order 1: the gradient by args[0]: element [2]"]),
        (_wrongly_jvp, (V,), ["mode jvp, order 1: the tangent of the result: element [2]"]),
        (_nearly_jvp, (V,), ["modes jvp and vjp, order 1, disagree", "they differ by"]),
        (
            _wrongly_batched,
            (V,),
            ["mode vmap, order 0, args[0] batched: the result, example 0: element", "without vmap"],
        ),
        (
            _cut_off_in_batches,
            (V,),
            ["mode vjp of vmap, order 1, args[0] batched: the gradient by args[0], example 0"],
        ),
        (
            lambda x: _forwards(x, axis=0),
            (X,),
            ["mode vmap of vjp, order 1, args[0] batched: the gradient by args[0], example 0"],
        ),
        (
            _wrong_if_shared,
            (V, V + 1),
            ["mode vmap, order 0, args[0] batched: the result, example 0"],
        ),
        (
            _product_that_forgets_to_fit,
            (X, X.T),
            ["gradient by args[1], which the examples share is float64[3,3,2], for float64[3,2]"],
        ),
    ],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_wrong_rules_of_operations_are_named_by_what_shows_them(f, args, words):
    check_says(f, args, words)


def test_right_rules_pass():
    check_grads(_right_product, X, X.T)


def test_an_operation_may_be_checked_in_the_modes_it_is_right_in():
    check_grads(_wrongly_jvp, V, modes=("vjp",))
    check_grads(_wrongly_vjp, V, modes=("jvp",))
    check_grads(_wrongly_batched, V, modes=("vjp", "jvp"))


def test_gradients_of_another_dtype_are_named():
    @opaque(
        x=(lambda ct, x: (2 * ct * x).astype(np.float64), lambda t, x: 2 * t * x), batch=aligned
    )
    def _widened(xp, x):
        return x * x

    @opaque(x=(lambda ct, x: 2 * ct * x, lambda t, x: 2 * t * x), batch=lambda apply, values, *_: (
        apply(values[0]).astype(np.float64)
    ))  # fmt: skip
    def _widened_in_batches(xp, x):
        return x * x

    narrow = V.astype(np.float32)
    check_says(_widened, (narrow,), ["mode vjp", "float64[3], for float32[3]"])
    check_says(_widened_in_batches, (narrow,), ["mode vmap", "float64[3], for float32[3]"])


# --- options ------------------------------------------------------------------------


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
    with pytest.raises(TypeError, match="no floating result"):
        check_grads(lambda x: x > 0, X)
    with pytest.raises(TypeError, match="no leaf to differentiate"):
        check_grads(lambda n: n * 1.0, np.array([1, 2]))
