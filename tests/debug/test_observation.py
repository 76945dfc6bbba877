"""Observation changes nothing in the engine, and is seen in its own context alone."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops
from fdbr.compiler import Jitted
from fdbr.compiler.engine import partition
from fdbr.core import primitive as primitives
from fdbr.core import tape
from fdbr.core.observation import hook
from fdbr.ops.declare import elementwise, operation
from fdbr.transforms import checkpoint, custom_rules, jvp, vjp, vmap

BLOCKS = {
    "hook": debug.hook,
    "printing": debug.printing,
    "timer": debug.timer,
    "memory": debug.memory,
    "memory of temporaries": lambda: debug.memory(temporary=True),
    "annotate": debug.annotate,
    "nan_check": debug.nan_check,
    "leak_check": debug.leak_check,
}


OPERATIONS = list(primitives.registry.values())  # those that other tests declare may come and go


def engine():
    """Everything by which the engine works, which observation leaves as it is."""
    rules = [(p.name, p.value, p.forward, p.rules) for p in OPERATIONS]
    modules = (primitives, tape, vjp, jvp, vmap, checkpoint, custom_rules, partition, operation)
    functions = [
        (name, value)
        for module in modules
        for name, value in vars(module).items()
        if callable(value)
    ]
    traces = (tape.ReverseTrace, jvp.ForwardTrace, vmap.BatchTrace)
    methods = [(k.__init__, k.process) for k in traces]
    return rules, functions, methods, Jitted.__call__


UNTOUCHED = engine()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    assert engine() == UNTOUCHED
    assert hook.watch is None


def loss(x):
    return ops.sum(ops.tanh(x) * x)


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_block_changes_nothing_in_the_engine(block, capsys):
    with block():
        assert hook.watch is not None
        assert engine() == UNTOUCHED
        inside = fdbr.grad(loss)(np.ones(3))
    assert hook.watch is None
    assert (inside == fdbr.grad(loss)(np.ones(3))).all()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_an_exception_in_a_block_leaves_nothing_behind(block, capsys):
    def broken(x):
        ops.tanh(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), block():
        fdbr.grad(broken)(np.ones(3))
    assert hook.watch is None


def test_an_exception_in_an_operation_and_in_a_hook_leaves_nothing_behind():
    def refuse(application):
        raise KeyError(application.op)

    with pytest.raises(ValueError, match=r"fdbr\.ops\.add"), debug.timer():
        fdbr.grad(lambda x: ops.sum(x + np.ones(2)))(np.ones(3))
    with pytest.raises(KeyError, match="tanh"), debug.timer(), debug.hook(before=refuse):
        fdbr.grad(loss)(np.ones(3))
    with debug.timer() as times:
        ops.tanh(np.ones(3))
    assert [row.calls for row in times.rows] == [1]


def test_the_hook_is_empty_when_the_last_of_several_blocks_ends():
    with debug.timer():
        with debug.nan_check():
            pass
        assert hook.watch is not None
    assert hook.watch is None


def test_nothing_that_observes_stays_on_a_tape():
    with debug.timer() as times:
        _, pullback = fdbr.vjp(loss, np.ones(3))
    waiting, pulls = [node for node, _ in pullback._ends], []
    while waiting:
        for parent, pull, _ in waiting.pop()[1]:
            waiting.append(parent)
            pulls.append(pull)
    assert pulls
    assert not [pull for pull in pulls if "debug" in getattr(pull, "__module__", "debug")]
    count = sum(row.calls for row in times.rows)
    pullback(1.0)
    assert sum(row.calls for row in times.rows) == count


def test_an_operation_declared_in_a_block_is_observed():
    with debug.timer() as times:

        @elementwise(x=lambda x: 2 * x)
        def squared_for_this_test(xp, x):
            return x * x

        fdbr.jvp(squared_for_this_test, (np.ones(2),), (np.ones(2),))
    primitives.registry.pop("squared_for_this_test")
    assert sorted(row.direction for row in times.rows) == ["forward", "tangent"]


def test_a_trace_that_began_before_the_block_does_not_note_more():
    classes = []

    def f(x):
        with debug.timer():
            y = ops.tanh(x)
            classes.append(type(y._trace))
        return y

    fdbr.grad(f)(1.0)
    assert classes == [tape.ReverseTrace]


def test_another_thread_runs_the_engine_as_it_is():
    classes = []

    def f(x):
        classes.append(type(x._trace))
        return ops.tanh(x)

    with debug.timer():
        fdbr.grad(f)(1.0)
        in_thread(lambda: fdbr.grad(f)(1.0))
    assert classes[0] is not tape.ReverseTrace
    assert classes[1] is tape.ReverseTrace


# --- threads and tasks --------------------------------------------------------------


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_another_thread_is_not_observed():
    with debug.timer() as times, debug.nan_check(), debug.leak_check():
        in_thread(lambda: fdbr.grad(loss)(np.full(3, np.nan)))
        assert times.rows == ()
        in_thread(lambda: contextvars.copy_context().run(fdbr.grad(loss), np.ones(3)))
        assert times.rows == ()


def test_a_thread_that_runs_in_the_context_of_the_block_is_observed():
    with debug.timer() as times:
        context = contextvars.copy_context()
        in_thread(lambda: context.run(fdbr.grad(loss), np.ones(3)))
    assert {row.op for row in times.rows} == {"tanh", "multiply", "sum"}


def test_each_thread_sees_its_own():
    counts = {}
    barrier = threading.Barrier(4)

    def work(n):
        barrier.wait()
        with debug.timer() as times:
            for _ in range(n):
                ops.tanh(np.ones(3))
        counts[n] = sum(row.calls for row in times.rows)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 10, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {n: n for n in (1, 10, 100, 200)}


def test_tasks_do_not_observe_each_other():
    async def count(n):
        with debug.timer() as times:
            for _ in range(n):
                ops.tanh(np.ones(3))
                await asyncio.sleep(0)
        return sum(row.calls for row in times.rows)

    async def all_of_them():
        return await asyncio.gather(*map(count, range(5)))

    assert asyncio.run(all_of_them()) == list(range(5))


def test_a_task_that_outlives_the_block_is_not_observed_any_more():
    async def work(go_on):
        ops.tanh(np.ones(3))
        await go_on.wait()
        ops.exp(np.ones(3))

    async def main():
        go_on = asyncio.Event()
        with debug.timer() as times:
            task = asyncio.create_task(work(go_on))
            await asyncio.sleep(0)
        with debug.timer():  # another block
            go_on.set()
            await task
        return [row.op for row in times.rows]

    assert asyncio.run(main()) == ["tanh"]


def test_a_generator_may_be_closed_in_another_context():
    def steps():
        with debug.timer():
            while True:
                yield ops.tanh(np.ones(3))

    generator = steps()
    contextvars.copy_context().run(next, generator)
    assert hook.watch is not None
    generator.close()
    assert hook.watch is None
