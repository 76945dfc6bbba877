"""Where mathematics is delicate: kinks, poles, zeros, infinities, huge and tiny numbers."""

import numpy as np
import pytest
import scipy.special

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

inf, nan = np.inf, np.nan


def slope(f, *args):
    """The gradient by every argument of the sum of a function's values."""
    arrays = [np.asarray(x, dtype=float) for x in args]
    gradient = fdbr.grad(lambda *args: ops.sum(f(*args)), argnums=tuple(range(len(args))))
    return [g.tolist() for g in gradient(*arrays)]


# --- kinks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "args", "desired"),
    [
        (ops.relu, [0.0], [0.0]),
        (ops.abs, [0.0], [0.0]),
        (ops.sign, [0.0], [0.0]),
        (ops.floor, [2.0], [0.0]),
        (ops.maximum, [1.0, 1.0], [0.5, 0.5]),
        (ops.minimum, [1.0, 1.0], [0.5, 0.5]),
        (ops.hypot, [0.0, 0.0], [0.0, 0.0]),
        (ops.std, [[2.0, 2.0, 2.0]], [[0.0, 0.0, 0.0]]),
        (np.std, [[2.0, 2.0]], [[0.0, 0.0]]),
        (lambda x: ops.std(x, axis=1), [[[1.0, 1.0], [1.0, 3.0]]], [[[0.0, 0.0], [-0.5, 0.5]]]),
        (ops.max, [[1.0, 3.0, 3.0]], [[0.0, 0.5, 0.5]]),
        (ops.min, [[1.0, 1.0, 1.0, 3.0]], [[1 / 3, 1 / 3, 1 / 3, 0.0]]),
        (lambda x: ops.max(x, axis=1), [[[1.0, 1.0], [2.0, 0.0]]], [[[0.5, 0.5], [1.0, 0.0]]]),
        (
            lambda x: ops.clip(x, 0.0, 1.0),
            [[-1.0, 0.0, 0.5, 1.0, 2.0]],
            [[0.0, 1.0, 1.0, 1.0, 0.0]],
        ),
        (ops.clip, [[-1.0, 0.5, 2.0], 0.0, 1.0], [[0.0, 1.0, 0.0], 1.0, 1.0]),
    ],
)
def test_at_a_kink_the_derivative_is_the_documented_one(f, args, desired):
    assert slope(f, *args) == desired


def test_the_complex_absolute_value_has_derivative_zero_at_zero():
    assert slope(lambda x: ops.abs(x * (1 + 1j)), [0.0]) == [[0.0]]


# --- powers and roots ---------------------------------------------------------------


@pytest.mark.parametrize("base", [-2.0, -0.5, 0.0, 3.0])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4])
def test_integer_powers_are_right_for_every_base(base, exponent):
    first = exponent * base ** (exponent - 1) if exponent else 0.0
    second = exponent * (exponent - 1) * base ** (exponent - 2) if exponent > 1 else 0.0
    for n in (exponent, float(exponent), np.array(exponent), np.array(float(exponent))):
        f = lambda x, n=n: ops.power(x, n)
        assert f(base) == base**exponent
        assert fdbr.grad(f)(base) == first
        assert fdbr.grad(fdbr.grad(f))(base) == second


def test_a_power_of_zero_has_derivative_zero_by_the_exponent():
    assert slope(ops.power, [0.0, 0.0, 2.0], [2.0, 0.0, 0.0])[1] == [0.0, 0.0, np.log(2.0)]


def test_the_mixed_derivative_of_a_power_is_right_at_exponent_zero():
    check_grads(ops.power, np.array([0.5, 2.0]), np.array([0.0, 0.0]))


def test_a_root_has_infinite_derivative_at_zero():
    with np.errstate(divide="ignore"):
        assert slope(ops.sqrt, [0.0, 4.0]) == [[inf, 0.25]]
        assert slope(lambda x: x**0.5, [0.0, 4.0]) == [[inf, 0.25]]


# --- products with zeros ------------------------------------------------------------


@pytest.mark.parametrize("x", [[0.0, 2.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0]])
@pytest.mark.parametrize("f", [ops.prod, ops.cumulative_prod])
def test_products_with_zeros_have_right_derivatives_of_three_orders(f, x):
    check_grads(f, np.array(x), order=3)


def test_products_along_axes_with_zeros_have_right_derivatives():
    x = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    for axis in (0, 1):
        check_grads(lambda x, axis=axis: ops.prod(x, axis=axis), x)
        check_grads(lambda x, axis=axis: ops.cumulative_prod(x, axis=axis), x)


# --- choice -------------------------------------------------------------------------


def test_nan_in_the_branch_not_taken_does_not_reach_the_gradient_of_where():
    x, y = np.array([nan, 1.0]), np.array([2.0, inf])
    assert slope(lambda x, y: ops.where(np.array([False, True]), x, y), x, y) == [[0, 1], [1, 0]]


def test_a_safe_operand_keeps_the_derivative_finite_where_the_other_branch_has_a_pole():
    def safe_log(x):
        positive = x > 0
        return ops.where(positive, ops.log(ops.where(positive, x, 1.0)), 0.0)

    assert slope(safe_log, [0.0, -1.0, 2.0]) == [[0.0, 0.0, 0.5]]


# --- exponentials -------------------------------------------------------------------

LOGITS = [
    [1000.0, 0.0, -1000.0],
    [-1000.0, -1001.0, -1002.0],
    [1e30, 1e30, -1e30],
    [0.0, -inf, 1.0],
    [3.0, -inf, -inf],
]


@pytest.mark.parametrize("x", LOGITS, ids=str)
def test_normalised_exponentials_neither_overflow_nor_lose_small_values(x):
    x = np.array(x)
    assert_allclose(ops.softmax(x), scipy.special.softmax(x))
    assert_allclose(ops.log_softmax(x), scipy.special.log_softmax(x))
    assert_allclose(ops.logsumexp(x), scipy.special.logsumexp(x))
    assert_allclose(fdbr.grad(ops.logsumexp)(x), scipy.special.softmax(x))
    assert np.isfinite(fdbr.grad(lambda x: ops.softmax(x)[0])(x)).all()
    assert np.isfinite(fdbr.grad(lambda x: ops.log_softmax(x)[0])(x)).all()


def test_logsumexp_of_nothing_but_minus_infinity_is_minus_infinity_with_derivative_zero():
    x = np.array([[-inf, -inf], [0.0, -inf]])
    np.testing.assert_array_equal(ops.logsumexp(x, axis=1), [-inf, 0.0])
    assert slope(lambda x: ops.logsumexp(x, axis=1), x) == [[[0.0, 0.0], [1.0, 0.0]]]


def test_beside_plus_infinity_finite_elements_count_nothing_in_logsumexp():
    x = np.array([inf, 3.0, -inf])
    assert ops.logsumexp(x) == inf
    assert slope(ops.logsumexp, x) == [[1.0, 0.0, 0.0]]


def test_logaddexp_is_right_beside_infinities_and_far_apart():
    x, y = np.array([0.0, -inf, -inf, 1000.0]), np.array([-inf, 2.0, -inf, 0.0])
    assert_allclose(ops.logaddexp(x, y), np.logaddexp(x, y))
    by_x, by_y = slope(ops.logaddexp, x, y)
    assert by_x == [1.0, 0.0, 0.0, 1.0]  # a sum of no terms has the slope 0
    assert by_y == [0.0, 1.0, 0.0, 0.0]


def test_the_sigmoid_and_tanh_saturate_without_overflow():
    x = np.array([-1000.0, 1000.0, -inf, inf])
    np.testing.assert_array_equal(ops.sigmoid(x), [0.0, 1.0, 0.0, 1.0])
    assert slope(ops.sigmoid, x) == [[0.0, 0.0, 0.0, 0.0]]
    assert slope(ops.tanh, x) == [[0.0, 0.0, 0.0, 0.0]]


def test_expm1_and_log1p_keep_small_arguments():
    x = np.array([1e-20, -1e-15, 1e-9])
    assert_allclose(ops.expm1(x), x + x * x / 2, rtol=1e-15, atol=0)
    assert_allclose(ops.log1p(x), x - x * x / 2, rtol=1e-15, atol=0)


def test_the_variance_does_not_cancel():
    assert ops.var(np.array([1e8, 1e8 + 2])) == 1.0


# --- cross entropy ------------------------------------------------------------------


def test_cross_entropy_of_huge_logits_is_exact():
    logits = np.array([[1e4, 0.0], [-1e4, 0.0]])
    assert ops.softmax_cross_entropy(logits, np.array([1, 0]), reduction="sum") == 2e4
    gradient = fdbr.grad(ops.softmax_cross_entropy)(logits, np.array([1, 0]))
    np.testing.assert_array_equal(gradient, [[0.5, -0.5], [-0.5, 0.5]])


def test_classes_ruled_out_by_minus_infinity_get_no_gradient():
    logits = np.array([[0.0, -inf, 0.0]])
    loss, gradient = fdbr.value_and_grad(ops.softmax_cross_entropy)(logits, np.array([0]))
    assert_allclose(loss, np.log(2))
    assert_allclose(gradient, np.array([[-0.5, 0.0, 0.5]]))


def test_ignored_examples_count_neither_in_the_mean_nor_in_the_gradient():
    logits = np.array([[1.0, 2.0], [5.0, -5.0], [0.0, 1.0]])
    labels = np.array([0, -1, 1])
    f = lambda x, t: ops.softmax_cross_entropy(x, t, ignore_label=-1)
    kept = fdbr.value_and_grad(ops.softmax_cross_entropy)(logits[[0, 2]], labels[[0, 2]])
    loss, gradient = fdbr.value_and_grad(f)(logits, labels)
    assert_allclose(loss, kept[0])
    assert_allclose(gradient[[0, 2]], kept[1])
    np.testing.assert_array_equal(gradient[1], [0.0, 0.0])


def test_a_batch_of_nothing_but_ignored_examples_has_loss_zero():
    f = lambda x: ops.softmax_cross_entropy(x, np.array([7, 7]), ignore_label=7)
    loss, gradient = fdbr.value_and_grad(f)(np.ones((2, 3)))
    assert loss == 0.0
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_accuracy_counts_what_is_not_ignored():
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert ops.accuracy(logits, np.array([1, 1, 0])) == pytest.approx(2 / 3)
    assert ops.accuracy(logits, np.array([1, 1, 0]), ignore_label=0) == 0.5
    assert ops.accuracy(logits.astype(np.float32), np.array([1, 1, 0])).dtype == np.float32


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_where_a_derivative_of_a_python_number_is_infinite_it_is_that_of_the_array():
    for f in (ops.log, ops.logit, ops.sqrt, ops.special.y0, ops.special.expi, ops.log2, ops.cbrt):
        number, array = fdbr.grad(f)(0.0), fdbr.grad(f)(np.array(0.0))
        np.testing.assert_array_equal(number, array)
        assert np.isinf(number)


@pytest.mark.parametrize("dtype", ["float32", ">f8", "complex64", "bool", "M8[s]", "O", "float16"])
@pytest.mark.parametrize("shape", [(), (1,), (90,), (70, 1), (1, 90), (70, 90)])
def test_what_is_repeated_often_is_a_view_that_nobody_can_write_to(dtype, shape):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for each in (x, x[..., ::-1] if shape else x):
        found, desired = ops.broadcast_to(each, (3, 70, 90)), np.broadcast_to(each, (3, 70, 90))
        assert found.dtype == desired.dtype
        assert found.strides == desired.strides
        assert np.shares_memory(found, x)
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, desired)


# --- softmax ------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 40_000])  # in NumPy, and in kernels
@pytest.mark.parametrize("jitted", [False, True])
def test_a_softmax_is_nan_as_a_whole_or_not_at_all(length, jitted):
    pieces = [[inf, 0, 1], [inf, inf, -inf], [nan, 0, 1], [-inf] * 3, [-inf, 0, 0]]
    x = np.concatenate([np.array(pieces), np.full((5, length - 3), -inf)], axis=1)
    for softmax in (ops.softmax, ops.log_softmax, lambda x: ops.softmax(x.T, axis=0).T):
        f = fdbr.jit(softmax) if jitted else softmax
        for rows in (x, x[:, None, :])[: 1 + (length == 3)]:
            out = f(rows)
            slope = fdbr.grad(lambda x, f=f: ops.sum(f(x)[..., :1]))(rows)
            for found in (out, slope):
                assert np.isnan(found[:4]).all()
                assert not np.isnan(found[4]).any()


@pytest.mark.parametrize("softmax", [ops.softmax, ops.log_softmax, ops.softmin])
def test_a_softmax_of_nothing_is_nothing(softmax):
    for shape, axis in (((0,), -1), ((2, 0), -1), ((2, 0, 3), 1), ((0, 3), (0, 1))):
        f = lambda x, axis=axis: softmax(x, axis=axis)
        x = np.zeros(shape, "float32")
        for out in (f(x), fdbr.jit(f)(x), fdbr.grad(lambda x, f=f: ops.sum(f(x)))(x)):
            assert (out.shape, out.dtype) == (shape, x.dtype)
        batch = np.zeros((4, *shape))
        assert fdbr.vmap(fdbr.grad(lambda x, f=f: ops.sum(f(x))))(batch).shape == batch.shape


def test_the_logarithm_of_a_sum_of_no_exponentials_is_that_of_zero():
    assert ops.logsumexp(np.zeros((2, 0)), axis=1).tolist() == [-inf, -inf]
    assert ops.logsumexp(np.zeros(0)) == -inf
    assert slope(lambda x: ops.logsumexp(x, axis=0), np.zeros((0, 2))) == [[]]


# --- losses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [lambda x, y: ops.huber_loss(x, y, delta=0.5), lambda x, y: ops.smooth_l1_loss(x, y, beta=0.5)],
)
def test_a_straight_line_is_straight_up_to_its_end(loss):
    scale = loss(np.array([9.0]), np.array([0.0])) - loss(np.array([8.0]), np.array([0.0]))
    x = np.array([inf, -inf, 1e300, 0.0])
    assert_allclose(slope(loss, x, np.zeros(4))[0], [scale / 4, -scale / 4, scale / 4, 0.0])
