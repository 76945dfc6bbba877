"""`jit` with every other transformation, inside and outside of it."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

import fdbr
from compiler.comparing import assert_as_eager, assert_same
from fdbr import ops
from fdbr.backends.cpu.exec.memory import buffer_assignment

X = np.array([1.0, -2.0, 3.0])
BATCH = np.array([[1.0, -2.0], [0.5, 4.0], [-3.0, 1.0], [2.0, 2.0]])


def smooth(x):
    return (ops.sin(x) * x**2).sum()


def branching(x):
    if x.sum() > 0:
        return (x**3).sum()
    return (ops.exp(x) * 2).sum()


def count(jitted):
    return len(jitted.report().traces)


INSIDE = {
    "grad": fdbr.grad(smooth),
    "value_and_grad": fdbr.value_and_grad(smooth),
    "grad of grad": fdbr.grad(lambda x: (fdbr.grad(smooth)(x) * x).sum()),
    "hessian": fdbr.hessian(smooth),
    "jacrev": fdbr.jacrev(lambda x: ops.tanh(x) * x[0]),
    "jacfwd": fdbr.jacfwd(lambda x: ops.tanh(x) * x[0]),
    "hvp": lambda x: fdbr.hvp(smooth, (x,), (x,)),
    "jvp": lambda x: fdbr.jvp(smooth, (x,), (x,)),
    "linearize": lambda x: fdbr.linearize(smooth, x)[1](x) * 1.0,
    "vjp": lambda x: fdbr.vjp(ops.tanh, x)[1](x * 2),
    "vmap": fdbr.vmap(lambda x: ops.sin(x) * x),
    "vmap of grad": fdbr.vmap(fdbr.grad(lambda x: ops.sin(x) * x**2)),
    "grad of vmap": fdbr.grad(lambda x: fdbr.vmap(lambda y: ops.sin(y) * y)(x).sum()),
    "checkpoint": fdbr.grad(fdbr.checkpoint(smooth)),
    "stop_gradient": fdbr.grad(lambda x: (x * fdbr.stop_gradient(ops.sin(x))).sum()),
    "decisions": fdbr.grad(branching),
    "value and aux": fdbr.value_and_grad(lambda x: (branching(x), {"x": x * 2}), has_aux=True),
}


@pytest.mark.parametrize("f", INSIDE.values(), ids=INSIDE.keys())
def test_transformations_inside(f):
    assert_as_eager(f, (X,), (X + 0.5,), (-X,), (X,), ulps=32)


OUTSIDE = {
    "grad": lambda f: fdbr.grad(f),
    "value_and_grad": lambda f: fdbr.value_and_grad(f),
    "grad of grad": lambda f: fdbr.grad(lambda x: (fdbr.grad(f)(x) * x).sum()),
    "hessian": lambda f: fdbr.hessian(f),
    "hvp": lambda f: lambda x: fdbr.hvp(f, (x,), (x,)),
    "jvp": lambda f: lambda x: fdbr.jvp(f, (x,), (x,)),
    "linearize": lambda f: lambda x: fdbr.linearize(f, x)[1](x),
    "jacrev": lambda f: fdbr.jacrev(f),
    "vjp": lambda f: lambda x: fdbr.vjp(f, x)[1](2.0),
    "vmap": lambda f: lambda x: fdbr.vmap(f)(np.stack([x, -x, 2 * x])),
    "vmap of grad": lambda f: lambda x: fdbr.vmap(fdbr.grad(f))(np.stack([x, -x])),
    "grad of vmap": lambda f: fdbr.grad(lambda x: fdbr.vmap(f)(ops.stack([x, -x])).sum()),
    "jit": lambda f: fdbr.jit(f),
    "jit of grad": lambda f: fdbr.jit(fdbr.grad(f)),
    "jit of vmap": lambda f: fdbr.jit(fdbr.vmap(lambda x, y: f(np.stack([x, y])), (0, None))),
    "checkpoint": lambda f: fdbr.grad(fdbr.checkpoint(f)),
}  # fmt: skip


@pytest.mark.parametrize("f", [smooth, branching])
@pytest.mark.parametrize("around", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_transformations_outside(around, f):
    ours, theirs = around(fdbr.jit(f)), around(f)
    for x in (X, X + 0.5, -X, X):
        args = (x, 2.0) if around is OUTSIDE["jit of vmap"] else (x,)
        assert_same(ours(*args), theirs(*args), ulps=32)


def test_a_batch_that_disagrees_is_divided_in_one_trace_for_whoever_disagrees():
    def f(x):
        return x * 2 if x.sum() > 0 else -x

    g = fdbr.vmap(f)
    jitted = assert_as_eager(g, (BATCH,), (BATCH[::-1],), (BATCH,), (abs(BATCH),))
    assert count(jitted) == 2  # for batches that are divided, and for those that agree


def test_the_loops_of_a_batch_end_one_by_one():
    def f(n):
        steps = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    g = fdbr.vmap(f)
    assert_as_eager(g, (np.array([1, 6, 7]),), (np.array([3, 1, 2]),), (np.array([1, 6, 7]),))


def test_integers_out_of_a_batch_are_one_decision():
    def f(x, n):
        return x[int(n)] * 2

    g = fdbr.vmap(f, in_axes=(None, 0))
    jitted = assert_as_eager(g, (X, np.array([0, 2, 2])), (X, np.array([1, 0, 1.5])), (X, X * 0))
    assert [0, 2] in [kept.answers[0] for kept in jitted.report().traces]


def test_batches_of_batches_disagree():
    def f(x, y):
        return x * y if x > y else x + y

    g = fdbr.vmap(fdbr.vmap(f, in_axes=(None, 0)), in_axes=(0, None))
    h = fdbr.vmap(fdbr.grad(f), in_axes=(0, 0))
    for _ in range(2):
        assert_as_eager(g, (X, 2 * X), (-X, X), (X, 2 * X))
        assert_as_eager(h, (X, 2 * X), (-X, X), (X, X))


def test_jit_in_jit_is_one_program():
    inner = fdbr.jit(lambda x: ops.tanh(x) * 2)
    jitted = assert_as_eager(lambda x: inner(x) + inner(x + 1), (X,), (-X,))
    assert count(inner) == 1  # of the calls in eager mode
    assert str(jitted.programs()[0]).startswith("program")


def test_a_jitted_function_inside_another_may_be_given_nothing_traced():
    inner = fdbr.jit(lambda y: y * 2)
    assert_as_eager(lambda x: x * inner(np.ones(3)) + inner(2.0), (X,), (-X,))


def test_a_jitted_closure_over_traced_values_is_run_as_it_is():
    def f(x):
        return fdbr.jit(lambda y: y * x.sum())(2.0) + fdbr.jit(lambda: x.sum())()

    assert_as_eager(f, (X,), (-X,))
    assert_as_eager(fdbr.grad(f), (X,), (-X,))
    shared = []

    @fdbr.jit
    def inner(y):
        return y * int(shared[-1]) + (y if shared[-1] > 1 else 0.0)

    def g(n):
        shared.append(n)
        try:
            return inner(2.0)
        finally:
            shared.pop()

    jitted = fdbr.jit(g)
    for n in (1, 2, 1, 5):
        assert jitted(n) == g(n)
    assert fdbr.vmap(g)(np.array([1, 2, 3])).tolist() == [g(1), g(2), g(3)]


# --- rules that the user states -----------------------------------------------------


@fdbr.custom_vjp
def straight(x):
    return ops.round(x) if x.sum() > 0 else x


straight.defvjp(lambda x: (ops.round(x), x), lambda x, ct: (ct * (2.0 + 0 * x),))


@fdbr.custom_jvp
def clipped(x):
    return ops.clip(x, -1.0, 1.0)


clipped.defjvp(lambda primals, tangents: (clipped(*primals), 3.0 * tangents[0]))


@pytest.mark.parametrize("f", [straight, clipped], ids=["vjp", "jvp"])
def test_custom_rules_are_those_of_eager_mode(f):
    total = lambda x: (f(x) * x).sum()
    assert_as_eager(f, (X,), (X + 0.3,), (-X,))
    assert_as_eager(fdbr.grad(total), (X,), (X + 0.3,), (-X,))
    assert_as_eager(fdbr.vmap(fdbr.grad(lambda x: (f(x) * x).sum())), (BATCH,), (BATCH + 1,))
    for x in (X, X + 0.3):
        assert_same(fdbr.grad(fdbr.jit(total))(x), fdbr.grad(total)(x))
        assert_same(
            fdbr.grad(lambda x: fdbr.jit(f)(x).sum())(x), fdbr.grad(lambda x: f(x).sum())(x)
        )
        assert_same(fdbr.jvp(fdbr.jit(f), (x,), (x,)), fdbr.jvp(f, (x,), (x,)))


def test_custom_rules_see_traced_values_of_a_transformation_around_a_jitted_function():
    def f(w):
        inner = fdbr.jit(lambda x: straight(x * w).sum())
        return inner(X)

    assert_same(fdbr.grad(f)(2.0), np.float64((2.0 * X).sum()))


# --- memory -------------------------------------------------------------------------


def peak(f, *args):
    f(*args)
    gc.collect()
    tracemalloc.start()
    f(*args)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def planned(jitted):
    """The bytes of the workspace in which a program keeps its results."""
    (program,) = jitted.programs()
    return buffer_assignment.plan(program).size


def deep(block, length):
    def f(x):
        for _ in range(length):
            x = block(x)
        return x.sum()

    return f


def test_checkpoints_save_memory_in_a_trace_too():
    def block(x):
        for _ in range(10):
            x = ops.sin(ops.matmul(x, x) * 1e-3)
        return x

    x = np.ones((64, 64)) / 64
    whole = fdbr.jit(fdbr.grad(deep(block, 10)))
    parts = fdbr.jit(fdbr.grad(deep(fdbr.checkpoint(block), 10)))
    assert_same(parts(x), whole(x))
    assert planned(parts) < 0.5 * planned(whole)


@pytest.mark.unchecked
def test_values_are_let_go_after_their_last_use():
    def f(x):
        for _ in range(30):
            x = ops.matmul(x, x) * 0.5
        return x.sum()

    x = np.eye(128)
    assert peak(fdbr.jit(f), x) < 8 * x.nbytes


def test_a_trace_keeps_no_argument_and_no_result():
    jitted = fdbr.jit(lambda x: ops.tanh(x) * 2)
    x = np.ones(1000)
    out = jitted(x)
    refs = weakref.ref(x), weakref.ref(out)
    del x, out
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_jitted_function_is_freed_with_its_traces():
    def made():
        w = np.ones(1000)
        w.flags.writeable = False
        jitted = fdbr.jit(lambda x: x * w)
        jitted(1.0)
        return weakref.ref(w)

    ref = made()
    gc.collect()
    assert ref() is None


# --- debugging ----------------------------------------------------------------------


def test_what_observes_operations_sees_those_of_a_jitted_function():
    jitted = fdbr.jit(lambda x: ops.log(x) * 2)
    for x in (X, 2 * X):
        jitted(abs(x))
    seen = []
    with fdbr.debug.hook(lambda application: seen.append(application.op)):
        jitted(abs(X))
        fdbr.grad(lambda x: jitted(x).sum())(abs(X))
    assert seen.count("log") >= 2
    with np.errstate(all="ignore"), fdbr.debug.nan_check(), pytest.raises(fdbr.debug.NaNError):
        jitted(X)
    assert jitted.report().traces[0].runs == 1
    assert_same(jitted(abs(X)), np.log(abs(X)) * 2)


def test_a_drawing_of_a_jitted_function_shows_what_it_does():
    jitted = fdbr.jit(lambda x: ops.tanh(x).sum())
    fdbr.grad(jitted)(X)
    assert "tanh" in str(fdbr.debug.draw(jitted, X))
