"""Results that are needed at the same time lie apart, and little memory is lost."""

import tracemalloc

import numpy as np
import pytest
from compiler.comparing import assert_as_eager
from compiler.recorded import normal, recorded
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.memory.buffer_assignment import _packed, plan
from fdbr.backends.cpu.exec.memory.workspaces import Block
from fdbr.compiler.ir.program import Instruction, Kind, Variable


def planned(spans):
    """The plan for results of some bytes, each needed from one step to another."""
    variables = [Variable(Kind(np.ndarray, (size,), np.dtype(np.uint8))) for size, *_ in spans]
    born = {v: first for v, (_, first, _) in zip(variables, spans, strict=True)}
    last = {v: first + more for v, (_, first, more) in zip(variables, spans, strict=True)}
    return _packed(variables, born, last, {})


def laid_out(plan):
    return plan.arrays(Block(plan.size).memory)


SPANS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12
)


@given(SPANS)
def test_what_is_needed_at_the_same_time_lies_apart(spans):
    arrays = laid_out(planned(spans))
    for i, (_, first, more) in enumerate(spans):
        for j, (_, other, longer) in enumerate(spans[:i]):
            if first <= other + longer and other <= first + more:
                assert not np.shares_memory(arrays[i], arrays[j])


@given(SPANS)
def test_arrays_have_their_sizes_and_lie_in_the_memory(spans):
    plan = planned(spans)
    for array, start, (size, *_) in zip(laid_out(plan), plan.starts, spans, strict=True):
        assert array.shape == (size,)
        assert start % 64 == 0
        assert start + size <= plan.size
        assert array.ctypes.data % 64 == 0


def test_a_place_serves_again():
    assert planned([(640, 0, 1), (640, 2, 1), (640, 4, 0)]).size == 640


def test_a_place_is_shared_by_smaller_ones():
    assert planned([(640, 0, 1), (320, 2, 2), (320, 3, 3)]).size == 640


def test_the_smallest_gap_is_taken():
    spans = [(256, 0, 9), (192, 0, 1), (128, 0, 9), (64, 0, 1), (64, 0, 9), (64, 3, 1)]
    plan = planned(spans)
    assert plan.size == 704
    assert plan.starts[-1] == plan.starts[3]


def test_what_leaves_the_program_is_not_planned():
    def f(x):
        y = ops.tanh(x) * 2 + x
        return y, (y @ x).sum()

    program, _ = recorded(f, np.ones((64, 64)))
    found = plan(program)
    assert not any(v in found.places for v in program.outputs)


def test_results_of_one_call_are_not_changed_by_the_next():
    f = fdbr.jit(lambda x: (x @ x) @ (x @ x + 1))
    x = np.random.default_rng(0).normal(size=(64, 64))
    first = f(x)
    kept = first.copy()
    f(x + 1)
    assert np.array_equal(first, kept)


def test_a_run_that_ends_at_a_decision_gives_its_memory_back():
    @fdbr.jit
    def f(x, flag):
        y = (x @ x) @ (x @ x + 1)
        return y * 2 if flag > 0 else y - 1

    def made(calls):
        """How much memory is asked for that is there at once."""
        tracemalloc.start()
        for flag in (1, -1) * calls:
            f(x, np.float32(flag))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    x = normal(256, 256) / 16
    made(4)
    assert made(4) < 2.5 * x.nbytes  # a result while there is the one before


@pytest.mark.parametrize("turned", [True, False])
def test_what_needs_a_copy_for_another_shape_has_memory_for_it(turned):
    def f(x, w):
        y = (x @ w).reshape(8, 8, 8, 8)
        y = y.transpose(0, 2, 1, 3) if turned else y
        flat = y.reshape(64, 64)  # a copy, if it stands in another order than it lies in
        z = ((x + 1) @ w @ w) * 2
        return z @ w + (x * 3) @ w, flat @ z

    x, w = normal(64, 64), normal(64, 64) / 8
    jitted = assert_as_eager(f, (x, w), (x + 1, w), (x, w), ulps=256)
    (program,) = jitted.programs()
    steps = [s for s in program.steps if isinstance(s, Instruction)]
    found = plan(program).places
    copied = [s for s in steps if s.primitive.name == "reshape" and s.outs[0] in found]
    assert len(copied) == turned


# --- what is joined -----------------------------------------------------------------


def steps_of(x, w, count=5):
    """The states of a loop, each made of the one before."""
    found = []
    for _ in range(count):
        x = ops.tanh(x @ w) * 2 + x
        found.append(x)
    return found


def joined(f, *args):
    """How many results lie where they are joined; what comes out is right."""
    jitted = assert_as_eager(f, *[args] * 3, ulps=256)
    return len(plan(jitted.programs()[0]).inside)


def test_states_of_a_loop_are_made_where_they_are_joined():
    def f(x, w):
        whole = ops.concat(steps_of(x, w))
        return (whole.T @ whole).sum(axis=0)

    assert joined(f, normal(40, 64), normal(64, 64) / 8) == 5


def test_states_of_a_loop_are_made_where_they_are_stacked():
    def f(x, w):
        whole = ops.stack(steps_of(x, w))
        return (whole @ whole.mT).sum(axis=0)

    assert joined(f, normal(40, 64), normal(64, 64) / 8) == 5


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_what_lies_in_another_order_is_copied_as_it_is_stacked(axis):
    def f(x, w):
        a, b, c = steps_of(x, w, 3)
        whole = ops.stack([a.T, b.T, c.T * 2], axis=axis)
        return whole * 2 + whole.reshape(-1)[:1], ops.sum(whole @ whole.mT, axis=0)

    x, w = normal(64, 64), normal(64, 64) / 8
    assert_as_eager(f, (x, w), (x + 1, w), (x, w), ulps=256)


def test_others_are_copied_there():
    def f(x, w):
        whole = ops.concat([x, *steps_of(x, w)])
        return (whole.T @ whole).sum(axis=0)

    assert joined(f, normal(40, 64), normal(64, 64) / 8) == 5


def test_what_is_joined_twice_is_copied_the_second_time():
    def f(x, w):
        states = steps_of(x, w)
        one, other = ops.concat(states), ops.concat(states[::-1])
        return one.T @ other, (other.T @ one)[0]

    assert joined(f, normal(40, 64), normal(64, 64) / 8) == 5


def test_what_is_joined_to_itself_is_copied():
    def f(x, w):
        a, b, *_ = steps_of(x, w)
        whole = ops.concat([a, b, a, a])
        return whole.T @ whole

    joined(f, normal(40, 64), normal(64, 64) / 8)


def test_what_is_joined_of_what_was_joined_is_right():
    def f(x, w):
        a, b, c, d, e = steps_of(x, w)
        first = ops.concat([a, b])
        whole = ops.concat([c, first, d])
        return whole.T @ whole, first.T @ first, (e * a).sum(), whole[10:50] * 2

    joined(f, normal(40, 64), normal(64, 64) / 8)


def test_what_is_read_after_it_was_joined_is_as_it_was():
    def f(x, w):
        states = steps_of(x, w)
        whole = ops.concat(states)
        product = whole.T @ whole
        rest = [ops.exp(state @ product / 1e4) for state in states]
        return sum(rest), states[2] + 1

    joined(f, normal(40, 64), normal(64, 64) / 8)


def test_a_result_that_leaves_is_not_among_them():
    def f(x, w):
        states = steps_of(x, w)
        whole = ops.concat(states)
        return states[1], whole.T @ whole

    jitted = fdbr.jit(f)
    args = normal(40, 64), normal(64, 64) / 8
    first = jitted(*args)
    kept = [np.array(a) for a in first]
    for _ in range(3):
        jitted(args[0] + 1, args[1])
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


def test_parts_with_gaps_are_copied_for_kernels():
    def f(x, w):
        gates = (x @ w).reshape(40, 4, 64)
        a, b, c, d = (gates[:, i] for i in range(4))
        for _ in range(3):
            a = ops.sigmoid(a) * ops.tanh(b) + c * ops.sigmoid(d)
        whole = ops.concat([a, x[:, :64]])
        return whole.T @ whole

    joined(f, normal(40, 80), normal(80, 256) / 8)


def test_a_sequence_model_gives_what_it_gives_without_jit():
    def loss(ws, xs):
        hidden = memory = np.zeros((32, 40), np.float32)
        outs = []
        for x in xs:
            gates = (ops.linear(x, ws[0]) + ops.linear(hidden, ws[1])).reshape(32, 4, 40)
            write, keep, new, show = ops.unstack(gates, axis=1)
            memory = ops.sigmoid(keep) * memory + ops.sigmoid(write) * ops.tanh(new)
            hidden = ops.sigmoid(show) * ops.tanh(memory)
            outs.append(hidden)
        return (ops.linear(ops.concat(outs), ws[2]) ** 2).mean()

    ws = normal(160, 30) / 5, normal(160, 40, seed=1) / 5, normal(50, 40, seed=2) / 5
    args = ws, normal(12, 32, 30, seed=3)
    f = fdbr.value_and_grad(loss)
    jitted = fdbr.jit(f)
    for _ in range(3):
        found = jitted(*args)
    assert len(plan(jitted.programs()[0]).inside) >= 12
    for a, b in zip(fdbr.tree.leaves(found), fdbr.tree.leaves(f(*args)), strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
