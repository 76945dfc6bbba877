"""How many kernels a GPU would start, and how often the host would wait for it."""

import numpy as np
import pytest
import shadow

import fdbr
from fdbr import ops

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("count", [1, 5])
def test_a_jitted_function_waits_once_for_all_that_it_uses_from_around_it(count):
    weights = [shadow.asarray(np.full(3, 1.0 + i)) for i in range(count)]

    @fdbr.jit
    def f(x):
        for weight in weights:
            x = x * weight
        return x

    x = shadow.asarray(X)
    for _ in range(4):
        f(x)
    with shadow.counting() as tally:
        out = f(x)
    assert tally.waits <= 1
    assert np.allclose(out.get(), X * np.prod(np.arange(1.0, count + 1)))
    weights[-1] += 1.0
    with pytest.raises(RuntimeError, match="changed"):
        f(x)


def test_a_jitted_function_of_its_arguments_alone_never_waits():
    f = fdbr.jit(fdbr.grad(lambda w, x: ((x @ w) ** 2).sum()))
    w, x = shadow.asarray(X[0]), shadow.asarray(X)
    for _ in range(4):
        f(w, x)
    with shadow.counting() as tally:
        f(w, x)
    assert tally.waits == 0


def test_an_index_array_is_copied_once_for_any_number_of_derivatives():
    x, places = shadow.asarray(X), shadow.asarray(np.array([1, 1, 3]))

    def launches(function):
        with shadow.counting() as tally:
            function()
        return tally.launches

    def once():
        return fdbr.vjp(lambda x: x[places], x)

    def nested():
        return fdbr.vjp(lambda x: fdbr.vjp(lambda x: x[places], x)[0], x)

    assert launches(nested) <= launches(once) + 2  # of x, which each of them keeps an eye on
    _, pullback = once()
    places[0] = 0  # after the forward pass
    assert pullback(shadow.asarray(np.ones((3, 3))))[0].get()[:, 0].tolist() == [0, 2, 0, 1]


def test_evaluation_copies_nothing():
    x, places = shadow.asarray(X), np.array([1, 3])
    with shadow.counting() as tally:
        ops.embed(x, places)
    assert (tally.launches, tally.waits) == (2, 0)  # the indices are brought, and rows are read
