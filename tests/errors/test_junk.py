"""Junk in any parameter of any public function is an error that begins with the function's name."""

import contextlib
import inspect
import signal
import warnings

import numpy as np
import pytest
from errors.junk import calls, functions, is_named, is_of_test, raised_by
from errors.junk import junk as junk_of_arrays
from sharing import shared

import fdbr
from fdbr import nn, ops, random, train, tree

FUNCTIONS = functions()


class HangError(Exception):
    """A call did not return."""


@contextlib.contextmanager
def ending():
    """End a call that hangs, where the system can do so."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(number, frame):
        raise HangError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 120)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", shared(list(FUNCTIONS)))
def test_junk_is_refused_by_name_or_has_a_meaning(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some may be the name of a file
    wrong = []
    with warnings.catch_warnings(), np.errstate(all="ignore"), ending():
        warnings.simplefilter("ignore")
        for what, call in calls(name, FUNCTIONS[name]):
            error = raised_by(call)
            if error is not None and not is_named(name, error) and not is_of_test(error):
                wrong.append(f"{what}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} errors do not begin with {name}:", *wrong[:10]])


def _made():
    """What public functions make that is called in turn, and how its errors may begin."""
    params = {"a": np.ones(2)}
    optimizer = train.optim.adam(1e-3)
    state = optimizer.init(params)
    first = lambda x: tree.leaves(x)[0]
    place = ops.at(np.ones(3))
    return {
        "grad": fdbr.grad(first),
        "value_and_grad": fdbr.value_and_grad(first),
        "jacrev": fdbr.jacrev(first),
        "jacfwd": fdbr.jacfwd(first),
        "hessian": fdbr.hessian(first),
        "vmap": fdbr.vmap(first),
        "vmap of grad": fdbr.vmap(fdbr.grad(first)),
        "jit of grad": fdbr.jit(fdbr.grad(first)),
        "pullback": fdbr.vjp(lambda x: 2 * x, np.ones(3))[1],
        "linearize": fdbr.linearize(lambda x: 2 * x, np.ones(3))[1],
        "unravel": tree.ravel(params)[1],
        "init": optimizer.init,
        "gradients": lambda junk: optimizer.update(junk, state, params),
        "state": lambda junk: optimizer.update(params, junk, params),
        "key": lambda junk: nn.initializers.lecun_normal()(junk, (2, 3)),
        "shape": lambda junk: nn.initializers.orthogonal()(random.key(0), junk),
        "dtype": lambda junk: nn.initializers.ones()(random.key(0), (2, 3), junk),
        "trigger": train.every(epochs=1),
        "place": lambda junk: place[junk].set(1.0),
        "set": place[0].set,
        "add": place[0].add,
        "layer": nn.Linear.init(random.key(0), 3, 2),
    }


@pytest.mark.parametrize("name", _made())
def test_what_functions_return_refuses_junk_by_name(name):
    call, wrong = _made()[name], []
    with warnings.catch_warnings(), np.errstate(all="ignore"), ending():
        warnings.simplefilter("ignore")
        for what, junk in {**junk_of_arrays(), "a class with a dtype": np.float64}.items():
            try:
                call(junk)
            except Exception as error:
                if not str(error).startswith("fdbr.") and not is_of_test(error):
                    wrong.append(f"{what}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong[:10])


def test_an_error_of_the_users_own_function_stays_what_it_is():
    class OwnError(Exception):
        pass

    def broken(*args):
        raise OwnError("mine")

    for call in (
        lambda: fdbr.vjp(broken, 1.0),
        lambda: fdbr.tree.map(broken, [1.0]),
        lambda: fdbr.root(broken, 1.0),
        lambda: fdbr.testing.check_grads(broken, 1.0),
    ):
        with pytest.raises(OwnError, match=r"^mine$"):
            call()


def test_an_error_from_within_tells_what_was_called_and_keeps_its_cause():
    with pytest.raises(TypeError) as caught:
        fdbr.random.normal(fdbr.random.key(0), (2,), "abc")
    assert "'abc' is no dtype" in str(caught.value)
    assert "help(fdbr.random.normal)" in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


def test_functions_keep_their_signatures_docstrings_and_attributes():

    assert list(inspect.signature(fdbr.ops.sum).parameters)[:2] == ["x", "axis"]
    assert fdbr.ops.sum.__doc__.startswith("The sum")
    assert fdbr.ops.sum.__name__ == "sum"
    with pytest.raises(TypeError, match=r"sum\(\) got an unexpected keyword"):
        fdbr.ops.sum(np.ones(2), axes=0)


@pytest.mark.parametrize("value", [None, "abc", {1}, int, object(), [1.0, None], ["a"]])
@pytest.mark.parametrize("name", "asarray sum mean max zeros_like ones_like full_like full".split())
def test_no_array_is_made_of_what_is_no_number(name, value):
    args = {"full": ((2,), value), "full_like": (value, 1)}.get(name, (value,))
    with pytest.raises(TypeError, match=rf"^fdbr\.ops\.{name}: an array can be made from numbers"):
        getattr(fdbr.ops, name)(*args)
