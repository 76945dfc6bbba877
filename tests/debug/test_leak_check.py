"""The leak check finds traced values that outlive their transformation, and no others."""

import inspect

import numpy as np
import pytest
from garbage import set_aside

import fdbr
from fdbr import debug, ops


@pytest.fixture(autouse=True)
def small_world():
    """Objects of other tests need not be searched."""
    set_aside()


def keeping(stash):
    def loss(x):
        y = ops.tanh(x) * 2.0
        stash.append(y)
        return ops.sum(y * y)

    return loss


def test_a_stored_value_is_found_with_its_transformation_function_and_line():
    stash = []
    loss = keeping(stash)
    with pytest.raises(debug.LeakError) as caught, debug.leak_check():
        fdbr.grad(loss)(np.ones(3))
    (leak,) = caught.value.leaks
    assert (leak.transformation, leak.kind) == ("grad", "float64[3]")
    assert leak.function.endswith("loss")
    assert leak.source.line == inspect.getsourcelines(loss)[1] + 1
    assert leak.holders == ("a list of 1",)
    assert "a traced value outlived its transformation" in str(caught.value)
    assert "grad(keeping.<locals>.loss), made at test_leak_check.py" in str(caught.value)
    assert "held by a list of 1" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "thunk"),
    [
        ("vjp", lambda f: fdbr.vjp(f, np.ones(3))),
        ("jvp", lambda f: fdbr.jvp(f, (np.ones(3),), (np.ones(3),))),
        ("vmap", lambda f: fdbr.vmap(f)(np.ones((2, 3)))),
        ("value_and_grad", lambda f: fdbr.value_and_grad(f)(np.ones(3))),
    ],
)
def test_values_of_every_transformation_are_found(name, thunk):
    stash = []
    with debug.leak_check(error=False) as check:
        thunk(keeping(stash))
    assert [leak.transformation for leak in check.leaks] == [name]
    assert check.leaks[0].source is not None


def test_an_argument_that_is_stored_is_found():
    stash = []

    def loss(x):
        stash.append(x)
        return ops.sum(x)

    with debug.leak_check(error=False) as check:
        fdbr.grad(loss)(np.ones(3))
    (leak,) = check.leaks
    assert leak.source is None
    assert "an argument" in str(leak)


def test_what_holds_a_value_is_named():
    class Holder:
        pass

    holder = Holder()
    table = {}

    def loss(x):
        y, z = ops.sin(x), ops.cos(x)
        holder.value = y
        table["z"] = z
        return ops.sum(y * z)

    with debug.leak_check(error=False) as check:
        fdbr.grad(loss)(np.ones(3))
    held = {name for leak in check.leaks for name in leak.holders}
    assert "a dict at 'z'" in held
    assert held & {"a Holder", "a dict at 'value'"}


def test_clean_code_has_no_leaks(xp):
    block = fdbr.checkpoint(lambda x: ops.tanh(x) * x)

    @fdbr.custom_vjp
    def mine(x):
        return ops.exp(x)

    mine.defvjp(lambda x: (ops.exp(x), x), lambda x, ct: (ct * ops.exp(x),))

    def f(x):
        return ops.sum(block(mine(x)) * x)

    x = xp.asarray(np.ones(3))
    with debug.leak_check():
        fdbr.grad(f)(x)
        fdbr.hvp(f, (x,), (x,))
        fdbr.vmap(fdbr.grad(f))(xp.asarray(np.ones((2, 3))))
        fdbr.hessian(f)(x)


def test_a_pullback_that_lives_on_is_no_leak():
    block = fdbr.checkpoint(lambda x: ops.tanh(x) * x)
    with debug.leak_check():
        _, pullback = fdbr.vjp(lambda x: ops.sum(block(x) * x), np.ones(3))
        _, linear = fdbr.linearize(lambda x: ops.sum(block(x) * x), np.ones(3))
    assert pullback(1.0)[0].shape == (3,)
    assert linear(np.ones(3)).shape == ()


def test_values_of_a_transformation_around_the_block_are_no_leaks():
    def loss(x):
        y = ops.tanh(x)
        with debug.leak_check():
            z = ops.exp(y)
            fdbr.grad(lambda u: ops.sum(u * y))(x)
        return ops.sum(z)

    fdbr.grad(loss)(np.ones(3))


def test_leaks_from_before_the_block_do_not_count():
    stash = []
    fdbr.grad(keeping(stash))(np.ones(3))
    with debug.leak_check():
        fdbr.grad(lambda x: ops.sum(x * x))(np.ones(3))


def test_a_value_that_is_dropped_before_the_end_is_no_leak():
    stash = []
    with debug.leak_check():
        fdbr.grad(keeping(stash))(np.ones(3))
        stash.clear()


def test_garbage_is_no_leak():
    def loss(x):
        cycle = [ops.sin(x)]
        cycle.append(cycle)
        return ops.sum(cycle[0])

    with debug.leak_check():
        fdbr.grad(loss)(np.ones(3))


def test_after_an_exception_nothing_is_searched_for():
    stash = []

    def loss(x):
        stash.append(ops.sin(x))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), debug.leak_check():
        fdbr.grad(loss)(np.ones(3))


def test_a_leak_of_an_inner_transformation_is_told_from_the_outer():
    stash = []

    def inner(u):
        y = ops.sin(u)
        stash.append(y)
        return ops.sum(y)

    def outer(x):
        return ops.sum(fdbr.grad(inner)(x) * x)

    with debug.leak_check(error=False) as check:
        fdbr.grad(outer)(np.ones(3))
    assert [leak.function.split(".")[-1] for leak in check.leaks] == ["inner"]
