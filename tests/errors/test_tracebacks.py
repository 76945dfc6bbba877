"""Tracebacks show the lines of the user, and errors of the user's functions stay what they are."""

import gc
import os
import signal
import traceback
import warnings
import weakref

import numpy as np
import pytest
from errors.junk import calls, functions, is_of_test, raised_by

import fdbr
from fdbr import debug, nn, ops, random, train, tree
from fdbr.errors.checks import recoverable

X = np.ones(3)
KEY = random.key(0)
LAYER = nn.Linear.init(KEY, 4, 8)


def too_long(x):
    return ops.sum(ops.add(x, np.ones(4)))


MISTAKES = {
    "an operation": lambda: ops.add(X, np.ones(4)),
    "an operation of an object": lambda: ops.sin("a"),
    "a view": lambda: ops.reshape(X, 2),
    "a composed operation": lambda: ops.conv(X, X),
    "an unknown keyword": lambda: ops.softmax(X, axes=1),
    "a function within a function": lambda: train.optim.adam("x"),
    "a flag": lambda: nn.GRU((), "yes"),
    "a constructor": lambda: nn.Linear(4, 8),
    "an init": lambda: nn.Conv2d.init(KEY, 0, 1, 1),
    "a transformation": lambda: fdbr.grad(X),
    "a function that is differentiated": lambda: fdbr.grad(too_long)(X),
    "a function that is mapped": lambda: fdbr.vmap(too_long)(np.ones((2, 3))),
    "a function that is checkpointed": lambda: fdbr.checkpoint(too_long)(X),
    "a function of leaves": lambda: tree.map(too_long, [X]),
    "second derivatives": lambda: fdbr.hessian(too_long)(X),
}


def files_of(error):
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_traceback_has_only_lines_of_the_user(name):
    with pytest.raises((TypeError, ValueError)) as caught:
        MISTAKES[name]()
    assert files_of(caught.value) == {__file__}


@pytest.mark.parametrize("kind", ["an object", "an array of strings"])
def test_no_traceback_has_lines_of_generated_code(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, function in functions().items():
            for what, call in calls(name, function):
                if what.endswith(kind) and (error := raised_by(call)) is not None:
                    generated = {file for file in files_of(error) if not os.path.exists(file)}
                    if generated and not is_of_test(error):
                        shown[f"{name}: {what}"] = generated
    assert not shown


def test_a_nested_call_is_named_once():
    with pytest.raises(TypeError) as caught:
        train.optim.adam("x")
    assert str(caught.value).startswith("fdbr.train.optim.adam: the learning rate must be")
    assert str(caught.value).count("fdbr.") == 1


# --- functions of the user ----------------------------------------------------------


def with_rule(f, **rules):
    return fdbr.grad(fdbr.custom_vjp(lambda x: x, **rules))(1.0)


GIVEN = {
    "grad": lambda f: fdbr.grad(f)(X),
    "vjp": lambda f: fdbr.vjp(f, X),
    "jvp": lambda f: fdbr.jvp(f, (X,), (X,)),
    "vmap": lambda f: fdbr.vmap(f)(X),
    "hessian": lambda f: fdbr.hessian(f)(X),
    "hvp": lambda f: fdbr.hvp(f, (X,), (X,)),
    "linearize": lambda f: fdbr.linearize(f, X),
    "checkpoint": lambda f: fdbr.checkpoint(f)(X),
    "grad of checkpoint": lambda f: fdbr.grad(fdbr.checkpoint(f))(X),
    "jit": lambda f: fdbr.jit(f)(X),
    "jit of grad": lambda f: fdbr.jit(fdbr.grad(f))(X),
    "scan": lambda f: fdbr.scan(lambda c, x: f(x), 0.0, X),
    "while_loop": lambda f: fdbr.while_loop(lambda c: True, f, 0.0),
    "tree.map": lambda f: tree.map(f, {"a": X}),
    "tree.map in tree.map": lambda f: tree.map(lambda x: tree.map(f, x), [[X]]),
    "root": lambda f: fdbr.root(f, X),
    "a layer": lambda f: nn.Sequential(nn.Lambda(f))(X),
    "a forward rule": lambda f: with_rule(lambda x: x, fwd=f, bwd=lambda saved, ct: (ct,)),
}


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, RuntimeError, AttributeError])
@pytest.mark.parametrize("name", GIVEN)
def test_an_error_of_a_function_of_the_user_is_the_same_object(name, kind):
    error = kind("mine")

    def broken(*args):
        raise error

    with pytest.raises(kind) as caught:
        GIVEN[name](broken)
    assert caught.value is error
    assert error.args == ("mine",)
    assert error.__cause__ is None
    assert traceback.extract_tb(error.__traceback__)[-1].name == "broken"


def test_an_error_within_a_function_of_the_same_name_keeps_the_lines_of_the_user():
    def inner(x):
        return tree.map(ops.add, {"a": x}, {"b": x})

    with pytest.raises(ValueError, match=r"^fdbr\.tree\.map: ") as caught:
        tree.map(inner, [X])
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "inner"


def test_the_cause_keeps_the_lines_of_fdbr():
    with pytest.raises(TypeError) as caught:
        random.normal(KEY, (2,), "abc")
    assert any("/fdbr/random/" in file for file in files_of(caught.value.__cause__))


def test_an_error_in_the_block_of_a_context_manager_is_not_touched():
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught, debug.nan_check():
        raise error
    assert caught.value is error
    assert error.args == ("mine",)
    with pytest.raises(TypeError, match=r"^fdbr\.debug\.nan_check: inf must be True or False"):
        debug.nan_check(inf="no")


class Interrupting:
    """An operand whose conversion to an array is interrupted."""

    def __array__(self, dtype=None, copy=None):
        raise KeyboardInterrupt


def test_an_interrupted_operation_shows_no_generated_code():
    with pytest.raises(KeyboardInterrupt) as caught:
        ops.sin(Interrupting())
    assert all(os.path.exists(file) for file in files_of(caught.value))


def test_an_error_that_was_handled_keeps_no_operands_alive():
    class Operand:
        pass

    operand = Operand()
    seen = weakref.ref(operand)
    gc.disable()
    try:
        for call in (ops.sin, ops.softmax, random.key, train.optim.adam, fdbr.grad):
            with pytest.raises((TypeError, ValueError)):
                call(operand)
        del operand
        assert seen() is None
    finally:
        gc.enable()


def test_errors_of_signal_handlers_are_not_recovered_from():
    def handler(number, frame):
        raise ValueError("a signal")

    def recovered(error):
        try:
            if error is None:
                signal.raise_signal(signal.SIGINT)
            raise error
        except recoverable() as caught:
            return caught

    error = ValueError("no signal")
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert recovered(error) is error
        with pytest.raises(ValueError, match="a signal"):
            recovered(None)
    finally:
        signal.signal(signal.SIGINT, before)
