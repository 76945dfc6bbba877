import numpy as np
from compiler.recorded import bitwise_law, functions, names, recorded
from hypothesis import given

from fdbr import ops
from fdbr.compiler.passes.dce import dce


def test_steps_whose_results_nobody_reads_are_dropped():
    def f(x):
        ops.exp(ops.sin(x))
        return ops.cos(x)

    program, _ = recorded(f, np.ones(3))
    assert names(dce(program)) == {"cos": 1}


def test_what_a_guard_asks_stays():
    def f(x):
        return ops.cos(x) if ops.sum(x) > 0 else x

    program, _ = recorded(f, np.ones(3))
    assert names(dce(program)) == {"sum": 1, "greater": 1, "guard": 1, "cos": 1}


def test_a_step_of_which_one_result_is_read_stays():
    program, _ = recorded(lambda x: ops.linalg.eigh(x)[1], np.eye(3))
    assert names(dce(program))["eigh"] == 1


def test_a_program_without_dead_steps_is_the_same_value():
    program, _ = recorded(lambda x: ops.sin(x), np.ones(3))
    assert dce(program) is program


@given(functions())
def test_results_are_the_same_to_the_bit(case):
    bitwise_law(dce, *case)
