import numpy as np
import pytest
from compiler.recorded import assert_same, bitwise_law, functions, names, recorded
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.compiler.passes.cse import cse
from fdbr.core.array_modules import lock

X = np.array([[0.5, -1.0], [2.0, 3.0]])


def shared(f, *args):
    program, leaves = recorded(f, *args)
    after = cse(program)
    assert_same(program, after, leaves)
    return names(after)


def test_equal_steps_become_the_first_of_them():
    found = shared(lambda x: ops.sin(x) + ops.exp(ops.sin(x)) + ops.exp(ops.sin(x)), X)
    assert found == {"sin": 1, "exp": 1, "add": 2}


def test_order_of_operands_counts():
    assert shared(lambda x, y: (x - y) * (y - x), X, X)["subtract"] == 2


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, 1.0), (1, True), (2.0, 2.5)])
def test_constants_count_by_type_and_bits(one, other):
    assert shared(lambda x: (x * one, x * other), X)["multiply"] == 2
    assert shared(lambda x: (x * one, x * one), X)["multiply"] == 1


def test_nan_is_the_same_constant_as_nan():
    assert shared(lambda x: (x * float("nan"), x * float("nan")), X)["multiply"] == 1


def test_constant_arrays_count_by_dtype_and_elements():
    def f(x):
        return x * np.arange(2.0), x * np.arange(2.0), x * np.arange(2), x * np.array([0.0, 2.0])

    assert shared(f, X)["multiply"] == 3


def test_large_constant_arrays_count_by_identity():
    large = np.arange(4000.0).reshape(2000, 2)
    x = np.ones((2000, 2))
    assert shared(lambda x: (x * large, x * large), x)["multiply"] == 1
    assert shared(lambda x: (x * large.copy(), x * large.copy()), x)["multiply"] == 2


def test_broadcast_constants_are_compared_however_large_they_are():
    def twos():
        return np.broadcast_to(lock(np.array(2.0)), (2000, 2))

    assert shared(lambda x: (x * twos(), x * twos()), np.ones((2000, 2)))["multiply"] == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x[1:], lambda x: x[:1]),
        (lambda x: x[0], lambda x: x[0:1]),
        (lambda x: ops.sum(x, axis=0), lambda x: ops.sum(x, axis=1)),
        (lambda x: ops.astype(x, np.float32), lambda x: ops.astype(x, np.complex64)),
        (lambda x: x[np.array([0, 1])], lambda x: x[np.array([1, 1])]),
        (lambda x: x[np.array([0, 1]), None], lambda x: x[None, np.array([0, 1])]),
        (lambda x: ops.full_like(x, 0.0), lambda x: ops.full_like(x, -0.0)),
        (lambda x: ops.full_like(x, 1), lambda x: ops.full_like(x, True)),
    ],
)
def test_parameters_count(one, other):
    (name,) = {*names(recorded(one, X)[0]), *names(recorded(other, X)[0])}
    assert shared(lambda x: (one(x), other(x)), X)[name] == 2
    assert shared(lambda x: (one(x), one(x)), X)[name] == 1


def test_random_draws_of_one_key_are_one():
    def f(key):
        return fdbr.random.normal(key, (3,)), fdbr.random.normal(key, (3,))

    program, _ = recorded(f, fdbr.random.key(0))
    assert sum(names(cse(program)).values()) * 2 == sum(names(program).values())


def test_what_a_checkpoint_computes_again_is_computed_again():
    block = fdbr.checkpoint(lambda x: ops.sin(ops.sin(x)))
    gradient = fdbr.grad(lambda x: ops.sum(ops.sin(block(x))))
    assert shared(gradient, X)["sin"] == names(recorded(gradient, X)[0])["sin"] == 5


def test_a_question_is_asked_once():
    def f(x):
        return x + 1 if ops.sum(x) > 0 and ops.sum(x) > 0 and ops.sum(x) > 1 else x

    program, leaves = recorded(f, X)
    after = cse(program)
    assert [guard.index for guard in after.guards] == [0, 2]
    assert_same(program, after, leaves)
    assert_same(program, after, [-X])


def test_different_questions_to_one_variable_stay():
    def f(x):
        total = ops.sum(x)
        return x * int(total) + float(total)

    assert [g.question for g in cse(recorded(f, X)[0]).guards] == [int, float]


@given(functions())
def test_results_are_the_same_to_the_bit(case):
    bitwise_law(cse, *case)
