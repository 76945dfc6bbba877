"""`while_loop` and `fori_loop` are loops of Python, under every transformation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from control_flow.programs import TRANSFORMED, counted
from fdbr import ops, tree
from fdbr.testing import assert_allclose

FLOATS = st.floats(-3, 3)


def halved(x, w, loop):
    """Halve until it is small, and count."""
    cond = lambda val: abs(val["x"]) > 0.3
    body = lambda val: {"x": val["x"] * w / (1 + w * w) - 0.01, "n": val["n"] + 1}
    return loop(cond, body, {"x": x, "n": 0})


def python_while(cond, body, val):
    while cond(val):
        val = body(val)
    return val


@pytest.mark.parametrize(
    "how", sorted(set(TRANSFORMED) - {"vmap over weights", "gradient of a vmap"})
)
@settings(max_examples=15)
@given(FLOATS, FLOATS, st.sampled_from([None, 1, 3]))
def test_a_while_loop_gives_what_the_loop_of_python_gives(how, w, x, checkpoint):
    transform = TRANSFORMED[how]
    loop = lambda *args: fdbr.while_loop(*args, checkpoint=checkpoint)
    f = lambda loop: lambda w, x, y: halved(x * y["y"], w["w"], loop)
    args = {"w": np.array(w)}, np.array(x), {"y": np.array(1.5)}
    found, want = (transform(f(one))(*args) for one in (loop, python_while))
    assert_allclose(found, want)


@given(st.lists(FLOATS, min_size=1, max_size=6))
def test_each_example_of_a_batch_takes_the_iterations_that_it_takes_alone(xs):
    batch = np.array(xs)
    f = lambda x: halved(x, 0.7, fdbr.while_loop)
    found = fdbr.vmap(f)(batch)
    assert found["n"].tolist() == [f(x)["n"] for x in batch]
    derivatives = fdbr.vmap(fdbr.grad(lambda x: f(x)["x"]))(batch)
    assert_allclose(derivatives, np.array([fdbr.grad(lambda x: f(x)["x"])(x) for x in batch]))


@pytest.mark.parametrize("how", sorted(set(TRANSFORMED) - {"gradient of a vmap"}))
@settings(max_examples=10)
@given(st.integers(-2, 3), st.integers(-2, 4), st.sampled_from([None, True, 2]))
def test_a_fori_loop_gives_what_the_loop_of_python_gives(how, lower, upper, checkpoint):
    loop, fori, args = counted(lower, upper, checkpoint)
    assert_allclose(TRANSFORMED[how](fori)(*args), TRANSFORMED[how](loop)(*args))


def test_integers_of_a_fori_loop_are_weak_and_exact(xp):
    val = fdbr.fori_loop(0, 3, lambda i, val: val * i, xp.ones(2, dtype=xp.float32))
    assert val.dtype == np.float32
    assert fdbr.fori_loop(1, 31, lambda i, val: val * i, 1) == 265252859812191058636308480000000


def test_bounds_of_a_fori_loop_may_be_traced_where_they_are_decided():
    power = lambda n, x: fdbr.fori_loop(0, n, lambda i, val: val * x, 1.0)
    assert fdbr.vmap(power)(np.array([0, 2, 3]), np.array([5.0, 3.0, 2.0])).tolist() == [1, 9, 8]
    assert fdbr.grad(power, 1)(3, 2.0) == 12.0


def test_numbers_of_python_take_the_dtype_of_the_first_iteration():
    x = np.float32(1)
    for checkpoint in (None, 2):
        val = fdbr.while_loop(lambda v: v < 3, lambda v: v + x, 0, checkpoint=checkpoint)
        assert val.dtype == np.float32
        assert val == 3


def test_results_are_frozen():
    init = np.ones(2)
    for most in (0, 3):
        val = fdbr.while_loop(lambda v: v[0] < most, lambda v: v + 1, init)  # noqa: B023
        assert not val.flags.writeable
        assert not fdbr.fori_loop(0, most, lambda i, v: v + 1, init).flags.writeable
    assert init.flags.writeable


REFUSED = {
    "while_loop: cond_fun must return a truth value.*float64": lambda: fdbr.while_loop(
        lambda v: v * 1.0, lambda v: v, np.float64(1)
    ),
    r"while_loop: cond_fun must return .*bool\[2\]": lambda: fdbr.while_loop(
        lambda v: v > 0, lambda v: v, np.ones(2)
    ),
    r"while_loop: body_fun must return .*float64\[\].*float64\[1\]": lambda: fdbr.while_loop(
        lambda v: ops.all(v < 3), lambda v: v + np.ones(1), np.float64(1)
    ),
    "while_loop: body_fun must return .*structure": lambda: fdbr.while_loop(
        lambda v: v[0] < 3, lambda v: v[0] + 1, [1]
    ),
    "fori_loop: .*structure": lambda: fdbr.fori_loop(0, 2, lambda i, v: {"a": v}, 1.0),
    "fori_loop: upper must be an integer": lambda: fdbr.fori_loop(0, 2.5, lambda i, v: v, 1.0),
    "fori_loop: lower must be an integer": lambda: fdbr.fori_loop("a", 2, lambda i, v: v, 1.0),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_loop_is_refused_by_name(text):
    with pytest.raises(TypeError, match=rf"(?s)^fdbr\.{text}"):
        REFUSED[text]()


# --- what is kept for the backward pass ------------------------------------------------


def test_memory_of_segments_is_that_of_their_ends(peak):
    rows, iterations = 4096, 64

    def loss(w, checkpoint):
        step = lambda h, _: (np.tanh(np.sin(np.tanh(h * w))), None)
        init = fdbr.backend.lock(np.ones(rows))
        return ops.sum(fdbr.scan(step, init, length=iterations, checkpoint=checkpoint)[0])

    used = {
        checkpoint: peak(lambda: fdbr.grad(loss)(0.5, checkpoint))  # noqa: B023
        for checkpoint in (None, True)
    }
    array = rows * 8
    assert used[None] > 3 * iterations * array
    assert used[True] < 6 * iterations**0.5 * array


def test_memory_of_segments_of_a_while_loop_is_that_of_their_ends(peak):
    rows, iterations = 4096, 64

    def loss(w, checkpoint):
        body = lambda val: (np.tanh(np.sin(np.tanh(val[0] * w))), val[1] + 1)
        init = fdbr.backend.lock(np.ones(rows)), 0
        cond = lambda val: val[1] < iterations
        return ops.sum(fdbr.while_loop(cond, body, init, checkpoint=checkpoint)[0])

    used = [peak(lambda: fdbr.grad(loss)(0.5, checkpoint)) for checkpoint in (None, 8)]  # noqa: B023
    assert used[0] > 3 * iterations * rows * 8
    assert used[1] < 6 * iterations**0.5 * rows * 8


@pytest.mark.parametrize("checkpoint", [None, 4])
def test_checkpoints_give_the_same_bits(checkpoint):
    w, xs = np.array([0.5, 0.7]), np.linspace(-1, 1, 22).reshape(11, 2)
    step = lambda h, x: (np.tanh(h * w + x), h)
    run = lambda xs, checkpoint: fdbr.scan(step, w, xs, checkpoint=checkpoint)
    slope = lambda checkpoint: fdbr.grad(lambda xs: ops.sum(run(xs, checkpoint)[1] ** 2))(xs)
    assert tree.leaves(run(xs, checkpoint))[1].tobytes() == run(xs, None)[1].tobytes()
    assert slope(checkpoint).tobytes() == slope(None).tobytes()
