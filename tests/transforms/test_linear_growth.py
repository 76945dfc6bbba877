"""What has many operands, outputs or leaves takes work in proportion to their number.

Work is counted in instructions of Python's interpreter, which are the same on every run as long as
no garbage of other tests is collected, and not in time.  Of twice as many there may be twice as
many instructions, and a few.
"""

import gc
import inspect
import itertools
import sys
from unittest import mock

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops, testing, tree
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.passes import optimise
from fdbr.core.primitive import registry
from fdbr.pytrees import locking
from fdbr.train import optim

pytestmark = pytest.mark.usefixtures("two_devices")

FEW, MANY = 30, 60
GROWTH = 2.2


def work(f, *args):
    """How many instructions of Python a call takes."""
    count = 0

    def step(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += 1
        return step

    before = sys.gettrace()
    gc.disable()
    sys.settrace(step)
    try:
        # Whether a call drops the entries of freed arrays depends on the tests before it.
        with mock.patch.object(locking, "_most_locked", sys.maxsize):
            f(*args)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def check_growth(f, make):
    """Check that a function of what ``make`` makes of a number takes work in proportion to it."""
    # What is done once is done.  It is counted, too: from Python 3.13 on, a function's instructions
    # are seen from its second call on, after the first one has asked for them.
    _, few, many = [work(f, make(count)) for count in (FEW + 1, FEW, MANY)]
    assert many <= GROWTH * few + 100, f"{few} instructions for {FEW}, {many} for {MANY}"


# --- operations of many operands ------------------------------------------------------

JOINING = {
    "stack": ops.stack,
    "stack, last axis": lambda xs: ops.stack(xs, axis=-1),
    "concat": ops.concat,
    "concat, last axis": lambda xs: ops.concat([x[None] for x in xs], axis=-1),
    "concat, flattened": lambda xs: ops.concat(xs, axis=None),
    "asarray": lambda xs: ops.asarray([x[0] for x in xs]),
    "asarray of a nest": lambda xs: ops.asarray([[x[0], x[1]] for x in xs]),
    "broadcast_arrays": lambda xs: ops.stack(ops.broadcast_arrays(*xs)),
    "unstack": lambda xs: ops.stack(ops.unstack(ops.stack(xs))[::-1]),
    "multi_dot": lambda xs: ops.linalg.multi_dot([x[:, None] * x for x in xs]),
    "einsum": lambda xs: ops.einsum(",".join("a" * len(xs)) + "->a", *xs),
    "sum of elements": lambda xs: sum(x[0] * x for x in xs),
    "np.stack": np.stack,
    "np.concatenate": np.concatenate,
    "np.hstack": np.hstack,
    "np.vstack": np.vstack,
    "np.dstack": np.dstack,
    "np.column_stack": np.column_stack,
    "np.block": np.block,
    "np.block of a nest": lambda xs: np.block([[x, x] for x in xs]),
    "np.split": lambda xs: np.stack(np.split(np.stack(xs), len(xs))),
    "np.array_split": lambda xs: np.stack(np.array_split(np.stack(xs), len(xs))),
    "np.select": lambda xs: np.select([np.array([i % 2 == 0, True]) for i in range(len(xs))], xs),
    "np.choose": lambda xs: np.choose(np.array([0, 1]), xs[:60]),
    "np.append": lambda xs: np.append(np.stack(xs), xs[0]),
    "checkpoint": lambda xs: ops.stack(fdbr.checkpoint(lambda xs: [ops.sin(x) for x in xs])(xs)),
    "custom_vjp": lambda xs: ops.stack(twice_backward(xs)),
    "custom_jvp": lambda xs: ops.stack(twice_forward(xs)),
}

twice_backward = fdbr.custom_vjp(
    lambda xs: [2 * x for x in xs],
    fwd=lambda xs: ([2 * x for x in xs], None),
    bwd=lambda _, cts: ([2 * ct for ct in cts],),
)
twice_forward = fdbr.custom_jvp(
    lambda xs: [2 * x for x in xs],
    jvp=lambda primals, tangents: ([2 * x for x in primals[0]], [2 * t for t in tangents[0]]),
)


def gradient(f):
    return fdbr.grad(lambda xs: ops.sum(f(xs) ** 2))


TRANSFORMED = {
    "the value": lambda f: f,
    "vjp": lambda f: lambda xs: (lambda out, pull: pull(out))(*fdbr.vjp(f, xs)),
    "jvp": lambda f: lambda xs: fdbr.jvp(f, (xs,), (xs,)),
    "jvp by one": lambda f: lambda xs: fdbr.jvp(lambda x: f([*xs[1:], x]), xs[:1], xs[:1]),
    "grad by one": lambda f: lambda xs: fdbr.grad(lambda x: ops.sum(f([*xs[1:], x])))(xs[0]),
    "grad of grad": lambda f: gradient(lambda xs: ops.stack(gradient(f)(xs))),
    "vmap of grad": lambda f: lambda xs: fdbr.vmap(gradient(f))([np.stack([x, x]) for x in xs]),
    "a trace": lambda f: lambda xs: optimise(capture(lambda xs: gradient(f)(xs), f, xs).program),
}


def vectors(count):
    return [np.array([1.0, 1 + i / count]) for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("transformed", TRANSFORMED.values(), ids=TRANSFORMED)
@pytest.mark.parametrize("joined", JOINING.values(), ids=JOINING)
def test_an_operation_takes_work_in_proportion_to_its_operands(joined, transformed):
    check_growth(transformed(joined), vectors)


def test_every_primitive_of_any_number_of_operands_is_among_those():
    many = {
        name
        for name, primitive in registry.items()
        if any(
            p.kind is p.VAR_POSITIONAL
            for p in inspect.signature(primitive.value).parameters.values()
        )
    }
    of_indices = {
        "gather",
        "scatter",
        "replace",
        "erase",
        "increase",
        "region",
        "last_written",
    }  # one an axis
    of_users = {"on_host", "checked", "reduce"}  # whose work is that of the user's own function
    assert many - of_indices == {"stack", "concat"} | of_users


# --- trees of many leaves -------------------------------------------------------------


TREES = itertools.count()


def leaves(count):
    """A tree of a structure not seen before: what is remembered by structure is not found."""
    tree_number = next(TREES)
    return {f"{tree_number} {i:04}": (np.ones(2), None) for i in range(count)}


def through(f):
    """A sum of what a function of a tree gives."""
    return lambda x: sum(ops.sum(leaf * leaf) for leaf in tree.leaves(f(x)))


def profiled(f, x):
    with debug.memory():
        return f(x)


def sines(x):
    return tree.map(np.sin, x)


def updated(optimizer):
    def update(x):
        updates, _ = optimizer.update(x, optimizer.init(x), x)
        return optim.apply_updates(x, updates)

    return update


WALKS = {
    "flatten": tree.flatten,
    "leaves": tree.leaves,
    "structure": tree.structure,
    "unflatten": lambda x: tree.unflatten(*tree.flatten(x)[::-1]),
    "paths": tree.paths,
    "map": lambda x: tree.map(np.add, x, x),
    "partition and combine": lambda x: tree.combine(*tree.partition(x, lambda leaf: True)),
    "trainable": tree.trainable,
    "replace": lambda x: tree.replace(x, dict.fromkeys(tree.paths(x), 1.0)),
    "size": tree.size,
    "ravel": lambda x: (lambda flat, back: back(flat))(*tree.ravel(x)),
    "grad of ravel": fdbr.grad(lambda x: ops.sum(tree.ravel(x)[0] ** 2)),
    "add": lambda x: tree.add(x, x),
    "dot": fdbr.grad(lambda x: tree.dot(x, x)),
    "norm": fdbr.grad(tree.norm),
    "grad": fdbr.grad(through(lambda x: x)),
    "grad by arguments": lambda x: fdbr.grad(lambda *x: ops.sum(x[0]), range(len(x)))(
        *tree.leaves(x)
    ),
    "vjp": lambda x: fdbr.vjp(lambda x: x, x)[1](x),
    "vjp by arguments": lambda x: fdbr.vjp(lambda *x: x, *tree.leaves(x))[1](tuple(tree.leaves(x))),
    "jvp": lambda x: fdbr.jvp(sines, (x,), (x,)),
    "vmap": fdbr.vmap(sines),
    "linearize": lambda x: fdbr.linearize(sines, x)[1](x),
    "hvp": lambda x: fdbr.hvp(through(sines), (x,), (x,)),
    "checkpoint": fdbr.grad(through(fdbr.checkpoint(sines))),
    "stop_gradient": fdbr.stop_gradient,
    "device_get": fdbr.device_get,
    "a trace": lambda x: optimise(
        capture(lambda xs: [2 * x for x in xs], sines, tree.leaves(x)).program
    ),
    "split": lambda x: fdbr.random.split(fdbr.random.key(0), len(x)),
    "assert_allclose": lambda x: testing.assert_allclose(x, x),
    "a drawing": lambda x: debug.draw(through(sines), x),
    "a profile": lambda x: profiled(fdbr.grad(through(sines)), x),
    "sgd": updated(optim.sgd(0.1)),
    "momentum_sgd": updated(optim.momentum_sgd(0.1)),
    "adam": updated(optim.adam(0.1)),
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_walk_over_a_tree_takes_work_in_proportion_to_its_leaves(walk):
    check_growth(walk, leaves)
