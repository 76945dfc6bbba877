import numpy as np
from compiler.recorded import assert_same, bitwise_law, functions, recorded
from hypothesis import given

from fdbr import ops
from fdbr.compiler.ir.program import Guard
from fdbr.compiler.passes.schedule_guards import schedule_guards

X = np.array([1.0, 2.0])


def order(f, *args):
    """The names of the steps."""
    after = schedule_guards(recorded(f, *args)[0])
    return ["guard" if type(s) is Guard else s.primitive.name for s in after.steps]


def test_guards_come_first_with_what_they_need():
    def f(x):
        y = ops.exp(ops.sin(x))
        return y if ops.sum(x) > 0 else x

    assert order(f, X) == ["sum", "greater", "guard", "sin", "exp"]


def test_what_only_a_later_guard_needs_comes_after_the_first():
    def f(x):
        later = ops.sum(ops.exp(x))
        first = ops.max(x)
        if first > 0 and later > 0:
            return ops.sin(x)
        return x

    expected = ["max", "greater", "guard", "exp", "sum", "greater", "guard", "sin"]
    assert order(f, X) == expected


def test_guards_keep_their_order():
    def f(x):
        return [float(ops.sum(x)), int(ops.max(x)), bool(ops.min(x) > 0)]

    program, _ = recorded(f, X)
    assert [guard.index for guard in schedule_guards(program).guards] == [0, 1, 2]


def test_what_was_done_because_of_a_decision_is_done_after_it():
    def f(x, i):
        if ops.max(i) < 2:
            y = ops.embed(x, i)  # an error for other numbers
            return y if ops.sum(y) > 0 else x
        return x

    program, _ = recorded(f, X, np.array([1, 0]))
    assert_same(program, schedule_guards(program), [X, np.array([5, 0])])


def test_a_program_without_decisions_keeps_its_order():
    program, _ = recorded(lambda x: ops.sin(x) + ops.cos(x), X)
    assert schedule_guards(program) is program


@given(functions())
def test_results_are_the_same_to_the_bit(case):
    bitwise_law(schedule_guards, *case)
