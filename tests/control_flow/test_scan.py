"""`scan` is a loop of Python, under every transformation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from control_flow.programs import TRANSFORMED, by_hand, loops
from fdbr import ops, tree
from fdbr.testing import assert_allclose, check_grads

CHECKPOINTS = st.sampled_from([None, True, 1, 2, 7])


@pytest.mark.parametrize("how", TRANSFORMED)
@settings(max_examples=15)
@given(loops(least=1), st.booleans(), CHECKPOINTS, st.sampled_from([1, 2, True]))
def test_a_scan_gives_what_the_loop_of_python_gives(how, program, reverse, checkpoint, unroll):
    f, w, init, xs, length = program
    transform = TRANSFORMED[how]
    options = {"reverse": reverse, "checkpoint": checkpoint, "unroll": unroll}
    scan = lambda w, init, xs: fdbr.scan(f(w), init, xs, **options)
    loop = lambda w, init, xs: by_hand(f(w), init, xs, length, reverse)
    assert_allclose(transform(scan)(w, init, xs), transform(loop)(w, init, xs))


@pytest.mark.parametrize("how", TRANSFORMED)
@settings(max_examples=6)
@given(loops(least=1), st.booleans(), CHECKPOINTS, st.sampled_from([1, 2, True]))
def test_a_jitted_scan_gives_what_the_loop_of_python_gives(
    how, program, reverse, checkpoint, unroll
):
    f, w, init, xs, length = program
    options = {"reverse": reverse, "checkpoint": checkpoint, "unroll": unroll}
    scan = lambda w, init, xs: fdbr.scan(f(w), init, xs, **options)
    loop = lambda w, init, xs: by_hand(f(w), init, xs, length, reverse)
    transform = TRANSFORMED[how]
    jitted = fdbr.jit(transform(scan))
    want = transform(loop)(w, init, xs)
    for _ in range(3):  # captured, replayed, and replayed by a call stub
        assert_allclose(jitted(w, init, xs), want)
    assert len(jitted.report().traces) == 1


@given(loops(), st.booleans(), CHECKPOINTS)
def test_results_have_their_shapes_without_an_iteration_too(program, reverse, checkpoint):
    f, w, init, xs, length = program
    carry, ys = fdbr.scan(f(w), init, xs, reverse=reverse, checkpoint=checkpoint)
    one = tree.map(lambda leaf: np.ones(leaf.shape[1:], leaf.dtype), xs)
    like, y = f(w)(init, one)
    assert tree.structure(carry) == tree.structure(like)
    assert [x.shape for x in tree.leaves(carry)] == [np.shape(x) for x in tree.leaves(like)]
    assert [x.shape for x in tree.leaves(ys)] == [(length, *np.shape(x)) for x in tree.leaves(y)]
    assert [x.dtype for x in tree.leaves(ys)] == [x.dtype for x in tree.leaves(y)]


@given(loops(least=1), st.booleans(), CHECKPOINTS)
@settings(max_examples=10)
def test_derivatives_of_a_scan_are_those_of_differences(program, reverse, checkpoint):
    f, w, init, xs, _ = program
    wide = lambda leaf: leaf.astype(float) if tree.is_inexact(leaf) else leaf
    count = init[2]

    def g(w, free, h, xs):
        carry, ys = fdbr.scan(f(w), (free, h, count), xs, reverse=reverse, checkpoint=checkpoint)
        return carry[:2], {"h": ys["h"], "x": ys["x"]}

    w, free, h, xs = (tree.map(wide, arg) for arg in (w, *init[:2], xs))
    check_grads(g, w, free, h, xs, order=1)


def test_numbers_of_python_take_the_dtype_of_the_first_iteration(xp):
    xs = xp.asarray([1.0, 2.0], dtype=xp.float32)
    carry, ys = fdbr.scan(lambda c, x: (c + x, c), 0.0, xs)
    assert carry.dtype == ys.dtype == np.float32
    carry, ys = fdbr.scan(lambda c, x: (c + x, c), 0, xs, checkpoint=1)
    assert carry.dtype == ys.dtype == np.float32
    assert fdbr.scan(lambda c, _: (c + 1, c), 0, length=3)[0] == 3
    assert fdbr.scan(lambda c, _: (c + 0.5, None), 0, length=3)[0] == 1.5


def test_a_scan_of_arrays_of_any_module_stays_there(xp, to_numpy):
    xs = xp.reshape(xp.arange(6.0), (3, 2))
    step = lambda c, x: (c * 0.5 + x, c)
    for checkpoint in (None, 2):
        g = lambda xs, checkpoint=checkpoint: fdbr.scan(step, xs[0], xs, checkpoint=checkpoint)
        carry, ys = g(xs)
        slope = fdbr.grad(lambda xs: ops.sum(g(xs)[0] ** 2))(xs)  # noqa: B023
        assert type(carry) is type(ys) is type(slope) is type(xs)
        want, rows = by_hand(step, to_numpy(xs)[0], to_numpy(xs), 3)
        assert_allclose(to_numpy(carry), want)
        assert_allclose(to_numpy(ys), rows)


def test_results_are_frozen_and_arguments_stay_free():
    init, xs, seen = np.ones(2), np.ones((3, 2)), np.full(2, 2.0)
    for f in (lambda c, x: (c + x, c), lambda c, x: (x, x), lambda c, x: (seen, seen)):
        for length in (0, 3):
            carry, ys = fdbr.scan(f, init, xs[:length])
            assert not carry.flags.writeable
            assert not ys.flags.writeable
    assert init.flags.writeable
    assert xs.flags.writeable
    assert seen.flags.writeable
    carry, _ = fdbr.scan(lambda c, x: (x, None), init, xs)
    xs[:] = 7
    assert carry.tolist() == [1, 1]


# --- errors -------------------------------------------------------------------------

ONES = np.ones((3, 2))
REFUSED = {
    "no pair": (lambda: fdbr.scan(lambda c, x: c, 0.0, ONES), TypeError, "pair"),
    "a triple": (lambda: fdbr.scan(lambda c, x: (c, x, x), 0.0, ONES), TypeError, "pair"),
    "another structure": (
        lambda: fdbr.scan(lambda c, x: ({"a": x}, x), {"b": ONES[0]}, ONES),
        TypeError,
        "structure",
    ),
    "another shape": (
        lambda: fdbr.scan(lambda c, x: ({"a": c["a"] + x}, x), {"a": np.zeros(())}, ONES),
        TypeError,
        r"\['a'\].*float64\[\].*float64\[2\]",
    ),
    "another dtype": (
        lambda: fdbr.scan(lambda c, x: (c + x, x), np.zeros(2, np.float32), ONES),
        TypeError,
        r"float32\[2\].*float64\[2\]",
    ),
    "lengths that differ": (
        lambda: fdbr.scan(lambda c, x: (c, None), 0.0, {"a": ONES, "b": ONES[:2]}),
        ValueError,
        r"3 of xs\['a'\], 2 of xs\['b'\]",
    ),
    "another length": (
        lambda: fdbr.scan(lambda c, x: (c, None), 0.0, ONES, length=4),
        ValueError,
        "3 of xs, 4 of length",
    ),
    "no length": (lambda: fdbr.scan(lambda c, x: (c, None), 0.0), ValueError, "give length"),
    "a number as xs": (lambda: fdbr.scan(lambda c, x: (c, None), 0.0, 1.0), TypeError, "no rows"),
    "a text in the carry": (
        lambda: fdbr.scan(lambda c, x: (c, None), {"a": "b"}, ONES),
        TypeError,
        r"init at \['a'\]",
    ),
    "y of another structure": (
        lambda: fdbr.scan(lambda c, x: (c + 1, {str(c): x}), 0, ONES),
        TypeError,
        "one structure",
    ),
    "y of another shape": (
        lambda: fdbr.scan(lambda c, x: (c + 1, np.zeros(c)), 0, ONES),
        ValueError,
        "one shape",
    ),
    "a text in y": (lambda: fdbr.scan(lambda c, x: (c, "a"), 0, ONES), TypeError, "stacked"),
    "no length of a segment": (
        lambda: fdbr.scan(lambda c, x: (c, x), 0, ONES, checkpoint=0),
        ValueError,
        "checkpoint",
    ),
    "a negative length": (
        lambda: fdbr.scan(lambda c, x: (c, x), 0, length=-1),
        ValueError,
        "length",
    ),
    "unroll 0": (lambda: fdbr.scan(lambda c, x: (c, x), 0, ONES, unroll=0), ValueError, "unroll"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_scan_is_refused_by_name(what):
    call, kind, text = REFUSED[what]
    with pytest.raises(kind, match=rf"(?s)^fdbr\.scan: .*{text}"):
        call()


def test_an_error_of_the_body_stays_what_it_is():
    def f(carry, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match=r"^'mine'$"):
        fdbr.scan(f, 0.0, ONES)
