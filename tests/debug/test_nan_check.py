"""The NaN check names the operation and the line, in every pass and order."""

import inspect

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")


def line_of(function, text):
    """The number of the line of a function that contains a text."""
    found, first = inspect.getsourcelines(function)
    (place,) = [i for i, line in enumerate(found) if text in line]
    return first + place


def error_of(thunk, **options):
    with pytest.raises(debug.NaNError) as caught, debug.nan_check(**options):
        thunk()
    return caught.value


def at(error):
    return error.op, error.direction, error.source.line


# --- forward ------------------------------------------------------------------------


def logs(x):
    y = x - 1.0
    z = ops.log(y)  # here
    return ops.sum(z * y)


@pytest.mark.parametrize(
    "transformed", [logs, fdbr.grad(logs), lambda x: fdbr.jvp(logs, (x,), (x,))]
)
def test_the_first_nan_of_a_forward_pass_is_found(xp, transformed):
    x = xp.asarray(np.array([2.0, 0.5, 3.0]))
    error = error_of(lambda: transformed(x))
    assert at(error) == ("log", "forward", line_of(logs, "# here"))
    assert "log gave NaN" in str(error)
    assert "z = ops.log(y)  # here" in str(error)
    assert "operand: float64[3]\n" in str(error)
    assert "result: float64[3], 1 NaN, the first at [1]" in str(error)


def test_it_is_a_floating_point_error():
    with pytest.raises(FloatingPointError), debug.nan_check():
        ops.log(np.array(-1.0))


def test_an_operand_that_had_nan_already_is_named():
    error = error_of(lambda: ops.add(np.ones(2), np.array([1.0, np.nan])))
    assert "operand: float64[2]\n" in str(error)
    assert "operand: float64[2], 1 NaN, the first at [1]" in str(error)
    assert "It was there already" in str(error)


def test_nan_in_a_batch_is_found():
    error = error_of(lambda: fdbr.vmap(logs)(np.array([[2.0, 3.0], [0.5, 3.0]])))
    assert at(error) == ("log", "forward", line_of(logs, "# here"))
    assert "the first at [1, 0]" in str(error)


def test_python_numbers_and_complex_ones_are_checked():
    assert error_of(lambda: ops.subtract(float("inf"), float("inf"))).op == "subtract"
    assert error_of(lambda: ops.multiply(np.array([1j]), complex("inf"))).op == "multiply"


def test_integers_truths_and_nan_that_is_replaced_are_sound():
    x = np.array([1.0, np.nan])
    with debug.nan_check():
        assert ops.isnan(x).tolist() == [False, True]
        clean = ops.where(ops.isnan(x), 0.0, x)
        ops.sum(ops.astype(clean, int))


def test_infinities_are_found_if_they_are_asked_for():
    with debug.nan_check():
        ops.exp(np.array([1000.0]))
    error = error_of(lambda: ops.exp(np.array([0.0, 1000.0])), inf=True)
    assert "exp gave NaN or an infinity" in str(error)
    assert "1 NaN or infinite, the first at [1]" in str(error)


# --- backward -----------------------------------------------------------------------


def roots(x):
    y = x * x
    z = ops.sqrt(y)  # here
    return ops.sum(z * x)


def test_the_first_nan_of_a_backward_pass_is_found_at_the_line_of_the_forward_pass(xp):
    x = xp.asarray(np.array([1.0, 0.0]))
    error = error_of(lambda: fdbr.grad(roots)(x))
    assert at(error) == ("sqrt", "backward", line_of(roots, "# here"))
    assert "the backward pass of sqrt gave NaN" in str(error)
    assert "cotangent: float64[2]" in str(error)
    assert "kept: float64[2]" in str(error)


@pytest.mark.parametrize(
    "thunk",
    [
        lambda: fdbr.vmap(fdbr.grad(roots))(np.array([[1.0], [0.0]])),
        lambda: fdbr.hvp(roots, (np.array([1.0, 0.0]),), (np.zeros(2),)),
        lambda: fdbr.jacrev(roots)(np.array([1.0, 0.0])),
        lambda: fdbr.grad(fdbr.checkpoint(roots))(np.array([1.0, 0.0])),
    ],
)
def test_transformations_do_not_hide_the_line(thunk):
    error = error_of(thunk)
    assert (error.op, error.source.line) == ("sqrt", line_of(roots, "# here"))


def power(x):
    y = x * 1.0
    return ops.sum(y**1.5)  # here


def test_nan_of_second_order_is_found_at_the_line_of_the_forward_pass():
    x = np.array([0.0, 1.0])
    with debug.nan_check():
        fdbr.grad(power)(x)
    error = error_of(lambda: fdbr.grad(lambda x: ops.sum(fdbr.grad(power)(x) ** 1.5))(x))
    assert error.source.line == line_of(power, "# here")
    assert "in the derivative of half_integer_power" in str(error)
    error = error_of(lambda: fdbr.hvp(power, (x,), (np.zeros(2),)))
    assert error.source.line == line_of(power, "# here")


def test_nan_of_a_forward_derivative_is_found():
    error = error_of(lambda: fdbr.jvp(roots, (np.zeros(1),), (np.zeros(1),)))
    assert at(error) == ("sqrt", "tangent", line_of(roots, "# here"))
    assert "the forward derivative of sqrt gave NaN" in str(error)


def test_a_part_of_a_rule_is_named():
    error = error_of(lambda: fdbr.vmap(fdbr.grad(roots))(np.array([[1.0], [0.0]])))
    assert "It arose in multiply(float64[2,1], float64[2,1]), which is a part" in str(error)


def test_nan_that_a_rule_masks_is_sound():
    x = np.array([-np.inf, -np.inf])
    with debug.nan_check():
        fdbr.grad(ops.logsumexp)(x)
        fdbr.vmap(fdbr.grad(ops.logsumexp))(x.reshape(1, 2))


def test_a_pullback_from_before_the_block_is_checked_without_a_line():
    _, pullback = fdbr.vjp(roots, np.array([1.0, 0.0]))
    error = error_of(lambda: pullback(1.0))
    assert (error.op, error.direction, error.source) == ("sqrt", "backward", None)
    assert "The line is not known" in str(error)


def test_a_cotangent_that_is_nan_is_named():
    with debug.nan_check():
        _, pullback = fdbr.vjp(ops.exp, np.zeros(2))
        with pytest.raises(debug.NaNError, match=r"cotangent: float64\[2\], 2 NaN"):
            pullback(np.full(2, np.nan))


def test_infinities_of_both_signs_that_meet_at_an_input_are_found():
    with debug.nan_check():
        _, pullback = fdbr.vjp(lambda x: (x * np.inf, x * -np.inf), np.ones(1))
        with pytest.raises(debug.NaNError, match="infinities of both signs"):
            pullback((np.ones(1), np.ones(1)))


def test_functions_with_rules_of_their_own_are_checked():
    @fdbr.custom_vjp
    def odd(x):
        return x

    odd.defvjp(lambda x: (x, None), lambda _, ct: (np.log(ct - 2.0),))

    def f(x):
        return ops.sum(odd(x))  # here

    error = error_of(lambda: fdbr.grad(f)(np.ones(2)))
    assert at(error) == ("custom_vjp(odd)", "backward", line_of(f, "# here"))
    odd.defvjp(lambda x: (np.log(x - 2.0), None), lambda _, ct: (ct,))
    error = error_of(lambda: fdbr.grad(f)(np.ones(2)))
    assert at(error) == ("custom_vjp(odd)", "forward", line_of(f, "# here"))


def test_clean_programs_pass(xp):
    x = xp.asarray(np.linspace(0.1, 1.0, 6).reshape(2, 3))
    with debug.nan_check(inf=True):
        fdbr.grad(lambda x: ops.sum(ops.softmax(ops.log(x)) * ops.sqrt(x)))(x)
        fdbr.hvp(lambda x: ops.sum(ops.log(x)), (x,), (x,))


def test_an_error_in_a_rule_does_not_confuse_what_comes_later():
    with debug.nan_check():
        _, pullback = fdbr.vjp(logs, np.full(3, 2.0))
        with pytest.raises(TypeError, match="cotangent"):
            pullback("no number")
        pullback(1.0)
