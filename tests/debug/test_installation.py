"""Nothing observes where nobody asked for it: the engine is untouched, before and after."""

import asyncio
import contextvars
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops
from fdbr.compiler.engine import partition
from fdbr.core import primitive as primitives
from fdbr.core import tape
from fdbr.ops.declare import elementwise, operation, user_reductions
from fdbr.ops.nn.recurrent import sequence_rules
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


TRACES = [tape.ReverseTrace, jvp.ForwardTrace, vmap.BatchTrace]


OPERATIONS = list(primitives.registry.values())  # those that other tests declare may come and go


def engine():
    """Everything that observation may replace."""
    rules = [(p.name, p.value, p.forward, p.rules) for p in OPERATIONS]
    places = [
        (vjp.ReverseTrace, vjp.backward, custom_rules.apply, operation.Primitive),
        (partition.ReverseTrace, partition.backward),
        (user_reductions.ReverseTrace, user_reductions.backward),
        (sequence_rules.ReverseTrace, sequence_rules.backward),
        (jvp.ForwardTrace, vmap.BatchTrace, checkpoint.backward, primitives.dispatch),
        (tape.ReverseTrace, tape.ReverseTrace.outputs, tape.backward),
        (primitives.Primitive, primitives.Primitive.__init__, *(trace.process for trace in TRACES)),
    ]
    return rules, places


UNTOUCHED = engine()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    assert engine() == UNTOUCHED


def loss(x):
    return ops.sum(ops.tanh(x) * x)


def test_the_engine_is_its_own_after_import():
    assert vjp.ReverseTrace is tape.ReverseTrace
    assert vjp.backward is checkpoint.backward is tape.backward
    assert operation.Primitive is primitives.Primitive
    for primitive in primitives.registry.values():
        for function in (primitive.value, primitive.forward):
            assert not getattr(function, "__module__", "").startswith("fdbr.debug")


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_block_leaves_nothing_behind(block, capsys):
    with block():
        assert engine() != UNTOUCHED
        inside = fdbr.grad(loss)(np.ones(3))
    assert engine() == UNTOUCHED
    assert (inside == fdbr.grad(loss)(np.ones(3))).all()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_an_exception_in_a_block_leaves_nothing_behind(block, capsys):
    def broken(x):
        ops.tanh(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), block():
        fdbr.grad(broken)(np.ones(3))
    assert engine() == UNTOUCHED


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


def test_the_engine_is_restored_when_the_last_of_several_blocks_ends():
    with debug.timer():
        with debug.nan_check():
            pass
        assert engine() != UNTOUCHED
    assert engine() == UNTOUCHED


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


def test_an_operation_declared_in_a_block_is_observed_and_then_restored():
    with debug.timer() as times:

        @elementwise(x=lambda x: 2 * x)
        def squared_for_this_test(xp, x):
            return x * x

        fdbr.jvp(squared_for_this_test, (np.ones(2),), (np.ones(2),))
    primitive = primitives.registry.pop("squared_for_this_test")
    assert sorted(row.direction for row in times.rows) == ["forward", "tangent"]
    assert primitive.value.__name__ == "squared_for_this_test"
    assert "debug" not in primitive.forward.__module__


def test_every_place_is_known_that_begins_a_trace_or_runs_backward():
    """Observation replaces names in the modules that use them; a new user must be added there."""
    package = Path(fdbr.__file__).parent
    sources = {
        str(path.relative_to(package)): path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if "debug" not in path.parts
    }

    def using(pattern):
        return {name for name, text in sources.items() if re.search(pattern, text)}

    assert using(r"= ReverseTrace\(") == {
        "transforms.py",
        "compiler/partition.py",
        "ops/kinds/combining.py",
        "ops/networks/recurrent/sequence_rules.py",
    }
    assert using(r"= ForwardTrace\(") == {"forward.py"}
    assert using(r"= BatchTrace\(") == {"batching.py"}
    assert using(r"from fdbr\.reverse import [^\n]*(\([^)]*)?\bbackward\b") == {
        "transforms.py",
        "checkpointing.py",
        "compiler/partition.py",
        "ops/kinds/combining.py",
        "ops/networks/recurrent/sequence_rules.py",
    }
    assert using(r"\breverse\.backward\b") == set()
    # Those of averages that go on beside are steps of programs, which have effects and no rules.
    assert using(r"= Primitive\(") == {"distributed/gradients/weights.py", "ops/kinds/operation.py"}


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
        with debug.timer():  # somebody else's
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
    assert engine() != UNTOUCHED
    generator.close()
    assert engine() == UNTOUCHED
