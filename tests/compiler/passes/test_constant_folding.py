import numpy as np
from compiler.recorded import assert_same, bitwise_law, functions, names, recorded, results
from hypothesis import given

from fdbr import ops
from fdbr.compiler.ir.program import Guard, Instruction, Program, Variable, kind_of
from fdbr.compiler.passes.constant_folding import fold_constants
from fdbr.core.primitive import registry


def of_constant(name, constant, **params):
    """A program that applies a primitive to a constant."""
    with np.errstate(all="ignore"):
        out = registry[name].value(np, constant, **params)
    made = Variable(kind_of(out))
    step = Instruction(registry[name], (constant,), params, (made,))
    return Program("f", (), (step,), (made,))


def test_a_chain_of_steps_on_constants_is_its_result():
    x, y = Variable(kind_of(1.0)), Variable(kind_of(1.0))
    steps = (
        Instruction(registry["add"], (1.0, 2.0), {}, (x,)),
        Instruction(registry["multiply"], (x, 2.0), {}, (y,)),
    )
    after = fold_constants(Program("f", (), steps, (y, x)))
    assert after.steps == ()
    assert after.outputs == (6.0, 3.0)


def test_results_are_read_only():
    after = fold_constants(of_constant("sin", np.ones(3)))
    assert not after.outputs[0].flags.writeable


def test_a_view_of_a_constant_that_others_can_write_to_is_a_copy():
    mine = np.ones((2, 3))
    (out,) = fold_constants(of_constant("permute", mine, axes=(1, 0))).outputs
    mine[0, 0] = 5.0
    assert mine.flags.writeable
    assert (out == 1).all()
    assert out.strides == mine.T.strides


def test_a_large_result_of_little_is_left_to_be_computed():
    program = of_constant("broadcast_to", np.ones(1000), to=(1000, 1000))
    assert fold_constants(program) is program
    assert fold_constants(of_constant("broadcast_to", np.ones(10), to=(10, 10))).steps == ()


def test_a_large_result_of_much_is_folded():
    assert fold_constants(of_constant("sin", np.ones(1 << 18))).steps == ()


def test_several_results_are_folded_together():
    matrix = np.diag([1.0, 2.0])
    outs = tuple(Variable(kind_of(out)) for out in np.linalg.eigh(matrix))
    program = Program(
        "f", (), (Instruction(registry["eigh"], (matrix,), {"strict": True}, outs, True),), outs
    )
    after = fold_constants(program)
    assert after.steps == ()
    assert_same(program, after, [])


def asked(constant, question, answer):
    flag = Variable(kind_of(np.bool_(True)))
    steps = (
        Instruction(registry["positive"], (constant,), {}, (flag,)),
        Guard(flag, question, answer, 0),
    )
    return Program("f", (), steps, (flag,))


def test_guards_on_constants_vanish_if_they_hold():
    assert fold_constants(asked(np.float64(2.0), float, 2.0)).steps == ()


def test_guards_on_constants_stay_if_they_do_not_hold():
    program = asked(np.float64(2.0), float, 3.0)
    after = fold_constants(program)
    assert names(after) == {"guard": 1}
    assert results(after, []) == results(program, []) == (0, "2.0")
    assert str(fold_constants(after)) == str(after)


def test_warnings_of_the_folded_step_were_given_when_it_was_recorded():
    assert np.isinf(fold_constants(of_constant("reciprocal", np.zeros(2))).outputs[0]).all()


def test_steps_on_variables_stay():
    program, _ = recorded(lambda x: ops.sin(x) * 2, np.ones(3))
    assert fold_constants(program) is program


@given(functions())
def test_results_are_the_same_to_the_bit(case):
    bitwise_law(fold_constants, *case)
