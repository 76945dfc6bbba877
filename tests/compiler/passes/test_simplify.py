"""Each rule on values: eager beside interpreted, with NaN, infinities and Python's numbers."""

import numpy as np
import pytest
from compiler.recorded import (
    assert_close,
    assert_kinds,
    check,
    functions,
    names,
    near_law,
    recorded,
)
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.passes.rules.views import view_of
from fdbr.compiler.passes.simplify import simplify

ODD = np.array([[np.nan, np.inf, -np.inf], [-2.5, 0.0, 7.0]])
X = np.array([[0.5, -1.0, 3.0], [2.0, -0.25, 7.0]])
GRID = np.arange(24.0).reshape(2, 3, 4)


def full(value, shape=(2, 3), dtype=float):
    return np.full(shape, value, dtype)


def simplified(f, *args):
    """What is left of a function, which gives the same values as before."""
    with np.errstate(all="ignore"):
        program, leaves = recorded(f, *args)
        after = simplify(program)
        check(after)
        assert_kinds(after, leaves)
        tolerance = 4 * max(np.finfo(a.dtype).eps for a in args if np.asarray(a).dtype.kind in "fc")
        assert_close(program, after, leaves, float(tolerance))
    assert str(simplify(after)) == str(after)
    return dict(names(after))


@pytest.mark.parametrize("shape", [(5, 3, 1), (2, 5, 3, 1)])
def test_columns_times_rows_are_products_of_elements(shape):
    x, y = np.arange(float(np.prod(shape))).reshape(shape), np.arange(20.0).reshape(5, 1, 4)
    assert simplified(lambda x: x @ y, x) == {"multiply": 1}


def test_one_column_times_one_row_is_left_to_the_blas():
    assert simplified(lambda x: x @ np.ones((1, 4)), np.ones((3, 1))) == {"matmul": 1}


# --- rules that apply ---------------------------------------------------------------

ARITHMETIC = [
    (lambda x: x * 1, {}),
    (lambda x: 1.0 * x, {}),
    (lambda x: x * np.ones((2, 3), np.float32), {}),
    (lambda x: x * np.broadcast_to(np.float32(1), (2, 3)), {}),
    (lambda x: x / 1, {}),
    (lambda x: x / full(1, dtype=np.float32), {}),
    (lambda x: x - 0, {}),
    (lambda x: x - full(0, dtype=np.float32), {}),
    (lambda x: x - ops.zeros_like(x), {}),
    (lambda x: x / 4, {"multiply": 1}),
    (lambda x: x / -0.5, {"multiply": 1}),
    (lambda x: x / full(8, dtype=np.float32), {"multiply": 1}),
    (lambda x: +x, {}),
    (lambda x: x * x, {"square": 1}),
    (lambda x: x**3, {"square": 1, "multiply": 1}),
    (lambda x: x**4, {"square": 2}),
    (lambda x: x**7, {"square": 2, "multiply": 2}),
    (lambda x: x**-1, {"reciprocal": 1}),
    (lambda x: x**2.0, {"square": 1}),
    (lambda x: ops.power(x, np.float32(3)), {"square": 1, "multiply": 1}),
    (lambda x: ops.power(x, full(1, dtype=np.float32)), {}),
    (lambda x: ops.maximum(x, x), {}),
    (lambda x: ops.minimum(x, x), {}),
    (lambda x: ops.relu(ops.relu(x)), {"relu": 1}),
    (lambda x: ops.abs(ops.abs(x)), {"real_abs": 1}),
    (lambda x: ops.floor(ops.floor(x)), {"floor": 1}),
    (lambda x: ops.real(ops.conj(x)), {}),
    (lambda x: ops.astype(x, x.dtype), {}),
    (lambda x: ops.astype(ops.astype(x, np.complex128), np.complex64),
     {"astype_inexact": 2}),
]  # fmt: skip

SIGNS = [
    (lambda x: ops.negative(-x), {}),
    (lambda x: x * -1, {"negative": 1}),
    (lambda x: np.float32(-1) * x, {"negative": 1}),
    (lambda x: ops.sin(x) + (-x), {"sin": 1, "subtract": 1}),
    (lambda x: -x + ops.sin(x), {"sin": 1, "subtract": 1}),
    (lambda x: 2 - (-x), {"add": 1}),
    (lambda x: -x * 3, {"multiply": 1}),
    (lambda x: np.float32(3) / -x, {"divide": 1}),
    (lambda x: -x * -ops.sin(x), {"sin": 1, "multiply": 1}),
    (lambda x: (-x) * (-x), {"square": 1}),
]

CONSTANTS = [
    (lambda x: x * full(3, dtype=np.float32), {"multiply": 1}),
    (lambda x: ops.where(full(True, dtype=bool), x, 2), {}),
    (lambda x: ops.where(full(False, dtype=bool), 2, x), {}),
    (lambda x: ops.where(np.array(True), x[0], x), {"slice": 1, "broadcast_to": 1}),
    (lambda x: ops.where(x > 0, x, x), {}),
    (lambda x: ops.full_like(x, 3), {}),
    (lambda x: ops.broadcast_to(x[0], (2, 3)) * x, {"slice": 1, "multiply": 1}),
]

SHAPES = [
    (lambda x: ops.reshape(x, (2, 3)), {}),
    (lambda x: ops.reshape(ops.reshape(x, (-1,)), (3, 2)), {"reshape": 1}),
    (lambda x: ops.reshape(ops.reshape(x, (-1,)), (2, 3)), {}),
    (lambda x: ops.squeeze(ops.expand_dims(x, axis=1), axis=1), {}),
    (lambda x: x.T.T, {}),
    (lambda x: ops.matrix_transpose(x.T), {}),
    (lambda x: ops.matrix_transpose(x), {"permute": 1}),
    (lambda x: ops.permute_dims(ops.permute_dims(x[None], (1, 2, 0)), (1, 2, 0)),
     {"reshape": 1, "permute": 1}),
    (lambda x: ops.flip(ops.flip(x)), {}),
    (lambda x: ops.flip(ops.flip(x, axis=0), axis=1), {"flip": 2}),
    (lambda x: ops.broadcast_to(ops.broadcast_to(x, (2, 2, 3)), (2, 2, 2, 3)), {"broadcast_to": 1}),
    (lambda x: ops.broadcast_to(ops.reshape(x, (1, 2, 3)), (4, 2, 3)), {"broadcast_to": 1}),
    (lambda x: ops.broadcast_to(ops.reshape(x, (2, 1, 3)), (2, 4, 3)),
     {"broadcast_to": 1, "reshape": 1}),
    (lambda x: ops.sum(x[None], axis=0), {}),
    (lambda x: ops.max(ops.min(x[None], axis=0), axis=()), {}),
    (lambda x: ops.mean(x[:, None], axis=1, keepdims=True), {"reshape": 1}),
    (lambda x: ops.sum(ops.broadcast_to(x, (5, 2, 3)), axis=0), {"multiply": 1}),
    (lambda x: ops.sum(ops.broadcast_to(x[:, None], (2, 5, 3)), axis=1),
     {"multiply": 1}),
    (lambda x: ops.mean(ops.broadcast_to(x, (5, 2, 3)), axis=0), {}),
]  # fmt: skip

JOINING = [
    (lambda x: ops.concat([x]), {}),
    (lambda x: ops.concat([x[:1], x[1:]]), {}),
    (lambda x: ops.concat([x[:, :1], x[:, 1:2], x[:, 2:]], axis=1), {}),
    (lambda x: ops.stack([x[0], x[1]]), {}),
    (lambda x: ops.stack([x[:, 0], x[:, 1], x[:, 2]]), {"permute": 1}),
    (lambda x: ops.stack([x[:, 0], x[:, 1], x[:, 2]], axis=1), {}),
    (lambda x: ops.concat([x[0], x[1]]), {"reshape": 1}),
    (lambda x: ops.concat([x[:, 0], x[:, 1], x[:, 2]]), {"permute": 1, "reshape": 1}),
    (lambda x: ops.stack([x[:1], x[1:]]), {"reshape": 1}),
    (lambda x: ops.concat([x, 2 * x])[:2], {}),
    (lambda x: ops.concat([x, 2 * x])[3], {"multiply": 1, "slice": 1}),
    (lambda x: ops.concat([2 * x, x], axis=1)[:, 4:5], {"slice": 1}),
    (lambda x: ops.stack([2 * x, x])[1], {}),
    (lambda x: ops.stack([2 * x, x], axis=1)[:, 1, 2:], {"slice": 1}),
]


EMBEDDING = [
    (lambda x: x[:, None], {"reshape": 1}),
    (lambda x: x[None][0], {}),
    (lambda x: x[:, :], {}),
    (lambda x: x[1][2:], {"slice": 1}),
    (lambda x: x[::-1][::-1], {}),
    (lambda x: x[:, ::-1][:, :2][1, None], {"slice": 1}),
    (lambda x: x[:, 1:][None, :, ::-1][0, 1], {"slice": 1}),
    (lambda x: ops.pad(x, 2)[2:4, 2:-2], {}),
    (lambda x: ops.pad(x, 2)[2:3, 3], {"slice": 1}),
    (lambda x: ops.pad(x, ((1, 1), (0, 0)))[0], {}),
    (lambda x: ops.pad(x, 1)[1:], {"pad_zeros": 1, "slice": 1}),
]

ALL = [*ARITHMETIC, *SIGNS, *CONSTANTS, *SHAPES, *JOINING, *EMBEDDING]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [ODD, X], ids=["odd", "usual"])
@pytest.mark.parametrize(("f", "left"), ALL)
def test_a_rule_leaves_less(f, left, values, dtype):
    assert simplified(f, values.astype(dtype)) == left


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, np.nan, 1e10, 5])
@pytest.mark.parametrize("f", [f for f, _ in [*ARITHMETIC, *SIGNS]])
def test_a_number_of_python_gives_what_it_gave(f, value):
    """Where the function has arrays in it or needs one, it is about an array of no dimension."""
    with np.errstate(all="ignore"):
        try:
            program, leaves = recorded(f, value)
        except (TypeError, AttributeError, ZeroDivisionError):
            program, leaves = recorded(f, np.array(value))
    assert_close(program, simplify(program), leaves, 1e-15)
    assert_kinds(simplify(program), leaves)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.complex64])
@pytest.mark.parametrize("f", [f for f, _ in ALL])
def test_truth_values_integers_and_complex_numbers_stay_what_they_were(f, dtype):
    x = np.array([[0, 1, 127], [2, 100, 3]]).astype(dtype)
    with np.errstate(all="ignore"):
        try:
            program, leaves = recorded(f, x)
        except (TypeError, ValueError, OverflowError):
            return  # there is no such operation on them
        assert_close(program, simplify(program), leaves, 1e-6)
        assert_kinds(simplify(program), leaves)


# --- rules that do not --------------------------------------------------------------

KEPT = [
    (lambda x: x * 0, {"multiply": 1}),
    (lambda x: x - x, {"subtract": 1}),
    (lambda x: x / x, {"divide": 1}),
    (lambda x: x / 3, {"divide": 1}),
    (lambda x: 0 - x, {"subtract": 1}),
    (lambda x: x + 0, {"add": 1}),
    (lambda x: 0.0 + x, {"add": 1}),
    (lambda x: x - -0.0, {"subtract": 1}),
    (lambda x: -(1 - x), {"subtract": 1, "negative": 1}),
    (lambda x: x[0] + np.zeros((2, 3)), {"slice": 1, "add": 1}),
    (lambda x: x[0] * np.ones((2, 3)), {"slice": 1, "multiply": 1}),
    (lambda x: ops.power(x, 0.25), {"power": 1}),
    (lambda x: x**-2, {"integer_power": 1}),
    (lambda x: ops.exp(ops.log(x)), {"log": 1, "exp": 1}),
    (lambda x: ops.astype(ops.astype(x, np.float16), x.dtype), {"astype_inexact": 2}),
    (lambda x: ops.logical_not(x < 1), {"less": 1, "logical_not": 1}),
    (lambda x: x * np.array([1.0, 1.0, 2.0]), {"multiply": 1}),
    (lambda x: ops.concat([x[1:], x[:1]]), {"slice": 2, "concat": 1}),
    (lambda x: ops.concat([x[:1], x[:1]]), {"slice": 2, "concat": 1}),
    (lambda x: ops.concat([x, x * 2])[1:3], {"multiply": 1, "concat": 1, "slice": 1}),
    (lambda x: x[np.array([1, 0])][np.array([1, 0])], {"gather": 2}),
    (lambda x: ops.reshape(ops.reshape(x[0, 0], (1,)), ()), {"slice": 1, "reshape": 2}),
    (
        lambda x: ops.concat([x, ops.astype(x, np.complex128)])[:2],
        {"astype_inexact": 1, "concat": 1, "slice": 1},
    ),
    (lambda x: ops.square(x > 0), {"greater": 1, "square": 1}),
    (lambda x: (x > 0) * (x > 0), {"greater": 2, "multiply": 1}),
]


@pytest.mark.parametrize("values", [ODD, X], ids=["odd", "usual"])
@pytest.mark.parametrize(("f", "left"), KEPT)
def test_what_might_be_something_else_stays(f, left, values):
    assert simplified(f, values) == left


def test_a_constant_keeps_its_dtype():
    """A number would be weak, and the result of float32."""
    program, leaves = recorded(lambda x: x * full(3), X.astype(np.float32))
    after = simplify(program)
    (step,) = after.steps
    assert (step.operands[1].shape, step.operands[1].dtype) == ((), np.float64)
    assert_close(program, after, leaves, 0)


def test_zeros_of_both_signs_are_not_one_number():
    mixed = full(0.0)
    mixed[0, 0] = -0.0
    with np.errstate(all="ignore"):
        program, leaves = recorded(lambda x: 1 / (x * mixed), np.abs(X))
        assert_close(program, simplify(program), leaves, 0)


@pytest.mark.parametrize("f", [f for f, _ in [*ARITHMETIC, *SIGNS, *KEPT]])
def test_the_signs_of_zeros_stay(f):
    x = np.array([[0.0, -0.0, 1.0], [-1.0, 5e-324, -5e-324]])
    with np.errstate(all="ignore"):
        program, leaves = recorded(f, x)
        before, after = interpret(program, leaves), interpret(simplify(program), leaves)
    for old, new in zip(before, after, strict=True):
        assert (np.signbit(np.real(old)) == np.signbit(np.real(new))).all()


def test_a_narrow_integer_is_not_negated_before_it_is_widened():
    narrow, wide = np.array([-128, 5], np.int8), np.array([1, 2], np.int64)
    program, leaves = recorded(lambda x, y: y + (-x), narrow, wide)
    assert_close(program, simplify(program), leaves, 0)


def test_infinity_times_a_complex_one_has_a_nan():
    x = np.array([complex(np.inf, 1)])
    with np.errstate(all="ignore"):
        program, leaves = recorded(lambda x: (x * 1.0, x * -1.0), x)
        assert_close(program, simplify(program), leaves, 0)


def test_integers_are_divided_as_floating_numbers():
    program, leaves = recorded(lambda x: (x / 1, x / 4), np.arange(5))
    assert_close(program, simplify(program), leaves, 0)


def test_what_others_read_too_is_not_computed_again():
    def f(x):
        y = -ops.sin(x)
        return y, x - y, y * y

    assert simplified(f, X) == {"sin": 1, "negative": 1, "subtract": 1, "square": 1}


def test_a_chain_of_rules_ends_in_the_array_itself():
    def f(x):
        y = ops.negative(-(x.T.T * 1 - 0)) / 1
        return ops.concat([ops.pad(y, 1)[1:-1, 1:-1], y])[2:]

    program, _ = recorded(f, X)
    after = simplify(program)
    assert after.steps == ()
    assert after.outputs == after.inputs


def test_a_large_filled_array_is_made_when_the_program_runs():
    x = np.zeros((400, 400))
    assert names(simplify(recorded(lambda x: ops.full_like(x, 2.0), x)[0])) == {"full_like": 1}
    assert names(simplify(recorded(lambda x: x - ops.full_like(x, 0.0), x)[0])) == {}


def test_constants_that_rules_make_are_read_only():
    outputs = simplify(recorded(lambda x: (ops.zeros_like(x), ops.pad(x, 1)[0]), X)[0]).outputs
    assert not any(output.flags.writeable for output in outputs)


def test_the_gradient_of_a_sum_has_no_product_with_ones():
    gradient = fdbr.grad(lambda x: ops.sum(ops.sin(x)))
    assert simplified(gradient, X) == {"cos": 1}


# --- keys ---------------------------------------------------------------------------

PARTS = [
    slice(None), slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1),
    slice(-1, None, -2), slice(1, 1), slice(2, 0, -1), 0, -1, None, ...,
]  # fmt: skip


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", PARTS)
def test_keys_one_after_the_other_are_one_key(first, second):
    for one in (first, (first, slice(1, None)), (slice(None), first)):
        part = GRID[one]
        for other in (second, (slice(None), second), (second, 0)):
            try:
                expected = part[other]
            except IndexError:
                continue
            both = view_of(GRID.shape, one)
            both = both and both.then(other)
            if both is None:
                assert None in (one if type(one) is tuple else (one,))
                continue
            found = GRID[both.key(GRID.shape)]
            assert found.shape == expected.shape
            assert (found == expected).all()


@pytest.mark.parametrize("where", [1, slice(1, 3), slice(None, None, 2), slice(3, 1, -1)])
@pytest.mark.parametrize("taken", [*PARTS[:-2], 1, slice(1, 2), slice(0, 1), slice(1, 4, 2)])
def test_what_is_taken_from_a_part_among_zeros_is_what_it_was(where, taken):
    x = np.arange(1.0, 6.0)

    def f(x):
        rows = ops.stack([x[where], x[where] * 2])
        embedded = ops.at(ops.zeros_like(ops.stack([x, x])))[:, where].add(rows)
        return embedded[:, taken]

    program, leaves = recorded(f, x)
    assert_close(program, simplify(program), leaves, 0)
    cotangents_in = lambda ct: fdbr.vjp(lambda x: x[where], x)[1](ct)[0][taken]
    program, leaves = recorded(cotangents_in, np.asarray(x[where]))
    assert_close(program, simplify(program), leaves, 0)


@given(functions())
def test_results_are_the_same_up_to_rounding(case):
    near_law(simplify, *case)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_a_question_to_a_constant_beside_other_constants_is_kept(dtype):
    def f(x):
        zeros = np.imag(x)  # a constant array of what is an argument
        if zeros.sum() > 0.5:
            return x
        other = np.ones_like(x)
        number = float(zeros) + int(other) if not x.shape else 0
        return (other if other.any() else x), zeros + number

    for shape in ((3,), (0,), (2, 1), (), (1,)):
        found = fdbr.jit(f)(np.ones(shape, dtype))
        for mine, its in zip(found, f(np.ones(shape, dtype)), strict=True):
            assert np.array_equal(mine, its)
