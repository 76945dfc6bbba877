"""Kernels that join elements as users say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.declared import log_sum, product, variance

import fdbr
from fdbr import ops
from fdbr.backends.cpu.tuning import TUNING
from fdbr.ops.declare import reduction

larger_and_place = reduction(
    lambda x, place: (x, place, x > 1),
    combine=lambda a, b: (
        ops.maximum(a[0], b[0]),
        ops.where((a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), a[1], b[1]),
        np.logical_or(a[2], b[2]),
    ),
)


def compiled(f, *args):
    """What the compiled program gives, and the program."""
    jitted = fdbr.jit(f)
    return jitted(*args), str(jitted.programs()[0])


def check(f, *args):
    found, program = compiled(f, *args)
    leaves, wanted = fdbr.tree.leaves(found), fdbr.tree.leaves(f(*args))
    assert len(leaves) == len(wanted)
    for ours, theirs in zip(leaves, wanted, strict=True):
        assert (type(ours), ours.dtype, ours.shape) == (type(theirs), theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5 if ours.dtype == "f4" else 1e-11)
    return program


SHAPES = st.lists(st.sampled_from((1, 2, 5, 64, 65, 200)), min_size=1, max_size=3).filter(
    lambda shape: np.prod(shape) < 1 << 14
)


@settings(max_examples=25)
@given(SHAPES, st.data(), st.sampled_from(("f4", "f8")), st.booleans())
def test_a_kernel_joins_what_others_make_along_first_last_and_all_axes(shape, data, dtype, parted):
    rank = len(shape)
    number = data.draw(st.integers(1, rank))
    axes = data.draw(st.sampled_from((tuple(range(number)), tuple(range(-number, 0)))))
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        if parted:  # between two threads, however little there is to do
            patch.setattr(TUNING, "program_thread", 0)
            patch.setattr(TUNING, "program_thread", 0)
        for reduce in (log_sum, variance, product):
            program = check(lambda x, f=reduce: 1 + f(ops.tanh(x), axis=axes), x)
            assert program.count("reduce(") == 1
            assert program.index("kernel over") < program.index("reduce(")


def test_the_state_of_a_kernel_has_parts_of_any_dtype_and_those_that_nobody_reads_are_left_out():
    x = np.random.default_rng(1).normal(size=(40, 300)).astype("f4")
    place = np.arange(300, dtype=np.int64)
    for axis in (0, 1, None):
        program = check(lambda x, axis=axis: larger_and_place(x * 2, place, axis=axis), x)
        assert "kernel over (40, 300)" in program
        check(lambda x, axis=axis: larger_and_place(x * 2, place, axis=axis)[1], x)


def test_one_kernel_joins_along_several_axes_and_gives_out_what_it_was_made_of():
    x = np.random.default_rng(2).normal(size=(30, 80))

    def f(x):
        y = ops.tanh(x)
        return y, log_sum(y, axis=0), log_sum(y, axis=1), variance(y)

    assert check(f, x).count("kernel over (30, 80)") == 1
    check(lambda x: (f(x), ops.sum(ops.tanh(x), axis=1), ops.max(x * x)), x)


def test_gradients_go_through_kernels_too():
    x = np.random.default_rng(3).normal(size=(20, 90))
    check(fdbr.grad(lambda x: (log_sum(ops.sin(x), axis=1) ** 2).sum()), x)
    check(fdbr.vmap(fdbr.grad(lambda x: variance(ops.sin(x)))), x)


def test_other_axes_and_functions_that_decide_are_joined_by_numpy():
    x = np.random.default_rng(4).normal(size=(6, 70, 5))
    check(lambda x: log_sum(ops.sin(x), axis=1), x)
    check(lambda x: log_sum(ops.sin(x), axis=(0, 2)), x)
    widest = reduction(lambda x: x, combine=lambda a, b: np.sort(np.stack([a, b]), axis=0)[1])
    np.testing.assert_array_equal(
        compiled(lambda x: widest(x * 2, axis=0), x)[0], 2 * x.max(axis=0)
    )


def test_what_threads_have_put_together_lies_where_the_next_steps_read_it():
    """The steps behind are one sequence, which knows results by where they lie."""
    x = np.random.default_rng(5).normal(size=(400, 50, 70)) / 100
    for reduce in (ops.sum, ops.mean, log_sum):
        for axis in (0, (0, 1)):
            check(lambda x, f=reduce, axis=axis: ops.exp(f(ops.sin(x), axis=axis)) * 2, x)
