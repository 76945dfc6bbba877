"""A batch whose examples disagree, captured: one program for whoever takes which branch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transforms.test_control_flow import SMOOTH

import fdbr
from compiler.comparing import ULPS, assert_same, optimised, plainly
from fdbr import debug, ops
from fdbr.testing import assert_allclose

FORMS = {
    "values": fdbr.vmap,
    "gradients outside": lambda f: fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x))),
    "gradients inside": lambda f: fdbr.vmap(fdbr.grad(lambda x: ops.sum(f(x)))),
    "tangents": lambda f: lambda x: fdbr.jvp(fdbr.vmap(f), (x,), (np.cos(x),)),
    "second derivatives": lambda f: (
        lambda x: fdbr.hvp(lambda x: ops.sum(fdbr.vmap(f)(x)), (x,), (np.ones_like(x),))
    ),
    "hessians inside": lambda f: fdbr.vmap(fdbr.hessian(lambda x: ops.sum(f(x)))),
    "batches of batches": lambda f: lambda x: fdbr.vmap(fdbr.vmap(f))(x.reshape(2, -1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@given(
    number=st.integers(0, len(SMOOTH) - 1),
    batches=st.lists(
        st.lists(st.floats(-3, 3, width=16), min_size=4, max_size=4), min_size=1, max_size=4
    ),
)
def test_a_program_gives_what_eager_mode_gives_whoever_takes_which_branch(form, number, batches):
    f = FORMS[form](SMOOTH[number])
    jitted = plainly(f)
    for batch in [*batches, batches[0]]:
        batch = np.array(batch)
        with np.errstate(all="ignore"):
            assert_allclose(jitted(batch), f(batch))


def parted(x):
    """A function whose branches can each only be taken by those who take it."""
    if x > 0.5:
        iterations = 0
        while x > 0.5:  # endless for others
            x, iterations = x / 2, iterations + 1
        return ops.sqrt(x) * iterations
    if x > 0:
        return ops.log(x) + 1 / ops.sqrt(x)
    return x * x


@given(st.lists(st.permutations([0.0, 0.25, 0.75, -1.0, 0.7, 0.3]), min_size=2, max_size=6))
def test_one_program_is_enough_for_every_order_of_answers(orders):
    for form in ("values", "gradients outside", "gradients inside", "tangents"):
        f = FORMS[form](parted)
        jitted = optimised(f)
        for order in orders:
            assert_same(jitted(np.array(order)), f(np.array(order)), ULPS)
        report = jitted.report()
        assert len(report.traces) == 1
        assert not report.eager


@pytest.mark.parametrize("size", [2, 16])
def test_an_if_needs_a_program_for_all_for_none_and_for_some(size):
    rng = np.random.default_rng(size)
    f = fdbr.vmap(lambda x: ops.sin(x) * x if x > 0 else ops.exp(-x))
    jitted = plainly(f)
    for shift in np.linspace(-3, 3, 50):
        x = rng.normal(size=size) + shift
        assert_same(jitted(x), f(x), ulps=0)
    assert len(jitted.report().traces) == 3


def test_no_example_is_where_a_branch_would_raise_or_make_nan():
    def f(x, w):
        if x > 0:
            return ops.sqrt(x * w)  # NaN for others, and so would be the slope of w
        if x == 0:
            raise ValueError("zero")
        return w * x

    derivatives = lambda x, w: fdbr.grad(
        lambda x, w: ops.sum(fdbr.vmap(f, (0, None))(x, w)), (0, 1)
    )(x, w)
    jitted = fdbr.jit(derivatives)
    with np.errstate(all="raise"):
        for signs in ([1, -1, 1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1], [-1, -1, -1]):
            x = np.array(signs) * [0.5, 1.0, 2.0]
            assert_same(jitted(x, 2.0), derivatives(x, 2.0))
        with pytest.raises(ValueError, match="zero"):
            jitted(np.array([1.0, -1.0, 0.0]), 2.0)


def test_an_infinite_derivative_is_that_of_its_own_example_alone():
    f = FORMS["gradients outside"](lambda x: ops.sqrt(x) if x >= 0 else -x)
    jitted = plainly(f)
    with np.errstate(all="ignore"):
        for x in ([0.0, -1.0, 2.0], [-1.0, 0.0, -2.0]):
            np.testing.assert_array_equal(jitted(np.array(x)), f(np.array(x)))
    assert len(jitted.report().traces) == 1


def test_examples_that_are_constants_are_divided_with_those_that_are_not():
    flags = np.array([True, False, True, False])

    def f(x, flag):
        if x > 0:
            return x * 2 if flag else x * 3
        return -x if flag else x * x

    batched = lambda x: fdbr.vmap(f)(x, flags)
    jitted = plainly(batched)
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=4)
        assert_same(jitted(x), batched(x), ulps=0)
    assert len(jitted.report().traces) <= 9  # whether both flags are on both sides


def test_effects_of_a_branch_are_had_for_the_examples_that_take_it():
    seen = []

    def f(x):
        if x > 0:
            debug.callback(seen.append, x)
            return x
        return -x

    jitted = fdbr.jit(fdbr.vmap(f))
    for x in ([1.0, -2.0, 3.0], [-1.0, 2.0, 3.0], [1.0, -2.0, 3.0]):
        seen.clear()
        jitted(np.array(x))
        (found,) = seen
        assert found.tolist() == [v for v in x if v > 0]


def test_many_branches_of_a_large_batch_are_not_computed_for_all():
    f = fdbr.vmap(lambda x: x * int(x))
    jitted = plainly(f)
    x = np.arange(400.0)
    assert_same(jitted(x), f(x), ulps=0)
    assert len(jitted.programs()[0].guards[1].answer) == 400


def test_rules_of_custom_functions_follow_the_branch_and_share_weights():
    @fdbr.custom_vjp
    def scaled(x, w):
        return x * w if x > 0 else w - x

    scaled.defvjp(
        lambda x, w: (scaled(x, w), (x, w) if x > 0 else (w, w)),
        lambda kept, ct: (ct * kept[1], ct * kept[0]),
    )
    f = lambda x, w: ops.sum(fdbr.vmap(scaled, (0, None))(x, w))
    for function in (fdbr.grad(f, (0, 1)), fdbr.vmap(fdbr.grad(scaled, (0, 1)), (0, None))):
        jitted = plainly(function)
        for x in ([1.0, -2.0, 3.0], [-1.0, 2.0, 3.0], [-1.0, -2.0, 3.0]):
            assert_same(jitted(np.array(x), 2.0), function(np.array(x), 2.0))
        assert len(jitted.report().traces) == 1


QUESTIONS = {
    "sign": lambda x, c: x > 0,
    "sign of a constant": lambda x, c: c > 0,
    "integer": lambda x, c: int(x) % 2,
    "integer of a constant": lambda x, c: int(c) % 3,
    "both": lambda x, c: x > c,
}


@pytest.mark.parametrize("form", ["one batch", "a batch of batches"])
@given(
    questions=st.lists(st.sampled_from(sorted(QUESTIONS)), min_size=1, max_size=6),
    constants=st.permutations([1.0, 1.0, -2.0, 4.0]) | st.just([2.0] * 4),
    batches=st.lists(
        st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=4), min_size=1, max_size=3
    ),
)
def test_each_question_has_its_own_answer(form, questions, constants, batches):
    """Also where some are about constants."""

    def f(x, c):
        out = x
        for i, question in enumerate(questions):
            out = 2 * out + i if QUESTIONS[question](x + i, c - i) else out / 2 - i
        return out

    several = fdbr.vmap(f) if form == "one batch" else fdbr.vmap(fdbr.vmap(f))
    shape = (4,) if form == "one batch" else (2, 2)
    fixed = np.reshape(constants, shape)
    whole = lambda x: several(x, fixed)
    jitted = plainly(whole)
    for batch in [*batches, batches[0]]:
        x = np.reshape(batch, shape)
        assert_same(jitted(x), whole(x), ulps=0)
