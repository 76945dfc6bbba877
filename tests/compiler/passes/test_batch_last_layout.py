"""Between convolutions arrays have their examples last."""

import numpy as np
import pytest
from compiler.recorded import check, names, recorded

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library.conv.batch_last_layout import lay_batch_last
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.decompose import decompose, expand

generator = np.random.default_rng(0)
x = generator.standard_normal((16, 2, 8, 8))
weight = generator.standard_normal((2, 2, 3, 3))
scale = np.array([0.5, -1.0])


def after(f, *args):
    """The program after the pass, which gives what the program gave."""
    program, leaves = recorded(f, *args)
    turned = lay_batch_last(expand(program))
    check(turned)
    expected = interpret(program, leaves)
    simpler = optimise(turned)
    for found in (
        interpret(turned, leaves),
        interpret(simpler, leaves),
        generate(simpler)(*leaves),
    ):
        for a, b in zip(found, expected, strict=True):
            assert type(a) is type(b)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
            assert a.dtype == b.dtype
    return names(simpler)


def convolved(x, w):
    return ops.conv(x, w, padding=1)


def test_steps_between_convolutions_need_no_other_order():
    def f(x, w):
        for _ in range(3):
            x = ops.tanh(convolved(x, w)) * 2 + x
        return x

    found = after(f, x, weight)
    assert found["conv_last"] == 3
    assert found["put_last"] == 1  # at the beginning
    assert found["permute"] == 1  # at the end


def test_batch_norm_becomes_one_of_whole_rows():
    def f(x, w, scale):
        return ops.sum(ops.batch_norm(convolved(x, w), scale, scale)[0] ** 3)

    program, _ = recorded(fdbr.grad(f, argnums=(0, 1, 2)), x, weight, scale)
    steps = [s for s in lay_batch_last(expand(program)).steps if s.primitive.name == "standardize"]
    assert [step.params["axes"] for step in steps] == [(1, 2, 3)]
    after(fdbr.grad(f, argnums=(0, 1, 2)), x, weight, scale)


def test_a_program_without_convolutions_stays():
    program, _ = recorded(lambda x: ops.max_pool(ops.relu(x), 2), x)
    assert lay_batch_last(program) is program


BROADCAST = {
    "a number": 2.0,
    "one a channel": generator.standard_normal((2, 1, 1)),
    "one a channel, with all axes": generator.standard_normal((1, 2, 1, 1)),
    "one an example": generator.standard_normal((16, 1, 1, 1)),
    "one an example and channel": generator.standard_normal((16, 2, 1, 1)),
    "an image": generator.standard_normal((8, 8)),
    "three axes": generator.standard_normal((2, 8, 8)),
    "a row": generator.standard_normal(8),
    "everything": generator.standard_normal((16, 2, 8, 8)),
}


@pytest.mark.parametrize("name", BROADCAST)
@pytest.mark.parametrize("constant", [False, True])
def test_operands_that_broadcast(name, constant):
    other = BROADCAST[name]
    if constant:
        after(lambda x, w: ops.sum(convolved(x, w) * other - other), x, weight)
    else:
        after(lambda x, w, y: convolved(x, w) * y - y, x, weight, other)


def test_a_result_larger_than_the_convolution():
    after(lambda x, w, y: convolved(x, w)[:1] + y, x, weight, x)
    after(lambda x, w, y: convolved(x[:1], w) * y, x, weight, x)


REDUCTIONS = {
    "sum": lambda x, axis, keep: ops.sum(x, axis=axis, keepdims=keep),
    "mean": lambda x, axis, keep: ops.mean(x, axis=axis, keepdims=keep),
    "max": lambda x, axis, keep: ops.max(x, axis=axis, keepdims=keep),
    "min": lambda x, axis, keep: ops.min(x, axis=axis, keepdims=keep),
    "std": lambda x, axis, keep: ops.std(x, axis=axis, keepdims=keep),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, 3, (0, 2, 3), (2, 3), (0, 1), (1, 2)])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(name, axis, keep):
    def f(x, w):
        return ops.sum(REDUCTIONS[name](convolved(x, w), axis, keep) ** 2)

    after(fdbr.value_and_grad(f, argnums=(0, 1)), x, weight)


def test_steps_that_know_no_other_order():
    def f(x, w):
        y = convolved(x, w)
        flat = ops.reshape(y, (16, -1))
        part = ops.sort(y, axis=1)[:, ::-1] + ops.concat([y[:, :1], y[:, 1:]], axis=1)
        return flat @ flat.T, ops.where(y > 0, part, -y), ops.cumulative_sum(y, axis=2)

    after(f, x, weight)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_other_numbers_of_axes(rank, groups):
    x = generator.standard_normal((8, 4, *(5,) * rank))
    weight = generator.standard_normal((4, 4 // groups, *(3,) * rank))

    def f(x, w):
        y = ops.relu(ops.conv(x, w, stride=2, padding=1, groups=groups))
        return ops.sum(ops.avg_pool(y, 2) ** 2) + ops.sum(ops.max_pool(y, 2) ** 2)

    after(fdbr.value_and_grad(f, argnums=(0, 1)), x, weight)


def test_transposed_convolutions_and_batches_of_networks():
    def f(x, w):
        return ops.sum(ops.conv_transpose(ops.tanh(convolved(x, w)), w, stride=2) ** 2)

    after(fdbr.grad(f, argnums=(0, 1)), x, weight)
    after(fdbr.vmap(fdbr.grad(f, argnums=1), in_axes=(None, 0)), x, np.stack([weight, -weight]))
    after(lambda x, w: fdbr.jvp(fdbr.grad(f), (x, w), (x, w)), x, weight)


def test_decisions_on_what_was_turned():
    def f(x, w):
        y = convolved(x, w)
        return y * 2 if ops.sum(y) > 0 else -y

    after(f, x, weight)


def test_examples_of_a_checkpoint():
    def f(x, w):
        block = fdbr.checkpoint(lambda x: ops.tanh(convolved(x, w)))
        return ops.sum(block(block(x)) ** 2)

    after(fdbr.grad(f, argnums=(0, 1)), x, weight)


def test_compound_steps_are_taken_apart_after_it():
    program, _ = recorded(lambda x, w: ops.batch_norm(convolved(x, w))[0], x, weight)
    assert "standardize" not in names(decompose(lay_batch_last(program)))


def test_memory_that_is_planned_is_not_lost_to_others():
    def f(a, b, w):
        first = ops.reshape(a @ b, (1, 2, 32, 32))
        turned = convolved(first, w)
        second = (a * 2) @ b
        return ops.sum(convolved(first, w) * turned) + ops.sum(second), second[0] * 1

    a, b = generator.standard_normal((32, 5)), generator.standard_normal((5, 64))
    jitted = fdbr.jit(f)
    for _ in range(3):
        for found, expected in zip(jitted(a, b, weight), f(a, b, weight), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)
