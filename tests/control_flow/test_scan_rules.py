"""A jitted loop is one instruction, whose body is captured once, whatever the number of turns."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from control_flow.programs import TRANSFORMED, by_hand, counted
from fdbr import nn, ops, random
from fdbr.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("compiled_at_once")

W, H = np.array([[0.5, 0.2], [-0.3, 0.4]]), np.array([0.1, -0.2])


def rnn(w, h, xs):
    """The states of a recurrent network."""

    def step(h, x):
        h = np.tanh(w @ h + x)
        return h, h * x

    return fdbr.scan(step, h, xs)


def loss(w, h, xs):
    h, ys = rnn(w, h, xs)
    return ops.sum(h**2) + ops.sum(np.sin(ys))


WHOLE = {
    "value": rnn,
    "gradient": fdbr.grad(loss, (0, 1, 2)),
    "jvp": lambda *args: fdbr.jvp(rnn, args, args),
    "hvp": lambda w, *rest: fdbr.hvp(lambda w: loss(w, *rest), (w,), (w,)),
    "hessian": lambda w, *rest: fdbr.hessian(lambda w: loss(w, *rest))(w),
    "vmap": lambda w, h, xs: fdbr.vmap(rnn, (None, 0, 0))(
        w, np.stack([h, h]), np.stack([xs, xs + 1])
    ),
}


@pytest.mark.parametrize("how", WHOLE)
def test_the_size_of_a_program_does_not_depend_on_the_trip_count(how):
    sizes = set()
    for length in (2, 3, 17):
        f = fdbr.jit(WHOLE[how])
        xs = np.linspace(-1, 1, 2 * length).reshape(length, 2)
        assert_allclose(f(W, H, xs), WHOLE[how](W, H, xs))
        sizes.add(f.report().traces[0].steps[0])
    assert len(sizes) == 1
    assert " = loop(" in str(f.programs()[0])


@pytest.mark.parametrize("length", [1, 2, 50])
@pytest.mark.parametrize("checkpoint", [None, 7])
def test_a_body_is_run_once_whatever_the_trip_count(length, checkpoint):
    runs = []

    def f(h, x):
        runs.append(None)
        return np.tanh(h * x), h

    jitted = fdbr.jit(fdbr.grad(lambda h, xs: fdbr.scan(f, h, xs, checkpoint=checkpoint)[0]))
    for _ in range(3):
        jitted(np.float64(0.5), np.full(length, 1.1))
    left = checkpoint is not None and length > checkpoint  # 50 is no multiple of 7
    assert len(runs) == (2 if left else 1)


def test_decisions_on_values_around_the_loop_are_decisions_of_the_function():
    def f(n, w, xs):
        step = lambda h, x: ((h * w if n > 2 else h + w) + x, None)
        return fdbr.scan(step, np.float64(0.0), xs)[0]

    jitted = fdbr.jit(fdbr.grad(f, 1))
    xs = np.array([1.0, 2.0, 3.0])
    for n in (1, 3, 1, 3):
        assert_allclose(jitted(n, 0.5, xs), fdbr.grad(f, 1)(n, 0.5, xs))
    assert [r.answers for r in jitted.report().traces] == [(True,), (False,)]
    assert not any(r.unrolled for r in jitted.report().traces)


def test_a_loop_whose_body_decides_is_recorded_iteration_by_iteration_and_the_report_says_why():
    def f(xs):
        step = lambda h, x: (h + x if h > 0 else h * x, h)
        return fdbr.scan(step, 0.5, xs)

    jitted = fdbr.jit(f)
    for xs in (np.array([1.0, -3.0, 2.0]), np.array([1.0, 3.0, 2.0])):
        for _ in range(2):
            assert_allclose(jitted(xs), f(xs))
    assert len(jitted.report().traces) == 2
    why = "fdbr.scan is traced iteration by iteration: its body asks for bool()"
    assert why in str(jitted.report())


@pytest.mark.parametrize("what", ["the carry", "what is around"])
def test_effects_in_a_body_are_had_at_every_iteration_of_every_call(what):
    seen = []

    def f(w, xs):
        def step(h, x):
            fdbr.debug.callback(lambda y: seen.append(float(y)), h if what == "the carry" else w)
            return h + x, None

        return fdbr.scan(step, 0.0 * w, xs)[0] * w

    jitted = fdbr.jit(f)
    for count in (1, 2, 3):
        assert jitted(0.5, np.array([1.0, 2.0])) == 1.5
        assert seen == ([0.0, 1.0] if what == "the carry" else [0.5, 0.5]) * count
    assert "its body has a side effect" in str(jitted.report())


def test_stop_gradient_and_stated_derivatives_hold_within_a_body():
    @fdbr.custom_vjp
    def twice(x):
        return 2 * x

    twice.defvjp(lambda x: (2 * x, x), lambda x, ct: (ct * 100,))

    def f(w, xs):
        step = lambda h, x: (fdbr.stop_gradient(h * w) + twice(w * x) * h, None)
        return fdbr.scan(step, np.float64(1.0), xs)[0]

    xs = np.array([0.5, 0.25, 2.0])
    for g in (fdbr.grad(f), fdbr.grad(f, 1), fdbr.grad(fdbr.grad(f))):
        jitted = fdbr.jit(g)
        assert_allclose(jitted(0.7, xs), g(0.7, xs))
        assert_allclose(jitted(0.7, xs), g(0.7, xs))
        assert not jitted.report().traces[0].unrolled


def test_loops_nest():
    def f(w, xs):
        inner = lambda h, x: (np.tanh(w * h + x), h)
        outer = lambda h, row: fdbr.scan(inner, h, row, reverse=True)
        h, ys = fdbr.scan(outer, np.float64(0.1), xs)
        return h + ops.sum(ys**2)

    w, xs = 0.7, np.linspace(-1, 1, 12).reshape(3, 4)
    batched = lambda w, xs: fdbr.vmap(f, (None, 0))(w, np.stack([xs, xs * 2]))
    for g in (f, fdbr.grad(f, (0, 1)), fdbr.grad(fdbr.grad(f)), batched):
        jitted = fdbr.jit(g)
        assert_allclose(jitted(w, xs), g(w, xs))
        assert not jitted.report().traces[0].unrolled


def test_arrays_around_the_loop_are_seen_as_they_are():
    seen = np.array([1.0, 2.0])
    f = fdbr.jit(lambda h, xs: fdbr.scan(lambda h, x: (h * seen + x, seen), h, xs))
    h, xs = np.ones(2), np.ones((2, 2))
    for _ in range(2):
        carry, ys = f(h, xs)
        assert carry.tolist() == [3, 7]
        assert ys.tolist() == [[1, 2], [1, 2]]
    assert seen.flags.writeable
    seen[0] = 5
    with pytest.raises(fdbr.ImpureError):
        f(h, xs)


def test_random_keys_are_carried():
    def f(key, n):
        def step(key, _):
            key, own = random.split(key)
            return key, random.normal(own, (2,))

        return fdbr.scan(step, key, length=4)[1] * n

    key = random.key(3)
    jitted = fdbr.jit(f)
    assert jitted(key, 1.0).tolist() == jitted(key, 1.0).tolist() == f(key, 1.0).tolist()


@settings(max_examples=6)
@given(st.integers(-2, 3), st.integers(-2, 4), st.sampled_from([None, True, 2]))
@pytest.mark.parametrize("how", TRANSFORMED)
def test_a_jitted_fori_loop_gives_what_the_loop_of_python_gives(how, lower, upper, checkpoint):
    loop, fori, args = counted(lower, upper, checkpoint)
    jitted = fdbr.jit(TRANSFORMED[how](fori))
    want = TRANSFORMED[how](loop)(*args)
    for _ in range(2):
        assert_allclose(jitted(*args), want)


def test_numbers_of_python_are_carried_exactly():
    f = fdbr.jit(lambda n: fdbr.fori_loop(1, 26, lambda i, val: val * i, n))
    assert f(1) == f(1) == 15511210043330985984000000
    h = fdbr.jit(fdbr.grad(lambda x: fdbr.fori_loop(0, 3, lambda i, val: val * x + i, x)))
    assert h(2.0) == h(2.0) == 33.0


def test_results_of_a_jitted_loop_are_frozen_and_arguments_stay():
    h, xs = np.ones(2), np.ones((3, 2))
    for step in (lambda c, x: (c, c), lambda c, x: (x, x), lambda c, x: (c + x, c)):
        f = fdbr.jit(lambda h, xs: fdbr.scan(step, h, xs))  # noqa: B023
        for _ in range(3):
            carry, ys = f(h, xs)
            assert not carry.flags.writeable
            assert not ys.flags.writeable
            assert not np.shares_memory(carry, h)
            assert not np.shares_memory(carry, xs)
    assert h.flags.writeable
    assert h.tolist() == [1, 1]


def test_float32_stays(xp):
    xs = xp.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=xp.float32)
    f = lambda xs: fdbr.scan(lambda c, x: (c + x, c), 0.0 * xs[0], xs)
    carry, ys = fdbr.jit(f)(xs)
    want, rows = by_hand(lambda c, x: (c + x, c), 0.0 * xs[0], xs, 2)
    assert carry.dtype == ys.dtype == want.dtype == np.float32
    assert [float(x) for x in carry] == [float(x) for x in want]
    assert type(ys) is type(rows) or not isinstance(ys, np.ndarray)


def test_parameters_of_layers_may_be_used_in_a_body():
    layer = nn.Linear.init(random.key(0), 2, 2)

    def f(layer, xs):
        return ops.sum(fdbr.scan(lambda h, x: (np.tanh(layer(h) + x), None), xs[0], xs)[0])

    xs = np.linspace(-1, 1, 6).reshape(3, 2)
    jitted = fdbr.jit(fdbr.grad(f))
    assert_allclose(jitted(layer, xs), fdbr.grad(f)(layer, xs))


# --- loops that end when a condition says so ----------------------------------------


def halved(w, x, y):
    """Halve until it is small, and count."""
    cond = lambda val: abs(val["x"]) > 0.3
    body = lambda val: {"x": val["x"] * w["w"] / (1 + w["w"] ** 2) - 0.01, "n": val["n"] + 1}
    return fdbr.while_loop(cond, body, {"x": x * y["y"], "n": 0})


@pytest.mark.parametrize(
    "how", sorted(set(TRANSFORMED) - {"vmap over weights", "gradient of a vmap"})
)
@settings(max_examples=4)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=4), st.floats(-2, 2))
def test_a_jitted_while_loop_gives_what_it_gives_without(how, xs, w):
    g = TRANSFORMED[how](halved)
    jitted = fdbr.jit(g)
    for x in xs:
        args = {"w": np.array(w)}, np.array(x), {"y": np.array(1.5)}
        assert_allclose(jitted(*args), g(*args), rtol=1e-8)


ONCE = {
    "value": lambda w, xs: halved({"w": w}, xs[0], {"y": 1.5}),
    "gradient": fdbr.grad(lambda w, xs: halved({"w": w}, xs[0], {"y": 1.5})["x"], (0, 1)),
    "jvp": lambda w, xs: fdbr.jvp(lambda w: halved({"w": w}, xs[0], {"y": 1.5}), (w,), (w,)),
    "vmap": lambda w, xs: fdbr.vmap(lambda x: halved({"w": w}, x, {"y": 1.5}))(xs),
    "vmap of the gradient": lambda w, xs: fdbr.vmap(
        fdbr.grad(lambda w, x: halved({"w": w}, x, {"y": 1.5})["x"], (0, 1)), (None, 0)
    )(w, xs),
    "gradient of a vmap": fdbr.grad(
        lambda w, xs: ops.sum(fdbr.vmap(lambda x: halved({"w": w}, x, {"y": 1.5})["x"])(xs)), (0, 1)
    ),
}


@pytest.mark.parametrize("how", ONCE)
def test_the_trip_count_is_no_guard(how):
    jitted = fdbr.jit(ONCE[how])
    for xs in ([3.0, -8.0, 0.1], [0.1, 0.1, 0.1], [100.0, 1e6, -1.0], [-1.0, 2.0, 0.0]):
        found, want = jitted(0.7, np.array(xs)), ONCE[how](0.7, np.array(xs))
        assert_allclose(found, want, rtol=1e-8)
    (one,) = jitted.report().traces
    assert not one.answers
    assert not one.unrolled


def test_examples_that_have_ended_have_no_part_in_later_iterations():
    # After its last turn, an example's next one would be 0 / 0, and so would its derivative.
    def f(x):
        body = lambda val: (val[0] - 1, np.sqrt(val[0] - 1) / (val[0] - 1) + val[1])
        return fdbr.while_loop(lambda val: val[0] > 1.5, body, (x, 0.0 * x))[1]

    xs = np.array([2.0, 5.0, 1.0, 3.0])
    for g in (
        fdbr.vmap(f),
        fdbr.vmap(fdbr.grad(f)),
        fdbr.grad(lambda xs: ops.sum(fdbr.vmap(f)(xs))),
    ):
        jitted = fdbr.jit(g)
        for _ in range(2):
            assert_allclose(jitted(xs), g(xs))
        assert not jitted.report().traces[0].unrolled


def test_loops_with_and_without_an_end_nest():
    def newton(a):
        far = lambda y: abs(y * y - a) > 1e-10
        return fdbr.while_loop(far, lambda y: (y + a / y) / 2, 1.0 + 0 * a)

    def f(w, xs):
        step = lambda h, x: (newton(h * w + x), h)
        return ops.sum(fdbr.scan(step, np.float64(1.0), xs)[1] ** 2)

    def around(w, xs):
        cond = lambda val: val[1] < 3
        return fdbr.while_loop(cond, lambda val: (f(val[0], xs) / 9, val[1] + 1), (w, 0))[0]

    w, xs = 0.7, np.array([1.0, 2.0, 5.0])
    batched = lambda w, xs: fdbr.vmap(fdbr.grad(f), (None, 0))(w, np.stack([xs, xs * 30]))
    for g in (f, fdbr.grad(f, (0, 1)), batched, around, fdbr.grad(around, (0, 1))):
        jitted = fdbr.jit(g)
        for more in (xs, xs * 3):
            assert_allclose(jitted(w, more), g(w, more), rtol=1e-7)
        assert len(jitted.report().traces) == 1
        assert not jitted.report().traces[0].unrolled
    second = fdbr.grad(fdbr.grad(f))
    assert_allclose(fdbr.jit(second)(w, xs), second(w, xs), rtol=1e-6)


def test_a_body_that_would_fail_does_not_where_there_is_no_iteration():
    body = lambda a: np.linalg.cholesky(a)
    f = lambda a: fdbr.while_loop(lambda a: a[0, 0] > 100, body, a)
    assert fdbr.jit(f)(-np.eye(2)).tolist() == (-np.eye(2)).tolist()
    with pytest.raises(np.linalg.LinAlgError):
        fdbr.jit(lambda a: fdbr.while_loop(lambda a: a[0, 0] < 100, body, a))(-np.eye(2))


def test_a_condition_that_decides_is_recorded_iteration_by_iteration():
    f = lambda x: fdbr.while_loop(lambda v: v > 1 and v < 100, lambda v: v / 2, x)
    jitted = fdbr.jit(f)
    assert [jitted(x) for x in (8.0, 1000.0, 8.0)] == [1.0, 1000.0, 1.0]
    assert "fdbr.while_loop is traced iteration by iteration" in str(jitted.report())


@pytest.mark.parametrize("how", ["value", "gradient"])
def test_loops_give_the_same_bits_in_every_call(how):
    xs = np.linspace(-1, 1, 40).reshape(20, 2)
    f = fdbr.jit(WHOLE[how])
    first = fdbr.tree.leaves(f(W, H, xs))
    for _ in range(30):
        again = fdbr.tree.leaves(f(W, H, xs))
        assert [x.tobytes() for x in again] == [x.tobytes() for x in first]


# --- jitted functions within transformations ---------------------------------------------

AROUND = {
    "grad": lambda f: fdbr.grad(f, (0, 1)),
    "vmap": lambda f: lambda w, xs: fdbr.vmap(f, (None, 0))(w, np.stack([xs, xs + 2])),
    "jvp": lambda f: lambda w, xs: fdbr.jvp(f, (w, xs), (w, xs)),
    "jacrev": lambda f: fdbr.jacrev(f),
    "hessian": lambda f: fdbr.hessian(f),
    "vmap of grad": lambda f: (
        lambda w, xs: fdbr.vmap(fdbr.grad(f), (None, 0))(w, np.stack([xs, xs + 2]))
    ),
    "grad of a jitted gradient": lambda f: fdbr.grad(fdbr.jit(fdbr.grad(f))),
    "jit of grad of jit": lambda f: fdbr.jit(fdbr.grad(f)),
}
INSIDE = {
    "scan": lambda w, xs: ops.sum(
        fdbr.scan(lambda h, x: (np.sin(w * h + x), h * x), 0.0 * w, xs)[1]
    ),
    "while_loop": lambda w, xs: fdbr.while_loop(
        lambda v: v[1] < 5, lambda v: (np.sin(w * v[0] + xs[0]), v[1] + xs[1]), (w, 0.0 * xs[0])
    )[0],
    "fori_loop": lambda w, xs: fdbr.fori_loop(0, 3, lambda i, v: np.sin(v * w + i * xs[i]), w),
}


@pytest.mark.parametrize("how", AROUND)
@pytest.mark.parametrize("loop", INSIDE)
def test_transformations_of_jitted_loops_give_what_they_give_without(loop, how):
    f = INSIDE[loop]
    jitted = AROUND[how](fdbr.jit(f))
    for w, xs in ((0.5, np.array([1.0, 2.0, 3.0])), (0.25, np.array([0.5, 1.0, 4.0]))):
        for _ in range(2):
            assert_allclose(jitted(w, xs), AROUND[how](f)(w, xs))


def test_a_jitted_loop_runs_on_arrays_of_any_module(xp, to_numpy):
    xs = xp.reshape(xp.arange(6.0), (3, 2)) / 6
    scan = lambda xs: fdbr.scan(lambda h, x: (ops.sin(h + x), h), xs[0], xs)[1]
    fori = lambda xs: fdbr.fori_loop(0, 3, lambda i, v: ops.sin(v * i + xs[i]), xs[0])
    for f in (scan, fori):
        g = fdbr.grad(lambda xs: ops.sum(f(xs)))  # noqa: B023
        for one in (f, g):
            assert_allclose(to_numpy(fdbr.jit(one)(xs)), to_numpy(one(xs)))


def test_threads_may_share_a_jitted_loop():
    f = fdbr.jit(fdbr.grad(loss, (0, 1, 2)))
    xs = [np.linspace(-1, 1, 20).reshape(10, 2) * k for k in range(1, 5)]
    want = [fdbr.grad(loss, (0, 1, 2))(W, H, x) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: f(W, H, xs[k % 4]), range(40)))
    for k, one in enumerate(found):
        assert_allclose(one, want[k % 4])


def test_a_carry_may_hold_one_array_twice_and_be_donated():
    def f(state, xs):
        step = lambda c, x: ((c["a"] + x, c["a"] + x), None)
        both = lambda c, x: ({"a": step(c, x)[0][0], "b": step(c, x)[0][0]}, None)
        carry, _ = fdbr.scan(both, state, xs)
        return {"a": carry["a"] * 2 + 1, "b": carry["b"]}

    jitted = fdbr.jit(f, donate_argnums=0)
    xs = np.ones((3, 2))
    for _ in range(3):
        found = jitted({"a": np.zeros(2), "b": np.zeros(2)}, xs)
        assert found["a"].tolist() == [7, 7]
        assert found["b"].tolist() == [3, 3]
