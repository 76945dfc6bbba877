"""All passes one after the other."""

import numpy as np
import pytest
from compiler.recorded import (
    assert_close,
    assert_kinds,
    check,
    functions,
    most_steps,
    names,
    near_law,
    recorded,
)
from hypothesis import given, settings

import fdbr
from benchmarks.agreement.drawing import random_program
from benchmarks.agreement.libraries import FDBR
from fdbr import ops
from fdbr.compiler.passes import optimise

COUNT = max(1, settings.default.max_examples // 2)


@given(functions())
def test_results_are_the_same_up_to_rounding(case):
    near_law(optimise, *case)


@pytest.mark.parametrize("seed", range(COUNT))
def test_programs_of_all_operations_give_the_same(seed):
    drawn = random_program(seed)
    everything = tuple(range(len(drawn.inputs)))
    loss = lambda *inputs: drawn.loss(FDBR, inputs)
    for f in (loss, fdbr.grad(loss, argnums=everything)):
        program, leaves = recorded(f, *drawn.inputs)
        after = optimise(program)
        check(after)
        assert len(after.steps) <= most_steps(program)
        assert str(optimise(after)) == str(after)
        assert_close(program, after, leaves, 1e-8)
        assert_kinds(after, leaves)


def test_what_one_pass_leaves_the_next_one_takes_up():
    def f(x):
        same = ops.maximum(ops.sin(x), ops.sin(x))  # shared, then simple
        zeros = ops.zeros_like(x) * 2  # a constant, then folded, then nothing
        return same - zeros

    program, leaves = recorded(f, np.ones((2, 3)))
    after = optimise(program)
    assert names(after) == {"sin": 1}
    assert_close(program, after, leaves, 0)


def test_a_program_with_nothing_to_do_is_the_same_value():
    program, _ = recorded(lambda x: ops.sin(x) * 2, np.ones(3))
    assert optimise(program) is program


def test_the_outputs_of_a_program_may_be_its_inputs_or_constants():
    program, leaves = recorded(lambda x: (x * 1, ops.zeros_like(x)), np.ones(3))
    after = optimise(program)
    assert after.steps == ()
    assert_close(program, after, leaves, 0)


def test_a_second_derivative_is_simpler_than_it_was_recorded():
    def loss(x):
        return ops.sum(ops.tanh(x) ** 3)

    hessian = fdbr.hessian(loss)
    program, leaves = recorded(hessian, np.linspace(-1, 1, 4))
    after = optimise(program)
    assert len(after.steps) < len(program.steps)
    assert_close(program, after, leaves)
