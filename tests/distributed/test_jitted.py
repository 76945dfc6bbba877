"""Collectives in programs: every rank makes each call once, in its order, however it runs."""

import threading
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_derivatives import agree, cases, loss, on_ranks, total

import fdbr
from fdbr import distributed as d
from fdbr import ops
from fdbr.compiler.engine import compile
from fdbr.compiler.ir.check import check
from fdbr.distributed import primitives

FEW = settings(max_examples=10, deadline=None)


def ranks(f, size=2):
    return d.run_in_threads(f, size, timeout=10)


@pytest.fixture
def exchanged(monkeypatch):
    """The calls of all ranks, in the order in which each made them."""
    calls = defaultdict(list)

    def noted(call, comm, arrays):
        calls[comm.rank].append(str(call))
        return exchange(call, comm, arrays)

    exchange = primitives.exchange
    monkeypatch.setattr(primitives, "exchange", noted)
    return calls


def _checked(run):
    return lambda program: check(run(program), program)


@pytest.fixture(scope="module", autouse=True)
def checked():
    """Every pass leaves a program that keeps the rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "PASSES", tuple(map(_checked, compile.PASSES)))
        yield


def compiled(f, *args):
    """A jitted function that is compiled after a first call on all ranks."""
    jitted = fdbr.jit(f)
    jitted.compile(*args)
    return jitted


@FEW
@given(cases(), st.booleans())
def test_jitted_gradients_agree_with_those_of_one_process(case, ahead):
    name, root, xs = case

    def derivatives(comm, x):
        gradient = fdbr.grad(loss(name, root, comm))
        known = ahead and name != "scatter"  # of which others do not know what comes
        jitted = compiled(gradient, x) if known else fdbr.jit(gradient)
        for _ in range(3):
            found = jitted(x)
        return found

    agree(on_ranks(derivatives, xs), fdbr.grad(lambda xs: total(name, root, xs))(xs))


@FEW
@given(cases())
def test_derivatives_of_jitted_functions_agree_with_those_of_one_process(case):
    name, root, xs = case

    def derivatives(comm, x):
        jitted = fdbr.jit(loss(name, root, comm))
        jitted(x)
        return fdbr.grad(jitted)(x), fdbr.hvp(jitted, (x,), (x,))

    found = on_ranks(derivatives, xs)
    agree([one for one, _ in found], fdbr.grad(lambda xs: total(name, root, xs))(xs))
    agree([h for _, h in found], fdbr.hvp(lambda xs: total(name, root, xs), (xs,), (xs,)))


def test_ranks_go_together_whether_they_jit_or_not(exchanged):
    def f(comm):
        def step(state, x):
            def cost(w):
                h = d.all_gather(ops.tanh(x * w), comm)
                d.all_reduce(w, comm, "mean")  # nobody uses it
                return ops.sum(d.all_reduce(h, comm, "max") * w[0])

            value, slope = fdbr.value_and_grad(cost)(state)
            return state - 0.1 * d.all_reduce(slope, comm, "mean"), value

        run = step
        if comm.rank == 1:
            run = fdbr.jit(step)
        elif comm.rank == 2:
            run = compiled(step, np.ones(3), np.ones(3))
        state, values = np.ones(3), []
        for i in range(6):
            state, value = run(state, np.arange(3.0) + i + comm.rank)
            values.append(value)
        return state, values

    found = ranks(f, 4)
    agree([state for state, _ in found], [found[0][0]] * 4)
    assert exchanged[0] == exchanged[1] == exchanged[2] == exchanged[3]
    assert len(exchanged[0]) == 6 * 7


def test_decisions_on_what_came_are_taken_anew_without_asking_again(exchanged):
    """Ranks decide differently, and what does not hold any more begins anew."""

    def f(comm):
        asked = []

        @fdbr.jit
        def step(x):
            total = d.all_reduce(x, comm)
            if total * (1 - 2 * comm.rank) > 0:
                y = d.all_reduce(total + 1, comm)
            else:
                y = d.all_reduce(total + 2, comm)
            if y > comm.rank:
                return y + d.all_gather(y, comm)[0]
            return y - d.all_gather(y, comm)[1]

        for i in range(16):
            x = np.float64((-1.0) ** (i // 3) * (1 + i % 4))
            before = len(exchanged[comm.rank])
            found = float(step(x))
            asked.append((found, len(exchanged[comm.rank]) - before))
        assert step.programs()
        return asked

    first, second = ranks(f)
    assert {count for _, count in first + second} == {3}
    for i, ((one, _), (other, _)) in enumerate(zip(first, second, strict=True)):
        total = 2 * (-1.0) ** (i // 3) * (1 + i % 4)
        y = 2 * total + 3
        assert one == (2 * y if y > 0 else 0.0)
        assert other == (2 * y if y > 1 else 0.0)


def test_loops_that_end_by_what_came_are_jitted(exchanged):
    def f(comm):
        @fdbr.jit
        def halved(x):
            iterations = 0
            while d.all_reduce(x, comm, "max") > 1:
                x = x / 2
                iterations += 1
            return x, iterations

        @fdbr.jit
        def loop(x):
            x = fdbr.while_loop(lambda x: d.all_reduce(x, comm) > 1, lambda x: x / 2, x)
            x = fdbr.fori_loop(0, 3, lambda i, x: d.all_reduce(x, comm) + i, x)
            return fdbr.scan(lambda c, _: (d.all_reduce(c, comm), c), x, length=2)

        found = [halved(np.float64(n + comm.rank)) for n in (3, 9, 3, 20, 9, 3) * 3]
        return found, [loop(np.float64(n + comm.rank)) for n in (3, 9, 3, 9, 3, 9)]

    first, second = ranks(f)
    assert [iterations for _, iterations in first[0]] == [2, 4, 2, 5, 4, 2] * 3
    assert [iterations for _, iterations in second[0]] == [2, 4, 2, 5, 4, 2] * 3
    assert exchanged[0] == exchanged[1]
    for one, other in zip(first[1], second[1], strict=True):
        agree(one[:1], other[:1])


def test_a_program_keeps_collectives_that_nobody_reads_and_does_not_share_equal_ones(exchanged):
    def f(comm):
        @fdbr.jit
        def g(x):
            a = d.all_reduce(x, comm)
            b = d.all_reduce(x, comm)
            d.barrier(comm)
            token = d.send(x, comm, to=1 - comm.rank)
            d.gather(np.ones(3), comm)  # of constants
            y = d.receive(x, comm, source=1 - comm.rank, after=token)
            if x[0] > 0:
                return a + b + y
            return a - b + d.after(y, token)

        g.compile(np.ones(3))
        assert len(g.programs()) == 1
        for sign in (1.0, -1.0, 1.0):
            found = g(np.full(3, sign + comm.rank * 1e-3))
        return found

    ranks(f)
    names = [call.partition("(")[0] for call in exchanged[0]]
    assert names == ["all_reduce", "all_reduce", "barrier", "send", "gather", "receive"] * 3
    assert [call.partition("(")[0] for call in exchanged[1]] == names


def test_nothing_communicates_ahead_of_calls_or_in_other_threads(exchanged, monkeypatch):
    threads = set()
    exchange = primitives.exchange

    def noted(call, comm, arrays):
        threads.add(threading.get_ident())
        return exchange(call, comm, arrays)

    monkeypatch.setattr(primitives, "exchange", noted)

    def f(comm):
        def g(x):
            y = d.all_reduce(x, comm)
            return y * d.scatter(np.ones((2, 2)), comm)[0, 0] if y[0] > 0 else y

        jitted = fdbr.jit(g)
        jitted.compile(np.ones(2))
        jitted.report()
        assert not exchanged[comm.rank]
        d.barrier(comm)
        for _ in range(20):
            jitted(np.ones(2))
        return threading.get_ident()

    assert threads == set(ranks(f))
    assert len(exchanged[0]) == len(exchanged[1]) == 1 + 20 * 2


def test_what_is_not_known_without_asking_is_not_compiled_ahead():
    def f(comm):
        @fdbr.jit
        def g(x):
            return d.scatter(x if comm.rank == 0 else None, comm)

        if comm.rank:
            with pytest.raises(RuntimeError, match="in the form of the root's"):
                g.compile(np.ones(4))
        return [g(np.arange(4.0)).tolist() for _ in range(5)]

    assert ranks(f) == [[[0.0, 1.0]] * 5, [[2.0, 3.0]] * 5]


def test_errors_of_collectives_are_raised_once():
    def f(comm):
        @fdbr.jit
        def g(x):
            return d.all_reduce(x, comm) if comm.rank else d.all_gather(x, comm)

        g(np.ones(2))

    with pytest.raises(d.MismatchError, match=r"test_jitted\.py"):
        ranks(f)


def test_vmap_of_jit_and_jit_of_vmap():
    def f(comm):
        one = fdbr.jit(lambda x: d.all_reduce(x, comm) ** 2)
        both = fdbr.jit(fdbr.vmap(lambda x: d.all_gather(x * 2, comm)))
        xs = np.arange(3.0) + comm.rank
        for _ in range(3):
            found = fdbr.vmap(one)(xs), both(xs)
        return found

    for squares, gathered in ranks(f):
        agree([squares], [(2 * np.arange(3.0) + 1) ** 2])
        agree([gathered], [2 * np.stack([np.arange(3.0), np.arange(3.0) + 1], axis=1)])


def test_a_program_that_would_hide_collectives_from_a_derivative_is_not_used():
    def f(comm):
        share = fdbr.jit(lambda x: d.all_reduce(x, comm))
        for _ in range(3):
            share(np.ones(2))
        share.compile(np.ones(2))

        def cost(w):
            y = share(w if comm.rank else np.ones(2))  # of a constant on one of the ranks
            return ops.sum(y * w) if comm.rank == 0 else 0.0

        outer = fdbr.jit(lambda w: w + share(np.ones(2)))
        for i in range(3):
            agree([outer(np.full(2, float(i)))], [np.full(2, i + 2.0)])
        return fdbr.grad(cost)(np.array([3.0, 4.0]))

    first, second = ranks(f)
    np.testing.assert_array_equal(first, [4.0, 5.0])
    np.testing.assert_array_equal(second, [3.0, 4.0])


def test_a_checkpoint_in_a_program_communicates_once(exchanged):
    def f(comm):
        block = fdbr.checkpoint(lambda x: ops.sin(d.all_reduce(ops.sin(x), comm)))
        jitted = fdbr.jit(fdbr.grad(lambda x: ops.sum(block(block(x)))))
        for _ in range(3):
            found = jitted(np.ones(4))
        jitted.compile(np.ones(4))
        return found - jitted(np.ones(4))

    agree(ranks(f), [np.zeros(4)] * 2)
    assert exchanged[0] == exchanged[1] == ["all_reduce(op='sum')"] * 16


def test_who_has_an_extreme_value_is_decided_when_the_ranks_meet():
    """A checkpoint computes again what was compared, by kernels that may have other last bits."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(2, 64))
    among = np.tanh(xs) * np.array([[1.0], [2.0]])

    def f(comm):
        cut = fdbr.checkpoint(lambda x: d.all_reduce(ops.tanh(x) * (1 + comm.rank), comm, op))
        slope = lambda x: fdbr.grad(lambda x: ops.sum(cut(x)))(x)
        derivatives = lambda x: fdbr.jvp(cut, (x,), (np.ones_like(x),))[1]
        twice = lambda x: fdbr.grad(lambda x: ops.sum(derivatives(x)))(x)
        results = []
        for g in (slope, derivatives, twice):
            jitted = fdbr.jit(g)
            results.append([jitted(xs[comm.rank]) for _ in range(3)])
        return results

    for op in ("max", "min"):
        has = among == getattr(among, op)(axis=0)
        one = (1 - np.tanh(xs) ** 2) * np.array([[1.0], [2.0]]) * has
        two = -2 * np.tanh(xs) * one
        for rank, (slope, derivatives, twice) in enumerate(ranks(f)):
            for found in zip(slope, derivatives, twice, strict=True):
                agree(found, [2 * one[rank], one.sum(axis=0), 2 * two[rank]])


def test_every_collective_is_a_step_of_a_program():
    without = {"barrier", "maximum_of_shards"}  # which have no derivative
    assert set(primitives._PRIMITIVES) == set(primitives._TRANSPOSES) | without
